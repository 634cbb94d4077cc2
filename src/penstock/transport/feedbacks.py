"""A subscriber's congestion control over all its publishers: who is watched, and who is told what, when.

Each session has a `congestion` of its own; this part feeds it with what arrives and what is lost, and once per round
trip sends the publisher's inbox what it should know; who is not the limiting receiver of any flow speaks with restraint
(`restraint`). A session is watched while something was lost and messages still come; a publisher that has fallen
silent is told nothing, so its flows become free again.

Timer: ("transport", "control", publisher, incarnation), once per round trip while the session is watched.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from random import Random

from penstock.content.message import Message
from penstock.kernel.timers import TimerName, Timers
from penstock.transport.config import TransportConfig
from penstock.transport.congestion import RATE_ROUND_TRIPS, RATE_WINDOW_MIN, Congestion, own_flows
from penstock.transport.distances import Distances
from penstock.transport.header import Header
from penstock.transport.network import Publish, TransportEffect
from penstock.transport.restraint import Restraint
from penstock.transport.session import Session
from penstock.transport.talk import Voice, feedback_message
from penstock.transport.wishes import Wishes


@dataclass(frozen=True, kw_only=True)
class ControlReport:
    """What a subscriber's congestion control knows, of the publisher to whom the way is the worst."""

    loss_event_rate: float | None = None
    round_trip: float | None = None  # seconds
    allowed_rate: float | None = None  # messages/s; None: as much as there is
    feedbacks: int = 0  # sent, to all publishers


class Feedbacks:
    """Watches all sessions for congestion."""

    def __init__(
        self,
        name: str,
        config: TransportConfig,
        timers: Timers,
        distances: Distances,
        voice: Voice,
        wishes: Wishes,
    ) -> None:
        self._name = name
        self._config = config
        self._timers = timers
        self._distances = distances
        self._voice = voice
        self._wishes = wishes
        self._restraints: dict[Session, Restraint] = {}  # of sessions that are watched
        self._random = Random(f"{name} feedback")
        self.sent = 0
        self.silent = 0  # feedbacks that others' made unnecessary

    def arrived(
        self, session: Session, header: Header, message: Message, revealed: bool, *, now: float
    ) -> list[TransportEffect]:
        """A new message came; `revealed`: it showed that another was lost."""
        if not self._config.congestion or header.control is None:
            return []
        effects: list[TransportEffect] = []
        if session.congestion is None:
            session.congestion = self._begin(session)
            effects += self._distances.ask(session.publisher, now)
        several = len(session.congestion.flows) > 1
        encoding = self._config.scheme.encode_message(message.attributes) if several else 0
        session.congestion.delivered(header, message, encoding, revealed, now=now)
        self._watch(session, now)
        return effects

    def lost(self, session: Session, *, here: bool = False, now: float) -> None:
        """A message of this publisher did not come, as records tell, or did not fit our own queue (`here`)."""
        if session.congestion is not None and (here or not session.congestion.exact):
            session.congestion.lost(now=now)
            self._watch(session, now)

    def reader(self, sessions: list[Session], rate: float, *, now: float) -> None:
        """The application takes so much in all; publishers share it as they send. Infinity: it keeps up."""
        watched = [session for session in sessions if session.congestion is not None]
        rates = [session.congestion.reception_rate(now) for session in watched if session.congestion is not None]
        total = sum(rates)
        for session, part in zip(watched, rates, strict=True):
            assert session.congestion is not None
            session.congestion.reader_rate = rate * part / total if total > 0.0 and rate < inf else inf
            self._watch(session, now)

    def echoed(self, session: Session) -> None:
        """An echo from its publisher came back."""
        trip = self._distances.round_trip(session.publisher)
        if session.congestion is not None and trip is not None:
            session.congestion.echoed(trip)

    def wishes_changed(self, sessions: list[Session]) -> None:
        """Other subscriptions, other flows."""
        for session in sessions:
            if session.congestion is not None:
                known = {(flow.wanted.encoding, flow.where): flow for flow in session.congestion.flows}
                flows = self._begin(session).flows  # those that stay go on as they were
                session.congestion.flows = [known.get((flow.wanted.encoding, flow.where), flow) for flow in flows]

    def expired(self, session: Session, *, now: float) -> list[TransportEffect]:
        """A round trip has passed."""
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
        if said is None or speak_at > now:
            return effects
        self.sent += 1
        return [*effects, Publish(feedback_message(self._voice, session.publisher, said))]

    def _restrained(self, session: Session, congestion: Congestion, now: float) -> float:
        """When to say it."""
        restraint = self._restraints.get(session)
        if restraint is None:
            restraint = self._restraints[session] = Restraint(self._config.feedback_patience, self._random)
        restraint.look(limiting=congestion.limiting, round_trip=congestion.round_trip, now=now)
        if congestion.limiting:
            return now
        silent = restraint.silent
        speak_at = restraint.wish(congestion.share, congestion.followed, congestion.round_trip, now)
        self.silent += restraint.silent - silent
        return speak_at

    def report(self, sessions: list[Session]) -> ControlReport:
        """For people."""
        known = [session.congestion for session in sessions if session.congestion is not None]
        worst = min(known, key=lambda congestion: congestion.allowed, default=None)
        if worst is None:
            return ControlReport(feedbacks=self.sent)
        return ControlReport(
            loss_event_rate=worst.events.rate,
            round_trip=worst.round_trip,
            allowed_rate=worst.allowed if worst.allowed < inf else None,
            feedbacks=self.sent,
        )

    def end(self, session: Session) -> None:
        """The session is over."""
        self._timers.cancel(_timer(session))
        self._restraints.pop(session, None)

    def _begin(self, session: Session) -> Congestion:
        trip = self._distances.round_trip(session.publisher) or 2.0 * self._distances.to(session.publisher)
        window = max(RATE_WINDOW_MIN, RATE_ROUND_TRIPS * trip)
        filters = self._wishes.filters()
        flows = own_flows(filters, self._config.scheme, exact=self._config.feedback_exact, window=window)
        return Congestion(self._config, self._name, flows, trip)

    def _watch(self, session: Session, now: float, *, at: float | None = None) -> None:
        """Look again at this time, or in a round trip."""
        congestion = session.congestion
        if congestion is not None and congestion.active and not congestion.watched:
            congestion.watched = True
            self._timers.set(_timer(session), at if at is not None and at > now else now + congestion.round_trip)


def _timer(session: Session) -> TimerName:
    return ("transport", "control", session.publisher, session.incarnation)
