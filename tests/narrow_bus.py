"""The bus of `foreign_bus` with narrow places.

    bus = a_bus(seed=1)                         # with a publisher `p` that obeys feedback; all have the same settings
    bus.subscriber("slow", "kind = 'bulk'", Path(100.0))
    bus.stream(300.0, 20.0, kind="bulk")        # messages/s, until
    bus.run(19.0)
    bus.rate_at("slow", 5.0, 19.0)

What goes to the receivers of a path waits in one queue, drop-tail, and leaves it at the path's rate, one copy for all
of them. Whoever has no path gets everything at once. Control messages take no room.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from foreign_bus import Bus, Carried, Member
from penstock.content.envelope import DATA, kind_of
from penstock.content.message import Message, Value
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.receiver.feedback_scheduler import ControlReport
from penstock.transport.sender.rate_limiter import FlowReport

DELAY = 0.02
CONFIG = TransportConfig(congestion=True, when_full="drop")
PAPERS_CONFIG = papers_config(congestion=True, record_entries=2, when_full="drop", publisher_answers=False)


@dataclass
class Path:
    """A narrow place."""

    rate: float  # messages/s
    queue_max: int = 20
    leaving: deque[float] = field(default_factory=deque)  # when those in the queue will have left it
    drops: list[float] = field(default_factory=list)
    carried: int = 0

    def enter(self, now: float) -> float | None:
        """When the message is through, if there is room."""
        while self.leaving and self.leaving[0] <= now:
            self.leaving.popleft()
        if len(self.leaving) >= self.queue_max:
            self.drops.append(now)
            return None
        through = max(now, self.leaving[-1] if self.leaving else now) + 1.0 / self.rate
        self.leaving.append(through)
        self.carried += 1
        return through


class NarrowBus(Bus):
    """A bus whose receivers may lie behind narrow places."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed, delay=DELAY)
        self.paths: dict[str, Path] = {}  # by receiver
        self.config = CONFIG  # of those who get no other

    def _carry(self, member: Member, message: Message) -> None:
        if kind_of(message) != DATA:
            super()._carry(member, message)
            return
        self.carried.append(Carried(self.now, member.name, message))
        wanted = {
            other.name: tuple(n for n, where in other.wheres.items() if where.matches(message.attributes))
            for other in self.members.values()
        }
        through: dict[int, float | None] = {}
        for name, numbers in wanted.items():
            path = self.paths.get(name)
            if not numbers:
                continue
            if path is not None and id(path) not in through:
                through[id(path)] = path.enter(self.now)
            leaves = self.now if path is None else through[id(path)]
            if leaves is None:
                self.lost.append((name, message))
            else:
                self.at(leaves + DELAY, lambda name=name, numbers=numbers: self._reach(name, numbers, message))  # type: ignore[misc]

    def _reach(self, name: str, numbers: tuple[int, ...], message: Message) -> None:
        self._arrive(self.members[name], numbers, message)

    # Help for tests.

    def subscriber(
        self, name: str, where: str, path: Path | None = None, config: TransportConfig | None = None
    ) -> None:
        """A client with congestion control that wants this."""
        member = self.add(name, config or self.config)
        assert member.transport is not None
        self.subscribe(name, 1, where)
        predicate = member.wheres[1]
        self.apply(
            member, member.transport.subscribe(1, predicate, ordered=False, recover=False, now=member.local(0.0))
        )
        if path is not None:
            self.paths[name] = path

    def stream(self, rate: float, until: float, **attributes: Value) -> None:
        """Messages with these attributes, evenly spaced but for a little."""
        now = 0.0
        while now < until:
            self.publish("p", attributes, at=now)
            now += self.random.uniform(0.5, 1.5) / rate

    def flows(self) -> list[FlowReport]:
        transport = self.members["p"].transport
        assert transport is not None
        return transport.flows()

    def control(self, name: str) -> ControlReport:
        transport = self.members[name].transport
        assert transport is not None
        return transport.control()

    def rate_at(self, name: str, start: float, end: float) -> float:
        """Messages/s that the application got."""
        got = [time for time, _, _ in self.members[name].delivered if start <= time < end]
        return len(got) / (end - start)


def a_bus(seed: int = 1, config: TransportConfig = CONFIG) -> NarrowBus:
    bus = NarrowBus(seed)
    bus.config = config
    bus.add("p", config, publishes=True)
    return bus
