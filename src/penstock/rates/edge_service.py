"""The broker's side of slow readers: packets, deliveries and timers of `edge`, and the books of what was withheld.

State: that of `edge`, and counts since the last records. Bound: the subscriptions of the clients.
"""

from __future__ import annotations

from math import isfinite

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
from penstock.rates.records import ReaderThinned
from penstock.rates.regulated import regulated, regulated_lanes
from penstock.rates.timers import RatesTimer


class EdgeService:
    """All slow readers of one broker."""

    def __init__(self, config: RatesConfig, broker: Broker, node: NodeView, timers: ServiceTimers) -> None:
        self.withheld = 0  # in all
        self._edge = SlowReaders(config.expire_after)
        self._broker = broker
        self._node = node
        self._timers = timers
        self._lanes = regulated_lanes(node)
        self._untold: dict[ReaderKey, tuple[int, float]] = {}

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
        self._untold = {reader: count for reader, count in self._untold.items() if reader.link != link}

    def sum_up(self, now: float) -> list[Effect]:
        """Records of what was withheld, and what waited for readers that are slow no longer."""
        effects: list[Effect] = [_delivery(reader, *held) for reader, held in self._edge.expire(now)]
        self._broker.at_edge = self._getting if len(self._edge) else None
        untold, self._untold = self._untold, {}
        for reader, (messages, since) in untold.items():
            client = self._broker.attached(reader.link)
            if client is not None:
                effects.append(ReaderThinned(client.name, reader.subscription, messages, since))
        return effects

    def __bool__(self) -> bool:
        return bool(self._untold) or len(self._edge) > 0

    def _getting(
        self, link: Link, numbers: tuple[int, ...], message: Message, lane: Lane, now: float
    ) -> tuple[int, ...]:
        """Those of a client's subscriptions that get this message now."""
        if not regulated(message, lane, self._lanes):
            return numbers
        getting = []
        for number in numbers:
            reader = ReaderKey(link, number)
            gets, lost = self._edge.admits(reader, message, lane, now)
            if gets:
                getting.append(number)
                continue
            self._arm(reader, now)
            if lost:
                messages, since = self._untold.get(reader, (0, now))
                self._untold[reader] = (messages + lost, since)
                self.withheld += lost
                self._node.delivery_lost(link, number)
        return tuple(getting)

    def _arm(self, reader: ReaderKey, now: float) -> None:
        at = self._edge.ready_at(reader)
        if at is not None:
            self._timers.set(RatesTimer.READ, max(now, at), *reader)


def _delivery(reader: ReaderKey, message: Message, lane: Lane) -> Send:
    return Send((reader.link,), Delivery((reader.subscription,), message, lane), lane)
