"""A subscriber's congestion control over all its publishers: who is watched, and who is told what, when.

Each session has a `congestion` of its own; this part feeds it with what arrives and what is lost, and once per round
trip, but at most every 10 ms, sends the publisher's inbox what it should know. A limiting receiver that has no news
speaks every other time, so that its flow does not become free (beyond the papers); who is not the limiting receiver of
any flow speaks with restraint (`restraint`). A session is watched while something was lost, or may have been, or an
application is behind, and messages still come; a publisher that has fallen silent is told nothing, so its flows become
free again.

An application that is behind says so for its own subscription. Every publisher is then asked for the same share of what
it sends for that: the application's pace by what comes for it from all of them. Where one flow serves several
subscriptions the slowest counts. That ends when the application keeps up or the subscription is closed.

State: the flows of all wishes (`own_flows`), the paces, restraint of the sessions that are watched.
Timer: ("transport", "control", publisher, incarnation), while the session is watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from penstock.content.message import Message
from penstock.kernel.timers import TimerName, Timers
from penstock.kernel.trace import LimitReached
from penstock.transport.bearer import Publish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.receiver.feedback_suppression import Restraint
from penstock.transport.receiver.rate_controller import Congestion
from penstock.transport.receiver.receiver_flows import OWN_FLOWS_MAX, OwnFlows
from penstock.transport.recovery.distance_estimator import Distances
from penstock.transport.session import Session
from penstock.transport.subscriptions import Wish
from penstock.transport.wire.control_messages import Voice, feedback_message
from penstock.transport.wire.header import Header


@dataclass(frozen=True, kw_only=True)
class ControlReport:
    """What a subscriber's congestion control knows, of the publisher to whom the way is the worst."""

    loss_event_rate: float | None = None
    round_trip: float | None = None  # seconds
    allowed_rate: float | None = None  # messages/s that the way or the application takes; None: as much as there is
    feedbacks: int = 0  # sent, to all publishers


class Feedbacks:
    """Watches all sessions for congestion."""

    def __init__(self, name: str, config: TransportConfig, timers: Timers, distances: Distances, voice: Voice) -> None:
        self._name = name
        self._config = config
        self._timers = timers
        self._distances = distances
        self._voice = voice
        self._own = OwnFlows(config.scheme, exact=config.feedback_exact)
        self._paces: dict[int, float] = {}  # messages/s that applications take, by subscription, while they are behind
        self._restraints: dict[Session, Restraint] = {}  # of sessions that are watched
        self._random = Random(f"{name} feedback")
        self.sent = 0
        self.silent = 0  # feedbacks that others' made unnecessary

    # Wishes.

    def wished(self, number: int, wish: Wish) -> list[TransportEffect]:
        """A new subscription, new flows."""
        if not self._config.congestion:
            return []
        full = self._own.full
        self._own.add(number, wish.predicate, wish.priority)
        return [LimitReached("own flows", OWN_FLOWS_MAX)] if self._own.full and not full else []

    def unwished(self, number: int) -> None:
        """The subscription is closed, and how slow its application was means nothing any more."""
        self._paces.pop(number, None)
        self._own.remove(number)

    # What happened.

    def arrived(
        self,
        session: Session,
        header: Header,
        message: Message,
        numbers: Sequence[int],
        lost: Sequence[int],
        *,
        now: float,
    ) -> list[TransportEffect]:
        """A new message came, for these subscriptions; it showed that others, with these encodings, were lost."""
        if not self._config.congestion or header.control is None:
            return []
        effects: list[TransportEffect] = []
        if session.congestion is None:
            session.congestion = self._begin(session)
            effects += self._distances.ask(session.publisher, now)
        session.congestion.delivered(header, message, numbers, lost, now=now)
        self._watch(session, now)
        return effects

    def missed(self, session: Session, encodings: Sequence[int], *, now: float) -> None:
        """Messages of this publisher, with these encodings, did not come."""
        if session.congestion is not None:
            session.congestion.missed(encodings, now=now)
            self._watch(session, now)

    def dropped_here(self, session: Session, *, now: float) -> None:
        """A message of this publisher came as far as our own queue."""
        if session.congestion is not None:
            session.congestion.lost(now=now)
            self._watch(session, now)

    def reader(self, sessions: Sequence[Session], number: int, rate: float, *, now: float) -> None:
        """The application takes so much of this subscription in all. Infinity: it keeps up."""
        if number not in self._own:
            return
        watched = [(session, session.congestion) for session in sessions if session.congestion is not None]
        total = sum(congestion.reception_rate(number, now) for _, congestion in watched)
        self._paces.pop(number, None)
        if rate < inf and total > 0.0:
            self._paces[number] = rate
        for session, congestion in watched:
            congestion.paced(number, rate / total if total > 0.0 else inf, now=now)
            self._watch(session, now)

    def echoed(self, session: Session) -> None:
        """An echo from its publisher came back."""
        trip = self._distances.round_trip(session.publisher)
        if session.congestion is not None and trip is not None:
            session.congestion.echoed(trip)

    # What to say.

    def expired(self, session: Session, *, now: float) -> list[TransportEffect]:
        """A round trip has passed, or a wait is over."""
        congestion = session.congestion
        assert congestion is not None, f"{session.publisher} is not watched"
        congestion.watched = False
        if now - session.heard_at > self._config.flow_timeout:
            return []
        # The limiting receiver measures the round trip itself; all others go by an echo that may be old, or lost.
        effects = [] if congestion.limiting else self._distances.ask(session.publisher, now)
        said = congestion.feedback(now=now)
        speak_at = self._restrained(session, congestion, now) if said is not None else now
        self._watch(session, now, at=speak_at)
        if said is None or speak_at > now or congestion.nothing_new(now):
            return effects
        self.sent += 1
        congestion.told(now=now)
        return [*effects, Publish(feedback_message(self._voice, session.publisher, said))]

    def _restrained(self, session: Session, congestion: Congestion, now: float) -> float:
        """When to say it."""
        restraint = self._restraints.get(session)
        if restraint is None:
            restraint = self._restraints[session] = Restraint(self._config.feedback_patience, self._random)
        restraint.look(limiting=congestion.limiting, round_trip=congestion.look_every, now=now)
        if congestion.limiting:
            return now
        silent = restraint.silent
        speak_at = restraint.wish(congestion.share, congestion.followed, congestion.look_every, now)
        self.silent += restraint.silent - silent
        return speak_at

    def report(self, sessions: Sequence[Session], number: int | None = None) -> ControlReport:
        """For people: of this subscription's application, or of the slowest one."""
        known = [session.congestion for session in sessions if session.congestion is not None]
        worst = min(known, key=lambda congestion: congestion.allowed, default=None)
        if worst is None:
            return ControlReport(feedbacks=self.sent)
        paces = [pace for subscription, pace in self._paces.items() if number in (None, subscription)]
        allowed = min(worst.allowed, *paces, inf)
        return ControlReport(
            loss_event_rate=worst.events.rate,
            round_trip=worst.round_trip,
            allowed_rate=allowed if allowed < inf else None,
            feedbacks=self.sent,
        )

    def end(self, session: Session) -> None:
        """The session is over."""
        self._timers.cancel(_timer(session))
        self._restraints.pop(session, None)

    def _begin(self, session: Session) -> Congestion:
        trip = self._distances.round_trip(session.publisher) or 2.0 * self._distances.to(session.publisher)
        return Congestion(self._config, self._name, self._own, trip)

    def _watch(self, session: Session, now: float, *, at: float | None = None) -> None:
        """Look again at this time, or when the next feedback is due."""
        congestion = session.congestion
        if congestion is not None and congestion.active and not congestion.watched:
            congestion.watched = True
            self._timers.set(_timer(session), at if at is not None and at > now else now + congestion.look_every)


def _timer(session: Session) -> TimerName:
    return ("transport", "control", session.publisher, session.incarnation)
