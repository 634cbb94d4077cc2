"""A broker's side of tracing: takes the command of a client, floods the order, and tells it to its own clients.

Whoever hears an order with a higher number keeps it and passes it on; a new neighbour, or a new client while there is
something to trace, is told the latest. So all nodes that can be reached follow one order, and one that comes back
learns it. An order whose number lies far ahead of our clock is refused, because nobody could outbid it.

A command prolongs what there is, and never shortens it, unless it ends it: two who watch do not disturb each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.timers import Key
from penstock.kernel.trace import InputRefused
from penstock.overlay.guard import LIFE_SLACK
from penstock.tracing.order import StandingOrder
from penstock.tracing.packets import TraceOrder, TraceRequest, TraceState

CHANGES_MAX = 10  # orders that one broker takes from its clients in a second: each goes through the whole network


class TracingBroker:
    """The machine."""

    packet_kinds: tuple[type[Packet], ...] = (TraceOrder, TraceRequest)

    def __init__(self, context: Context) -> None:
        self._links = context.links
        self._order = StandingOrder(context.timers)
        self._up: dict[Link, None] = {}
        self._changes: list[float] = []  # when orders of our clients were taken, in the last second

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if not up:
            self._up.pop(link, None)
            return []
        self._up[link] = None
        worth_telling = self._order.on(now) or (self._order.number and self._links[link].broker is not None)
        return [Send((link,), self._order.now_left(now), Lane.CONTROL)] if worth_telling else []

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            if isinstance(packet, TraceRequest):
                effects += self._requested(packet, sender, now)
            elif isinstance(packet, TraceOrder) and packet.number > self._order.number:
                effects += self._heard(packet, sender, now)
        return effects

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        return self._order.expired(now)

    def _heard(self, order: TraceOrder, sender: Link, now: float) -> list[Effect]:
        if order.number > int(now * 1_000) + LIFE_SLACK:
            return [InputRefused(self._links[sender].peer, "an order to trace whose number lies ahead")]
        return self._follow(order, now, but=sender)

    def _requested(self, request: TraceRequest, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        self._changes = [at for at in self._changes if at > now - 1.0]
        if request.change and len(self._changes) >= CHANGES_MAX:
            effects = [InputRefused(self._links[sender].peer, f"more than {CHANGES_MAX} orders to trace in a second")]
        elif request.change:
            self._changes.append(now)
            before = self._order.now_left(now)
            on, stamp = self._order.on(now), int(now * 1_000)
            left = max(before.milliseconds, request.seconds * 1_000) if request.seconds else 0
            one_in = request.one_in or (before.one_in if on else 1)
            order = TraceOrder(max(stamp, before.number + 1), before.since if on else stamp, left, one_in)
            effects = self._follow(order, now)
        state = self._order.now_left(now)
        answer = TraceState(request.ticket, state.since, state.milliseconds, state.one_in)
        return [*effects, Send((sender,), answer, Lane.CONTROL)]

    def _follow(self, order: TraceOrder, now: float, but: Link | None = None) -> list[Effect]:
        to = tuple(link for link in self._up if link != but)
        told: list[Effect] = [Send(to, order, Lane.CONTROL)] if to else []
        return [*self._order.take(order, now), *told]
