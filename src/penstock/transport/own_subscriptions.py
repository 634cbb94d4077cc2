"""The transport's own subscriptions: its inbox, requests it may answer, heartbeats, questions who is slowed down.

They have numbers that no application uses. The inbox is subscribed to once, and so are questions, by a publisher that
somebody has slowed down: a network without congestion has no filter for them. Heartbeats are subscribed to per
publisher, for a limited number of them, because a broker takes a limited number of subscriptions from a client.
"""

from __future__ import annotations

from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS
from penstock.transport.bearer import BearerSubscribe, BearerUnsubscribe, TransportEffect
from penstock.transport.session import Session
from penstock.transport.wire.control_messages import about_where, heartbeats_where, inbox_where, questions_where

HEARTBEATS_MAX = 200  # publishers whose heartbeats we subscribe to


class OwnSubscriptions:
    """What one transport subscribes to for itself."""

    def __init__(self, name: str, domain: str, first_number: int = SERVICE_SUBSCRIPTIONS) -> None:
        self._name = name
        self._domain = domain
        self._inbox_number, self._about_us_number = first_number, first_number + 1
        self._last = self._about_us_number
        self._inbox = self._questions = False
        self._heartbeats = 0

    def inbox(self) -> list[TransportEffect]:
        """Subscribe to what is meant for us alone, once."""
        if self._inbox:
            return []
        self._inbox = True
        return [BearerSubscribe(self._inbox_number, inbox_where(self._name))]

    def about_us(self) -> list[TransportEffect]:
        """Subscribe to requests and repairs of our own messages."""
        return [BearerSubscribe(self._about_us_number, about_where(self._name, self._domain))]

    def questions(self) -> list[TransportEffect]:
        """Subscribe to questions who is slowed down, once and for good."""
        if self._questions:
            return []
        self._questions = True
        return [BearerSubscribe(self.number(), questions_where())]

    def number(self) -> int:
        """A number for one more subscription of ours."""
        self._last += 1
        return self._last

    def heartbeats_of(self, session: Session) -> list[TransportEffect]:
        """Subscribe to this publisher's heartbeats, if there is room."""
        if self._heartbeats >= HEARTBEATS_MAX:
            return []
        self._heartbeats += 1
        session.heartbeats = self.number()
        return [BearerSubscribe(session.heartbeats, heartbeats_where(session.publisher))]

    def no_heartbeats_of(self, session: Session) -> list[TransportEffect]:
        """And no longer."""
        if session.heartbeats is None:
            return []
        number, session.heartbeats = session.heartbeats, None
        self._heartbeats -= 1
        return [BearerUnsubscribe(number)]
