"""What a simulated application does as a member of shared names.

It takes messages at once, or at the rate that its subscription names, and is done with each when it has taken it; some
it rejects (`rejects`), some it forgets to say anything of (`forgets`). A subscription that is refused is tried again.
All that happens is told to the checkers as facts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from penstock import services
from penstock.kernel.machine import Effect, Outcome, Refused
from penstock.overlay.verbs import Verbs
from penstock.scenario.shared_facts import (
    SharedCame,
    SharedFact,
    SharedGapRead,
    SharedSaid,
    SharedTaken,
    SharingBegan,
    SharingEnded,
    SharingInForce,
)
from penstock.scenario.spec import SubscriptionSpec
from penstock.sim.engine import Engine
from penstock.sim.host import Host
from penstock.streams.message import StreamMessage
from penstock.streams.packets import ShareVerdict, Tick

TRY_AGAIN = 1.0  # seconds after a refusal


@dataclass
class _Member:
    """One subscription of this client."""

    number: int
    spec: SubscriptionSpec
    live: bool = False  # from subscribe to unsubscribe
    served: bool = False
    waiting: list[StreamMessage] = field(default_factory=list)
    taking: bool = False


class SharedApplication:
    """The part of one client's application that shares names with others."""

    def __init__(
        self,
        name: str,
        members: dict[int, SubscriptionSpec],
        random: Random,
        engine: Engine,
        host: Host,
        verbs: Callable[[], Verbs],
        ask: Callable[[Callable[[Outcome], None]], int],  # a ticket whose answer goes there
        tell: Callable[[SharedFact], None],
    ) -> None:
        self._name = name
        self._members = {number: _Member(number, spec) for number, spec in members.items()}
        self._random = random
        self._engine = engine
        self._host = host
        self._verbs = verbs
        self._ask = ask
        self._tell = tell

    def __contains__(self, number: int) -> bool:
        return number in self._members

    def crashed(self) -> None:
        """The client is gone."""
        for member in self._members.values():
            if member.live:
                self._end(member, "crashed")

    def subscribe(self, number: int) -> None:
        """Begin; begin again if that is refused."""
        member = self._members[number]
        member.live = True
        self._subscribe(member)

    def _subscribe(self, member: _Member) -> None:
        if not member.live or member.served or self._host.machine is None:
            return
        options = member.spec.options
        name = (options["stream"], options["durable"], member.spec.where)
        limits = (options.get("ack_within", 0.0), options.get("attempts_max", 0), options.get("failed", ""))
        self._tell(SharingBegan((self._name, member.number), *name, *limits))
        ticket = self._ask(partial(self._subscribed, member))
        chosen, now = services.options(options), self._host.now()
        self._host.apply(self._verbs().subscribe(member.number, member.spec.where, chosen, ticket=ticket, now=now))

    def _subscribed(self, member: _Member, outcome: Outcome) -> None:
        if not member.live:
            return
        if isinstance(outcome, Refused):
            self._tell(SharingEnded((self._name, member.number), outcome.problem))
            self._later(TRY_AGAIN * self._random.uniform(0.5, 1.5), partial(self._subscribe, member))
            return
        member.served = True
        self._tell(SharingInForce((self._name, member.number), self._machine().positions(member.number)))
        self._take_soon(member)

    def unsubscribe(self, number: int) -> None:
        """Read no more."""
        member = self._members[number]
        if member.live and self._host.machine is not None:
            self._end(member, "")
            ticket = self._ask(lambda outcome: None)
            self._host.apply(self._verbs().unsubscribe(number, ticket=ticket, now=self._host.now()))

    def stopped(self, number: int, problem: str) -> None:
        """A broker serves it no longer."""
        if self._members[number].live:
            self._end(self._members[number], problem)

    def _end(self, member: _Member, problem: str) -> None:
        member.live = member.served = False
        member.waiting.clear()
        self._tell(SharingEnded((self._name, member.number), problem))

    def delivered(self, number: int, message: StreamMessage) -> None:
        """A message has come."""
        member = self._members[number]
        member.waiting.append(message)
        self._tell(SharedCame((self._name, number), message))
        self._take_soon(member)

    def gap(self, number: int, pubend: str, first: Tick, last: Tick) -> None:
        """Something was told to be gone."""
        self._tell(SharedGapRead((self._name, number), pubend, first, last))

    def _take_soon(self, member: _Member) -> None:
        if member.waiting and not member.taking:
            member.taking = True
            rate = member.spec.reads_messages_per_s
            self._later(1.0 / rate if rate else 0.0, partial(self._take, member))

    def _take(self, member: _Member) -> None:
        """The next message; the application does something with it, or not."""
        member.taking = False
        if self._host.machine is None or not member.served or not member.waiting:
            return
        message = member.waiting.pop(0)
        at = ((self._name, member.number), message.pubend, message.tick, message.attempt)
        self._tell(SharedTaken(*at))
        self._apply(self._machine().taken(member.number, 1, now=self._host.now()))
        chance = self._random.random()
        if chance < member.spec.rejects:
            self._settle(member, message, ShareVerdict.REJECTED)
        elif chance >= member.spec.rejects + member.spec.forgets:
            self._settle(member, message, ShareVerdict.DONE)
        self._take_soon(member)

    def _settle(self, member: _Member, message: StreamMessage, verdict: ShareVerdict) -> None:
        at = ((self._name, member.number), message.pubend, message.tick, message.attempt)
        self._tell(SharedSaid(*at, verdict, False))

        def confirmed(outcome: Outcome) -> None:
            if not isinstance(outcome, Refused):
                self._tell(SharedSaid(*at, verdict, True))

        ticket, handout = self._ask(confirmed), (message.tick, message.attempt)
        machine, now = self._machine(), self._host.now()
        self._apply(machine.settle(member.number, message.pubend, handout, verdict, ticket=ticket, now=now))

    def _apply(self, effects: list[Effect]) -> None:
        assert self._host.machine is not None
        self._host.apply(self._host.machine.route(effects))

    def _machine(self) -> Any:
        assert self._host.machine is not None
        return self._host.machine.machines["streams"]

    def _later(self, delay: float, call: Callable[[], None]) -> None:
        """As an input of its own, never from inside the machine's effects."""
        self._engine.at(self._engine.now + delay, lambda _: call(), None)
