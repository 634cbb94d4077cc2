"""How fast a pubend may take publications, by what alerts measured: the product's rule of PDCC.

001 halves the rate when an alert comes, whatever it says, and names the use of its figures as future work (section 7).
Here an alert says how long data wait on the way (`lag`) and how fast they arrive meanwhile (`keeping_up`, seconds of
ticks per second, not smoothed). So the pubend knows what the way carries, and sets its rate to that at once, less what
drains the queue:

    an alert                  capacity = rate x pace;   the queue is lag / pace seconds of it;
                              rate = capacity x (1 - drain), as long as draining takes
    the queue is drained      rate = capacity
    each query without alert  rate grows by GROWTH_FIRST, by half as much again each time, at most by GROWTH_MAX: slowly
                              near the capacity that was found, fast when that has changed
    publishers offer less     no limit

While a queue drains alerts are expected, with a lag that grows until the last tick from before has arrived, lag / pace
later. They change nothing, unless the lag is longer than that: then the capacity was still too high.

An edge that recovers reports its pace with every answer. While it is slower than 1 + `recovery_gain`, pubends keep a
smaller share of the rate that they had before, never less than `live_share`; if it is faster, more. When no report
comes any more the share grows back to all of it. Both limits hold: the lower one counts. Missing feedback never
throttles: without alerts nothing is lowered, and what was lowered is raised.

State: two limits, each with what it was made from. Bounds: `rate_floor` below, what is offered above.
"""

from __future__ import annotations

from math import inf

from penstock.streams.alert_minima import Alert
from penstock.streams.config import StreamsConfig

LEAST_CAPACITY = 0.25  # of the rate, after one alert: a moment's standstill is not a measurement
DRAIN_MAX = 0.5  # of the capacity, that is left to the queue
LAG_KEPT = 0.5  # of the lag that alerts: so much may wait, and the link never idles
LAG_MARGIN = 1.5  # beyond the lag that is expected while a queue drains
TOO_HIGH = 0.7  # of the capacity, if the queue grows while it should drain
GROWTH_FIRST = 0.01  # for each query
GROWTH_FASTER = 1.5
GROWTH_MAX = 0.25
SHARE_GAIN = 0.5  # of the share, for each second of ticks per second
SHARE_STEP_MAX = 0.25
REPORTS_MISSED = 2.5  # queries without a report: nobody recovers


class MatchedRate:
    """The rate of one pubend, in messages per second; None: no limit."""

    def __init__(self, config: StreamsConfig) -> None:
        self.since = 0.0  # when the limit was first set
        self._config = config
        self._counts_from = 0  # alerts that answer earlier queries do not count
        self._limit: float | None = None  # by what the way carries
        self._capacity = 0.0
        self._drained_at: float | None = None  # None: nothing drains
        self._lag_expected = 0.0  # while the queue drains
        self._growth = GROWTH_FIRST
        self._alerted_at = -inf
        self._before = 0.0  # the rate before an edge recovered
        self._share = 1.0  # of that
        self._reported_at = -inf

    @property
    def rate(self) -> float | None:
        """Publications per second."""
        limits = [] if self._limit is None else [self._limit]
        if self._share < 1.0:
            limits.append(max(self._config.rate_floor, self._share * self._before))
        return min(limits, default=None)

    def alerted(self, alert: Alert, *, offered: float, next_query: int, now: float) -> bool:
        """An alert has come; says whether the rate was lowered. `offered`: what publishers send now."""
        if alert.sequence < self._counts_from:
            return False
        before = self.rate
        if alert.recovering < inf:
            self._report(alert.recovering, offered, now)
        if alert.keeping_up < inf:
            self._alerted_at = now
            self._queued(alert.keeping_up, alert.lag, offered, now)
        lowered = self.rate is not None and (before is None or self.rate < before)
        if lowered:
            self._counts_from = next_query
            self.since = now if before is None else self.since
        return lowered

    def _queued(self, pace: float, lag: float, offered: float, now: float) -> None:
        """Data wait on the way."""
        pace = min(1.0, max(pace, LEAST_CAPACITY))
        if self._drained_at is not None:
            if now < self._drained_at and lag <= self._lag_expected:
                return
            self._capacity *= TOO_HIGH if now < self._drained_at else pace
        else:
            rate = self.rate
            self._capacity = pace * (offered if rate is None else min(rate, offered))
        self._lag_expected = LAG_MARGIN * lag / pace + self._config.lag_alert
        excess = max(0.0, lag / pace - LAG_KEPT * self._config.lag_alert)
        drain = min(DRAIN_MAX, excess / self._config.query_interval)
        self._drained_at = now + max(self._config.query_interval, excess / DRAIN_MAX)
        self._limit = max(self._config.rate_floor, self._capacity * (1.0 - drain))
        self._growth = GROWTH_FIRST

    def _report(self, pace: float, offered: float, now: float) -> None:
        """An edge recovers at this pace."""
        if self._share >= 1.0:
            rate = self.rate
            self._before = offered if rate is None else min(rate, offered)
        self._reported_at = now
        step = SHARE_GAIN * (pace - 1.0 - self._config.recovery_gain)
        step = max(-SHARE_STEP_MAX, min(SHARE_STEP_MAX, step))
        self._share = min(1.0, max(self._config.live_share, self._share + step))

    def raise_if_quiet(self, *, offered: float, now: float) -> bool:
        """A query is due: raise the rate, if there is one and nothing speaks against it; says whether it was raised."""
        if now < max(self._alerted_at, self._reported_at):  # the clock was set back
            self._alerted_at = self._reported_at = now
            self._drained_at = None if self._drained_at is None else now
        before = self.rate
        if before is None:
            return False
        interval = self._config.query_interval
        if self._share < 1.0 and now > self._reported_at + REPORTS_MISSED * interval:
            self._share = min(1.0, self._share * (1.0 + GROWTH_MAX))
        if self._limit is not None:
            self._raise_limit(self._limit, before, interval, now)
        if self.rate is not None and self.rate > offered:
            self._limit, self._share = None, 1.0 if self._idle(now, interval) else self._share
        return self.rate is None or self.rate > before

    def _idle(self, now: float, interval: float) -> bool:
        return now > self._reported_at + REPORTS_MISSED * interval

    def _raise_limit(self, limit: float, rate: float, interval: float, now: float) -> None:
        if self._drained_at is not None:
            if now < self._drained_at:
                return
            self._drained_at = None
            self._limit = max(limit, self._capacity)
        elif now >= self._alerted_at + 0.9 * interval and rate >= limit:  # a limit that does not count proves nothing
            self._limit = limit + self._growth * (limit + self._config.rate_step)
            self._growth = min(GROWTH_MAX, self._growth * GROWTH_FASTER)
