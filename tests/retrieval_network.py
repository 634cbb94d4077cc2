"""Mediation routers joined by hand, for tests: messages travel one at a time, in the order in which they were sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random

from penstock.retrieval.boxes import InterestBox
from penstock.retrieval.interest import EVERYTHING, LOCAL, LooseInterest, PublishedItem
from penstock.retrieval.mediation import MediationRouter
from penstock.retrieval.rules import MediationRules


class Sent:
    """What one router wanted done, as tuples; a test reads it or a network carries it."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []
        self.takes = EVERYTHING  # answers that an interface has room for

    def advertise(self, interest, came_from):
        self.done.append(("advertise", interest, came_from))

    def probe(self, interface, interest):
        self.done.append(("probe", interface, interest))

    def proceed_at(self, interest, at):
        self.done.append(("proceed_at", interest, at))

    def room(self, interface):
        return self.takes

    def answer(self, interface, interest, publication, pending):
        self.done.append(("answer", interface, interest, publication, pending))

    def multicast(self, interfaces, publication, pending, nonce):
        self.done.append(("multicast", tuple(interfaces), publication, pending, nonce))

    def overload(self, interest, came_from):
        self.done.append(("overload", interest, came_from))

    def deliver(self, interest, publication):
        self.done.append(("deliver", interest, publication))

    def schedule(self, publication, at):
        self.done.append(("schedule", publication, at))

    def flush(self, publication):
        self.done.append(("flush", publication))

    def drop(self, publication, reason):
        self.done.append(("drop", publication, reason))

    def take(self) -> list[tuple[object, ...]]:
        """What was wanted since the last time."""
        done, self.done = self.done, []
        return done


class RetrievalNetwork:
    """Routers 0, 1, ... and the links between them. Interfaces are the numbers of neighbours."""

    def __init__(self, links: Sequence[tuple[int, int]], *, rules: MediationRules, seed: int | None = None) -> None:
        names = sorted({name for link in links for name in link})
        self.neighbours = {name: sorted({a + b - name for a, b in links if name in (a, b)}) for name in names}
        self.now = 0.0
        self.homes: dict[object, int] = {}  # of each interest
        self.delivered: list[tuple[object, object]] = []  # interest, publication
        self.messages: dict[str, int] = {}
        self.drops: list[tuple[int, object, str]] = []
        self.scheduled: list[tuple[float, int, object]] = []
        self._flights: deque[Callable[[], None]] = deque()
        self._order = Random(seed) if seed is not None else None
        self._nonces = 0
        self.routers: dict[int, MediationRouter] = {}
        self._sent = {name: Sent() for name in names}
        for name in names:
            self.routers[name] = MediationRouter(
                rules,
                self._sent[name],
                nonces=self._nonce,
                interfaces=lambda name=name: self.neighbours[name],
                home_of=lambda interest: self.homes[interest.id],
            )

    def _nonce(self) -> int:
        self._nonces += 1
        return self._nonces

    def register(self, router: int, interest: LooseInterest) -> None:
        self.homes[interest.id] = router
        self.routers[router].register(interest, self.now)
        self.settle(router)

    def finish(self, router: int, interest: object) -> InterestBox | None:
        box = self.routers[router].finish(interest, self.now)
        self.settle(router)
        return box

    def upload(self, router: int, publication: PublishedItem) -> None:
        self.routers[router].upload(publication, self.now)
        self.settle(router)

    def settle(self, router: int) -> None:
        """Carry everything that comes of it."""
        self._carry(router)
        while self._flights:
            self.step()

    def start(self, router: int) -> None:
        """Put on the links what a router wants, and let nothing arrive yet."""
        self._carry(router)

    def step(self) -> None:
        """One message arrives: the oldest, or with a seed any."""
        if self._order is not None:
            self._flights.rotate(-self._order.randrange(len(self._flights)))
        self._flights.popleft()()

    @property
    def flying(self) -> int:
        return len(self._flights)

    def at(self, time: float) -> None:
        """Time passes; pushes that are due happen."""
        while self.scheduled and min(self.scheduled, key=_when)[0] <= time:
            due = min(self.scheduled, key=_when)
            self.scheduled.remove(due)
            self.now = max(self.now, due[0])
            if isinstance(due[2], tuple) and due[2][0] == "proceed":
                self.routers[due[1]].proceed(due[2][1], self.now)
            else:
                self.routers[due[1]].push(due[2], self.now)
            self.settle(due[1])
        self.now = time
        for router in self.routers.values():
            router.expire(time)

    def got(self, interest: object) -> list[object]:
        """What an interest was given, in order."""
        return [publication for one, publication in self.delivered if one == interest]

    def places(self, publication: object) -> Mapping[int, str]:
        """Where a publication is cached, and in which table."""
        found = {}
        for name, router in self.routers.items():
            entry = router.cache.get(publication)
            if entry is not None:
                used = " used" if entry.place.dispatched and entry.place.table == 0 else ""
                found[name] = entry.place.table.name.lower() + used
        return found

    def _carry(self, router: int) -> None:
        for name, *values in self._sent[router].take():
            getattr(self, f"_{name}")(router, *values)

    def _send(self, kind: str, to: int, arrive: Callable[[MediationRouter], None]) -> None:
        self.messages[kind] = self.messages.get(kind, 0) + 1

        def arrives() -> None:
            arrive(self.routers[to])
            self._carry(to)

        self._flights.append(arrives)

    def _others(self, router: int, came_from: int) -> list[int]:
        return [one for one in self.neighbours[router] if one != came_from]

    def _advertise(self, router, interest, came_from):
        for to in self._others(router, came_from):
            self._send("interest", to, lambda other: other.interest(interest, router))

    def _probe(self, router, interface, interest):
        self._send("interest", interface, lambda other: other.probe(interest, router))

    def _proceed_at(self, router, interest, at):
        self.scheduled.append((at, router, ("proceed", interest)))

    def _overload(self, router, interest, came_from):
        for to in self._others(router, came_from):
            self._send("overload", to, lambda other: other.overload(interest, router, self.now))

    def _answer(self, router, interface, interest, publication, pending):
        self._send("answer", interface, lambda other: other.answer(publication, pending, interest, self.now, router))

    def _multicast(self, router, interfaces, publication, pending, nonce):
        for to in interfaces:
            self._send("multicast", to, lambda other: other.multicast(publication, pending, nonce, router, self.now))

    def _deliver(self, router, interest, publication):
        self.delivered.append((interest.id, publication.id))

    def _schedule(self, router, publication, at):
        self.scheduled.append((at, router, publication))

    def _flush(self, router, publication):
        self._send("flush", self.neighbours[router][0], lambda other: other.flushed(publication))

    def _drop(self, router, publication, reason):
        self.drops.append((router, publication.id, reason))


def _when(due: tuple[float, int, object]) -> float:
    return due[0]


def asks(name: object, wanted: int = 1, **settings: object) -> LooseInterest:
    """An interest of a test."""
    defaults: dict[str, object] = {"deadline": 100.0, "oldest": -inf}
    return LooseInterest(name, wanted, **(defaults | settings))  # type: ignore[arg-type]


def says(name: object, at: float = 0.0, shelf: object = 0) -> PublishedItem:
    """A publication of a test."""
    return PublishedItem(name, at, shelf)  # type: ignore[arg-type]


ROW = ((0, 1), (1, 2), (2, 3))
HERE = LOCAL
