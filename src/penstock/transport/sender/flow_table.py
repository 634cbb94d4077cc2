"""A publisher's table of controlled flows: which messages may leave how fast, limited by whom (000 Figure 4).

A *flow* is all messages of this publisher that match one filter. Subscribers that are short of capacity ask for a
quota on a flow; of all who ask for the same messages the one with the lowest quota, the flow's *limiting receiver*, is
followed. `request` is the corrected Algorithm 2 (002 Algorithm 5.4):

    updated    the limiting receiver of this very filter may raise and lower; anybody else may lower, and then is the
               limiting receiver. The bucket stays, so that a change gives no new burst
    covered    a flow that covers the wanted one has no higher quota: nothing to do
    added      otherwise it is a new flow; flows that it covers and whose quota is no lower are not needed any more

A receiver of few messages sees a loss in each round trip where many are lost, and takes itself for much shorter than it
is. So while a flow has just been limited, narrower ones within it are not taken up for `settles_in` seconds; and a
narrower flow that was not short of tokens for NEEDLESS_AFTER seconds is forgotten (beyond the papers).

Departures. Ties count as covered in both directions: as printed, equal requests of five subscribers make five entries
(erratum C8). Every change of a quota is followed by the same clean-up, which the papers do on insertion only; so at any
time no flow is covered by another with a lower or equal quota. A request below `quota_min` is taken as `quota_min`: no
subscriber can stop a publisher (erratum C14).

Covering (errata B1, C8). A flow is given by bits alone, or by bits and the exact filter. Bits alone mean: all messages
with these bits. Then F covers G if bits(F) are a subset of bits(G), which is sure whatever G is, but the flow may be
wider than the filter: `price < 10` and `price > 20` are one flow then. To keep them apart would not help, because a
message of either would match both and need tokens of both. An exact filter means just its messages and covers only
what `relations.covers` proves, never bits alone.

A raise is followed only as far as a receiver that keeps to the rules could ask for it (beyond the papers, which leave
that to the receiver). One who lowers and raises in turn can still send floods to the others, though not at once: what
the one before it asked for is no bound, since equal receivers take over from each other all the time (as a bound for
two seconds it cost them an eighth of their rate).

State: flows in the order of insertion; each with token bucket, limiting receiver and time of its last feedback. No
timers: the owner calls `expire`. Bounds: `flows_max`; a flow that does not fit is left out, with a record when that
begins. RELATED_STEPS to compare a request with all flows; what is not proven by then is taken for unrelated. Who holds
a flow down for too long is for `receiver_quarantine` to judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from math import inf, isfinite, pow
from types import MappingProxyType
from typing import NamedTuple

from penstock.content.bloom import EncodingScheme, encoding_covers, matches
from penstock.content.language.budget import Budget
from penstock.content.language.evaluate import filter_matches
from penstock.content.message import Attributes
from penstock.content.predicate import Equals, Filter, Predicate
from penstock.content.relations import covers
from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import InputRefused, LimitReached, Record

ROUND_TRIP_MIN = 0.01  # nobody sends feedback more often than that
ROUND_TRIPS_MAX = 64.0
NEEDLESS_AFTER = 3.0  # seconds
RELATED_STEPS = 30_000  # to compare the filter of one request with all flows; relations beyond that are not known of
DEPTH_MIN = 2.0  # messages that may leave at once
DEPTH_SECONDS = 0.05  # or as many as the quota allows in this time (0.1 on the experiments page: more loss)


class WantedFlow(NamedTuple):
    """The messages of a flow: those with these bits, or those that match exactly."""

    encoding: int
    exact: Filter | Predicate | None = None
    equalities: bool = False  # the exact filter has no other constraints, so bits show at once what it does not cover

    def has(self, encoding: int, attributes: Attributes) -> bool:
        """Whether a message belongs to it."""
        if not matches(self.encoding, encoding):
            return False
        if isinstance(self.exact, Predicate):
            return self.exact.matches(attributes)
        return self.exact is None or filter_matches(self.exact, attributes)


def flow_of(selected: Filter | Predicate, scheme: EncodingScheme, *, exact: bool) -> WantedFlow:
    """A flow for this filter; for a predicate, with the bits that all its filters have in common."""
    filters = selected.filters if isinstance(selected, Predicate) else (selected,)
    encoding = (1 << scheme.bits) - 1
    for each in filters:
        encoding &= scheme.encode_filter(each)
    equalities = all(isinstance(constraint, Equals) for each in filters for constraint in each.constraints)
    return WantedFlow(encoding, selected, equalities) if exact else WantedFlow(encoding)


def flow_covers(general: WantedFlow, specific: WantedFlow, budget: Budget | None = None) -> bool:
    """Proven: every message of the second flow is one of the first."""
    if general.exact is None:
        return encoding_covers(general.encoding, specific.encoding)
    if specific.exact is None or (general.equalities and not encoding_covers(general.encoding, specific.encoding)):
        return False
    return covers(general.exact, specific.exact, budget)


Related = Mapping["Flow", None]
NONE: Related = MappingProxyType({})  # most flows have nothing to do with each other


class Flow:
    """An entry of the table."""

    __slots__ = (
        "bucket",
        "count",
        "example",
        "feedback_at",
        "full_at",
        "limiting_receiver",
        "narrower",
        "number",
        "quota",
        "short_at",
        "since",
        "travel",
        "wanted",
        "wider",
    )

    def __init__(self, wanted: WantedFlow, limiting_receiver: str, quota: float, travel: float, now: float) -> None:
        self.wanted = wanted
        self.limiting_receiver = limiting_receiver
        self.quota = quota  # messages/s
        self.bucket = TokenBucket(quota, _depth(quota), now)
        self.since = now  # by our clock
        self.feedback_at = now
        self.full_at = -inf  # when its queue was last found full
        self.short_at = -inf  # when a message last found no token
        self.travel = travel  # of that feedback: our time of arrival less its sender's time of departure
        self.number = 0  # under which headers name it
        self.count = 0  # messages of it that have left
        self.example: Attributes | None = None  # a message of it: bits alone mean nothing to people
        self.wider: Related = NONE  # flows that cover it, and those that it covers: to compare filters takes time, and
        self.narrower: Related = NONE  # the same flows are asked for once per round trip

    def follow(self, limiting_receiver: str, quota: float, travel: float, now: float) -> None:
        """Follow this receiver's feedback."""
        self.limiting_receiver = limiting_receiver
        self.quota = quota
        self.bucket.set_rate(quota, now, _depth(quota))
        self.feedback_at = now
        self.travel = travel


class FlowVerdict(Enum):
    """What became of a request."""

    ADDED = "added"
    UPDATED = "updated"
    COVERED = "covered"
    REFUSED = "refused"


class FlowAnswer(NamedTuple):
    """What a request did; flows that were removed may have had messages waiting for their tokens."""

    verdict: FlowVerdict
    flow: Flow | None = None  # that now limits these messages
    removed: tuple[Flow, ...] = ()
    records: tuple[Record, ...] = ()


class FlowTable:
    """The flows of one publisher."""

    def __init__(
        self, flows_max: int = 1000, quota_min: float = 0.1, increase_max: float = 0.5, settles_in: float = 0.0
    ) -> None:
        self._flows: list[Flow] = []
        self._known: dict[WantedFlow, Flow] = {}
        self._flows_max = flows_max
        self._quota_min = quota_min
        self._increase_max = increase_max
        self._settles_in = settles_in
        self._full_reported = False
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._flows)

    def __iter__(self) -> Iterator[Flow]:
        return iter(self._flows)

    def request(
        self,
        wanted: WantedFlow,
        quota: float,
        subscriber: str,
        now: float,
        *,
        travel: float = 0.0,
        round_trip: float | None = None,
    ) -> FlowAnswer:
        """A subscriber asks that these messages come no faster than this; `round_trip` to it, if that is known."""
        if not (isfinite(quota) and quota >= 0.0 and isfinite(travel)):
            return FlowAnswer(
                FlowVerdict.REFUSED,
                records=(InputRefused(subscriber, f"a quota of {quota} messages/s, {travel} s under way"),),
            )
        quota = max(self._quota_min, quota)
        wider, narrower = self._related(wanted)
        same = self._known.get(wanted) or next((flow for flow in wider if flow in narrower), None)
        accepted = same is not None and (subscriber == same.limiting_receiver or quota < same.quota)
        if same is not None and accepted:
            quota = min(quota, self._grown(same, round_trip, now))
        # Its own quota does not stand in the way of a limiting receiver that wants to raise it.
        limit = next((flow for flow in wider if flow.quota <= quota and not (flow is same and accepted)), None)
        if limit is None and same is None:
            limit = next((flow for flow in wider if 0.0 <= now - flow.since < self._settles_in), None)
        if limit is not None:
            return FlowAnswer(FlowVerdict.COVERED, limit, self._remove([same] if same is not None and accepted else []))
        removed = self._remove([flow for flow in narrower if flow is not same and quota <= flow.quota])
        if same is not None:
            same.follow(subscriber, quota, travel, now)
            return FlowAnswer(FlowVerdict.UPDATED, same, removed)
        if len(self._flows) >= self._flows_max:
            return self._left_out()
        flow = Flow(wanted, subscriber, quota, travel, now)
        self._numbers = self._numbers % 0xFFFF + 1
        flow.number = self._numbers
        self._add(flow, wider, narrower)
        return FlowAnswer(FlowVerdict.ADDED, flow, removed)

    def _related(self, wanted: WantedFlow) -> tuple[dict[Flow, None], dict[Flow, None]]:
        """The flows that cover this one, and those that it covers; a flow of the same messages is among both."""
        known = self._known.get(wanted)
        if known is not None:
            return {known: None, **known.wider}, {known: None, **known.narrower}
        budget = Budget(RELATED_STEPS)
        wider = dict.fromkeys([flow for flow in self._flows if flow_covers(flow.wanted, wanted, budget)])
        return wider, dict.fromkeys([flow for flow in self._flows if flow_covers(wanted, flow.wanted, budget)])

    def _grown(self, flow: Flow, round_trip: float | None, now: float) -> float:
        """How much a receiver that keeps to the rules can ask for since its last feedback, if it is twice as near."""
        if round_trip is None:
            return inf
        round_trips = 2.0 * max(0.0, now - flow.feedback_at) / max(ROUND_TRIP_MIN, round_trip)
        return flow.quota * pow(1.0 + self._increase_max, min(ROUND_TRIPS_MAX, round_trips))

    def _add(self, flow: Flow, wider: dict[Flow, None], narrower: dict[Flow, None]) -> None:
        self._flows.append(flow)
        self._known[flow.wanted] = flow
        flow.wider = _with(NONE, *[other for other in wider if other.wanted in self._known])
        flow.narrower = _with(NONE, *[other for other in narrower if other.wanted in self._known])
        for other in flow.wider:
            other.narrower = _with(other.narrower, flow)
        for other in flow.narrower:
            other.wider = _with(other.wider, flow)

    def matching(self, encoding: int, attributes: Attributes) -> list[Flow]:
        """The flows that a message belongs to, oldest first; it needs a token of each."""
        absent = ~encoding  # asked here first, without a call: every message goes through all flows
        return [
            flow for flow in self._flows if not flow.wanted.encoding & absent and flow.wanted.has(encoding, attributes)
        ]

    def expire(self, now: float, timeout: float, slower: Mapping[str, float] | None = None) -> tuple[Flow, ...]:
        """Forget flows whose limiting receiver sent no feedback for longer than this; `slower` ones may take longer."""
        longer = slower or {}
        for flow in self._flows:
            flow.feedback_at = min(flow.feedback_at, now)  # the clock may have been set back
        return self._remove(
            [f for f in self._flows if now - f.feedback_at > max(timeout, longer.get(f.limiting_receiver, 0.0))]
        )

    def needless(self, now: float) -> tuple[Flow, ...]:
        """Forget flows that were never short of tokens for a while, where a wider one limits the same messages."""
        return self._remove([f for f in self._flows if f.wider and now - max(f.since, f.short_at) > NEEDLESS_AFTER])

    def forget(self, receiver: str) -> tuple[Flow, ...]:
        """Free all flows that this receiver limits."""
        return self._remove([flow for flow in self._flows if flow.limiting_receiver == receiver])

    def _remove(self, flows: list[Flow]) -> tuple[Flow, ...]:
        if flows:
            gone = dict.fromkeys(flows)
            self._flows = [flow for flow in self._flows if flow not in gone]
            self._full_reported = False
        for flow in flows:
            del self._known[flow.wanted]
            for other in flow.wider:
                other.narrower = _without(other.narrower, flow)
            for other in flow.narrower:
                other.wider = _without(other.wider, flow)
        return tuple(flows)

    def _left_out(self) -> FlowAnswer:
        reported, self._full_reported = self._full_reported, True
        return FlowAnswer(FlowVerdict.REFUSED, records=() if reported else (LimitReached("flows", self._flows_max),))


def _with(related: Related, *flows: Flow) -> Related:
    return dict.fromkeys([*related, *flows]) if flows else related


def _without(related: Related, flow: Flow) -> Related:
    return dict.fromkeys([other for other in related if other is not flow]) or NONE


def _depth(quota: float) -> float:
    return max(DEPTH_MIN, DEPTH_SECONDS * quota)
