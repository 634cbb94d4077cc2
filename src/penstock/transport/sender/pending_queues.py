"""Who waits before the gate: a line for each set of flows, and who of all may leave first (000 section III-B8).

A message needs a token of every flow that it belongs to. Those that belong to the same flows stand in one line and
leave in the order in which they came. Between lines that have a flow in common there are two disciplines:

    in order       nobody leaves before an older message that has a flow in common with it. So order holds within each
                   flow, and a message that waits for a slow flow holds up the faster ones that it belongs to as well.
                   For publishers that do not wait (`when_full = "drop"`): they have said in which order they published
    overtaking     whoever finds tokens leaves, the oldest first. For publishers that wait: they have not gone on after
                   the message that waits, so there is no order to keep, and content that nobody is short of is not
                   slowed down. (In order, ten writers of a narrow flow left 4/s to one of a wide flow that had 160.)

Nobody starves or blocks for ever. The oldest message of all is first in its line and has nobody older before it, so
only time stands between it and its tokens. Whoever overtakes leaves a token in each flow that somebody older waits for:
else writers of one flow each could take every token of two flows as it comes, and a message of both would never find
both at once.

State: the lines, how many wait for each flow. Bounds are the gate's. No timers; `deadline` says when to look again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge, nlargest

from penstock.content.message import Message
from penstock.kernel.machine import Ticket
from penstock.transport.sender.flow_table import NONE, Flow

Flows = tuple[Flow, ...]


@dataclass(slots=True, eq=False)
class Waiting:
    """A message before the gate."""

    arrival: int
    message: Message
    encoding: int
    ticket: Ticket | None
    flows: Flows


class Lines:
    """All who wait."""

    def __init__(self, *, overtaking: bool) -> None:
        self._overtaking = overtaking
        self._lines: dict[Flows, deque[Waiting]] = {}  # none of them is empty
        self._lengths: dict[Flow, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Waiting]:
        """Oldest first."""
        return merge(*self._lines.values(), key=lambda waiting: waiting.arrival)

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def length(self, flow: Flow) -> int:
        """How many wait for a token of this flow."""
        return self._lengths.get(flow, 0)

    def join(self, waiting: Waiting) -> bool:
        """Stand at the end of its line; says whether it is the first there."""
        line = self._lines.setdefault(waiting.flows, deque())
        line.append(waiting)
        self._count += 1
        for flow in waiting.flows:
            self._lengths[flow] = self._lengths.get(flow, 0) + 1
        return len(line) == 1

    def blocks(self, flows: Sequence[Flow], now: float) -> bool:
        """Whether somebody who waits comes before a new message of these flows."""
        if not any(flow in self._lengths for flow in flows):
            return False
        if not self._overtaking or any(
            has_tokens(line, now) for line in self._lines if any(flow in line for flow in flows)
        ):
            return True
        return not has_tokens(flows, now, self._lengths)

    def release(self, take: Callable[[Flows, Mapping[Flow, None]], bool]) -> list[Waiting]:
        """Those who may leave now, oldest first.

        `take` takes a token of each flow, or says False and takes none; in the flows that it is given one must stay.
        """
        leaving: list[Waiting] = []
        held: dict[Flow, None] = {}
        heads = [(line[0].arrival, flows) for flows, line in self._lines.items()]
        heapify(heads)
        while heads:
            _, flows = heappop(heads)
            held_up = not self._overtaking and any(flow in held for flow in flows)
            if held_up or not take(flows, held if self._overtaking else NONE):
                held.update(dict.fromkeys(flows))
                continue
            line = self._lines[flows]
            leaving.append(self._gone(line.popleft()))
            if line:
                heappush(heads, (line[0].arrival, flows))
        return leaving

    def deadline(self) -> float | None:
        """When the first of them may leave."""
        ready: list[float] = []
        held: dict[Flow, None] = {}
        for flows in sorted(self._lines, key=lambda flows: self._lines[flows][0].arrival):
            if self._overtaking or not any(flow in held for flow in flows):
                ready.append(max((flow.bucket.ready_at(2.0 if flow in held else 1.0) for flow in flows), default=0.0))
            held.update(dict.fromkeys(flows))
        return min(ready, default=None)

    def last_of_fewer(self, flow: Flow, fewer_than: int, count: int) -> list[Waiting]:
        """The youngest who wait for this flow and belong to fewer flows than this, at most so many."""
        lines = [line for flows, line in self._lines.items() if flow in flows and len(flows) < fewer_than]
        return nlargest(count, (one for line in lines for one in line), key=lambda waiting: waiting.arrival)

    def fastest_with(self, flow: Flow) -> Flow:
        """Of all flows that those who wait for this one belong to, the fastest."""
        return max((one for flows in self._lines if flow in flows for one in flows), key=lambda one: one.quota)

    def leave(self, waiting: Waiting) -> None:
        """It waits no longer."""
        self._lines[waiting.flows].remove(waiting)
        self._gone(waiting)

    def regroup(self, added: Sequence[Flow], removed: Mapping[Flow, None]) -> None:
        """Flows came and went: whoever waits does so for the flows that there are."""
        everybody = list(self)
        self.clear()
        for waiting in everybody:
            stayed = [flow for flow in waiting.flows if flow not in removed]
            new = [flow for flow in added if flow.wanted.has(waiting.encoding, waiting.message.attributes)]
            waiting.flows = (*stayed, *new)
            self.join(waiting)

    def clear(self) -> None:
        """Nobody waits."""
        self._lines.clear()
        self._lengths.clear()
        self._count = 0

    def _gone(self, waiting: Waiting) -> Waiting:
        self._count -= 1
        if not self._lines[waiting.flows]:
            del self._lines[waiting.flows]
        for flow in waiting.flows:
            self._lengths[flow] -= 1
            if not self._lengths[flow]:
                del self._lengths[flow]
        return waiting


def has_tokens(flows: Sequence[Flow], now: float, kept: Container[Flow] = ()) -> bool:
    """Whether each of these flows has a token, and one more if one is kept there."""
    return all(flow.bucket.has(now, 2.0 if flow in kept else 1.0) for flow in flows)
