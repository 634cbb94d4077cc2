"""When a network was whole, as its scenario says: every broker up, and a way of links from each to each.

Links may be cut meanwhile, if there is another way. A checker asks this before it believes that there was no way.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from penstock.scenario.spec import FaultSpec, Scenario

Pair = frozenset[str]


class Joined:
    """From when until when everybody could reach everybody."""

    def __init__(self, scenario: Scenario) -> None:
        self._brokers = [broker.name for broker in scenario.broker]
        self._pairs = [frozenset(link.between) for link in scenario.link]
        self._down = {broker.name: None for broker in scenario.broker if broker.joins_at > 0.0}
        self._left = False  # whether some broker has gone for good
        self._cut: dict[Pair, None] = {}
        self._changes: list[tuple[float, bool]] = [(-inf, False), (0.0, self._whole())]
        joins = [
            FaultSpec(at=broker.joins_at, kind="restart", broker=broker.name)
            for broker in scenario.broker
            if broker.joins_at > 0.0
        ]
        for fault in sorted([*joins, *scenario.fault], key=lambda fault: fault.at):
            self._strike(fault)
            self._changes.append((fault.at, self._whole()))

    def for_seconds(self, time: float) -> float:
        """How long the network has been whole at this time; below 0 if it is not."""
        number = bisect_right(self._changes, (time, True)) - 1
        if not self._changes[number][1]:
            return -1.0
        while self._changes[number - 1][1]:
            number -= 1
        return time - self._changes[number][0]

    def _strike(self, fault: FaultSpec) -> None:
        match fault.kind:
            case "leave":
                self._left = True
            case "crash":
                self._down[str(fault.broker)] = None
            case "restart":
                self._down.pop(str(fault.broker), None)
            case "link_down" | "link_up":
                self._cut.pop(frozenset(fault.link or ()), None)
                if fault.kind == "link_down":
                    self._cut[frozenset(fault.link or ())] = None
            case "partition":
                self._cut |= {pair: None for pair in self._pairs if 0 < len(pair.intersection(fault.group)) < 2}
            case "heal":
                self._down.clear()
                self._cut.clear()
            case _:
                pass

    def _whole(self) -> bool:
        if self._down or self._left:
            return False
        reached = dict.fromkeys(self._brokers[:1])
        pairs = [pair for pair in self._pairs if pair not in self._cut]
        for _ in self._brokers:
            reached |= {name: None for pair in pairs if pair.intersection(reached) for name in pair}
        return len(reached) == len(self._brokers)
