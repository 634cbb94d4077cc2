"""The publisher's gate: messages of a limited flow leave as fast as its quota allows, all others at once (000 III-B).

Every message is compared with the flow table. If all flows it belongs to have a token, and none of them has an older
message waiting, it takes a token of each and leaves. Otherwise it waits in the queue of each of its flows and leaves
when it is the first in all of them and all have tokens. There is no deadlock: the oldest message that waits is the
first in all of its queues. Messages that belong to no flow are never delayed.

A queue that is full withholds: with `when_full = "drop"` the message ends here, is counted and answered at once; with
"wait" its sender waits, which is the application's own queue, so the bound is only a safeguard. Since order holds
within each flow, a message that waits for a slow flow also holds up the faster ones it belongs to. So it may wait no
longer than the queue of the fastest can bridge: of a slower flow only `flow_queue` times the quotas' quotient may wait.
(With equal room for all, a narrow flow of 40/s within a wide one of 190/s cut the wide one down to 65/s; decided here.)

The papers withhold the message that comes last. But one that belongs to several flows must find room in all of them, so
those that most subscribers wait for were the first to be withheld, and each that left had fewer receivers. So a message
for whose flows there is no room takes the place of the last ones, in each full queue, that belong to fewer flows
(`prefer_shared`, beyond the papers). Quotas hold as before; of what is too much, more of the shared leaves.

State: the flow table, the waiting messages in the order in which they came, and a queue for each flow that somebody
waits for. A message knows in how many of its queues others stand before it, so that whoever is first everywhere is
found without a search. When a flow is added or removed, those who wait join its queue or leave it: else a message that
waited for a flow that a wider one replaced would leave past the wider one's quota. A queue may then be longer than its
bound for a while; nobody joins it until it is not.

A repair does not wait: it takes a token of each flow, or the next one if there is none and no other repair has had that
(else a flow that is always full would never let one out). So in w seconds at most depth + quota * w + 1 leave.

Bounds: `flow_queue` per flow ("drop"), WAITING_MAX in all, `flows_max` flows, FLOWS_MAX of them on one receiver's word.
Feedback that cannot be is refused, flow by flow, with a record. Timer: ("transport", "gate"), for the next token that
somebody waits for. A message gets its number when it leaves, not when it is queued (erratum C10).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop, heappush
from math import floor
from typing import NamedTuple

from penstock.content.bloom import EncodingScheme
from penstock.content.expression import constraint_text
from penstock.content.language import parse_predicate
from penstock.content.message import Attributes, Message
from penstock.content.predicate import Equals, Exists, Filter
from penstock.errors import InvalidEncoding, InvalidPredicate
from penstock.kernel.machine import Ticket
from penstock.kernel.trace import FlowLimited, InputRefused, LimitReached, Record
from penstock.transport.config import TransportConfig
from penstock.transport.flow_table import Flow, FlowTable, FlowVerdict, Wanted, flow_covers, flow_of
from penstock.transport.slow_lane import SlowLane
from penstock.transport.talk import FLOWS_MAX, Asked, Feedback

WAITING_MAX = 100_000  # messages before the gate; beyond it they are refused
QUOTA_MAX = 1e9  # messages/s; nobody publishes so fast, so nobody has a reason to ask for it
ROOM_MIN = 2.0  # messages that may wait in any flow, however much slower than others it is
TEXT_MAX = 1_000  # characters of unknown texts that are read of one feedback: to parse one takes time
RECENT = 100  # messages among which an example of a new flow is looked for
QUOTA_TOLD = 0.25  # a quota that changed by less than this share is not worth a record


class Offered(NamedTuple):
    """What became of a message that wants to leave."""

    passage: Passage
    flows: list[Flow]  # that it belongs to
    displaced: list[Waiting]  # who were withheld so that it may wait


class Passage(Enum):
    """What the gate says to a message."""

    OPEN = "open"  # it leaves now
    WAITS = "waits"
    WITHHELD = "withheld"


@dataclass(slots=True, eq=False)
class Waiting:
    """A message before the gate."""

    arrival: int
    message: Message
    encoding: int
    ticket: Ticket | None
    flows: list[Flow]
    behind: int = 0  # in how many of its queues somebody stands before it


@dataclass(frozen=True, slots=True)
class FlowReport:
    """How one flow fares, for people."""

    flow: str
    quota: float  # messages/s
    limiting_receiver: str
    queue: int
    since: float  # when it was first limited, by the publisher's clock


class Gate:
    """Decides when a publisher's messages leave."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._table = FlowTable(config.flows_max, config.quota_floor)
        self._lane = SlowLane(config)
        self._waiting: dict[int, Waiting] = {}  # in the order of arrival
        self._queues: dict[Flow, deque[Waiting]] = {}  # of flows that somebody waits for
        self._free: dict[int, None] = {}  # arrivals whose flows are no more: they leave at the next release
        self._debts: dict[Flow, None] = {}  # flows whose next token a repair has had already
        self._texts: dict[str, Wanted] = {}  # flows that were asked for by text
        self._unread = TEXT_MAX  # characters that may still be parsed for this feedback
        self._arrivals = 0
        self._told: dict[int, float] = {}  # quotas that were last recorded, by the flow's encoding
        self.recent: deque[Message] = deque(maxlen=RECENT)  # that have left
        self.withheld = 0
        self.feedbacks = 0
        self.refused = 0  # flows in feedbacks

    def __len__(self) -> int:
        return len(self._table)

    @property
    def waiting(self) -> int:
        """Messages before the gate."""
        return len(self._waiting)

    @property
    def newest_is_first(self) -> bool:
        """Whether the message that was offered last waits only for its tokens; otherwise no deadline has moved."""
        newest = self._waiting.get(self._arrivals)
        return newest is not None and not newest.behind

    # Messages.

    def offer(self, message: Message, encoding: int, ticket: Ticket | None, *, now: float) -> Offered:
        """A message wants to leave."""
        flows = self._table.matching(encoding, message.attributes)
        if not flows:
            return Offered(Passage.OPEN, flows, [])
        self._pay_debts(now)
        busy = [flow for flow in flows if flow in self._queues or flow in self._debts]
        if not busy and _take(flows, now):
            return Offered(Passage.OPEN, flows, [])
        displaced = self._room(busy, flows)
        if displaced is None:
            self.withheld += 1
            return Offered(Passage.WITHHELD, flows, [])
        for less_wanted in displaced:
            self.withheld += 1
            self._displace(less_wanted)
        self._arrivals += 1
        waiting = self._waiting[self._arrivals] = Waiting(self._arrivals, message, encoding, ticket, flows)
        self._join(waiting)
        return Offered(Passage.WAITS, flows, displaced)

    def admit(self, message: Message, encoding: int, *, now: float) -> bool:
        """Whether talk that carries this message may leave now; it takes tokens like the message itself (002 1.2)."""
        flows = self._table.matching(encoding, message.attributes)
        self._pay_debts(now)
        if any(flow in self._debts for flow in flows):
            return False
        for flow in flows:
            if not flow.bucket.take(now):
                self._debts[flow] = None
        return True

    def release(self, *, now: float) -> list[Waiting]:
        """The messages that may leave by now, oldest first."""
        leaving: list[Waiting] = []
        self._pay_debts(now)
        first = self._first()
        heapify(first)
        while first:
            waiting = self._waiting[heappop(first)]
            if not any(flow in self._debts for flow in waiting.flows) and _take(waiting.flows, now):
                leaving.append(waiting)
                for next_one in self._leave(waiting):
                    heappush(first, next_one.arrival)
        return leaving

    def deadline(self) -> float | None:
        """When the first message that waits may leave."""
        ready = [
            max((flow.bucket.ready_at() for flow in self._waiting[arrival].flows), default=0.0)
            for arrival in self._first()
        ]
        return min(ready, default=None)

    def withdraw(self) -> list[Waiting]:
        """Nobody waits any more; says who did, oldest first."""
        gone = list(self._waiting.values())
        self._waiting.clear()
        self._queues.clear()
        self._free.clear()
        self.withheld += len(gone)
        return gone

    def _room(self, busy: list[Flow], flows: list[Flow]) -> list[Waiting] | None:
        """Who must give way so that a message of these flows may wait; None if there is no room for it."""
        if len(self._waiting) >= WAITING_MAX:
            return None
        if self._config.when_full == "wait":
            return []
        found: dict[int, Waiting] = {}
        per_quota = self._config.flow_queue / max(flow.quota for flow in flows)
        for flow in busy:
            queue = self._queues.get(flow, ())
            surplus = floor(len(queue) - max(ROOM_MIN, per_quota * flow.quota)) + 1
            if surplus > 0:
                last = reversed(queue) if self._config.prefer_shared else ()
                less_wanted = [other for other in last if len(other.flows) < len(flows)][:surplus]
                if len(less_wanted) < surplus:
                    return None
                found |= {other.arrival: other for other in less_wanted}
        return list(found.values())

    def _displace(self, waiting: Waiting) -> None:
        """It waits no longer; whoever was behind it moves up."""
        del self._waiting[waiting.arrival]
        for flow in waiting.flows:
            queue = self._queues[flow]
            if queue[0] is waiting and len(queue) > 1:
                queue[1].behind -= 1
            queue.remove(waiting)
            if not queue:
                del self._queues[flow]

    def _pay_debts(self, now: float) -> None:
        """Tokens that repairs took before they were there."""
        for flow in list(self._debts):
            if flow.bucket.take(now):
                del self._debts[flow]

    def _first(self) -> list[int]:
        """The arrivals of those who are the first in all of their queues."""
        heads = {queue[0].arrival: None for queue in self._queues.values() if not queue[0].behind}
        return [*self._free, *heads]

    def _join(self, waiting: Waiting) -> None:
        """Stand at the end of all its queues."""
        waiting.behind = 0
        if not waiting.flows:
            self._free[waiting.arrival] = None
        for flow in waiting.flows:
            queue = self._queues.setdefault(flow, deque())
            waiting.behind += bool(queue)
            queue.append(waiting)

    def _leave(self, waiting: Waiting) -> list[Waiting]:
        """It has left all its queues, of which it was the first; says who is the first everywhere now."""
        del self._waiting[waiting.arrival]
        self._free.pop(waiting.arrival, None)
        found = []
        for flow in waiting.flows:
            queue = self._queues[flow]
            queue.popleft()
            if not queue:
                del self._queues[flow]
                continue
            queue[0].behind -= 1
            if not queue[0].behind:
                found.append(queue[0])
        return found

    # Flows.

    def heard(self, feedback: Feedback, scheme: EncodingScheme, *, now: float) -> list[Record]:
        """A subscriber says how fast it can take some flows."""
        self.feedbacks += 1
        self._unread = TEXT_MAX
        records: list[Record] = []
        added: dict[Flow, None] = {}
        removed: dict[Flow, None] = {}
        for asked in feedback.flows:
            wanted, problem = self._checked(asked, feedback.subscriber, scheme)
            if wanted is None:
                self.refused += 1
                records += [record for record in problem if record not in records]  # one of a kind is enough
                continue
            if self._lane.ignores(feedback.subscriber, wanted.encoding, asked.quota, now):
                continue
            travel = now - feedback.sent_at
            answer = self._table.request(wanted, asked.quota, feedback.subscriber, now, travel=travel)
            records += answer.records
            removed.update(dict.fromkeys(answer.removed))
            if answer.flow is not None and answer.verdict is FlowVerdict.ADDED:
                added[answer.flow] = None
                answer.flow.example = self._example(wanted, scheme)
            if answer.flow is not None and answer.verdict is not FlowVerdict.COVERED:
                records += self._tell(answer.flow)
        self._regroup([flow for flow in added if flow not in removed], removed)
        return records

    def expire(self, timeout: float, *, now: float) -> list[Record]:
        """Flows whose limiting receiver has fallen silent, or is too slow, are free again."""
        gone = list(self._table.expire(now, timeout))
        too_slow, records = self._lane.judge(self._table, now)
        for receiver in too_slow:
            gone += self._table.forget(receiver)
        self._regroup([], dict.fromkeys(gone))
        for flow in gone:
            if self._told.pop(flow.wanted.encoding, None) is not None:
                records.append(FlowLimited(self._name(flow), flow.limiting_receiver, 0.0))
        return records

    def limiting_receivers(self) -> list[str]:
        """On whose word flows are limited, without repetition."""
        return list(dict.fromkeys(flow.limiting_receiver for flow in self._table))

    def report(self) -> list[FlowReport]:
        """All flows that are limited now."""
        return [
            FlowReport(self._name(f), f.quota, f.limiting_receiver, len(self._queues.get(f, ())), f.since)
            for f in self._table
        ]

    def _checked(self, asked: Asked, subscriber: str, scheme: EncodingScheme) -> tuple[Wanted | None, list[Record]]:
        """The flow that is asked for, or what is wrong with it."""
        if not 0.0 <= asked.quota <= QUOTA_MAX:
            return None, [InputRefused(subscriber[:40], f"a quota of {asked.quota} messages/s")]
        try:
            wanted = self._wanted(asked, scheme)
        except (InvalidEncoding, InvalidPredicate) as error:
            return None, [InputRefused(subscriber[:40], f"a flow that cannot be: {error}")]
        own = [flow for flow in self._table if flow.limiting_receiver == subscriber]
        if len(own) >= FLOWS_MAX and not any(_same(flow.wanted, wanted) for flow in own):
            return None, [LimitReached("flows of one receiver", FLOWS_MAX)]
        return wanted, []

    def _wanted(self, asked: Asked, scheme: EncodingScheme) -> Wanted:
        """By its bits, or by its text; texts come again with every feedback, so they are remembered."""
        if not asked.where:
            return Wanted(scheme.from_bytes(asked.encoding))
        known = self._texts.get(asked.where)
        if known is not None:
            return known
        self._unread -= len(asked.where)
        if self._unread < 0:
            raise InvalidPredicate(f"more than {TEXT_MAX} characters of new text; say the others next time")
        wanted = flow_of(parse_predicate(asked.where), scheme, exact=True)
        if len(self._texts) >= self._config.flows_max:
            del self._texts[next(iter(self._texts))]
        self._texts[asked.where] = wanted
        return wanted

    def _regroup(self, added: Sequence[Flow], removed: Mapping[Flow, None]) -> None:
        """Flows came and went: whoever waits does so for the flows that there are."""
        for flow in removed:
            self._debts.pop(flow, None)
        if not self._waiting or not (added or removed):
            return
        self._queues.clear()
        self._free.clear()
        for waiting in self._waiting.values():
            stayed = [flow for flow in waiting.flows if flow not in removed]
            attributes = waiting.message.attributes
            waiting.flows = stayed + [flow for flow in added if flow.wanted.has(waiting.encoding, attributes)]
            self._join(waiting)

    def _tell(self, flow: Flow) -> list[Record]:
        before = self._told.get(flow.wanted.encoding)
        if before is not None and abs(flow.quota - before) <= QUOTA_TOLD * before:
            return []
        if len(self._told) >= self._config.flows_max:
            self._told.clear()
        self._told[flow.wanted.encoding] = flow.quota
        return [FlowLimited(self._name(flow), flow.limiting_receiver, flow.quota)]

    def _example(self, wanted: Wanted, scheme: EncodingScheme) -> Attributes | None:
        """A message of this flow that has left."""
        lately = (message.attributes for message in reversed(self.recent))
        return next((each for each in lately if wanted.has(scheme.encode_message(each), each)), None)

    def _name(self, flow: Flow) -> str:
        return flow_name(flow, self._config.scheme)


def slowest(flows: list[Flow]) -> Flow | None:
    """The flow whose limiting receiver a message names (erratum C7)."""
    return min(flows, key=lambda flow: flow.quota, default=None)


def flow_name(flow: Flow, scheme: EncodingScheme) -> str:
    """What to call it: its filter, or what the example has of its bits, or the bits themselves."""
    text = getattr(flow.wanted.exact, "text", None)
    if isinstance(text, str):
        return text
    parts, unsaid = [], flow.wanted.encoding
    for name, value in (flow.example or {}).items():
        for constraint in (Equals(name, value), Exists(name)):
            bits = scheme.encode_filter(Filter((constraint,)))
            if bits and not bits & ~flow.wanted.encoding:
                parts.append(constraint_text(constraint))
                unsaid &= ~bits
                break
    return " AND ".join(parts) if parts and not unsaid else f"bits {flow.wanted.encoding:x}"


def _take(flows: list[Flow], now: float) -> bool:
    """A token of each, or of none."""
    if not all(flow.bucket.has(now) for flow in flows):
        return False
    for flow in flows:
        flow.bucket.take(now)
    return True


def _same(one: Wanted, other: Wanted) -> bool:
    return flow_covers(one, other) and flow_covers(other, one)
