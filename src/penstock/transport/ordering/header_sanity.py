"""Can this header be? A message's number and times are held against those of another message of the same publisher.

Anybody can write a header, and clocks are set. A number that leaps, a delay that differs by a minute, or a later number
that left earlier is refused, and changes nothing. But then it may be our reference that is wrong: the publisher's clock
was set, or the first header we saw was forged. So the refused ones are held against each other; after a row of eight
that agree, the next that agrees is believed, and the order begins anew with it. Where they may only be late, each
message with a higher number that has come must be outweighed by eight.

Nobody who cannot forge headers can make us believe anything: whoever can has the session anyway, one way or the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.transport.config import TransportConfig
from penstock.transport.wire.numbered_header import NumberedHeader

BACKWARDS_MAX = 0.1  # seconds that a publisher's clock may go back between two messages; NTP steps by more, or slews
BELIEVED_AFTER = 8  # refusals in a row that agree
RATE_MAX = 1e6  # messages/s that a publisher may have sent to others meanwhile


@dataclass(slots=True)
class ReferenceHeader:
    """A message that others are measured against."""

    sequence: int
    arrival: float
    departure: float

    def problem(self, header: NumberedHeader, now: float, config: TransportConfig) -> str:
        """Why the header cannot come from the same publisher with the same clock; empty if it can."""
        step = header.sequence - self.sequence
        elapsed = header.departure - self.departure
        difference = (now - self.arrival) - elapsed
        if step > config.jump_max and step > config.jump_max + RATE_MAX * max(0.0, elapsed):
            return f"message {header.sequence} after {self.sequence}: a larger step than jump_max = {config.jump_max}"
        if not -config.skew_max <= difference <= config.skew_max:
            return f"message {header.sequence} took {difference:.3f} s longer than {self.sequence}: above skew_max"
        if (step > 0 and elapsed < -BACKWARDS_MAX) or (step < 0 and elapsed > BACKWARDS_MAX):
            return f"message {header.sequence} left {elapsed:.3f} s after {self.sequence}: numbers and times disagree"
        return ""


class RefusedHeaders:
    """The last headers that were refused in a row."""

    __slots__ = ("_config", "_count", "_last")

    def __init__(self, config: TransportConfig) -> None:
        self._config = config
        self._count = 0  # that agree with each other
        self._last: ReferenceHeader | None = None

    def clear(self) -> None:
        """One was accepted."""
        self._count = 0

    def agrees(self, header: NumberedHeader, now: float) -> bool:
        """Whether this one agrees with the last that was refused."""
        last = self._last
        return last is not None and self._count > 0 and not last.problem(header, now, self._config)

    def ahead_of(self, header: NumberedHeader) -> bool:
        """Whether the last one has a higher number."""
        return self._last is not None and self._last.sequence > header.sequence

    def believe(self, header: NumberedHeader, now: float, *, above: int = 0) -> bool:
        """Whether enough others before it agree with this one; if not, it is remembered as one of them."""
        agrees = self.agrees(header, now)
        if agrees and self._last is not None and self._last.sequence == header.sequence:
            return False  # a ledger after the message, or a copy: nothing new
        if agrees and self._count >= BELIEVED_AFTER * max(1, above):
            self._count = 0
            return True
        self._count = self._count + 1 if agrees else 1
        self._last = ReferenceHeader(header.sequence, now, header.departure)
        return False
