"""What congestion control knows of a subscriber's session with one publisher, whatever the scheme."""

from __future__ import annotations

from typing import Protocol

from penstock.transport.receiver.rate_controller import RateController


class ControlledSession(Protocol):
    """A publisher that sends to us."""

    publisher: str
    incarnation: int
    received_at: float  # when something came from it last
    rate_controller: RateController | None  # from the first message whose publisher obeys feedback
