"""The subscriber's side of congestion control: how fast may this publisher send to us? (000 III-B, Algorithm 1)

A flow is what matches one of our filters (`receiver_flows`). For each flow the reception rate is measured; for the
whole session the loss event rate (`loss_intervals`) and the round trip. Once per round trip the TCP response function
gives the fair rate; if more comes in, the publisher is asked to send less of each flow (max-min, or by the
application's priorities); if less, and it follows our feedback for some flows, those may grow. No feedback is sent
while nothing was lost.

The round trip begins with an echo. On a message that names us as the limiting receiver it is the message's travel plus
that of our own feedback, in which the clocks' offset cancels; on any other only the change since the echo counts
(erratum C6). It is smoothed.

Losses. A record covers the last few publications; a flow that is paced by its quota is spread thin among all others, so
records hardly ever reveal its losses, just when it matters. So a message that names its limiting receivers also carries
its place in each flow, and the limiting receiver sees every loss (`flow_sequence`). (002 section 6.2 proposes
acknowledgements from limiting receivers for the same end; a place needs none.) While a flow has places its records do
not count. All others go by the records, with the rule for gaps that they do not cover: a loss event if the bits are
those of a filter of equalities, and not so many that chance may have set them; otherwise only a reason to probe
(`loss_probe`). Sequences begin anew when subscriptions change.

Departures: the decision stands after the sum over all flows, not inside it (C2); an empty feedback is not sent (C3);
a quota is never below one message per round trip (C14). Beyond the papers: for a subscription whose application is
behind, feedback carries what that takes before anything is lost (`paced`), as TCP does with its window, of the flows
that this subscription needs and of no others; the floor is `quota_floor` then, since a short round trip makes no slow
reader faster. Losses of our own queue count all the same.

State per session: flows of which a message came, each with its rate, who limits it and its probe; rates by
subscription; loss history; round trip. Bound: RECEIVER_FLOWS_MAX flows; FLOWS_MAX in one feedback, those that come
fastest. Timer: FEEDBACK (publisher, incarnation), while there is something to watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from heapq import nlargest
from math import exp, inf
from typing import NamedTuple

from penstock.content.message import Message
from penstock.kernel.rate_estimator import RateEstimator
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.sketch import Sketch
from penstock.transport.ledgers.sketch_predicate import NO, YES
from penstock.transport.receiver.aimd import Aimd
from penstock.transport.receiver.feedback_suppression import TOLERANCE
from penstock.transport.receiver.flow_sequence import FlowSequences
from penstock.transport.receiver.loss_intervals import LossIntervals
from penstock.transport.receiver.loss_probe import LossProbe
from penstock.transport.receiver.quota_allocation import Reception, allocate_quotas
from penstock.transport.receiver.receiver_flows import ReceiverFilter, ReceiverFlows
from penstock.transport.wire.control_messages import FLOWS_MAX, Feedback, FlowQuota
from penstock.transport.wire.flow_fields import TRAVEL_WRAPS, Control
from penstock.transport.wire.numbered_header import NumberedHeader

Lost = int | Sketch  # what is known of a lost message: its bits, or its sketch
RATE_ROUND_TRIPS = 4.0  # over which a reception rate is measured
RATE_WINDOW_MIN = 0.25  # seconds, at least
ROUND_TRIP_MIN = 0.001
SMOOTHED_OVER = 2.0  # round trips
LOOK_EVERY_MIN = 0.010  # seconds: however short the round trip, more feedback than this helps nobody
PROBE_EVERY_MIN = 0.050
LOOKS_MIN = 4.0  # within the time after which a publisher lets a silent receiver's flow go
REPEATED_AFTER = 2.0  # looks: a limiting receiver repeats so often what the publisher knows
REPEATED_WITHIN = 0.05  # of the quota: what is nearer to the last feedback is no news
PHANTOMS_MAX = 0.001  # share of the messages that come; if more may look lost by chance, records only raise probes
PROBE_SHARE = 1.0 - 2.0 * TOLERANCE  # to feedback suppression: a request that is not granted, and not urgent


def receiver_hash(name: str) -> int:
    """A subscriber's name as the four bytes that headers have room for; never 0."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4, person=b"penstock-limit").digest(), "little") or 1


class ReceiverFlow:
    """What matches one of our filters, of one publisher."""

    __slots__ = ("counted", "filter", "followed", "limiting", "paces", "probe", "rate")

    def __init__(self, selected: ReceiverFilter, window: float, timeout: float) -> None:
        self.filter = selected
        self.rate = RateEstimator(window)
        self.limiting = False
        self.followed = 0  # the hash of whom the publisher follows for it, 0: nobody
        self.counted = False  # whether its last message had a place that shows losses
        self.probe = LossProbe(timeout)
        self.paces: dict[int, float] = {}  # messages/s that slow applications can take of it, by subscription


class _QuotaRequest(NamedTuple):
    """The quota to ask for one flow."""

    flow: ReceiverFlow
    rate: float
    quota: float
    probing: bool


class RateController:
    """What one session knows about the way from its publisher."""

    def __init__(self, config: TransportConfig, name: str, receiver_flows: ReceiverFlows, round_trip: float) -> None:
        self._config = config
        self._name = name
        self._hash = receiver_hash(name)
        self._receiver_flows = receiver_flows
        self._version = receiver_flows.version
        self.flows: dict[ReceiverFilter, ReceiverFlow] = {}  # of which a message has come
        self.loss_intervals = make_loss_intervals(config)
        self.round_trip = max(ROUND_TRIP_MIN, round_trip)
        self._window = max(RATE_WINDOW_MIN, RATE_ROUND_TRIPS * round_trip)
        self._echoed: tuple[float, float] | None = None  # a round trip by echo, and the travel seen at that time
        self._travel = 0.0  # of the last message, by two clocks
        self._publisher_rate = 0.0
        self._base = 0
        self._measured_at = 0.0
        self._sequences = FlowSequences()
        self._total = RateEstimator(RATE_WINDOW_MIN)
        self._by_subscription: dict[int, RateEstimator] = {}
        self._paced = self._probing = False  # whether any flow is
        self._requested: list[_QuotaRequest] = []  # of the last feedback
        self._sent: dict[ReceiverFlow, float] = {}  # in the last one that was sent
        self._sent_at = -inf
        self.watched = False  # whether its timer is set

    # What happened.

    def delivered(
        self, header: NumberedHeader, message: Message, numbers: Sequence[int], lost: Sequence[Lost], *, now: float
    ) -> None:
        """A message came for these subscriptions; it showed that these others did not."""
        self._follow_subscriptions()
        control = header.control
        gap = max(0, header.sequence - self._base - 1) if self._base else 0
        self._travel = now - header.departure
        flows = self._flows_of(numbers, message)
        counted: bool | None = None
        if control is not None:
            self._publisher_rate = control.rate
            counted = self._controlled(control, flows, now)
        revealed = self._judge(lost, settled=counted is not None, now=now) or bool(counted)
        for flow in flows:
            flow.rate.add(now)
        for number in numbers:
            self._rate_of(number).add(now)
        self._total.add(now)
        if header.sequence > self._base:
            self._base = header.sequence
            self._grow(0 if counted is not None else gap, header.record_size, flows, revealed, now)

    def _controlled(self, control: Control, flows: list[ReceiverFlow], now: float) -> bool | None:
        """Whom it names; returns whether places show a loss, None if they show nothing."""
        ours = next((flow for flow in control.followed if flow.limiting == self._hash), None)
        if ours is not None:
            self._measured((self._travel + ours.travel) % TRAVEL_WRAPS, now)
        elif self._echoed is not None:
            self._measured(self._echoed[0] + self._travel - self._echoed[1], now)
        counted = self._counted(control)
        if ours is not None or control.names_all:
            self._note(flows, self._hash if ours is not None else control.limiting, counted is not None)
        return counted

    def _note(self, flows: list[ReceiverFlow], followed: int, counted: bool) -> None:
        """Whom the publisher follows for the flows that a message belongs to, and whether they are counted."""
        for flow in flows:
            flow.followed, flow.limiting, flow.counted = followed, followed == self._hash, counted
            if counted:
                flow.probe.answered()

    def _counted(self, control: Control) -> bool | None:
        """By its places in flows: whether a message of one of them was lost; None if no place shows it."""
        losses = [self._sequences.arrived(f.flow, f.place, named=f.limiting == self._hash) for f in control.followed]
        known = [lost for lost in losses if lost is not None]
        return any(known) if known else None

    def _grow(self, gap: int, record_size: int, flows: list[ReceiverFlow], revealed: bool, now: float) -> None:
        """The loss history, with one more message that has come."""
        if not all(flow.filter.certain for flow in flows):
            gap = min(gap, record_size)  # a gap that no record covers is no surer sign of a loss than a record is
        self.loss_intervals.held_by_others = bool(flows) and all(flow.followed and not flow.limiting for flow in flows)
        self.loss_intervals.delivered(
            gap,
            record_size,
            revealed,
            match_probability=self._matched(now),
            round_trip=self.round_trip,
            reception_rate=self._total.rate(now),
            now=now,
        )

    def _judge(self, lost: Sequence[Lost], *, settled: bool, now: float) -> bool:
        """Whether messages that have not come were surely ours; if not, they are probed.

        A flow with places needs no records. If the message that revealed them had one itself (`settled`), they are only
        probed too: whatever is short has places soon.
        """
        sure = False
        for one in lost:
            matching, certain = self._matching(one, now)
            flows = [self.flows[selected] for selected in matching if selected in self.flows]
            if not settled and certain:
                sure = sure or not any(flow.counted for flow in flows)
                continue
            for flow in flows:
                flow.probe.possible_loss(now)
                self._probing = True
        return sure

    def _matching(self, lost: Lost, now: float) -> tuple[list[ReceiverFilter], bool]:
        """The filters that it may have matched, and whether it surely matched one of them."""
        kept = self._receiver_flows.kept
        if isinstance(lost, int):
            absent = ~lost
            matching = [one for one in kept if not one.wanted.encoding & absent]
            return matching, any(one.certain and not self._by_chance(one, lost, now) for one in matching)
        columns, bits, complete, codes = lost
        verdicts = [one.sketches.form(columns, bits, complete=complete).verdict(codes) for one in kept]
        return [one for one, verdict in zip(kept, verdicts, strict=True) if verdict > NO], YES in verdicts

    def _by_chance(self, selected: ReceiverFilter, encoding: int, now: float) -> bool:
        """Whether messages that nobody wanted here look like this one so often that they would pass for losses.

        One with n of m bits has those of a filter with w bits by a chance of (n / m)^w, and of many filters one or
        another. That counts for more, the fewer of the publisher's messages are ours.
        """
        bits = selected.wanted.encoding.bit_count()
        if not bits:  # it wants everything, and nothing that it wants can be somebody else's alone
            return False
        chance = (encoding.bit_count() / self._config.record_bits) ** bits
        return chance * len(self._receiver_flows.kept) > PHANTOMS_MAX * self._matched(now)

    def _matched(self, now: float) -> float:
        """The share of this publisher's messages that come here."""
        return min(1.0, self._total.rate(now) / self._publisher_rate) if self._publisher_rate > 0.0 else 1.0

    def missed(self, lost: Sequence[Lost], *, now: float) -> None:
        """These messages did not come, as we know by no message: it is a loss if they were ours."""
        self._follow_subscriptions()
        if self._judge(lost, settled=self.limiting, now=now):
            self.lost(now=now)

    def repaired(self, message: Message, numbers: Sequence[int], *, now: float) -> None:
        """A message came again: it took tokens of its flows, so it counts as what comes in."""
        self._follow_subscriptions()
        for flow in self._flows_of(numbers, message):
            flow.rate.add(now)
        self._total.add(now)

    def lost(self, *, now: float) -> None:
        """One that we wanted did not come, or came only as far as our own queue."""
        self.loss_intervals.dropped_here(round_trip=self.round_trip, reception_rate=self._total.rate(now), now=now)

    def echoed(self, round_trip: float) -> None:
        """An echo came back."""
        if self._echoed is None:
            self.round_trip = max(ROUND_TRIP_MIN, round_trip)
        self._echoed = (round_trip, self._travel)

    def paced(self, number: int, share: float, *, now: float) -> None:
        """The application takes this share of what comes for this subscription; infinity: it keeps up."""
        self._follow_subscriptions()
        for one in self._receiver_flows.serving(number):
            flow = self.flows.get(one)
            if flow is not None and share < inf:
                flow.paces[number] = flow.rate.rate(now) * share
            elif flow is not None:
                flow.paces.pop(number, None)
        self._paced = any(flow.paces for flow in self.flows.values())

    # What is known.

    @property
    def limiting(self) -> bool:
        """Whether the publisher follows us for any flow."""
        return any(flow.limiting for flow in self.flows.values())

    @property
    def active(self) -> bool:
        """Whether there is anything to watch."""
        return self._short or self._probing

    @property
    def _short(self) -> bool:
        """Whether the way here or the application is known to be short."""
        return self._paced or self.loss_intervals.events > 0

    @property
    def look_every(self) -> float:
        """Seconds: a round trip, unless that is too often; or so seldom that the publisher takes us for gone.

        Behind a long queue our round trip may be longer than the publisher knows: only messages wait in it.
        """
        trip = min(self.round_trip, self._config.flow_timeout / LOOKS_MIN) if self.limiting else self.round_trip
        return max(trip, LOOK_EVERY_MIN if self._short else PROBE_EVERY_MIN)

    @property
    def allowed(self) -> float:
        """Messages/s that the way here can take; infinity if nothing was lost."""
        return self.loss_intervals.allowed(self.round_trip)

    def reception_rate(self, number: int, now: float) -> float:
        """Messages/s that come in for this subscription."""
        rate = self._by_subscription.get(number)
        return 0.0 if rate is None else rate.rate(now)

    # Feedback.

    def feedback(self, *, now: float) -> Feedback | None:
        """Once per round trip: what the publisher should know, if anything."""
        self._follow_subscriptions()
        requests = self._quota_requests(now)
        self._probing = self._probing and any(flow.probe.lasts(now) for flow in self.flows.values())
        if len(requests) > FLOWS_MAX:
            requests = nlargest(FLOWS_MAX, requests, key=lambda request: request.rate)
        self._requested = requests
        size = self._config.record_bits // 8
        flow_quotas = [
            FlowQuota(request.quota, b"", request.flow.filter.where)
            if request.flow.filter.where
            else FlowQuota(request.quota, request.flow.filter.wanted.encoding.to_bytes(size, "little"))
            for request in requests
        ]
        return Feedback(self._name, now, tuple(flow_quotas), self._base) if flow_quotas else None

    def feedback_sent(self, *, now: float) -> None:
        """That feedback was sent."""
        self._sent, self._sent_at = {request.flow: request.quota for request in self._requested}, now
        for request in self._requested:
            if request.probing:
                request.flow.probe.sent(now)

    def nothing_new(self, now: float) -> bool:
        """Whether it only repeats what was sent not long ago, and the publisher follows it."""
        if not 0.0 <= now - self._sent_at < REPEATED_AFTER * self.look_every or len(self._sent) != len(self._requested):
            return False
        return all(
            request.flow.limiting
            and abs(request.quota - self._sent.get(request.flow, inf)) <= REPEATED_WITHIN * request.quota
            for request in self._requested
        )

    @property
    def share(self) -> float:
        """Of what comes, that the last feedback asked for."""
        shares = [
            PROBE_SHARE if request.probing else request.quota / max(request.quota, request.rate)
            for request in self._requested
        ]
        return min(shares, default=1.0)

    @property
    def followed(self) -> tuple[int, ...]:
        """Who limits each of the flows in it."""
        return tuple([request.flow.followed for request in self._requested])

    def _quota_requests(self, now: float) -> list[_QuotaRequest]:
        flows = list(self.flows.values())
        rates = [flow.rate.rate(now) for flow in flows]
        quotas: list[float | None] = [None] * len(flows)
        if self._short:
            entries = [
                Reception(rate, flow.limiting, flow.filter.priority, min(flow.paces.values(), default=inf))
                for flow, rate in zip(flows, rates, strict=True)
            ]
            config = self._config
            quotas = allocate_quotas(
                entries, self.allowed, config.increase_max, 1.0 / self.round_trip, config.quota_floor
            )
        found = []
        for flow, rate, quota in zip(flows, rates, quotas, strict=True):
            probing = quota is None
            requested = self._probe_quota(flow, rate, now) if quota is None else quota
            if requested is not None:
                found.append(_QuotaRequest(flow, rate, requested, probing))
        return found

    def _probe_quota(self, flow: ReceiverFlow, rate: float, now: float) -> float | None:
        if not self._probing or (flow.counted and not flow.limiting):
            return None
        floor = max(self._config.quota_floor, 1.0 / self.round_trip)
        return flow.probe.quota(rate, limiting=flow.limiting, followed=flow.followed != 0, floor=floor, now=now)

    # Flows.

    def _follow_subscriptions(self) -> None:
        """If subscriptions have changed: flows that are still ours go on as they were, but their sequences begin anew.

        While a subscription was away its flow's count went on. Applications that are behind report their pace again.
        """
        if self._version == self._receiver_flows.version:
            return
        self._version = self._receiver_flows.version
        known = {flow.filter.key: flow for flow in self.flows.values()}
        self.flows = {one: known[one.key] for one in self._receiver_flows.kept if one.key in known}
        for one, flow in self.flows.items():
            flow.filter, flow.counted = one, False
            flow.paces.clear()
        self._paced = False
        self._sequences = FlowSequences()
        self._by_subscription = {n: rate for n, rate in self._by_subscription.items() if n in self._receiver_flows}

    def _flows_of(self, numbers: Sequence[int], message: Message) -> list[ReceiverFlow]:
        """The flows that a message for these subscriptions belongs to."""
        found = []
        encoding: int | None = None
        for number in numbers:
            for one in self._receiver_flows.of(number):
                if not one.alone:  # otherwise the network has matched it already
                    if encoding is None:
                        encoding = self._config.encoding.encode_message(message.attributes)
                    if not one.wanted.has(encoding, message.attributes):
                        continue
                flow = self.flows.get(one)
                if flow is None:
                    flow = self.flows[one] = ReceiverFlow(one, self._window, self._config.flow_timeout)
                found.append(flow)
        return found

    def _rate_of(self, number: int) -> RateEstimator:
        rate = self._by_subscription.get(number)
        if rate is None:
            rate = self._by_subscription[number] = RateEstimator(self._window)
        return rate

    def _measured(self, round_trip: float, now: float) -> None:
        if 0.0 < round_trip < 60.0:
            weight = 1.0 - exp(-max(0.0, now - self._measured_at) / (SMOOTHED_OVER * self.round_trip))
            self.round_trip += weight * (max(ROUND_TRIP_MIN, round_trip) - self.round_trip)
        self._measured_at = now


def make_loss_intervals(config: TransportConfig) -> LossIntervals:
    """What becomes of losses: the equation's rate, or a window's."""
    if config.control == "window":
        return Aimd(config.loss_intervals)
    return LossIntervals(config.loss_intervals, config.gap_rule)
