"""Slow clients of a broker: who reads slowly (`edge`), and whose link is slow (`slow_links`); and the books of both.

A message for a client goes first to those of its subscriptions that keep up, and then only if the link has room for it.

State: that of the parts, counts since the last records, and those of the last minute. Bounds: the subscriptions of the
clients; KEYS_MAX pairs of reader and publisher that are told apart, COUNTS_MAX messages of a pair that are told one by
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import NamedTuple

from penstock.content.envelope import DATA, FLAG
from penstock.content.message import Message
from penstock.kernel.link import Link, LinkInfo
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.service import NodeView
from penstock.kernel.timers import ServiceTimers
from penstock.overlay.broker import Broker
from penstock.overlay.packets import Delivery
from penstock.rates.config import RatesConfig
from penstock.rates.edge import ReaderKey, SlowReaders
from penstock.rates.packets import ReaderRate
from penstock.rates.regulated import regulated, regulated_lanes
from penstock.rates.sharing import HEAD_BYTES
from penstock.rates.slow_links import Getting, SlowLink, SlowLinks
from penstock.rates.status import RatedLink, SlowReaderReport
from penstock.rates.telling import SEVERAL, ReaderWithheld
from penstock.rates.timers import RatesTimer
from penstock.rates.withheld import REPORTED_FOR, WithheldCount

KEYS_MAX = 4_096
COUNTS_MAX = 1_000
SOON = -inf  # at once, whatever time it is


class _Withheld(NamedTuple):
    reader: ReaderKey
    publisher: str
    by_link: bool  # whether its link had no room; else it reads slowly


class EdgeService:
    """All slow clients of one broker."""

    def __init__(
        self,
        config: RatesConfig,
        broker: Broker,
        links: Mapping[Link, LinkInfo],
        node: NodeView,
        timers: ServiceTimers,
    ) -> None:
        self.withheld = 0  # in all
        self._interval = config.interval
        self._slow = SlowLinks(config, links, node)
        self._edge = SlowReaders(config.expire_after)
        self._broker = broker
        self._node = node
        self._timers = timers
        self._lanes = regulated_lanes(node)
        self._untold: dict[_Withheld, WithheldCount] = {}
        self._lately: dict[ReaderKey, WithheldCount] = {}  # in the last minute
        if config.enabled:
            node.watch_crowded(self._crowded)

    def told(self, packet: ReaderRate, sender: Link, now: float) -> list[Effect]:
        """A client says how fast it reads; of subscriptions that it does not have, nothing follows."""
        client = self._broker.attached(sender)
        if client is None or packet.subscription not in client.keys or not isfinite(packet.rate):
            return []
        reader = ReaderKey(sender, packet.subscription)
        leaving = self._edge.tell(reader, packet.rate, packet.newest, now)
        self._watch()
        return [] if leaving is None else [_delivery(reader, *leaving)]

    def expired(self, reader: ReaderKey, now: float) -> list[Effect]:
        """What waited for a reader may leave."""
        leaving = self._edge.serve(reader, now)
        self._arm(reader, now)
        return [] if leaving is None else [_delivery(reader, *leaving)]

    def link_down(self, link: Link) -> None:
        """A client has gone; what waited for it has not reached it."""
        self.withheld += self._edge.link_down(link) + self._slow.link_down(link)
        self._untold = {key: count for key, count in self._untold.items() if key.reader.link != link}

    def expire(self, now: float) -> list[Effect]:
        """What waited for readers that are slow no longer."""
        effects: list[Effect] = [_delivery(reader, *held) for reader, held in self._edge.expire(now)]
        self._watch()
        return effects

    # Links.

    def keep_newest(self, link: Link) -> None:
        """The client at this link prefers the newest of what its link has no room for."""
        self._slow.keep_newest(link)

    def look(self, now: float) -> list[Effect]:
        """Look at the slow links; what waited for them may leave."""
        leaving = self._slow.look(now)
        if self._slow.watched:
            self._timers.set(RatesTimer.LOOK, now + self._interval)
        self._watch()
        return [Send((link,), Delivery(*getting), getting.lane) for link, getting in leaving]

    def slow_links(self) -> dict[str, RatedLink]:
        """For reports, by client."""
        found = {}
        for link, slow in self._slow.watched.items():
            client, said = self._broker.attached(link), slow.share.status()
            if client is not None and said is not None:
                found[client.name] = said
        return found

    def _crowded(self, link: Link) -> None:
        if self._slow.crowded(link):
            self._timers.set(RatesTimer.LOOK, SOON)

    def _watch(self) -> None:
        """See deliveries while anybody is slow."""
        self._broker.at_edge = self._getting if len(self._edge) or self._slow.any_slow() else None

    # The books.

    def take(self, may_tell: Callable[[Link, float], bool], now: float) -> list[ReaderWithheld]:
        """What was withheld since the last time, from clients that are still here and may be told now.

        Who is behind a link that is slow no longer always may.
        """
        untold, self._untold = self._untold, {}
        found = []
        for key, count in untold.items():
            reader = key.reader
            client = self._broker.attached(reader.link)
            if client is None:
                continue
            if self._slow.find(reader.link) is not None and not may_tell(reader.link, now):
                self._untold[key] = count
                continue
            rate = self._slow.rate(reader.link) if key.by_link else self._edge.rate(reader)
            capacity = self._slow.capacity(reader.link)
            found.append(ReaderWithheld(*reader, client.name, key.publisher, rate, count, key.by_link, capacity))
            known = self._lately.pop(reader, None)
            if known is None or now - known.last > REPORTED_FOR:
                known = WithheldCount(count.since)
            known.add(count.messages, count.size_bytes, now)
            self._lately[reader] = known
        while len(self._lately) > KEYS_MAX:
            del self._lately[next(iter(self._lately))]
        return found

    def lately(self, now: float) -> list[SlowReaderReport]:
        """From whom something was withheld in the last minute, most first."""
        found = []
        for reader, count in self._lately.items():
            client = self._broker.attached(reader.link)
            if client is not None and now - count.last <= REPORTED_FOR:
                rate = self._edge.rate(reader)
                found.append(SlowReaderReport(client.name, reader.subscription, rate, count.messages))
        return sorted(found, key=lambda one: (-one.messages, one.client, one.subscription))

    def __bool__(self) -> bool:
        return bool(self._untold) or len(self._edge) > 0

    def _getting(
        self, link: Link, numbers: tuple[int, ...], message: Message, lane: Lane, now: float
    ) -> tuple[int, ...]:
        """Those of a client's subscriptions that get this message now."""
        if not regulated(message, lane, self._lanes):
            return numbers
        repair = message.attributes.get(FLAG, DATA) != DATA
        reading = numbers if repair else self._read(link, numbers, message, lane, now)
        slow = self._slow.find(link)
        if slow is None or not reading:
            return reading
        return self._fitting(link, slow, Getting(reading, message, lane), repair, now)

    def _fitting(self, link: Link, slow: SlowLink, getting: Getting, repair: bool, now: float) -> tuple[int, ...]:
        """Those that get it over a slow link: all or none. A repair that does not fit is not counted again."""
        room = self._node.has_room(link, getting.lane, HEAD_BYTES + getting.message.size_bytes)
        goes, lost = slow.admits(getting, room, now, repair=repair)
        if lost is not None and not repair:
            for number in lost.numbers:
                self._withheld(ReaderKey(link, number), lost.message, now, by_link=True)
        return getting.numbers if goes else ()

    def _read(self, link: Link, numbers: tuple[int, ...], message: Message, lane: Lane, now: float) -> tuple[int, ...]:
        """Those whose readers take it now."""
        if not len(self._edge):
            return numbers
        getting = []
        for number in numbers:
            reader = ReaderKey(link, number)
            gets, lost = self._edge.admits(reader, message, lane, now)
            if gets:
                getting.append(number)
            else:
                self._arm(reader, now)
            if lost is not None:  # also when a later one goes before it
                self._withheld(reader, lost, now)
        return tuple(getting)

    def _withheld(self, reader: ReaderKey, message: Message, now: float, *, by_link: bool = False) -> None:
        publisher = message.identity.publisher
        count = self._untold.get(_Withheld(reader, publisher, by_link))
        if count is None:
            if len(self._untold) >= KEYS_MAX:
                publisher = SEVERAL
            count = self._untold.setdefault(_Withheld(reader, publisher, by_link), WithheldCount(now))
        count.add(1, message.size_bytes, now)
        if FLAG in message.attributes and publisher and len(count.counts) < COUNTS_MAX:
            count.note(message.identity)
        self.withheld += 1
        self._node.delivery_lost(*reader)

    def _arm(self, reader: ReaderKey, now: float) -> None:
        at = self._edge.ready_at(reader)
        if at is not None:
            self._timers.set(RatesTimer.READ, max(now, at), *reader)


def _delivery(reader: ReaderKey, message: Message, lane: Lane) -> Send:
    return Send((reader.link,), Delivery((reader.subscription,), message, lane), lane)
