"""The order to trace, as a broker or a client holds it: which one counts, and until when.

State: the latest order (its number, since when, one message in how many) and when it ends on this node's clock. Orders
say how long is left, not until when, so clocks need not agree. A node that hears nothing more stops by itself.
Timer: END. Effects: a TracingSwitched whenever what the node does changes; its host acts on that.
"""

from __future__ import annotations

from penstock.kernel.machine import Effect
from penstock.kernel.timers import ServiceTimers
from penstock.tracing.packets import TraceOrder
from penstock.tracing.records import TracingSwitched
from penstock.tracing.timers import TracingTimer


class StandingOrder:
    """Part of both machines."""

    def __init__(self, timers: ServiceTimers) -> None:
        self._timers = timers
        self._order = TraceOrder(0, 0, 0, 1)
        self._until = 0.0
        self._told = (False, 1)  # what the host was last told

    @property
    def number(self) -> int:
        """Of the latest order; 0: there was none."""
        return self._order.number

    @property
    def one_in(self) -> int:
        return self._order.one_in

    def on(self, now: float) -> bool:
        """Whether the node traces."""
        return now < self._until

    def now_left(self, now: float) -> TraceOrder:
        """The order as it is passed on now."""
        order, left = self._order, max(0, round((self._until - now) * 1_000))
        return TraceOrder(order.number, order.since, left, order.one_in)

    def take(self, order: TraceOrder, now: float) -> list[Effect]:
        """An order that counts from now on."""
        self._order, self._until = order, now + order.milliseconds / 1_000
        if order.milliseconds:
            self._timers.set(TracingTimer.END, self._until)
        else:
            self._timers.cancel(TracingTimer.END)
        return self._switched(now)

    def expired(self, now: float) -> list[Effect]:
        """Nobody has ordered more."""
        self._until = min(self._until, now)
        return self._switched(now)

    def _switched(self, now: float) -> list[Effect]:
        does = (self.on(now), self._order.one_in)
        if does == self._told or not (does[0] or self._told[0]):
            return []
        self._told = does
        return [TracingSwitched(*does)]
