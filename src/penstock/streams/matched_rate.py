"""How fast a pubend may take publications, by what alerts measured: the product's rule of PDCC.

001 halves the rate when an alert comes, whatever it says, and names the use of its figures as future work (section 7).
Here an alert says how long data wait on the way (`lag`) and how fast they arrive meanwhile (`keeping_up`, seconds of
ticks per second, not smoothed). The pubend knows how many messages it put into those ticks (`sent_history`). So it
knows what the way carries and what waits on it, and sets its rate to that at once, less what drains the queue:

    an alert                  capacity = messages that arrived between two queries / the time between them
                              queue    = messages sent within the lag / capacity, in seconds
                              rate     = capacity x (1 - drain), as long as draining takes
    the queue is drained      rate = capacity
    each query without alert  rate grows by GROWTH_FIRST, by a third more each time, at most by GROWTH_MAX: slowly near
                              the rate at which alerts came, fast well below it, and when that has changed
    publishers offer less     no limit

While a queue drains alerts go on, and the lag that they name grows until the last tick from before has arrived. They
say how much is left; the capacity is measured again only if the lag is longer than it can be.

An edge that recovers reports its pace with every answer. While it is slower than 1 + `recovery_gain`, pubends keep a
smaller share of the rate that they had before, never less than `live_share`; if it is faster, more. When no report
comes any more the share grows back to all of it. Both limits hold: the lower one counts. Missing feedback never
throttles: without alerts nothing is lowered, and what was lowered is raised.

State: two limits, each with what it was made from. Bounds: below `rate_floor`, or FLOOR_BYTES per second if messages
are so large that this is less; above what is offered.
"""

from __future__ import annotations

from math import inf

from penstock.streams.alert_minima import Alert
from penstock.streams.config import StreamsConfig
from penstock.streams.sent_history import SentHistory

LEAST_CAPACITY = 0.25  # of what was sent, after one alert: a moment's standstill is not a measurement
DRAIN_MAX = 0.5  # of the capacity, that is left to the queue
LAG_KEPT = 0.5  # of the lag that alerts: so much may wait, and the link never idles
LAG_MARGIN = 1.5  # beyond the lag that is expected while a queue drains
LEAST_FLOOR = 0.1  # messages per second
FLOOR_BYTES = 5_000.0  # per second
TOO_HIGH = 0.7  # of the capacity, if a queue does not drain
GROWTH_FIRST = 0.01  # for each query, near the rate at which alerts came
GROWTH_FAR = 0.1  # and well below it
FAR = 0.8  # of that rate
PEAK_KEPT = 0.7  # of an earlier such rate, that counts still
RATE_MAX = 1e9
IDLE = 0.5  # messages: who has sent no more does not fill the way
GROWTH_FASTER = 1.3
GROWTH_MAX = 0.25
SHARE_GAIN = 0.5  # of the share, for each second of ticks per second
SHARE_DOWN_MAX = 0.5  # for each report
SHARE_UP_MAX = 0.02  # near its end a recovery is fast because it meets silence, and not because there is room
QUERIES_MISSED = 2.5  # queries without a report: nobody recovers
ANSWERED_WITHIN = 1.5  # queries: an alert to the last one would have come


class MatchedRate:
    """The rate of one pubend, in messages per second; None: no limit."""

    def __init__(self, config: StreamsConfig) -> None:
        self.since = 0.0  # when the limit was first set
        self._config = config
        self._counts_from = 0  # alerts that answer earlier queries do not count
        self._sent = SentHistory()
        self.message_bytes = 0.0  # the mean size of what is published
        self._floor = config.rate_floor
        self._limit: float | None = None  # by what the way carries
        self._capacity = 0.0
        self._drained_at: float | None = None  # None: nothing drains
        self._lag_expected = 0.0  # at most, while it does
        self._growth = GROWTH_FIRST
        self._peak = 0.0  # the rate at which alerts came
        self._alerted_at = -inf
        self._before = 0.0  # the rate before an edge recovered
        self._share = 1.0  # of that
        self._reported_at = -inf

    @property
    def rate(self) -> float | None:
        """Publications per second."""
        limits = [] if self._limit is None else [self._limit]
        if self._share < 1.0:
            limits.append(max(self._floor, self._share * self._before))
        return min(limits, default=None)

    def alerted(self, alert: Alert, *, offered: float, next_query: int, now: float) -> bool:
        """An alert has come; says whether the rate was lowered. `offered`: what publishers send now."""
        if alert.keeping_up < inf:
            self._alerted_at = now  # too old to count or not: it is not quiet
        if alert.sequence < self._counts_from:
            return False
        before = self.rate
        if before is None:
            if offered * self._config.query_interval < IDLE:
                return False
            self._sent.begin(offered, now)
            self._floor = min(self._config.rate_floor, max(LEAST_FLOOR, FLOOR_BYTES / max(1.0, self.message_bytes)))
        if alert.recovering < inf:
            self._report(alert.recovering, now)
        if alert.keeping_up < inf:
            self._queued(alert.keeping_up, alert.lag, now)
        self._note(now)
        lowered = self.rate is not None and (before is None or self.rate < before)
        if lowered:
            self._counts_from = next_query
            self.since = now if before is None else self.since
        return lowered

    def _note(self, now: float) -> None:
        if self.rate is not None:
            self._sent.note(self.rate, now)

    def _queued(self, pace: float, lag: float, now: float) -> None:
        """Data wait on the way."""
        interval, arrived = self._config.query_interval, now - lag
        if self._drained_at is None:
            sent = self._sent.between(arrived - interval, arrived)
            self._peak = max(PEAK_KEPT * self._peak, sent / interval)
            came = self._sent.between(arrived - pace * interval, arrived)
            self._capacity = max(LEAST_CAPACITY * sent, min(sent, came)) / interval
        elif lag > self._lag_expected:
            self._capacity *= TOO_HIGH
        self._capacity = max(self._floor, self._capacity)
        queue = self._sent.between(arrived, now) / self._capacity
        if self._drained_at is None or lag > self._lag_expected:
            self._lag_expected = LAG_MARGIN * queue + self._config.lag_alert
        excess = max(0.0, queue - LAG_KEPT * self._config.lag_alert)
        drain = min(DRAIN_MAX, excess / interval)
        self._drained_at = now + (excess / drain if drain else 0.0)
        self._limit = max(self._floor, self._capacity * (1.0 - drain))
        self._growth = GROWTH_FIRST

    def _report(self, pace: float, now: float) -> None:
        """An edge recovers at this pace."""
        if self._share >= 1.0:
            self._before = self._sent.highest()
        self._reported_at = now
        step = SHARE_GAIN * (pace - 1.0 - self._config.recovery_gain)
        step = max(-SHARE_DOWN_MAX, min(SHARE_UP_MAX, step))
        self._share = min(1.0, max(self._config.live_share, self._share + step))

    def raise_if_quiet(self, *, offered: float, now: float) -> bool:
        """A query is due: raise the rate, if there is one and nothing speaks against it; says whether it was raised."""
        if now < max(self._alerted_at, self._reported_at):  # the clock was set back
            self._alerted_at = self._reported_at = now
            self._drained_at = None if self._drained_at is None else now
        before = self.rate
        if before is not None:
            self._raise(offered, before, now)
        self._note(now)
        return before is not None and (self.rate is None or self.rate > before)

    def _raise(self, offered: float, before: float, now: float) -> None:
        interval = self._config.query_interval
        recovers = now <= self._reported_at + QUERIES_MISSED * interval
        if not recovers:
            self._share = min(1.0, self._share * (1.0 + GROWTH_MAX))
        if self._limit is not None:
            self._raise_limit(self._limit, before, now > self._alerted_at + ANSWERED_WITHIN * interval, now)
        if self.rate is not None and self.rate > offered:
            self._limit, self._peak = None, 0.0
            self._share = self._share if recovers else 1.0

    def _raise_limit(self, limit: float, rate: float, quiet: bool, now: float) -> None:
        if self._drained_at is not None:
            if quiet or now >= self._drained_at:
                self._limit = max(limit, self._capacity)
            if quiet:
                self._drained_at = None
        elif quiet and rate >= limit:  # a limit that does not count proves nothing
            growth = max(self._growth, GROWTH_FAR if limit < FAR * self._peak else 0.0)
            self._limit = min(RATE_MAX, limit + growth * (limit + self._config.rate_step))
            self._growth = min(GROWTH_MAX, self._growth * GROWTH_FASTER)
