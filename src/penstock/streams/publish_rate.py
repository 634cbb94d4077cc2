"""How fast a pubend may take publications: the pubend's part of PDCC (001 section 3.1, equations 1 to 3, as corrected).

Edges that cannot keep up send alerts (Uca), each in answer to a numbered query (Dcq). An alert lowers the rate, unless
it answers a query from before the last decrease, which has not had time to help, or tells of a higher throughput than
the one before it of its class: then things are getting better by themselves. After `quiet` seconds without an alert the
rate is raised, and again after as long, until publishers offer no more than it allows: then there is no limit.

    decrease   r <- max(f1 r, r0 + f2 (r - r0)) if r differs from r0, otherwise f1 r;   r0 <- r
    increase   r <- max(r + r_min, r + f (r - r0))

r0 is the rate right after the last decrease (erratum G4): the first decrease after an increase takes back most of the
increase and no more. Missing feedback never throttles: without alerts nothing happens. The rate has a floor (erratum to
E1): a pubend that stood still could never find out that the way is free again.

State: two rates, the number of a query, the last value of each class, two times.
"""

from __future__ import annotations

from math import inf

from penstock.streams.alert_minima import Alert
from penstock.streams.config import StreamsConfig


class PublishRate:
    """The rate of one pubend, in messages per second; None: no limit."""

    def __init__(self, config: StreamsConfig) -> None:
        self.rate: float | None = None
        self.since = 0.0  # when the limit was first set
        self._config = config
        self._decreased = 0.0  # the rate right after the last decrease
        self._counts_from = 0  # alerts that answer earlier queries do not count
        self._last = {"recovering": inf, "keeping up": inf}
        self._alerted_at = 0.0
        self._raised_at = 0.0

    def alerted(self, alert: Alert, *, offered: float, next_query: int, now: float) -> bool:
        """An alert has come; says whether the rate was lowered. `offered`: what publishers send now."""
        self._alerted_at = now
        both = {"keeping up": alert.keeping_up, "recovering": alert.recovering}
        values = {name: value for name, value in both.items() if value < inf}
        worse = [name for name, value in values.items() if value <= self._last[name]]
        self._last.update(values)
        if alert.sequence < self._counts_from or not worse:
            return False
        self._lower(offered, now)
        self._counts_from = next_query
        return True

    def _lower(self, offered: float, now: float) -> None:
        config = self._config
        if self.rate is None:
            self.rate = self._decreased = offered
            self.since = now
        rate, base = self.rate, self._decreased
        lower = config.decrease * rate
        if config.decrease_step:
            lower = rate - config.decrease_step
        elif rate != base:
            lower = max(lower, base + config.keep_of_increase * (rate - base))
        self.rate = self._decreased = max(config.rate_floor, lower)

    def raise_if_quiet(self, *, offered: float, now: float) -> bool:
        """Raise the rate, if there is one and no alert has come for a while; says whether it was raised."""
        config, last_change = self._config, max(self._alerted_at, self._raised_at)
        if now < last_change:  # the clock was set back
            self._alerted_at = self._raised_at = now
        if self.rate is None or now < last_change + config.quiet:
            return False
        self._raised_at = now
        self.rate = max(self.rate + config.rate_step, self.rate + config.increase * (self.rate - self._decreased))
        self._last = dict.fromkeys(self._last, inf)
        if self.rate > offered:
            self.rate = None
        return True
