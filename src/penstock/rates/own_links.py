"""A broker's own links: what goes out over them is noted, and they are looked at from time to time.

Follow one copy: `copied` sees it before it goes to a neighbour, notes whose it is (`meter`) and over which link it came
(`upstream`), and holds back what is far over the publisher's rate for long (`policer`). `measure` looks at every link
that carries something, and says which rates are to be told.

Where many copies pass and no link has much to do, nobody notes anything for NAP seconds, or until some link has.

State: that of the parts. Bound: the broker's neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from penstock.content.message import Message
from penstock.kernel.link import Link, LinkInfo
from penstock.kernel.machine import Effect
from penstock.kernel.packet import Lane
from penstock.kernel.service import NodeView
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import dropped_record
from penstock.overlay.broker import Broker, Groups
from penstock.overlay.packets import BrokerId
from penstock.rates.config import RatesConfig
from penstock.rates.rated_link import RatedEgress
from penstock.rates.regulated import group_of, publisher_of, regulated, regulated_lanes
from penstock.rates.sharing import BROKER_BYTES, HEAD_BYTES
from penstock.rates.timers import RatesTimer
from penstock.rates.upstream import Upstream

NAP = 1.0  # seconds
NAP_FROM = 100  # copies within one look: fewer cost nothing worth saving
QUEUE_PACKETS = 1_000  # of a link of which nothing is known


class NewRate(NamedTuple):
    """A link whose rate is to be told."""

    link: Link
    rated: RatedEgress
    rate: float


class OwnLinks:
    """Those of one broker that carry something."""

    def __init__(
        self,
        config: RatesConfig,
        broker: Broker,
        links: Mapping[Link, LinkInfo],
        node: NodeView,
        timers: ServiceTimers,
    ) -> None:
        self.upstream = Upstream()
        self.rated: dict[Link, RatedEgress] = {}
        self._config = config
        self._grouped = config.share_by == "group"
        self._broker = broker
        self._links = links
        self._node = node
        self._timers = timers
        self._lanes = regulated_lanes(node)
        self._versions = count(1)
        self._look_at: float | None = None  # when we look next
        self._noted = 0  # copies, since the last look
        self._nap_until: float | None = None  # while nobody notes anything
        if config.enabled:
            broker.watch = self.copied

    def link_down(self, link: Link) -> None:
        """It carries nothing any more."""
        self.rated.pop(link, None)
        self.upstream.link_down(link)

    def copied(
        self,
        message: Message,
        lane: Lane,
        destinations: tuple[BrokerId, ...],
        groups: Groups,
        source: Link,
        effects: list[Effect],
        now: float,
    ) -> Groups:
        """Copies go out to neighbours; returns those that may."""
        if not regulated(message, lane, self._lanes):
            return groups
        self._noted += 1
        if self._look_at is not None and self._look_at > now + self._config.interval:  # the clock was set back
            self._look_soon(now)
        self.upstream.note(source, destinations, now)
        publisher = publisher_of(message)
        if self._grouped:
            publisher = group_of(publisher)
        over: list[Link] = []
        for (link,), group in groups:
            rated = self.rated.get(link) or self._begin(link, now)
            if not rated.note(publisher, HEAD_BYTES + BROKER_BYTES * len(group) + message.size_bytes, now):
                over.append(link)
                name = self._links[link].peer if link in self._links else ""
                effects.append(
                    dropped_record("egress", "over its rate", name, lane, "Publication", message, len(group))
                )
        return [(to, group) for to, group in groups if to[0] not in over] if over else groups

    def measure(self, now: float) -> list[NewRate]:
        """Look at all links that carry something; returns the rates of busy ones that are to be told."""
        found = []
        if self._nap_until is None:
            for link in [link for link, rated in self.rated.items() if self._idle(link, rated, now)]:
                del self.rated[link]
        for link, rated in self.rated.items():
            rate = rated.look(self._node.link_load(link), now)
            if rate is not None:
                found.append(NewRate(link, rated, rate))
        self._nap(now)
        self._look_at = None
        if self.rated:
            self._look_soon(now)
        return found

    def _idle(self, link: Link, rated: RatedEgress, now: float) -> bool:
        return rated.share.meter.idle(now) and not self._node.link_load(link).waiting_bytes

    def _look_soon(self, now: float) -> None:
        self._look_at = now + self._config.interval
        self._timers.set(RatesTimer.MEASURE, self._look_at)

    def _begin(self, link: Link, now: float) -> RatedEgress:
        """It carries something from now on."""
        info = self._links.get(link)
        packets = info.queue_packets if info is not None else QUEUE_PACKETS
        rated = self.rated[link] = RatedEgress(self._config, packets, self._node.link_load(link), now, self._versions)
        if self._look_at is None:
            self._look_soon(now)
        return rated

    def _nap(self, now: float) -> None:
        """Whether copies are noted until the next look."""
        quiet = all(rated.quiet(now) for rated in self.rated.values())
        noted, self._noted = self._noted, 0
        if self._nap_until is None and quiet and noted >= NAP_FROM:
            self._nap_until = now + NAP
            self._broker.watch = None
        elif self._nap_until is not None and not (quiet and self._nap_until - NAP <= now < self._nap_until):
            self._nap_until = None
            self._broker.watch = self.copied
        else:
            return
        for link, rated in self.rated.items():
            rated.share.meter.begin(self._node.link_load(link), now, blind=self._nap_until is not None)
