"""The subscriber's side of congestion control: how fast may this publisher send to us? (000 III-B, Algorithm 1)

A flow is what matches one of our filters. For each flow the reception rate is measured; for the whole session the
loss event rate (`loss_events`) and the round trip. Once per round trip the TCP response function says what rate is
fair; if more comes in, the publisher is asked to send less of each flow (max-min, or by the application's priorities);
if less, and it follows our word for some flows, those may grow. Nothing is said while nothing was ever lost.

The round trip begins with an echo. On a message that names us as the limiting receiver it is the message's travel plus
that of our own feedback, in which the clocks' offset cancels; on any other only the change since the echo counts
(erratum C6). It is smoothed.

Losses. A record covers the last few publications; a flow that is paced by its quota is spread thin among all others, so
records hardly ever tell of its losses, just when it matters. So a message that names its limiting receivers also says
the how-manieth of each flow it is, and the limiting receiver counts exactly. (002 section 6.2 proposes acknowledgements
from limiting receivers for the same end; a count needs none.) All others go by the records, with the rule for gaps
that they do not cover.

Departures: the decision stands after the sum over all flows, not inside it (C2); an empty feedback is not sent (C3);
a quota is never below one message per round trip (C14). Beyond the papers: a subscriber whose application is behind
says what that takes before anything is lost (`reader_rate`), as TCP does with its window; losses of our own queue count
all the same.

State per session: rates, loss history, round trip. Timer: ("transport", "control", publisher, incarnation), while there
is something to watch. Own flows that another own flow covers are left out (III-A).
"""

from __future__ import annotations

from hashlib import blake2b
from math import exp, inf

from penstock.content.bloom import EncodingScheme
from penstock.content.expression import constraint_text
from penstock.content.message import Message
from penstock.content.predicate import Equals, Exists, Filter
from penstock.kernel.rates import RateEstimator
from penstock.transport.config import TransportConfig
from penstock.transport.flow_counts import FlowCounts
from penstock.transport.flow_table import Wanted, flow_covers, flow_of
from penstock.transport.header import TRAVEL_WRAPS, Control, Header
from penstock.transport.loss_events import LossEvents
from penstock.transport.loss_window import LossWindow
from penstock.transport.quotas import Reception, plan
from penstock.transport.talk import FLOWS_MAX, WHERE_MAX, Asked, Feedback

RATE_ROUND_TRIPS = 4.0  # over which a reception rate is measured
RATE_WINDOW_MIN = 0.25  # seconds, at least
ROUND_TRIP_MIN = 0.001
SMOOTHED_OVER = 2.0  # round trips


def word_of(name: str) -> int:
    """A subscriber's name as the four bytes that headers have room for; never 0."""
    return int.from_bytes(blake2b(name.encode(), digest_size=4, person=b"penstock-limit").digest(), "little") or 1


class OwnFlow:
    """What matches one of our filters."""

    __slots__ = ("followed", "limiting", "priority", "rate", "wanted", "where")

    def __init__(self, wanted: Wanted, where: str, priority: float, window: float) -> None:
        self.wanted = wanted
        self.where = where  # the exact text, if feedback is to carry it
        self.priority = priority
        self.rate = RateEstimator(window)
        self.limiting = False
        self.followed = 0  # the word of whom the publisher follows for it, 0: nobody


def own_flows(
    filters: list[tuple[Filter, float]], scheme: EncodingScheme, *, exact: bool, window: float
) -> list[OwnFlow]:
    """One flow for each filter that no other of ours covers.

    Bits say all about equalities. The flow of a range by bits would be wider than what we get of it: a quota for what
    we get would be far too low for it, and its count would show losses that are none. So such filters go by their text.
    """
    found: list[OwnFlow] = []
    for selected, priority in filters:
        by_text = exact or not all(isinstance(constraint, Equals | Exists) for constraint in selected.constraints)
        text = _text(selected) if by_text else ""
        wanted = flow_of(selected, scheme, exact=bool(text))
        if any(flow_covers(other.wanted, wanted) for other in found):
            continue
        found = [other for other in found if not flow_covers(wanted, other.wanted)]
        found.append(OwnFlow(wanted, text, priority, window))
    return found[:FLOWS_MAX]


class Congestion:
    """What one session knows about the way from its publisher."""

    def __init__(self, config: TransportConfig, name: str, flows: list[OwnFlow], round_trip: float) -> None:
        self._config = config
        self._name = name
        self._word = word_of(name)
        self.flows = flows
        self.events = make_events(config)
        self.round_trip = max(ROUND_TRIP_MIN, round_trip)
        self._echoed: tuple[float, float] | None = None  # a round trip by echo, and the travel seen at that time
        self._travel = 0.0  # of the last message, by two clocks
        self._publisher_rate = 0.0
        self._base = 0
        self._measured_at = 0.0
        self._counts = FlowCounts()
        self._total = RateEstimator(RATE_WINDOW_MIN)
        self.watched = False  # whether its timer is set
        self.share = 1.0  # of what comes, that the last feedback asked for, and who limited each flow of it
        self.followed: tuple[int, ...] = ()
        self.reader_rate = inf  # messages/s that the application may be given of this session, while it is behind

    # What happened.

    def delivered(self, header: Header, message: Message, encoding: int, revealed: bool, *, now: float) -> None:
        """A message came; `revealed`: it showed that one we wanted was lost."""
        control = header.control
        gap = max(0, header.sequence - self._base - 1) if self._base else 0
        self._travel = now - header.departure
        if control is not None:
            self._publisher_rate = control.rate
            ours = next((flow for flow in control.followed if flow.limiting == self._word), None)
            self._note_limiting(control, ours is not None, encoding, message)
            if ours is not None:
                self._measured((self._travel + ours.travel) % TRAVEL_WRAPS, now)
            elif self._echoed is not None:
                self._measured(self._echoed[0] + self._travel - self._echoed[1], now)
            counted = self._counted(control)
            if counted is not None:
                gap, revealed = 0, counted
        for flow in self.flows:
            if len(self.flows) == 1 or flow.wanted.has(encoding, message.attributes):
                flow.rate.add(now)
        self._total.add(now)
        if header.sequence > self._base:
            self._base = header.sequence
            rate = self._total.rate(now)
            matched = min(1.0, rate / self._publisher_rate) if self._publisher_rate > 0.0 else 1.0
            self.events.delivered(
                gap,
                header.record_size,
                revealed,
                match_probability=matched,
                round_trip=self.round_trip,
                reception_rate=rate,
                now=now,
            )

    def _counted(self, control: Control) -> bool | None:
        """By the counts of its flows: whether one of them has been lost; None if no count tells."""
        told = [self._counts.arrived(f.flow, f.place, named=f.limiting == self._word) for f in control.followed]
        known = [lost for lost in told if lost is not None]
        return any(known) if known else None

    @property
    def limiting(self) -> bool:
        """Whether the publisher follows us for any flow."""
        return any(flow.limiting for flow in self.flows)

    @property
    def exact(self) -> bool:
        """Whether losses are counted, so that nobody needs to tell us of them."""
        return self.limiting

    def lost(self, *, now: float) -> None:
        """One that we wanted did not come, or came only as far as our own queue."""
        self.events.dropped_here(round_trip=self.round_trip, reception_rate=self._total.rate(now), now=now)

    def echoed(self, round_trip: float) -> None:
        """An echo came back."""
        if self._echoed is None:
            self.round_trip = max(ROUND_TRIP_MIN, round_trip)
        self._echoed = (round_trip, self._travel)

    # What to say.

    @property
    def active(self) -> bool:
        """Whether there is anything to watch."""
        return self.events.events > 0 or self.reader_rate < inf

    @property
    def allowed(self) -> float:
        """Messages/s that the way here and the application can take; infinity if nothing is known to be short."""
        return min(self.events.allowed(self.round_trip), self.reader_rate)

    def reception_rate(self, now: float) -> float:
        """Messages/s that come in."""
        return self._total.rate(now)

    def feedback(self, *, now: float) -> Feedback | None:
        """Once per round trip: what the publisher should know, if anything."""
        entries = [Reception(flow.rate.rate(now), flow.limiting, flow.priority) for flow in self.flows]
        quotas = plan(entries, self.allowed, self._config.increase_max, 1.0 / self.round_trip)
        size = self._config.record_bits // 8
        asked = tuple(
            Asked(quota, flow.wanted.encoding.to_bytes(size, "little"), flow.where)
            for flow, quota in zip(self.flows, quotas, strict=True)
            if quota is not None
        )
        wishes = [(flow, quota) for flow, quota in zip(self.flows, quotas, strict=True) if quota is not None]
        self.followed = tuple([flow.followed for flow, _ in wishes])
        self.share = min((quota / max(quota, flow.rate.rate(now)) for flow, quota in wishes), default=1.0)
        return Feedback(self._name, now, asked) if asked else None

    def _note_limiting(self, control: Control, ours: bool, encoding: int, message: Message) -> None:
        """Whom the publisher follows for the flows that this message belongs to; if it names us, that is us."""
        if not ours and not control.says_all:
            return
        followed = self._word if ours else control.limiting
        for flow in self.flows:
            if len(self.flows) == 1 or flow.wanted.has(encoding, message.attributes):
                flow.followed, flow.limiting = followed, ours

    def _measured(self, round_trip: float, now: float) -> None:
        if 0.0 < round_trip < 60.0:
            weight = 1.0 - exp(-max(0.0, now - self._measured_at) / (SMOOTHED_OVER * self.round_trip))
            self.round_trip += weight * (max(ROUND_TRIP_MIN, round_trip) - self.round_trip)
        self._measured_at = now


def make_events(config: TransportConfig) -> LossEvents:
    """What becomes of losses: the equation's rate, or a window's."""
    if config.control == "window":
        return LossWindow(config.loss_intervals)
    return LossEvents(config.loss_intervals, config.gap_rule)


def filter_text(selected: Filter) -> str:
    """The filter as a WHERE text."""
    return " AND ".join(constraint_text(constraint) for constraint in selected.constraints) or "TRUE"


def _text(selected: Filter) -> str:
    """The text for feedback, or none if it is too long for that: then the bits must do."""
    text = filter_text(selected)
    return text if len(text) <= WHERE_MAX else ""
