"""A subscriber's congestion control over all its publishers: which sessions are watched, and when feedback is sent.

Each session has a `rate_controller` of its own; this part feeds it with what arrives and what is lost, and once per
round trip, but at most every 10 ms, sends feedback to the publisher's inbox. A limiting receiver that has no news sends
every other time, so that its flow does not become free (beyond the papers); the feedback of who is not the limiting
receiver of any flow is suppressed (`feedback_suppression`). A session is watched while something was lost, or may have
been, or an application is behind, and messages still come; a publisher that no longer sends gets no feedback, so its
flows become free again.

An application that is behind is so for its own subscription. Every publisher is then asked for the same share of what
it sends for that: the application's pace by what comes for it from all of them. Where one flow serves several
subscriptions the slowest counts. That ends when the application keeps up or the subscription is closed.

State: the flows of all subscriptions (`receiver_flows`), the paces, suppression of the sessions that are watched.
Timer: FEEDBACK (publisher, incarnation), while the session is watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from penstock.content.message import Message
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import Counted, LimitReached
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.receiver.controlled_session import ControlledSession
from penstock.transport.receiver.feedback_suppression import FeedbackSuppression
from penstock.transport.receiver.rate_controller import Lost, RateController
from penstock.transport.receiver.receiver_flows import RECEIVER_FLOWS_MAX, ReceiverFlows
from penstock.transport.recovery.distance_estimator import DistanceEstimator
from penstock.transport.subscriptions import TransportSubscription
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import ControlIdentities, feedback_message
from penstock.transport.wire.numbered_header import NumberedHeader


@dataclass(frozen=True, kw_only=True)
class ControlReport:
    """What a subscriber's congestion control knows, of the publisher to whom the way is the worst."""

    loss_event_rate: float | None = None
    round_trip: float | None = None  # seconds
    allowed_rate: float | None = None  # messages/s that the way or the application takes; None: as much as there is
    feedbacks: int = 0  # sent, to all publishers


class FeedbackScheduler:
    """Sends each publisher the feedback of this subscriber, when it is due."""

    def __init__(
        self,
        name: str,
        config: TransportConfig,
        timers: ServiceTimers,
        random: Random,
        distances: DistanceEstimator,
        identities: ControlIdentities,
    ) -> None:
        self._name = name
        self._config = config
        self._timers = timers
        self._distances = distances
        self._identities = identities
        self._receiver_flows = ReceiverFlows(config.encoding, exact=config.feedback_exact)
        self._paces: dict[int, float] = {}  # messages/s that applications take, by subscription, while they are behind
        self._suppressions: dict[ControlledSession, FeedbackSuppression] = {}  # of sessions that are watched
        self._random = random
        self.sent = 0
        self.silent = 0  # feedbacks that others' made unnecessary

    # Subscriptions.

    def subscribed(self, number: int, subscription: TransportSubscription) -> list[TransportEffect]:
        """A new subscription, new flows."""
        if not self._config.congestion:
            return []
        full = self._receiver_flows.full
        self._receiver_flows.add(number, subscription.predicate, subscription.priority)
        return [LimitReached("receiver flows", RECEIVER_FLOWS_MAX)] if self._receiver_flows.full and not full else []

    def unsubscribed(self, number: int) -> None:
        """The subscription is closed, and how slow its application was means nothing any more."""
        self._paces.pop(number, None)
        self._receiver_flows.remove(number)

    # What happened.

    def arrived(
        self,
        session: ControlledSession,
        header: NumberedHeader,
        message: Message,
        numbers: Sequence[int],
        lost: Sequence[Lost],
        *,
        now: float,
    ) -> list[TransportEffect]:
        """A new message came, for these subscriptions; it showed that these others were lost."""
        if not self._config.congestion or header.control is None:
            return []
        effects: list[TransportEffect] = []
        if session.rate_controller is None:
            session.rate_controller = self._begin(session)
            effects += self._distances.ask(session.publisher, now)
        session.rate_controller.delivered(header, message, numbers, lost, now=now)
        self._watch(session, now)
        return effects

    def missed(self, session: ControlledSession, lost: Sequence[Lost], *, now: float) -> None:
        """These messages of this publisher did not come."""
        if session.rate_controller is not None:
            session.rate_controller.missed(lost, now=now)
            self._watch(session, now)

    def repaired(self, session: ControlledSession, message: Message, numbers: Sequence[int], *, now: float) -> None:
        """A message came again, for these subscriptions."""
        if session.rate_controller is not None:
            session.rate_controller.repaired(message, numbers, now=now)

    def dropped_here(self, session: ControlledSession, *, now: float) -> None:
        """A message of this publisher came as far as our own queue."""
        if session.rate_controller is not None:
            session.rate_controller.lost(now=now)
            self._watch(session, now)

    def reader_pace(self, sessions: Sequence[ControlledSession], number: int, rate: float, *, now: float) -> None:
        """The application takes so much of this subscription in all. Infinity: it keeps up."""
        if number not in self._receiver_flows:
            return
        watched = [(session, session.rate_controller) for session in sessions if session.rate_controller is not None]
        total = sum((controller.reception_rate(number, now) for _, controller in watched), 0.0)
        self._paces.pop(number, None)
        if rate < inf and total > 0.0:
            self._paces[number] = rate
        for session, controller in watched:
            controller.paced(number, rate / total if total > 0.0 else inf, now=now)
            self._watch(session, now)

    def echoed(self, session: ControlledSession) -> None:
        """An echo from its publisher came back."""
        trip = self._distances.round_trip(session.publisher)
        if session.rate_controller is not None and trip is not None:
            session.rate_controller.echoed(trip)

    # Feedback.

    def expired(self, session: ControlledSession, *, now: float) -> list[TransportEffect]:
        """A round trip has passed, or a suppression timer has expired."""
        controller = session.rate_controller
        assert controller is not None, f"{session.publisher} is not watched"
        controller.watched = False
        if now - session.received_at > self._config.flow_timeout:
            return []
        # The limiting receiver measures the round trip itself; all others go by an echo that may be old, or lost.
        effects = [] if controller.limiting else self._distances.ask(session.publisher, now)
        feedback = controller.feedback(now=now)
        send_at = self._send_at(session, controller, now) if feedback is not None else now
        self._watch(session, now, at=send_at)
        if feedback is None or send_at > now or controller.nothing_new(now):
            return effects
        self.sent += 1
        controller.feedback_sent(now=now)
        said = BearerPublish(feedback_message(self._identities, session.publisher, feedback))
        return [*effects, said, Counted("feedback sent", session.publisher, 1)]

    def _send_at(self, session: ControlledSession, controller: RateController, now: float) -> float:
        """When to send it."""
        suppression = self._suppressions.get(session)
        if suppression is None:
            suppression = self._suppressions[session] = FeedbackSuppression(
                self._config.feedback_patience, self._random
            )
        suppression.look(limiting=controller.limiting, round_trip=controller.look_every, now=now)
        if controller.limiting:
            return now
        silent = suppression.silent
        send_at = suppression.send_at(controller.share, controller.followed, controller.look_every, now)
        self.silent += suppression.silent - silent
        return send_at

    def report(self, sessions: Sequence[ControlledSession], number: int | None = None) -> ControlReport:
        """For people: of this subscription's application, or of the slowest one."""
        known = [session.rate_controller for session in sessions if session.rate_controller is not None]
        worst = min(known, key=lambda controller: controller.allowed, default=None)
        if worst is None:
            return ControlReport(feedbacks=self.sent)
        paces = [pace for subscription, pace in self._paces.items() if number in (None, subscription)]
        allowed = min(worst.allowed, *paces, inf)
        return ControlReport(
            loss_event_rate=worst.loss_intervals.rate,
            round_trip=worst.round_trip,
            allowed_rate=allowed if allowed < inf else None,
            feedbacks=self.sent,
        )

    def end(self, session: ControlledSession) -> None:
        """The session is over."""
        self._timers.cancel(TransportTimer.FEEDBACK, session.publisher, session.incarnation)
        self._suppressions.pop(session, None)

    def _begin(self, session: ControlledSession) -> RateController:
        trip = self._distances.round_trip(session.publisher) or 2.0 * self._distances.to(session.publisher)
        return RateController(self._config, self._name, self._receiver_flows, trip)

    def _watch(self, session: ControlledSession, now: float, *, at: float | None = None) -> None:
        """Look again at this time, or when the next feedback is due."""
        controller = session.rate_controller
        if controller is not None and controller.active and not controller.watched:
            controller.watched = True
            look_at = at if at is not None and at > now else now + controller.look_every
            self._timers.set(TransportTimer.FEEDBACK, look_at, session.publisher, session.incarnation)
