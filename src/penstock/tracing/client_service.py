"""A client's side of tracing: follows its broker's orders, and asks for them.

The order of another broker, after a reconnection, counts only if its number is higher. The machine switches nothing
itself; its record tells the host.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.kernel.link import Link
from penstock.kernel.machine import Done, Effect, Refused, Reported, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import Key
from penstock.tracing.order import StandingOrder
from penstock.tracing.packets import TraceOrder, TraceRequest, TraceState

ASKED_MAX = 100  # requests that no broker has answered yet


class TracingClient:
    """The machine."""

    packet_kinds: tuple[type[Packet], ...] = (TraceOrder, TraceState)

    def __init__(self, context: Context) -> None:
        self._order = StandingOrder(context.timers)
        self._asked: dict[Ticket, None] = {}

    def ask(self, link: Link, ticket: Ticket, *, change: bool, seconds: int = 0, one_in: int = 0) -> list[Effect]:
        """Ask the broker; the ticket is answered with the state of tracing."""
        if len(self._asked) >= ASKED_MAX:
            return [Done(ticket, Refused(f"{ASKED_MAX} requests about tracing are unanswered already"))]
        self._asked[ticket] = None
        return [Send((link,), TraceRequest(ticket, change, seconds, one_in), Lane.CONTROL)]

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        self._asked.pop(ticket, None)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            if isinstance(packet, TraceOrder) and packet.number > self._order.number:
                effects += self._order.take(packet, now)
            elif isinstance(packet, TraceState) and packet.ticket in self._asked:
                del self._asked[packet.ticket]
                state = {
                    "on": packet.milliseconds > 0,
                    "since": packet.since / 1_000,
                    "seconds_left": packet.milliseconds / 1_000,
                    "one_in": packet.one_in,
                }
                effects.append(Done(packet.ticket, Reported(state)))
        return effects

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        return self._order.expired(now)
