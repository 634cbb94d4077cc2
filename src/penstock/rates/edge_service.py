"""The broker's side of slow readers: packets, deliveries and timers of `edge`, and the books of what was withheld.

State: that of `edge`, counts since the last records, and those of the last minute. Bounds: the subscriptions of the
clients; KEYS_MAX pairs of reader and publisher that are told apart, COUNTS_MAX messages of a pair that are told one by
one.
"""

from __future__ import annotations

from math import isfinite

from penstock.content.envelope import DATA, FLAG
from penstock.content.message import Message
from penstock.kernel.link import Link
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
from penstock.rates.status import SlowReaderReport
from penstock.rates.telling import SEVERAL, ReaderWithheld
from penstock.rates.timers import RatesTimer
from penstock.rates.withheld import REPORTED_FOR, WithheldCount

KEYS_MAX = 4_096
COUNTS_MAX = 1_000


class EdgeService:
    """All slow readers of one broker."""

    def __init__(self, config: RatesConfig, broker: Broker, node: NodeView, timers: ServiceTimers) -> None:
        self.withheld = 0  # in all
        self._edge = SlowReaders(config.expire_after)
        self._broker = broker
        self._node = node
        self._timers = timers
        self._lanes = regulated_lanes(node)
        self._untold: dict[tuple[ReaderKey, str], WithheldCount] = {}  # by reader and publisher
        self._lately: dict[ReaderKey, WithheldCount] = {}  # in the last minute

    def told(self, packet: ReaderRate, sender: Link, now: float) -> list[Effect]:
        """A client says how fast it reads; of subscriptions that it does not have, nothing follows."""
        client = self._broker.attached(sender)
        if client is None or packet.subscription not in client.keys or not isfinite(packet.rate):
            return []
        reader = ReaderKey(sender, packet.subscription)
        leaving = self._edge.tell(reader, packet.rate, packet.newest, now)
        self._broker.at_edge = self._getting if len(self._edge) else None
        return [] if leaving is None else [_delivery(reader, *leaving)]

    def expired(self, reader: ReaderKey, now: float) -> list[Effect]:
        """What waited for a reader may leave."""
        leaving = self._edge.serve(reader, now)
        self._arm(reader, now)
        return [] if leaving is None else [_delivery(reader, *leaving)]

    def link_down(self, link: Link) -> None:
        """A client has gone; what waited for it has not reached it."""
        self.withheld += self._edge.link_down(link)
        self._untold = {key: count for key, count in self._untold.items() if key[0].link != link}

    def expire(self, now: float) -> list[Effect]:
        """What waited for readers that are slow no longer."""
        effects: list[Effect] = [_delivery(reader, *held) for reader, held in self._edge.expire(now)]
        self._broker.at_edge = self._getting if len(self._edge) else None
        return effects

    def take(self, now: float) -> list[ReaderWithheld]:
        """What was withheld since the last time, from clients that are still here."""
        untold, self._untold = self._untold, {}
        found = []
        for (reader, publisher), count in untold.items():
            client = self._broker.attached(reader.link)
            if client is None:
                continue
            found.append(ReaderWithheld(*reader, client.name, publisher, self._edge.rate(reader), count))
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
        if not regulated(message, lane, self._lanes) or message.attributes.get(FLAG, DATA) != DATA:
            return numbers
        getting = []
        for number in numbers:
            reader = ReaderKey(link, number)
            gets, lost = self._edge.admits(reader, message, lane, now)
            if gets:
                getting.append(number)
                continue
            self._arm(reader, now)
            if lost is not None:
                self._withheld(reader, lost, now)
        return tuple(getting)

    def _withheld(self, reader: ReaderKey, message: Message, now: float) -> None:
        publisher = message.identity.publisher
        count = self._untold.get((reader, publisher))
        if count is None:
            if len(self._untold) >= KEYS_MAX:
                publisher = SEVERAL
            count = self._untold.setdefault((reader, publisher), WithheldCount(now))
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
