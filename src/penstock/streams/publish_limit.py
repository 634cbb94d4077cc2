"""A limit of a pubend as it is told to people and to publishers: how fast, since when, and who asked for it.

PDCC sets it (`publish_rate`). The name of the edge comes with its alert: of the alerts that were gathered on the way,
the lowest of each class keeps the broker that sent it. There may be others that cannot keep up either.

State: none; a limit is a value.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins

from penstock.kernel.rate_estimator import rate_text


class PublishLimit(Struct, frozen=True):
    """What a pubend takes while somebody cannot keep up. Times are those of the pubend's broker."""

    rate: float  # publications per second
    since: float
    edge: str  # the broker with the lowest pace; empty: nobody knows its name
    recovering: bool  # it is catching up with what it has missed, and not fast enough
    pace: float  # of that broker: seconds of the stream per second
    told_at: float  # when it was last heard of

    def report(self) -> dict[str, Any]:
        """As plain data, with the reason in words."""
        return {**to_builtins(self), "reason": self.reason}

    @property
    def reason(self) -> str:
        """Why, in words."""
        who = f"broker '{self.edge}'" if self.edge else "a broker"
        pace = f"{rate_text(round(self.pace, 2))} s of the stream per second"
        return f"{who} catches up too slowly, by {pace}" if self.recovering else f"{who} cannot keep up: it gets {pace}"
