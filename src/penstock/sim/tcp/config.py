"""The settings of one TCP flow in the simulator; those that make no sense are refused."""

from __future__ import annotations

from dataclasses import dataclass

HEADER_BYTES = 40  # of IP and TCP, in each segment; an acknowledgement is nothing else


@dataclass(frozen=True, kw_only=True)
class TcpConfig:
    """One flow. Sizes are on the wire, so that shares of a link can be compared."""

    segment_bytes: int = 280  # as large as a message in the experiments: queues count packets, so parity is per packet
    acknowledgement_bytes: int = HEADER_BYTES
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
