"""TCP beside the content: a bulk transfer, packet by packet, that competes with messages for a link.

The congestion control of 000 and 002 chapter 5 claims to share a link with TCP, so there must be a TCP to share with:
NewReno, with slow start, congestion avoidance, fast retransmit and fast recovery (RFC 5681, 6582), limited transmit
(RFC 3042), timeouts with Karn's rule and back-off (RFC 6298), delayed acknowledgements and a receiver's window.

Packets. A `TcpPacket` is a segment or an acknowledgement and finds its own way: a path is a row of pipes, and a packet
that comes out of one goes into the next. Whoever shares a pipe with TCP wraps the pipe's two callbacks with `beside`;
there, packets of TCP are told apart from all else by their type. The pipe must be one that loses (a datagram link's): a
reliable one never drops, and TCP would fill it up to the receiver's window.

State. The sender keeps a window and a few numbers, however much is under way; segments are numbered from 0, and the
numbers never wrap. The receiver keeps the numbers of what came early, at most `receive_window`.

Timers. Retransmission and delayed acknowledgement, one alarm each. The engine cancels nothing, so an alarm that is
called too early goes back to sleep: a few events per round trip, not one per packet.

Bounds. Besides `receive_window`: the trace of the window is thinned to half when it is full; bytes that come after the
last bin are counted in `unbinned_bytes`.

Simpler than the real one: no handshake and no close, no bytes within segments, no SACK, no window updates (the reader
is never slow), no restart of the window after idling. Nothing is random but `ProcessingDelay`, which has a stream of
its own: two flows over one drop-tail queue can fall into step, so that one of them meets all the losses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

from penstock.sim.engine import Engine

Give = Callable[[Any, int], None]  # a pipe's `send`: what goes in, and its size in bytes
Arrive = Callable[[Any], None]  # a pipe's two callbacks
Lost = Callable[[Any, str], None]

DUPLICATES = 3  # acknowledgements of the same number that mean a loss (RFC 5681)


@dataclass(frozen=True, kw_only=True)
class TcpConfig:
    """One flow. Sizes are on the wire, so that shares of a link can be compared."""

    segment_bytes: int = 280  # as large as a message in the experiments: queues count packets, so parity is per packet
    acknowledgement_bytes: int = 40
    initial_window: int = 3  # segments (RFC 3390); today's stacks take 10
    receive_window: int = 1000  # segments; the window is never larger
    segments_max: int | None = None  # how much there is to send; None: without end
    acknowledge_every: int = 2  # segments; 1 acknowledges each at once (b in the response function)
    acknowledgement_delay: float = 0.04  # how long one segment waits for its second
    timeout_initial: float = 1.0  # until there is a sample of the round trip (RFC 6298)
    timeout_min: float = 0.2  # what Linux takes; RFC 6298 says 1
    timeout_max: float = 60.0
    impatient: bool = True  # only the first partial acknowledgement restarts the timer (RFC 6582); else every one
    processing_delay_max: float = 0.0  # each segment leaves up to so much later; needs a stream of random numbers
    bin_seconds: float = 1.0
    bins_max: int = 100_000
    trace_interval: float = 0.1  # how often the window is noted; doubles whenever the trace is full
    trace_max: int = 10_000

    def __post_init__(self) -> None:
        counts = (self.segment_bytes, self.acknowledgement_bytes, self.initial_window, self.acknowledge_every)
        if min(*counts, self.bins_max) < 1 or self.trace_max < 2 or (self.segments_max or 0) < 0:
            raise ValueError(f"{self}: sizes and numbers must be at least 1, and trace_max 2")
        if self.receive_window < max(self.initial_window, self.acknowledge_every):
            raise ValueError(f"a receiver's window of {self.receive_window} is less than the flow begins with")
        if not 0.0 < self.timeout_min <= self.timeout_initial <= self.timeout_max:
            raise ValueError("timeouts must grow: 0 < timeout_min <= timeout_initial <= timeout_max")
        if not 0.0 < self.acknowledgement_delay < self.timeout_min:
            raise ValueError("an acknowledgement must be delayed by more than 0 and less than timeout_min")
        if self.bin_seconds <= 0.0 or self.trace_interval <= 0.0 or self.processing_delay_max < 0.0:
            raise ValueError("bin_seconds and trace_interval must be above 0, processing_delay_max not below")


class Path:
    """The pipes from one end to the other, and who takes the packets there."""

    take: Callable[[int], None]  # set when the flow is put together: each end needs its path first

    def __init__(self, gives: Sequence[Give], size_bytes: int) -> None:
        assert gives, "a path has at least one pipe"
        self.gives = tuple(gives)
        self.size_bytes = size_bytes
        self.sent_packets = 0
        self.lost_packets = 0

    def send(self, number: int) -> None:
        """Put a packet with this number into the first pipe."""
        self.sent_packets += 1
        self.gives[0](TcpPacket(self, number), self.size_bytes)


class TcpPacket:
    """A segment, or an acknowledgement of all segments below its number; which one, its path knows."""

    __slots__ = ("_hop", "number", "path")

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        self._hop = 0

    def arrived(self) -> None:
        """It came out of a pipe: on into the next, or to whom it is for."""
        path = self.path
        self._hop += 1
        if self._hop < len(path.gives):
            path.gives[self._hop](self, path.size_bytes)
        else:
            path.take(self.number)


def beside(arrive: Arrive, lost: Lost) -> tuple[Arrive, Lost]:
    """A pipe's callbacks where TCP shares the pipe: its packets go their way, all else goes to these two."""

    def arrive_either(item: Any) -> None:
        if type(item) is TcpPacket:
            item.arrived()
        else:
            arrive(item)

    def lost_either(item: Any, cause: str) -> None:
        if type(item) is TcpPacket:
            item.path.lost_packets += 1
        else:
            lost(item, cause)

    return arrive_either, lost_either


class ProcessingDelay:
    """A host that takes a random little time per packet, and keeps their order."""

    def __init__(self, engine: Engine, random: Random, seconds_max: float, give: Give) -> None:
        self._engine = engine
        self._random = random
        self._seconds_max = seconds_max
        self._give = give
        self._last = 0.0  # when the latest packet leaves

    def send(self, item: Any, size_bytes: int) -> None:
        """Hand the packet on a little later."""
        self._last = max(self._last, self._engine.now + self._seconds_max * self._random.random())
        self._engine.at(self._last, lambda packet: self._give(*packet), (item, size_bytes))


class Alarm:
    """Rings when it is due, unless `due` is set to None before. Only one of its events in the engine matters."""

    def __init__(self, engine: Engine, ring: Callable[[], None]) -> None:
        self._engine = engine
        self._ring = ring
        self.due: float | None = None
        self._armed: float | None = None  # when the engine will call us

    def set(self, time: float) -> None:
        """Ring then, and not before."""
        self.due = time
        if self._armed is None or time < self._armed:
            self._armed = time
            self._engine.at(time, self._wake, time)

    def _wake(self, armed: float) -> None:
        if armed != self._armed:
            return
        self._armed = None
        if self.due is not None and self.due > armed:
            self.set(self.due)
        elif self.due is not None:
            self.due = None
            self._ring()


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


class Measured:
    """What a flow did. Bytes count when a segment arrives for the first time, in order or not."""

    def __init__(self, config: TcpConfig) -> None:
        self.delivered_segments = 0
        self.bins: list[int] = []  # bytes per `bin_seconds`, from time 0 on
        self.unbinned_bytes = 0
        self.retransmissions = 0
        self.timeouts = 0
        self.fast_recoveries = 0
        self.loss_events = 0  # losses that made the window smaller: once per window, not per segment
        self.window_trace: list[tuple[float, float]] = []  # (time, segments)
        self.trace_interval = config.trace_interval
        self.finished_at: float | None = None  # when the last segment of a finite transfer was acknowledged
        self._config = config
        self._trace_next = 0.0

    def delivered(self, now: float) -> None:
        """A segment came that had not come before."""
        self.delivered_segments += 1
        bins, number = self.bins, int(now / self._config.bin_seconds)
        if number >= self._config.bins_max:
            self.unbinned_bytes += self._config.segment_bytes
            return
        if number >= len(bins):
            bins.extend([0] * (number + 1 - len(bins)))
        bins[number] += self._config.segment_bytes

    def window(self, now: float, segments: float) -> None:
        """Note the window, if it is time again."""
        if now < self._trace_next:
            return
        self.window_trace.append((now, segments))
        if len(self.window_trace) >= self._config.trace_max:
            del self.window_trace[1::2]
            self.trace_interval *= 2.0
        self._trace_next = now + self.trace_interval

    def rate_bits_per_s(self, start: float, end: float) -> float:
        """Mean rate of delivery over the whole bins between two times."""
        first, last = round(start / self._config.bin_seconds), round(end / self._config.bin_seconds)
        assert last > first, f"no whole bin between {start} and {end}"
        return 8.0 * sum(self.bins[first:last]) / ((last - first) * self._config.bin_seconds)


class Sender:
    """Half of a flow: decides when which segment leaves."""

    def __init__(self, engine: Engine, path: Path, config: TcpConfig, measured: Measured) -> None:
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
        self._measured = measured

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
        self._measured.window(self._engine.now, self.window)
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
                self._measured.finished_at = self._engine.now
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
        self._measured.fast_recoveries += 1
        self._measured.loss_events += 1
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
        self._measured.timeouts += 1
        # A recovery has halved for this event already, and half of its inflated window would be more than that; nor is
        # it a new event when the same segment times out again.
        if not self.recovering and self._timed_out != self.acknowledged:
            self._measured.loss_events += 1
            self._halve()
        self._timed_out = self.acknowledged
        self.recovering = False
        self._recover = self.highest
        self._duplicates = 0
        self.window = 1.0
        self.next = self.acknowledged  # all that was under way is taken for lost
        self.round_trip.back_off()
        self._measured.window(self._engine.now, self.window)
        self.send_what_fits()

    def _transmit(self, number: int) -> None:
        if number < self.highest:
            self._measured.retransmissions += 1
            self._timed = None  # Karn: whose acknowledgement would it be?
        else:
            self.highest = number + 1
            if self._timed is None:
                self._timed = (number, self._engine.now)
        if self._alarm.due is None:
            self._alarm.set(self._engine.now + self.round_trip.timeout)
        self._path.send(number)


class Receiver:
    """The other half: takes segments, and says which one it waits for."""

    def __init__(self, engine: Engine, path: Path, config: TcpConfig, measured: Measured) -> None:
        self.expected = 0  # all segments below have arrived
        self.progress: Callable[[int], None] | None = None  # told `expected` whenever it has grown
        self._early: dict[int, None] = {}  # segments that came before one that is missing
        self._unacknowledged = 0
        self._alarm = Alarm(engine, self._acknowledge)
        self._engine = engine
        self._path = path
        self._config = config
        self._measured = measured

    def take(self, number: int) -> None:
        """A segment has come. What is out of order, or ends such a time, is acknowledged at once (RFC 5681)."""
        if number == self.expected:
            self._measured.delivered(self._engine.now)
            in_order = not self._early
            self._move_on()
            self._unacknowledged += 1
            if not in_order or self._unacknowledged >= self._config.acknowledge_every:
                self._acknowledge()
            else:
                self._alarm.set(self._engine.now + self._config.acknowledgement_delay)
            return
        if self.expected < number < self.expected + self._config.receive_window and number not in self._early:
            self._measured.delivered(self._engine.now)
            self._early[number] = None
        self._acknowledge()

    def _move_on(self) -> None:
        self.expected += 1
        while self.expected in self._early:
            del self._early[self.expected]
            self.expected += 1
        if self.progress is not None:
            self.progress(self.expected)

    def _acknowledge(self) -> None:
        self._unacknowledged = 0
        self._alarm.due = None
        self._path.send(self.expected)


class TcpFlow:
    """A sender and a receiver, joined by pipes: `forward` carries segments, `backward` acknowledgements."""

    def __init__(
        self,
        engine: Engine,
        forward: Sequence[Give],
        backward: Sequence[Give],
        config: TcpConfig | None = None,
        *,
        start: float = 0.0,
        stop: float = inf,
        random: Random | None = None,
    ) -> None:
        assert engine.now <= start < stop, f"a flow from {start} to {stop}, and it is {engine.now}"
        config = TcpConfig() if config is None else config
        if config.processing_delay_max:
            assert random is not None, "a processing delay needs a stream of random numbers"
            forward = (ProcessingDelay(engine, random, config.processing_delay_max, forward[0]).send, *forward[1:])
        self.config = config
        self.measured = Measured(config)
        self.segments = Path(forward, config.segment_bytes)
        self.acknowledgements = Path(backward, config.acknowledgement_bytes)
        self.sender = Sender(engine, self.segments, config, self.measured)
        self.receiver = Receiver(engine, self.acknowledgements, config, self.measured)
        self.segments.take = self.receiver.take
        self.acknowledgements.take = self.sender.take
        engine.at(start, lambda _: self.sender.start(), None)
        if stop < inf:
            engine.at(stop, lambda _: self.sender.stop(), None)

    def offer(self, segments: int) -> None:
        """There is so much more to send (for a finite transfer, or one that carries somebody's data)."""
        self.sender.limit += segments
        self.measured.finished_at = None
        if self.sender.running:
            self.sender.send_what_fits()

    def counts(self) -> dict[str, int]:
        """Everything that is counted, since the beginning."""
        return {
            "delivered bytes": self.measured.delivered_segments * self.config.segment_bytes,
            "segments sent": self.segments.sent_packets,
            "segments lost": self.segments.lost_packets,
            "acknowledgements lost": self.acknowledgements.lost_packets,
            "retransmissions": self.measured.retransmissions,
            "timeouts": self.measured.timeouts,
            "fast recoveries": self.measured.fast_recoveries,
            "loss events": self.measured.loss_events,
        }
