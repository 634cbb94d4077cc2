"""TCP beside the content: a bulk transfer, packet by packet, that competes with messages for a link.

The congestion control of 000 and 002 chapter 5 claims to share a link with TCP, so there must be a TCP to share with:
NewReno in `sender`, delayed acknowledgements and a window in `receiver`. A flow joins the two by pipes (`packets`).

Simpler than the real one: no handshake and no close, no bytes within segments, no SACK, no window updates (the reader
is never slow), no restart of the window after idling. Nothing is random but `ProcessingDelay`, which has a stream of
its own: two flows over one drop-tail queue can fall into step, so that one of them meets all the losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from random import Random

from penstock.sim.engine import Engine
from penstock.sim.tcp.config import TcpConfig
from penstock.sim.tcp.packets import Give, Path, ProcessingDelay
from penstock.sim.tcp.receiver import Receiver
from penstock.sim.tcp.sender import Sender
from penstock.sim.tcp.statistics import TcpStatistics


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
        self.statistics = TcpStatistics(config)
        self.segments = Path(forward, config.segment_bytes)
        self.acknowledgements = Path(backward, config.acknowledgement_bytes)
        self.sender = Sender(engine, self.segments, config, self.statistics)
        self.receiver = Receiver(engine, self.acknowledgements, config, self.statistics)
        self.segments.take = self.receiver.take
        self.acknowledgements.take = self.sender.take
        engine.at(start, lambda _: self.sender.start(), None)
        if stop < inf:
            engine.at(stop, lambda _: self.sender.stop(), None)

    def offer(self, segments: int) -> None:
        """There is so much more to send (for a finite transfer, or one that carries somebody's data)."""
        self.sender.limit += segments
        self.statistics.finished_at = None
        if self.sender.running:
            self.sender.send_what_fits()

    def counts(self) -> dict[str, int]:
        """Everything that is counted, since the beginning."""
        return {
            "delivered bytes": self.statistics.delivered_segments * self.config.segment_bytes,
            "segments sent": self.segments.sent_packets,
            "segments lost": self.segments.lost_packets,
            "acknowledgements lost": self.acknowledgements.lost_packets,
            "retransmissions": self.statistics.retransmissions,
            "timeouts": self.statistics.timeouts,
            "fast recoveries": self.statistics.fast_recoveries,
            "loss events": self.statistics.loss_events,
        }
