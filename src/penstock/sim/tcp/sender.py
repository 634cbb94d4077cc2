"""The sending half of a TCP flow: the window, the estimate of the round trip, and what is sent when, and sent again.

NewReno, with slow start, congestion avoidance, fast retransmit and fast recovery (RFC 5681, 6582), limited transmit
(RFC 3042), timeouts with Karn's rule and back-off (RFC 6298). The sender keeps a window and a few numbers, however much
is under way; segments are numbered from 0, and the numbers never wrap.
"""

from __future__ import annotations

from math import inf

from penstock.sim.engine import Engine
from penstock.sim.tcp.alarm import Alarm
from penstock.sim.tcp.config import TcpConfig
from penstock.sim.tcp.packets import Path
from penstock.sim.tcp.statistics import TcpStatistics

DUPLICATES = 3  # acknowledgements of the same number that mean a loss (RFC 5681)


class RoundTrip:
    """The estimate of the round trip, and the timeout made from it (RFC 6298)."""

    def __init__(self, config: TcpConfig) -> None:
        self._config = config
        self.smoothed: float | None = None
        self._variation = 0.0
        self.timeout = config.timeout_initial

    def sample(self, seconds: float) -> None:
        """A segment that was sent once has been acknowledged after so long; this ends any back-off."""
        if self.smoothed is None:
            self.smoothed, self._variation = seconds, seconds / 2.0
        else:
            self._variation += (abs(self.smoothed - seconds) - self._variation) / 4.0
            self.smoothed += (seconds - self.smoothed) / 8.0
        timeout = self.smoothed + 4.0 * self._variation
        self.timeout = min(max(timeout, self._config.timeout_min), self._config.timeout_max)

    def back_off(self) -> None:
        """It timed out: wait twice as long next time."""
        self.timeout = min(2.0 * self.timeout, self._config.timeout_max)


class Sender:
    """Half of a flow: decides when which segment leaves."""

    def __init__(self, engine: Engine, path: Path, config: TcpConfig, statistics: TcpStatistics) -> None:
        self.running = False
        self.window = float(config.initial_window)  # segments that may be under way
        self.threshold = float(config.receive_window)  # below it the window grows by slow start
        self.acknowledged = 0  # all segments below have arrived
        self.next = 0  # the next to be sent; after a timeout it goes back to `acknowledged`
        self.highest = 0  # all segments below have been sent at least once
        self.limit: float = inf if config.segments_max is None else config.segments_max
        self.recovering = False
        self.round_trip = RoundTrip(config)
        self._recover = -1  # in a recovery: where it ends; after a timeout: up to here duplicates mean nothing
        self._duplicates = 0
        self._partial = False  # whether this recovery has seen a partial acknowledgement
        self._timed: tuple[int, float] | None = None  # the segment whose round trip is being measured, and its time
        self._timed_out = -1  # what was last sent again by timeout
        self._alarm = Alarm(engine, self._time_out)
        self._engine = engine
        self._path = path
        self._config = config
        self._statistics = statistics

    def start(self) -> None:
        """Begin to send."""
        self.running = True
        self.send_what_fits()

    def stop(self) -> None:
        """Fall silent: nothing is sent any more, nor sent again."""
        self.running = False
        self._alarm.due = None

    def take(self, number: int) -> None:
        """An acknowledgement: all segments below this number have arrived."""
        if not self.running:
            return
        if number > self.acknowledged:
            self._take_new(number)
        elif number == self.acknowledged and self.next > number:
            self._take_duplicate()
        self._statistics.window(self._engine.now, self.window)
        self.send_what_fits()

    def send_what_fits(self) -> None:
        """Fill the window."""
        window = self.window
        if not self.recovering and self.next == self.highest:  # limited transmit: a new segment for each of two
            window += min(self._duplicates, DUPLICATES - 1)
        edge = min(self.acknowledged + min(int(window), self._config.receive_window), self.limit)
        while self.next < edge:
            self.next += 1
            self._transmit(self.next - 1)

    def _take_new(self, number: int) -> None:
        advance = number - self.acknowledged
        was_full = self.next - self.acknowledged >= int(self.window)
        if self._timed is not None and number > self._timed[0]:
            self.round_trip.sample(self._engine.now - self._timed[1])
            self._timed = None
        self.acknowledged = number
        self.next = max(self.next, number)
        restart = True
        if not self.recovering:
            self._duplicates = 0
            if was_full:  # a window that is not used says nothing about the way
                self._grow()
        elif number >= self._recover:
            self._leave_recovery()
        else:
            restart = not (self._partial and self._config.impatient)
            self._repair_next(advance)
        self._see_to_alarm(restart)

    def _see_to_alarm(self, restart: bool) -> None:
        if self.acknowledged == self.next:  # nothing is under way
            self._alarm.due = None
            if self.acknowledged >= self.limit:
                self._statistics.finished_at = self._engine.now
        elif restart:
            self._alarm.set(self._engine.now + self.round_trip.timeout)

    def _grow(self) -> None:
        """Once per acknowledgement, not per segment: delayed acknowledgements make both phases slower (RFC 5681)."""
        window = self.window + (1.0 if self.window < self.threshold else 1.0 / self.window)
        self.window = min(window, float(self._config.receive_window))

    def _take_duplicate(self) -> None:
        self._duplicates += 1
        if self.recovering:
            self.window += 1.0  # a segment has left the network
        elif self._duplicates == DUPLICATES and self.acknowledged > self._recover:
            # Up to `_recover` duplicates may also echo what a timeout sent again without need (RFC 6582, section 3.2).
            self._enter_recovery()

    def _enter_recovery(self) -> None:
        self._statistics.fast_recoveries += 1
        self._statistics.loss_events += 1
        self.recovering, self._partial = True, False
        self._halve()
        self._recover = self.highest
        self.window = self.threshold + DUPLICATES
        self._transmit(self.acknowledged)
        self._alarm.set(self._engine.now + self.round_trip.timeout)

    def _repair_next(self, advance: int) -> None:
        """A partial acknowledgement: the segment it asks for was lost in the same event."""
        self._partial = True
        self.window = max(self.window - advance + 1.0, 1.0)
        self._transmit(self.acknowledged)

    def _leave_recovery(self) -> None:
        """With what is under way as the window, lest a burst follows; slow start brings it to the threshold."""
        self.recovering = False
        self._duplicates = 0
        # Pipes keep the order, so a recovery sent nothing again without need: duplicates from now on are a new loss.
        # RFC 6582 would wait for an acknowledgement above the end of the recovery, and so for a timeout.
        self._recover = self.acknowledged - 1
        self.window = min(self.threshold, max(self.next - self.acknowledged, 1) + 1.0)

    def _halve(self) -> None:
        under_way = min(float(self.next - self.acknowledged), self.window)  # without what limited transmit has added
        self.threshold = max(under_way / 2.0, 2.0)

    def _time_out(self) -> None:
        self._statistics.timeouts += 1
        # A recovery has halved for this event already, and half of its inflated window would be more than that; nor is
        # it a new event when the same segment times out again.
        if not self.recovering and self._timed_out != self.acknowledged:
            self._statistics.loss_events += 1
            self._halve()
        self._timed_out = self.acknowledged
        self.recovering = False
        self._recover = self.highest
        self._duplicates = 0
        self.window = 1.0
        self.next = self.acknowledged  # all that was under way is taken for lost
        self.round_trip.back_off()
        self._statistics.window(self._engine.now, self.window)
        self.send_what_fits()

    def _transmit(self, number: int) -> None:
        if number < self.highest:
            self._statistics.retransmissions += 1
            self._timed = None  # Karn: whose acknowledgement would it be?
        else:
            self.highest = number + 1
            if self._timed is None:
                self._timed = (number, self._engine.now)
        if self._alarm.due is None:
            self._alarm.set(self._engine.now + self.round_trip.timeout)
        self._path.send(number)
