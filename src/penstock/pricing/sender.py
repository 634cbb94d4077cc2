"""One client's messages that wait to be bought, and its accounts.

Messages to the same brokers form a *flow*: they cost the same and leave in order. Each flow has an account of its own,
so cheap content goes on while dear content waits. But flows that have the same dearest link share one salary, and the
chance to buy: a client gets no more of a congested link by sending to more sets of receivers.

Bounds: `held_max` messages of each kind, `flows_max` flows and one more. Beyond `flows_max` sets the flow that was used
least lately, of those in which nothing waits, gives way to a new one, which inherits its account: more sets make nobody
richer or poorer. If something waits in all, the other sets share one account and one queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from penstock.content.message import Message
from penstock.overlay.packets import BrokerId
from penstock.pricing.account import Account
from penstock.pricing.benefit import BenefitName

NOBODY_WAITS = -1  # the number of a message that was published plainly
REST: tuple[BrokerId, ...] = (-1,)  # the flow of all sets beyond the bound


class Held:
    """A message that waits at its sender's home."""

    __slots__ = ("arrived", "benefit", "destinations", "message", "number")

    def __init__(
        self, number: int, message: Message, destinations: tuple[BrokerId, ...], benefit: BenefitName, arrived: float
    ) -> None:
        self.number = number
        self.message = message
        self.destinations = destinations
        self.benefit = benefit
        self.arrived = arrived

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for an answer."""
        return self.number != NOBODY_WAITS


class PricedFlow:
    """Messages of one sender to one set of brokers."""

    __slots__ = ("account", "benefit", "cost_too_high", "held", "key", "no_way_since", "used")

    def __init__(self, key: tuple[BrokerId, ...], account: Account) -> None:
        self.key = key
        self.account = account
        self.held: deque[Held] = deque()
        self.benefit: BenefitName = "sent"  # of the message before
        self.cost_too_high: float | None = None  # what the links cost when the account could not pay, while it waits
        self.no_way_since: float | None = None  # none of its brokers can be reached
        self.used = 0

    @property
    def destinations(self) -> tuple[BrokerId, ...]:
        """The brokers of all its messages; none, if they differ."""
        return () if self.key == REST else self.key


class PricedSender:
    """One client."""

    def __init__(self, name: str, flows_max: int) -> None:
        self.name = name
        self.held = [0, 0]  # messages for which nobody waits, and those for which somebody does
        self.flows: dict[int, PricedFlow] = {}  # by number: the key of their timers
        self._flows_max = flows_max
        self._numbers: dict[tuple[BrokerId, ...], int] = {}
        self._next = 0
        self._used = 0

    def flow_to(self, destinations: tuple[BrokerId, ...]) -> tuple[int, PricedFlow] | None:
        """The flow of this set, if it has one, with its number."""
        number = self._numbers.get(destinations)
        return None if number is None else (number, self.flows[number])

    def open(self, destinations: tuple[BrokerId, ...], account: Account) -> tuple[int, PricedFlow]:
        """A new flow with this account, or that of the flow which gives way; of all others, if there are too many."""
        if len(self.flows) >= self._flows_max:
            account = self._close_idle() or account
        if len(self.flows) >= self._flows_max:
            found = self.flow_to(REST)
            if found is not None:
                return found
            destinations = REST
        self._next += 1
        self._numbers[destinations] = self._next
        flow = self.flows[self._next] = PricedFlow(destinations, account)
        return self._next, flow

    def _close_idle(self) -> Account | None:
        """End the flow that was used least lately of those in which nothing waits; returns its account."""
        idle = [(flow.used, number) for number, flow in self.flows.items() if not flow.held]
        if not idle:
            return None
        flow = self.flows.pop(min(idle)[1])
        del self._numbers[flow.key]
        return flow.account

    def put(self, flow: PricedFlow, one: Held) -> None:
        """A message comes to wait."""
        self._used += 1
        flow.used = self._used
        flow.benefit = one.benefit
        flow.held.append(one)
        self.held[one.awaited] += 1

    def forget_awaited(self) -> list[Held]:
        """Take out the messages for which somebody waits, or waited."""
        taken: list[Held] = []
        for flow in self.flows.values():
            taken += [one for one in flow.held if one.awaited]
            flow.held = deque(one for one in flow.held if not one.awaited)
        self.held[True] = 0
        return taken

    def busy(self) -> Iterator[PricedFlow]:
        """Flows in which something waits."""
        return (flow for flow in self.flows.values() if flow.held)
