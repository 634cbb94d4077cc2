"""Links to clients that carry less than the clients want: each publisher gets its share of such a link, at the broker.

The queue of the link stands at the broker, so no rate has to be told for this, and nobody is asked to obey. A link in
whose queue some packets wait is looked at every interval, until none does. If what waits takes longer than SLOW_FROM it
is *slow*: a message goes out if its publisher's purse can pay for it and the queue has room; else it is withheld, and
both ends are told (`edge_service`). The rate of the purses is that of links between brokers (`link_share`). A link of
which nothing can be measured is never slow; its queue drops when it is full.

A client that keeps the newest gets, at the next look that finds room, the latest message of each publisher that found
none; what it takes the place of is withheld.

A link that was not busy for `expire_after` is slow no longer.

State: for each such link what was measured, a purse for each publisher, and one message each that waits. Bounds:
LINKS_MAX links at a time, others are looked at later; PUBLISHERS_MAX purses of a link, beyond which the others share
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.content.message import Message
from penstock.kernel.link import Link, LinkInfo
from penstock.kernel.packet import Lane
from penstock.kernel.service import NodeView
from penstock.rates.config import RatesConfig
from penstock.rates.link_share import LinkShare
from penstock.rates.meter import THE_REST
from penstock.rates.own_links import QUEUE_PACKETS
from penstock.rates.purse import Purse
from penstock.rates.regulated import publisher_of
from penstock.rates.sharing import HEAD_BYTES

LINKS_MAX, PUBLISHERS_MAX = 1_024, 1_024
SLOW_FROM = 0.25  # seconds
LEAST_SHARE = 0.5  # nobody sends more than we let out, so a queue may empty fast


class Getting(NamedTuple):
    """A message for subscriptions of one client."""

    numbers: tuple[int, ...]
    message: Message
    lane: Lane


class SlowLink:
    """A link that is slow, or looked at because it may be."""

    def __init__(self, share: LinkShare, newest: bool) -> None:
        self.share = share
        self.busy_at: float | None = None  # when it was busy last, if it is slow
        self._newest = newest
        self._purses: dict[str, Purse] = {}
        self._held: dict[str, Getting] = {}  # by publisher

    def admits(self, getting: Getting, room: bool, now: float, *, repair: bool = False) -> tuple[bool, Getting | None]:
        """Whether this goes out now, and what will never go out, if there is any. A repair is never the newest."""
        publisher = publisher_of(getting.message)
        if room and self._pays(publisher, getting, now):
            return True, None if repair else self._held.pop(publisher, None)
        self.share.meter.seen(publisher, now)
        if repair or not self._newest or (publisher not in self._held and len(self._held) >= PUBLISHERS_MAX):
            return False, getting
        before, self._held[publisher] = self._held.pop(publisher, None), getting
        return False, before

    def _pays(self, publisher: str, getting: Getting, now: float) -> bool:
        rate, size_bytes = self.share.fair.rate, HEAD_BYTES + getting.message.size_bytes
        if rate is not None:
            if publisher not in self._purses and len(self._purses) >= PUBLISHERS_MAX:
                self._purses = {name: one for name, one in self._purses.items() if one.tokens(now) < one.depth}
                publisher = publisher if len(self._purses) < PUBLISHERS_MAX else THE_REST
            purse = self._purses.get(publisher)
            if purse is None:
                purse = self._purses[publisher] = Purse(rate, size_bytes, now)
            if not purse.can_pay(now):
                return False
            purse.pay(size_bytes, now)
        self.share.meter.note(publisher, size_bytes, now)
        return True

    def look(self, node: NodeView, link: Link, now: float) -> list[Getting]:
        """Measure the link; returns what waited and goes out."""
        load, meter = node.link_load(link), self.share.meter
        sight = self.share.see(load, now)
        if self.busy_at is None and meter.capacity and load.waiting_bytes > SLOW_FROM * meter.capacity:
            self.busy_at = now
            meter.begin(load, now, blind=False)
        elif sight is not None:
            rate = self.share.fair.update(sight)
            for purse in self._purses.values():
                purse.set_pace(rate, now)
            if self.share.busy:
                self.busy_at = now
        leaving: list[Getting] = []
        for publisher, held in list(self._held.items()):
            size_bytes = HEAD_BYTES + held.message.size_bytes
            if node.has_room(link, held.lane, size_bytes, 0, len(leaving)) and self._pays(publisher, held, now):
                leaving.append(self._held.pop(publisher))
        return leaving

    def left(self) -> list[Getting]:
        """What waits, all of it."""
        return list(self._held.values())


class SlowLinks:
    """Those of one broker."""

    def __init__(self, config: RatesConfig, links: Mapping[Link, LinkInfo], node: NodeView) -> None:
        self.watched: dict[Link, SlowLink] = {}
        self._config = config
        self._links = links
        self._node = node
        self._crowded: dict[Link, None] = {}  # since the last look
        self._newest: dict[Link, None] = {}  # clients that keep the newest

    def crowded(self, link: Link) -> bool:
        """Some packets wait for a link; says whether it must be looked at soon."""
        if link in self.watched or link in self._crowded or len(self.watched) + len(self._crowded) >= LINKS_MAX:
            return False
        self._crowded[link] = None
        return True

    def any_slow(self) -> bool:
        """Whether there is any."""
        return any(one.busy_at is not None for one in self.watched.values())

    def keep_newest(self, link: Link) -> None:
        """The client at this link prefers the newest."""
        self._newest[link] = None

    def find(self, link: Link) -> SlowLink | None:
        """The link, if it is slow."""
        found = self.watched.get(link)
        return found if found is not None and found.busy_at is not None else None

    def look(self, now: float) -> list[tuple[Link, Getting]]:
        """Look at all of them; returns what goes out, and forgets those that are slow no longer, or never were."""
        leaving: list[tuple[Link, Getting]] = []
        for link, watched in list(self.watched.items()):
            some = watched.look(self._node, link, now)
            if self._over(link, watched, now):
                some += watched.left()
                del self.watched[link]
            leaving += [(link, getting) for getting in some]
        for link in self._crowded:
            self.watched[link] = self._begin(link, now)
        self._crowded.clear()
        return leaving

    def _over(self, link: Link, watched: SlowLink, now: float) -> bool:
        if watched.busy_at is None:
            return not self._node.link_load(link).waiting_bytes
        return abs(now - watched.busy_at) > self._config.expire_after

    def _begin(self, link: Link, now: float) -> SlowLink:
        info, load = self._links.get(link), self._node.link_load(link)
        packets = info.queue_packets if info is not None else QUEUE_PACKETS
        share = LinkShare(self._config, packets, load, now, LEAST_SHARE)
        share.meter.begin(load, now, blind=True)  # whose messages wait is of no interest until it is slow
        return SlowLink(share, link in self._newest)

    def capacity(self, link: Link) -> float:
        """Bytes per second that it carries; 0 if it is not slow, or nobody knows."""
        slow = self.find(link)
        return (slow.share.meter.capacity or 0.0) if slow is not None else 0.0

    def rate(self, link: Link) -> float:
        """Bytes per second of it that each publisher gets; 0: any."""
        slow = self.find(link)
        return (slow.share.fair.rate or 0.0) if slow is not None else 0.0

    def link_down(self, link: Link) -> int:
        """The client has gone; returns how many deliveries waited for it."""
        self._crowded.pop(link, None)
        self._newest.pop(link, None)
        gone = self.watched.pop(link, None)
        return sum(len(one.numbers) for one in gone.left()) if gone is not None else 0
