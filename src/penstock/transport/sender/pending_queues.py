"""The messages that wait for tokens: a queue for each set of flows, and which of all may leave first (000 section
III-B8).

A message needs a token of every flow that it belongs to. Those that belong to the same flows stand in one queue and
leave in the order in which they came. Between queues that have a flow in common there are two disciplines:

    in order       nobody leaves before an older message that has a flow in common with it. So order holds within each
                   flow, and a message that waits for a slow flow holds up the faster ones that it belongs to as well.
                   For publishers that do not wait (`when_full = "drop"`): they fixed the order when they published
    overtaking     whoever finds tokens leaves, the oldest first. For publishers that wait: they have not gone on after
                   the message that waits, so there is no order to keep, and content that nobody is short of is not
                   slowed down. (In order, ten writers of a narrow flow left 4/s to one of a wide flow that had 160.)

Nobody starves or blocks for ever. The oldest message of all is first in its queue and has nobody older before it, so
only time stands between it and its tokens. Whoever overtakes leaves a token in each flow that somebody older waits for:
else writers of one flow each could take every token of two flows as it comes, and a message of both would never find
both at once.

State: the queues, how many wait for each flow, and who waits under which ticket. Bounds are the rate limiter's. No
timers; `deadline` says when to look again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge, nlargest

from penstock.content.message import Message
from penstock.kernel.storage import Ticket
from penstock.transport.sender.flow_table import NONE, Flow

Flows = tuple[Flow, ...]


@dataclass(slots=True, eq=False)
class PendingMessage:
    """A message that waits for tokens."""

    arrival: int
    message: Message
    encoding: int
    ticket: Ticket | None
    flows: Flows
    began: float = 0.0  # when the application published it


class PendingQueues:
    """All messages that wait for tokens."""

    def __init__(self, *, overtaking: bool) -> None:
        self._overtaking = overtaking
        self._queues: dict[Flows, deque[PendingMessage]] = {}  # none of them is empty
        self._lengths: dict[Flow, int] = {}
        self._tickets: dict[Ticket, PendingMessage] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PendingMessage]:
        """Oldest first."""
        return merge(*self._queues.values(), key=lambda pending: pending.arrival)

    @property
    def count(self) -> int:
        """How many queues there are."""
        return len(self._queues)

    def length(self, flow: Flow) -> int:
        """How many wait for a token of this flow."""
        return self._lengths.get(flow, 0)

    def join(self, pending: PendingMessage) -> bool:
        """Append it to its queue; returns whether it is the first there."""
        queue = self._queues.setdefault(pending.flows, deque())
        queue.append(pending)
        if pending.ticket is not None:
            self._tickets[pending.ticket] = pending
        self._count += 1
        for flow in pending.flows:
            self._lengths[flow] = self._lengths.get(flow, 0) + 1
        return len(queue) == 1

    def blocks(self, flows: Sequence[Flow], now: float) -> bool:
        """Whether somebody who waits comes before a new message of these flows."""
        if not any(flow in self._lengths for flow in flows):
            return False
        if not self._overtaking or any(
            has_tokens(others, now) for others in self._queues if any(flow in others for flow in flows)
        ):
            return True
        return not has_tokens(flows, now, self._lengths)

    def release(self, take: Callable[[Flows, Mapping[Flow, None]], bool]) -> list[PendingMessage]:
        """Those who may leave now, oldest first.

        `take` takes a token of each flow, or returns False and takes none; in the flows that it is given one must stay.
        """
        leaving: list[PendingMessage] = []
        held: dict[Flow, None] = {}
        heads = [(queue[0].arrival, flows) for flows, queue in self._queues.items()]
        heapify(heads)
        while heads:
            _, flows = heappop(heads)
            held_up = not self._overtaking and any(flow in held for flow in flows)
            if held_up or not take(flows, held if self._overtaking else NONE):
                held.update(dict.fromkeys(flows))
                continue
            queue = self._queues[flows]
            leaving.append(self._gone(queue.popleft()))
            if queue:
                heappush(heads, (queue[0].arrival, flows))
        return leaving

    def deadline(self) -> float | None:
        """When the first of them may leave."""
        ready: list[float] = []
        held: dict[Flow, None] = {}
        for flows in sorted(self._queues, key=lambda flows: self._queues[flows][0].arrival):
            if self._overtaking or not any(flow in held for flow in flows):
                ready.append(max((flow.bucket.ready_at(2.0 if flow in held else 1.0) for flow in flows), default=0.0))
            held.update(dict.fromkeys(flows))
        return min(ready, default=None)

    def last_of_fewer(self, flow: Flow, fewer_than: int, count: int) -> list[PendingMessage]:
        """The youngest who wait for this flow and belong to fewer flows than this, at most so many."""
        queues = [queue for flows, queue in self._queues.items() if flow in flows and len(flows) < fewer_than]
        return nlargest(count, (one for queue in queues for one in queue), key=lambda pending: pending.arrival)

    def fastest_with(self, flow: Flow) -> Flow:
        """Of all flows that those who wait for this one belong to, the fastest."""
        return max((one for flows in self._queues if flow in flows for one in flows), key=lambda one: one.quota)

    def with_ticket(self, ticket: Ticket) -> PendingMessage | None:
        """Who waits under this ticket."""
        return self._tickets.get(ticket)

    def leave(self, pending: PendingMessage) -> None:
        """It waits no longer."""
        self._queues[pending.flows].remove(pending)
        self._gone(pending)

    def regroup(self, added: Sequence[Flow], removed: Mapping[Flow, None]) -> None:
        """Flows came and went: whoever waits does so for the flows that there are."""
        everybody = list(self)
        self.clear()
        for pending in everybody:
            stayed = [flow for flow in pending.flows if flow not in removed]
            new = [flow for flow in added if flow.wanted.has(pending.encoding, pending.message.attributes)]
            pending.flows = (*stayed, *new)
            self.join(pending)

    def clear(self) -> None:
        """Nobody waits."""
        self._queues.clear()
        self._lengths.clear()
        self._tickets.clear()
        self._count = 0

    def _gone(self, pending: PendingMessage) -> PendingMessage:
        self._count -= 1
        if pending.ticket is not None:
            self._tickets.pop(pending.ticket, None)
        if not self._queues[pending.flows]:
            del self._queues[pending.flows]
        for flow in pending.flows:
            self._lengths[flow] -= 1
            if not self._lengths[flow]:
                del self._lengths[flow]
        return pending


def has_tokens(flows: Sequence[Flow], now: float, kept: Container[Flow] = ()) -> bool:
    """Whether each of these flows has a token, and one more if one is kept there."""
    return all(flow.bucket.has(now, 2.0 if flow in kept else 1.0) for flow in flows)
