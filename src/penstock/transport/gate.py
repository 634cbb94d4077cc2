"""The publisher's gate: messages of a limited flow leave as fast as its quota allows, all others at once (000 III-B).

Every message is compared with the flow table. If all flows it belongs to have a token, and none of them has an older
message waiting, it takes a token of each and leaves. Otherwise it waits in the queue of each of its flows and leaves
when it is the first in all of them and all have tokens. There is no deadlock: the oldest message that waits is the
first in all of its queues. Messages that belong to no flow are never delayed.

A queue that is full withholds: with `when_full = "drop"` the message ends here, is counted and answered at once; with
"wait" its sender waits, which is the application's own queue, so the bound is only a safeguard.

State: the flow table, and the waiting messages in the order in which they came. Timer: ("transport", "gate"), for the
next token that somebody waits for. A message gets its number when it leaves, not when it is queued (erratum C10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from penstock.content.bloom import EncodingScheme
from penstock.content.language import parse_predicate
from penstock.content.message import Message
from penstock.errors import InvalidEncoding, InvalidPredicate
from penstock.kernel.machine import Ticket
from penstock.kernel.trace import FlowLimited, InputRefused, Record
from penstock.transport.config import TransportConfig
from penstock.transport.flow_table import Flow, FlowTable, FlowVerdict, Wanted, flow_of
from penstock.transport.talk import Asked, Feedback

WAITING_MAX = 100_000  # messages whose senders wait; beyond it they are refused
QUOTA_TOLD = 0.25  # a quota that changed by less than this share is not worth a record


class Passage(Enum):
    """What the gate says to a message."""

    OPEN = "open"  # it leaves now
    WAITS = "waits"
    WITHHELD = "withheld"


@dataclass(slots=True)
class Waiting:
    """A message before the gate."""

    message: Message
    ticket: Ticket | None
    flows: list[Flow]


@dataclass(frozen=True, slots=True)
class FlowReport:
    """How one flow fares, for people."""

    flow: str
    quota: float  # messages/s
    limiting_receiver: str
    queue: int
    since: float  # when it was last told so, by the publisher's clock


class Gate:
    """Decides when a publisher's messages leave."""

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._table = FlowTable(config.flows_max)
        self._waiting: dict[int, Waiting] = {}  # in the order of arrival
        self._arrivals = 0
        self._told: dict[int, float] = {}  # quotas that were last recorded, by the flow's encoding
        self.withheld = 0
        self.feedbacks = 0

    def __len__(self) -> int:
        return len(self._table)

    @property
    def waiting(self) -> int:
        """Messages before the gate."""
        return len(self._waiting)

    # Messages.

    def offer(
        self, message: Message, encoding: int, ticket: Ticket | None, *, now: float
    ) -> tuple[Passage, list[Flow]]:
        """A message wants to leave; says whether it does, and which flows it belongs to."""
        flows = self._table.matching(encoding, message.attributes)
        if not flows:
            return Passage.OPEN, flows
        busy = self._busy()
        if not any(flow in busy for flow in flows) and _take(flows, now):
            return Passage.OPEN, flows
        bound = WAITING_MAX if self._config.when_full == "wait" else self._config.flow_queue
        if any(len(busy.get(flow, ())) >= bound for flow in flows):
            self.withheld += 1
            return Passage.WITHHELD, flows
        self._arrivals += 1
        self._waiting[self._arrivals] = Waiting(message, ticket, flows)
        return Passage.WAITS, flows

    def admit(self, message: Message, encoding: int, *, now: float) -> bool:
        """Whether talk that carries this message may leave now; it takes tokens like the message itself (002 1.2)."""
        flows = self._table.matching(encoding, message.attributes)
        return not flows or _take(flows, now)

    def release(self, *, now: float) -> list[Waiting]:
        """The messages that may leave by now, oldest first."""
        leaving: list[Waiting] = []
        blocked: dict[Flow, None] = {}
        busy = len(self._busy())
        for arrival, waiting in list(self._waiting.items()):
            if any(flow in blocked for flow in waiting.flows) or not _take(waiting.flows, now):
                blocked.update(dict.fromkeys(waiting.flows))
                if len(blocked) >= busy:
                    break
            else:
                del self._waiting[arrival]
                leaving.append(waiting)
        return leaving

    def deadline(self) -> float | None:
        """When the first message that waits may leave."""
        heads: dict[Flow, None] = {}
        soonest: float | None = None
        for waiting in self._waiting.values():
            if not any(flow in heads for flow in waiting.flows):
                ready = max((flow.bucket.ready_at() for flow in waiting.flows), default=0.0)
                soonest = ready if soonest is None else min(soonest, ready)
            heads.update(dict.fromkeys(waiting.flows))
            if len(heads) >= len(self._table):
                break
        return soonest

    def _busy(self) -> dict[Flow, list[Waiting]]:
        """The flows for which somebody waits."""
        busy: dict[Flow, list[Waiting]] = {}
        for waiting in self._waiting.values():
            for flow in waiting.flows:
                busy.setdefault(flow, []).append(waiting)
        return busy

    # Flows.

    def heard(self, feedback: Feedback, scheme: EncodingScheme, *, now: float) -> list[Record]:
        """A subscriber says how fast it can take some flows."""
        self.feedbacks += 1
        records: list[Record] = []
        for asked in feedback.flows:
            try:
                wanted = _wanted(asked, scheme)
            except (InvalidEncoding, InvalidPredicate) as error:
                records.append(InputRefused(feedback.subscriber, f"a flow that cannot be: {error}"))
                continue
            travel = now - feedback.sent_at
            answer = self._table.request(wanted, asked.quota, feedback.subscriber, now, travel=travel)
            records += answer.records
            self._freed(answer.removed)
            if answer.flow is not None and answer.verdict is not FlowVerdict.COVERED:
                records += self._tell(answer.flow)
        return records

    def expire(self, timeout: float, *, now: float) -> list[Record]:
        """Flows whose limiting receiver has fallen silent are free again."""
        gone = self._table.expire(now, timeout)
        self._freed(gone)
        records: list[Record] = []
        for flow in gone:
            if self._told.pop(flow.wanted.encoding, None) is not None:
                records.append(FlowLimited(flow_name(flow), flow.limiting_receiver, 0.0))
        return records

    def report(self) -> list[FlowReport]:
        """All flows that are limited now."""
        busy = self._busy()
        return [
            FlowReport(flow_name(f), f.quota, f.limiting_receiver, len(busy.get(f, ())), f.feedback_at)
            for f in self._table
        ]

    def _freed(self, removed: Sequence[Flow]) -> None:
        """Nobody waits for a flow that is no more."""
        if removed:
            for waiting in self._waiting.values():
                waiting.flows = [flow for flow in waiting.flows if not any(flow is gone for gone in removed)]

    def _tell(self, flow: Flow) -> list[Record]:
        before = self._told.get(flow.wanted.encoding)
        if before is not None and abs(flow.quota - before) <= QUOTA_TOLD * before:
            return []
        if len(self._told) >= self._config.flows_max:
            self._told.clear()
        self._told[flow.wanted.encoding] = flow.quota
        return [FlowLimited(flow_name(flow), flow.limiting_receiver, flow.quota)]


def slowest(flows: list[Flow]) -> Flow | None:
    """The flow whose limiting receiver a message names (erratum C7)."""
    return min(flows, key=lambda flow: flow.quota, default=None)


def flow_name(flow: Flow) -> str:
    """What to call it."""
    exact = flow.wanted.exact
    text = getattr(exact, "text", None)
    return text if isinstance(text, str) else f"bits {flow.wanted.encoding:x}"


def _take(flows: list[Flow], now: float) -> bool:
    """A token of each, or of none."""
    if not all(flow.bucket.has(now) for flow in flows):
        return False
    for flow in flows:
        flow.bucket.take(now)
    return True


def _wanted(asked: Asked, scheme: EncodingScheme) -> Wanted:
    if asked.where:
        return flow_of(parse_predicate(asked.where), scheme, exact=True)
    return Wanted(scheme.from_bytes(asked.encoding))
