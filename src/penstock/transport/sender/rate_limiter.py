"""A publisher's rate limiter: messages of a limited flow leave as fast as its quota allows, others at once (000 III-B).

Every message is compared with the flow table. If all flows it belongs to have a token, and nobody who waits comes
before it, it takes a token of each and leaves. Otherwise it waits (`pending_queues`). Messages of no flow are never
delayed.

A queue that is full withholds: with `when_full = "drop"` the message ends here, is counted and answered at once; with
"wait" its sender waits, which is the application's own queue, so the bound is only a safeguard. With "drop" order holds
within each flow, so a message that waits for a slow flow would hold up the faster ones it belongs to. So it may wait
for its fastest flow only: those before it and itself must have tokens of the slower ones by the time the fastest lets
it go, else it is withheld. By that a flow that is offered too much loses nothing, and a narrow flow takes nothing from
a wide one that it is part of. (With equal room in all queues, a flow of 40/s within one of 190/s cut that down to 65/s;
decided here.)

The papers withhold the message that comes last. But one that belongs to several flows must find room in all of them, so
those that most subscribers wait for were the first to be withheld, and each that left had fewer receivers. So a message
for whose flows there is no room takes the place of the last ones, in each full queue, that belong to fewer flows
(`prefer_shared`, beyond the papers). Quotas hold as before; of what is too much, more of the shared leaves. More than
one give way only in a flow whose queue was full within OVERLOADED seconds, which loses messages anyway.

State: the flow table, and who waits. When a flow is added or removed, those who wait join its queue or leave it: else a
message that waited for a flow that a wider one replaced would leave past the wider one's quota. With "drop" those who
are then too many, or would hold up a faster flow, are withheld after all.

A repair does not wait: it takes a token of each flow, or the next one if there is none and no other repair has had that
(else a flow that is always full would never let one out). So in w seconds at most depth + quota * w + 1 leave.

Bounds: `flow_queue` per flow ("drop"), PENDING_MAX in all, `flows_max` flows, FLOWS_MAX of them of one receiver, of
which one filter each and TEXT_MAX characters of new text at a time; one feedback of a receiver per FEEDBACK_EVERY.
Feedback that cannot be is refused, flow by flow, with a record. A quota grows no faster than a receiver that keeps to
the rules would let it: by (1 + alpha) twice per round trip, as far as that is known; else one who lowers and raises in
turn could send the others floods. Timer: RATE_LIMITER, for the next token that somebody waits for. A
message gets its number when it leaves, not when it is queued (erratum C10).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, inf
from typing import NamedTuple

from penstock.content.bloom import EncodingScheme
from penstock.content.language.expression import constraint_text
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Attributes, Message
from penstock.content.predicate import Equals, Exists, Filter
from penstock.errors import InvalidEncoding, InvalidPredicate
from penstock.kernel.rate_estimator import rate_text
from penstock.kernel.storage import Ticket
from penstock.kernel.trace import InputRefused, LimitReached, Record
from penstock.transport.config import TransportConfig
from penstock.transport.receiver.loss_probe import ANYTHING
from penstock.transport.records import FlowLimited
from penstock.transport.sender.flow_table import NONE, Flow, FlowTable, FlowVerdict, WantedFlow, flow_of
from penstock.transport.sender.pending_queues import Flows, PendingMessage, PendingQueues, has_tokens
from penstock.transport.sender.receiver_quarantine import ReceiverQuarantine
from penstock.transport.wire.control_messages import FLOWS_MAX, Feedback, FlowQuota

PENDING_MAX = 100_000  # messages that wait for tokens; beyond it they are withheld
QUOTA_MAX = 1e9  # messages/s; nobody publishes so fast, so nobody has a reason to ask for it
TEXT_MAX = 1_000  # characters of unknown texts that are read of one feedback: to parse one takes time
RECENT = 100  # messages among which an example of a new flow is looked for
ROUNDING = 1e-9
OVERLOADED = 1.0
SETTLES_IN = 3.0  # seconds
FEEDBACK_EVERY = 0.005  # seconds between two feedbacks of one receiver, at least, and
FEEDBACK_PER_FLOW = 0.001  # for each flow in the first
FEEDBACK_SENDERS_MAX = 10_000  # receivers of whom this is known
QUOTA_REPORTED = 0.25  # a quota that changed by less than this share is not worth a record


class LimiterVerdict(Enum):
    """What becomes of a message."""

    OPEN = "open"  # it leaves now
    WAITS = "waits"
    WITHHELD = "withheld"


class Offered(NamedTuple):
    """What became of a message that wants to leave."""

    admission: LimiterVerdict
    flows: Flows  # that it belongs to
    displaced: Sequence[PendingMessage] = ()  # who were withheld so that it may wait
    first: bool = False  # it waits, and nobody of the same flows before it: the deadline may have moved


@dataclass(frozen=True, slots=True)
class FlowReport:
    """How one flow fares, for people."""

    flow: str
    quota: float  # messages/s
    limiting_receiver: str
    queue: int
    since: float  # when it was first limited, by the publisher's clock

    @property
    def reason(self) -> str:
        """Why, in words."""
        taken = f"{self.limiting_receiver} takes {rate_text(self.quota)} messages/s of {self.flow}"
        return f"{taken}; {self.queue:,} wait"


class RateLimiter:
    """Decides when a publisher's messages leave."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._table = FlowTable(config.flows_max, config.quota_floor, config.increase_max, SETTLES_IN)
        self._quarantine = ReceiverQuarantine(config)
        self._pending = PendingQueues(overtaking=config.when_full == "wait")
        self._debts: dict[Flow, None] = {}  # flows whose next token a repair has had already
        self._texts: dict[str, WantedFlow] = {}  # flows that were asked for by text
        self._unread = TEXT_MAX  # characters that may still be parsed for this feedback
        # From whom, when, and not again for how long.
        self._last_feedback: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._arrivals = 0
        self._reported: dict[Flow, tuple[float, str]] = {}  # quotas and receivers that were last recorded
        self.recent: deque[Message] = deque(maxlen=RECENT)  # that have left
        # Who waited and is withheld, because a flow was limited; the owner takes them out.
        self.shed: list[PendingMessage] = []
        self.withheld = 0
        self.feedbacks = 0
        self.refused = 0  # flows in feedbacks

    def __len__(self) -> int:
        return len(self._table)

    @property
    def waiting(self) -> int:
        """Messages that wait for tokens."""
        return len(self._pending)

    def left_behind(self) -> list[Message]:
        """Of those that wait, the ones whose publisher has gone on, oldest first (`when_full = "drop"`)."""
        return [pending.message for pending in self._pending if pending.ticket is None]

    @property
    def queues(self) -> int:
        """How many sets of flows somebody waits for."""
        return self._pending.count

    # Messages.

    def offer(
        self, message: Message, encoding: int, ticket: Ticket | None, *, now: float, began: float | None = None
    ) -> Offered:
        """A message wants to leave; it was published when it `began`, which is now if that is not said."""
        flows = tuple(self._table.matching(encoding, message.attributes))
        if not flows:
            return Offered(LimiterVerdict.OPEN, flows)
        self._pay_debts(now)
        for flow in flows:
            if not flow.bucket.has(now):
                flow.short_at = now
        if not self._pending.blocks(flows, now) and self._take(flows, now):
            return Offered(LimiterVerdict.OPEN, flows)
        displaced = self._room(flows, now)
        if displaced is None:
            self.withheld += 1
            return Offered(LimiterVerdict.WITHHELD, flows)
        for less_wanted in displaced:
            self.withheld += 1
            self._pending.leave(less_wanted)
        self._arrivals += 1
        began = now if began is None else began
        first = self._pending.join(PendingMessage(self._arrivals, message, encoding, ticket, flows, began))
        return Offered(LimiterVerdict.WAITS, flows, displaced, first)

    def admit(self, message: Message, encoding: int, *, now: float) -> bool:
        """Whether a repair of this message may leave now; it takes tokens like the message itself (002 1.2)."""
        flows = self._table.matching(encoding, message.attributes)
        self._pay_debts(now)
        if any(flow in self._debts for flow in flows):
            return False
        for flow in flows:
            if not flow.bucket.take(now):
                self._debts[flow] = None
        return True

    def release(self, *, now: float) -> list[PendingMessage]:
        """The messages that may leave by now, oldest first."""
        self._pay_debts(now)
        return self._pending.release(lambda flows, kept: self._take(flows, now, kept))

    def deadline(self) -> float | None:
        """When the first message that waits may leave."""
        return self._pending.deadline()

    def withdraw(self, ticket: Ticket) -> bool:
        """Whoever published under this ticket waits no longer; False if nobody does."""
        waiting = self._pending.with_ticket(ticket)
        if waiting is not None:
            self._pending.leave(waiting)
        return waiting is not None

    def withdraw_all(self) -> list[PendingMessage]:
        """Nobody waits any more; returns who did, oldest first."""
        gone = list(self._pending)
        self._pending.clear()
        self.withheld += len(gone)
        return gone

    def _room(self, flows: Flows, now: float) -> list[PendingMessage] | None:
        """Who must give way so that a message of these flows may wait; None if there is no room for it."""
        if len(self._pending) >= PENDING_MAX:
            return None
        if self._config.when_full == "wait":
            return []
        found: dict[int, PendingMessage] = {}
        fastest = max(flows, key=lambda flow: flow.quota)
        for flow in flows:
            if self._pending.length(flow) >= self._config.flow_queue:
                flow.full_at = now
            surplus = ceil(self._pending.length(flow) + 1 - self._places(flow, fastest, now))
            if surplus > 0:
                fewer_than = len(flows) if self._config.prefer_shared else 0
                less_wanted = self._pending.last_of_fewer(flow, fewer_than, surplus)
                if len(less_wanted) < surplus or (surplus > 1 and now - flow.full_at > OVERLOADED):
                    return None
                found |= {other.arrival: other for other in less_wanted}
        return list(found.values())

    def _places(self, flow: Flow, fastest: Flow, now: float) -> float:
        """How many messages may wait for this flow: `flow_queue`, or those that will have tokens in time."""
        if flow is fastest:
            return self._config.flow_queue
        wait = max(0.0, self._pending.length(fastest) + 1 - fastest.bucket.tokens(now)) / fastest.quota
        return min(self._config.flow_queue, flow.bucket.tokens(now) + flow.quota * wait + ROUNDING)

    def _take(self, flows: Flows, now: float, kept: Mapping[Flow, None] = NONE) -> bool:
        """A token of each, or of none; of flows in `kept` one must stay for somebody older."""
        if any(flow in self._debts for flow in flows) or not has_tokens(flows, now, kept):
            return False
        for flow in flows:
            flow.bucket.take(now)
        return True

    def _pay_debts(self, now: float) -> None:
        """Tokens that repairs took before they were there."""
        for flow in list(self._debts):
            if flow.bucket.take(now):
                del self._debts[flow]

    # Flows.

    def feedback_received(
        self, feedback: Feedback, scheme: EncodingScheme, *, now: float, round_trip: float | None = None
    ) -> list[Record]:
        """Feedback: how fast a subscriber can take some flows; `round_trip` to it, if that is known."""
        if not self._accepts(feedback, now):
            return []
        self.feedbacks += 1
        self._unread = TEXT_MAX
        records: list[Record] = []
        added: dict[Flow, None] = {}
        removed: dict[Flow, None] = {}
        for flow_quota in feedback.flows:
            wanted, problem = self._checked(flow_quota, feedback.subscriber, scheme)
            if wanted is None:
                self.refused += 1
                records += [record for record in problem if record not in records]  # one of a kind is enough
                continue
            if self._quarantine.ignores(feedback.subscriber, wanted, flow_quota.quota, now):
                continue
            travel = now - feedback.sent_at
            answer = self._table.request(
                wanted, flow_quota.quota, feedback.subscriber, now, travel=travel, round_trip=round_trip
            )
            records += answer.records
            removed.update(dict.fromkeys(answer.removed))
            if answer.flow is not None and answer.verdict is FlowVerdict.ADDED:
                added[answer.flow] = None
                answer.flow.example = self._example(wanted, scheme)
            if answer.flow is not None and answer.verdict is not FlowVerdict.COVERED:
                records += self._report_flow(answer.flow)
        new = [flow for flow in added if flow not in removed]
        records += self._regroup(new, removed)
        self._shed(new, now)
        return records

    def expire(self, timeout: float, *, now: float, slower: Mapping[str, float] | None = None) -> list[Record]:
        """Flows whose limiting receiver sends no more feedback, or is too slow, are free again.

        `slower` are receivers far away, whose feedback may take longer.
        """
        gone = dict.fromkeys((*self._table.expire(now, timeout, slower), *self._table.needless(now)))
        too_slow, records = self._quarantine.judge(self._table, now)
        for receiver in too_slow:
            gone.update(dict.fromkeys(self._table.forget(receiver)))
        return records + self._regroup([], gone)

    def forgive(self, receiver: str) -> None:
        """It was wrong not to listen to this receiver."""
        self._quarantine.forgive(receiver)

    def quarantine(self, receiver: str, problem: str, *, now: float, seconds: float) -> list[Record]:
        """This receiver's feedback does not count for so long."""
        self._quarantine.add(receiver, now, seconds)
        gone = dict.fromkeys(self._table.forget(receiver))
        return [InputRefused(receiver[:40], problem), *self._regroup([], gone)]

    def _accepts(self, feedback: Feedback, now: float) -> bool:
        """Nobody has a reason to send feedback so often, and to read it takes time."""
        received_at, pause = self._last_feedback.pop(feedback.subscriber, (-inf, 0.0))
        accepted = not 0.0 <= now - received_at < pause
        pause = max(FEEDBACK_EVERY, FEEDBACK_PER_FLOW * len(feedback.flows)) if accepted else pause
        self._last_feedback[feedback.subscriber] = (now if accepted else received_at, pause)
        if len(self._last_feedback) > FEEDBACK_SENDERS_MAX:
            self._last_feedback.popitem(last=False)
        return accepted

    def limiting_receivers(self) -> list[str]:
        """The receivers that limit flows, without repetition."""
        return list(dict.fromkeys(flow.limiting_receiver for flow in self._table))

    def report(self) -> list[FlowReport]:
        """All flows that are limited now."""
        return [
            FlowReport(self._name(flow), flow.quota, flow.limiting_receiver, self._pending.length(flow), flow.since)
            for flow in self._table
            if flow.quota < ANYTHING
        ]

    def _checked(
        self, flow_quota: FlowQuota, subscriber: str, scheme: EncodingScheme
    ) -> tuple[WantedFlow | None, list[Record]]:
        """The flow that is asked for, or what is wrong with it."""
        if not 0.0 <= flow_quota.quota <= QUOTA_MAX:
            return None, [InputRefused(subscriber[:40], f"a quota of {flow_quota.quota} messages/s")]
        try:
            wanted = self._wanted(flow_quota, scheme)
        except (InvalidEncoding, InvalidPredicate) as error:
            return None, [InputRefused(subscriber[:40], f"a flow that cannot be: {error}")]
        own = [flow for flow in self._table if flow.limiting_receiver == subscriber]
        if len(own) >= FLOWS_MAX and not any(flow.wanted == wanted for flow in own):
            return None, [LimitReached("flows of one receiver", FLOWS_MAX)]
        return wanted, []

    def _wanted(self, flow_quota: FlowQuota, scheme: EncodingScheme) -> WantedFlow:
        """By its bits, or by its text; texts come again with every feedback, so they are remembered."""
        if not flow_quota.where:
            return WantedFlow(scheme.from_bytes(flow_quota.encoding))
        known = self._texts.pop(flow_quota.where, None)
        if known is not None:
            self._texts[flow_quota.where] = known  # the one that was not used for longest is the first to go
            return known
        self._unread -= len(flow_quota.where)
        if self._unread < 0:
            raise InvalidPredicate(f"more than {TEXT_MAX} characters of new text; send the others next time")
        selected = parse_predicate(flow_quota.where)
        if len(selected.filters) != 1:
            raise InvalidPredicate("a flow is one filter, without OR")
        wanted = flow_of(selected, scheme, exact=True)
        if len(self._texts) >= self._config.flows_max:
            del self._texts[next(iter(self._texts))]
        self._texts[flow_quota.where] = wanted
        return wanted

    def _regroup(self, added: Sequence[Flow], removed: Mapping[Flow, None]) -> list[Record]:
        """Flows came and went."""
        if (added or removed) and self._pending:
            self._pending.regroup(added, removed)
        for flow in removed:
            self._debts.pop(flow, None)
        reported = [flow for flow in removed if self._reported.pop(flow, None) is not None]
        return [FlowLimited(self._name(flow), flow.limiting_receiver, 0.0) for flow in reported]

    def _shed(self, added: Sequence[Flow], now: float) -> None:
        """Where order holds: those who wait for a new flow and would hold up a faster one, the youngest of them."""
        for flow in added if self._config.when_full == "drop" else ():
            waiting = self._pending.length(flow)
            surplus = ceil(waiting - self._places(flow, self._pending.fastest_with(flow), now)) if waiting else 0
            for youngest in self._pending.last_of_fewer(flow, len(self._table) + 1, max(0, surplus)):
                self._pending.leave(youngest)
                self.withheld += 1
                self.shed.append(youngest)

    def _report_flow(self, flow: Flow) -> list[Record]:
        if flow.quota >= ANYTHING:  # somebody only wants to know whether all of it comes
            return []
        quota, receiver = self._reported.get(flow, (0.0, ""))
        if receiver == flow.limiting_receiver and abs(flow.quota - quota) <= QUOTA_REPORTED * quota:
            return []
        self._reported[flow] = (flow.quota, flow.limiting_receiver)
        return [FlowLimited(self._name(flow), flow.limiting_receiver, flow.quota)]

    def _example(self, wanted: WantedFlow, scheme: EncodingScheme) -> Attributes | None:
        """A message of this flow that has left."""
        lately = (message.attributes for message in reversed(self.recent))
        return next((each for each in lately if wanted.has(scheme.encode_message(each), each)), None)

    def _name(self, flow: Flow) -> str:
        return flow_name(flow, self._config.encoding)


def slowest(flows: Sequence[Flow]) -> Flow | None:
    """The flow whose limiting receiver a message names (erratum C7)."""
    return min(flows, key=lambda flow: flow.quota, default=None)


def flow_name(flow: Flow, scheme: EncodingScheme) -> str:
    """What to call it: its filter, or what the example has of its bits, or the bits themselves."""
    text = getattr(flow.wanted.exact, "text", None)
    if isinstance(text, str):
        return text
    parts, unnamed = [], flow.wanted.encoding
    for name, value in (flow.example or {}).items():
        for constraint in (Equals(name, value), Exists(name)):
            bits = scheme.encode_filter(Filter((constraint,)))
            if bits and not bits & ~flow.wanted.encoding:
                parts.append(constraint_text(constraint))
                unnamed &= ~bits
                break
    return " AND ".join(parts) if parts and not unnamed else f"bits {flow.wanted.encoding:x}"
