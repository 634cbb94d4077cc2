"""How long to wait for a publisher's reply: TCP's estimator (RFC 6298), from the echo in each reply.

RTO = smoothed round trip + 4 deviations, within [RTO_MIN, RTO_MAX]. Until one came back from a publisher, that to all
publishers together stands for it, and RTO_FIRST if there is none either. The i-th attempt waits RTO x 1.5^i, at most
WAIT_MAX.
"""

from __future__ import annotations

from penstock.kernel.answer_time import AnswerTime

RTO_MIN, RTO_FIRST, RTO_MAX = 0.1, 0.5, 1.5
BACK_OFF, WAIT_MAX = 1.5, 1.5


class ReplyTimeout:
    """The round trip to one publisher, or to all."""

    __slots__ = ("_others", "_times")

    def __init__(self, others: ReplyTimeout | None = None) -> None:
        self._others = others
        self._times = AnswerTime()

    @property
    def typical(self) -> float:
        """How long a reply takes."""
        if self._times.mean is not None:
            return self._times.mean
        return RTO_FIRST if self._others is None else self._others.typical

    def measured(self, trip: float) -> None:
        """A reply came after so long."""
        if not 0.0 <= trip < 60.0:
            return
        if self._others is not None:
            self._others.measured(trip)
        self._times.measured(trip)

    def wait(self, attempts: int) -> float:
        """How long to wait after so many attempts, 1 being the first."""
        return float(min(self.timeout * BACK_OFF ** (attempts - 1), WAIT_MAX))

    @property
    def timeout(self) -> float:
        """How long to wait for the first answer."""
        first = RTO_FIRST if self._others is None else self._others.timeout
        return min(max(self._times.within(first), RTO_MIN), RTO_MAX)
