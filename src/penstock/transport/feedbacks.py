"""A subscriber's congestion control over all its publishers: who is watched, and who is told what, when.

Each session has a `congestion` of its own; this part feeds it with what arrives and what is lost, and once per round
trip sends the publisher's inbox what it should know. A session is watched while something was lost and messages still
come; a publisher that has fallen silent is told nothing, so its flows become free again.

Timer: ("transport", "control", publisher, incarnation), once per round trip while the session is watched.
"""

from __future__ import annotations

from penstock.content.message import Message
from penstock.kernel.timers import TimerName, Timers
from penstock.transport.config import TransportConfig
from penstock.transport.congestion import RATE_ROUND_TRIPS, RATE_WINDOW_MIN, Congestion, own_flows
from penstock.transport.distances import Distances
from penstock.transport.header import Header
from penstock.transport.network import Publish, TransportEffect
from penstock.transport.session import Session
from penstock.transport.talk import Voice, feedback_message
from penstock.transport.wishes import Wishes


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
        self.sent = 0

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

    def echoed(self, session: Session) -> None:
        """An echo from its publisher came back."""
        trip = self._distances.round_trip(session.publisher)
        if session.congestion is not None and trip is not None:
            session.congestion.echoed(trip)

    def wishes_changed(self, sessions: list[Session]) -> None:
        """Other subscriptions, other flows."""
        for session in sessions:
            if session.congestion is not None:
                session.congestion.flows = self._begin(session).flows

    def expired(self, session: Session, *, now: float) -> list[TransportEffect]:
        """A round trip has passed."""
        congestion = session.congestion
        assert congestion is not None, f"{session.publisher} is not watched"
        congestion.watched = False
        if now - session.heard_at > self._config.flow_timeout:
            return []
        self._watch(session, now)
        said = congestion.feedback(now=now)
        if said is None:
            return []
        self.sent += 1
        return [Publish(feedback_message(self._voice, session.publisher, said))]

    def end(self, session: Session) -> None:
        """The session is over."""
        self._timers.cancel(_timer(session))

    def _begin(self, session: Session) -> Congestion:
        trip = self._distances.round_trip(session.publisher) or 2.0 * self._distances.to(session.publisher)
        window = max(RATE_WINDOW_MIN, RATE_ROUND_TRIPS * trip)
        filters = self._wishes.filters()
        flows = own_flows(filters, self._config.scheme, exact=self._config.feedback_exact, window=window)
        return Congestion(self._config, self._name, flows, trip)

    def _watch(self, session: Session, now: float) -> None:
        congestion = session.congestion
        if congestion is not None and congestion.active and not congestion.watched:
            congestion.watched = True
            self._timers.set(_timer(session), now + congestion.round_trip)


def _timer(session: Session) -> TimerName:
    return ("transport", "control", session.publisher, session.incarnation)
