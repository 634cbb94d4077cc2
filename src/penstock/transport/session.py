"""What a subscriber knows of one publisher in one of its lives: order, losses, and how both fare.

A session begins with the first message that has a header and ends after a long silence. A publisher that is started
again has a new incarnation and so a new session: numbers begin anew, and nothing of the old life is mistaken for the
new one. The old session stays until it has been silent long enough, so late messages and repairs of the old life still
find their place, and none is delivered twice.
"""

from __future__ import annotations

from penstock.transport.bearer import TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.ordering.latch import make_latch
from penstock.transport.ordering.reorder_buffer import ReorderBuffer
from penstock.transport.receiver.rate_controller import RateController
from penstock.transport.records import Ordered
from penstock.transport.subscriptions import HeldDelivery
from penstock.transport.wire.header import Header

FADING = 0.95  # how much of what was answered before still counts after the next answer
FADING_PER_TICK = 0.98  # and after each interval without one
UNWANTED_MOST = 4.0  # unwanted answers for a wanted one, before losses are doubted
ASKED_ALL_THE_SAME = 20  # one of so many doubtful losses
DETECTION_MEASURED_AFTER = 20  # publications, before a match probability means anything


class Session:
    """One publisher's life, seen from one subscriber."""

    def __init__(self, publisher: str, incarnation: int, config: TransportConfig, header: Header) -> None:
        self.publisher = publisher
        self.incarnation = incarnation
        hops = config.hops or header.hops or 2
        self.reorder_buffer: ReorderBuffer[HeldDelivery] = ReorderBuffer(config, make_latch(config, hops))
        self.received_at = 0.0
        self.record_entries = header.record_size
        self.sends_heartbeats = header.heartbeats
        self.heartbeats: int | None = None  # number of our subscription to its heartbeats
        self.rate_controller: RateController | None = None  # from the first message whose publisher obeys feedback
        self._wanted = self._unwanted = 0.0
        self._doubts = self._early = 0
        self.armed_for: float | None = None  # when its timer expires
        self._reported = (0, 0, 0, 0.0, 0.0)  # what the last record of its order counted

    def needs_heartbeats(self, below: float) -> bool:
        """Whether too many of its losses would go unnoticed, and it sends heartbeats that we do not get yet."""
        if not self.sends_heartbeats or self.heartbeats is not None:
            return False
        detected = self.detection_probability()
        return below >= 1.0 or (detected is not None and detected <= below)

    def answered(self, *, wanted: bool) -> None:
        """A message that we asked for turned out to be wanted, or not."""
        self._wanted = FADING * self._wanted + wanted
        self._unwanted = FADING * self._unwanted + (not wanted)

    def fade(self) -> None:
        """Time passes, and old answers count for less."""
        self._wanted *= FADING_PER_TICK
        self._unwanted *= FADING_PER_TICK

    def doubtful(self) -> bool:
        """Whether what looks like a loss is most likely none, so that asking would be a waste.

        A range, unlike an equality, leaves few bits to match an entry by: every message with the attribute looks
        wanted. One in so many is asked for all the same, to notice when that changes.
        """
        if self._unwanted <= UNWANTED_MOST * (self._wanted + 1.0):
            return False
        self._doubts += 1
        return self._doubts % ASKED_ALL_THE_SAME != 0

    def spilled(self) -> bool:
        """Whether the queue has been too full since we last looked, and messages went out early."""
        before, self._early = self._early, self.reorder_buffer.early
        return self._early > before

    def order_report(self) -> list[TransportEffect]:
        """How its order fared since the last such record, if anything had to wait or was late."""
        order = self.reorder_buffer
        now = (order.delivered, order.late, order.latched, order.assigned_seconds, order.held_seconds)
        delivered, late, latched, assigned, held = (new - old for new, old in zip(now, self._reported, strict=True))
        if not late and not latched:
            return []
        self._reported = now
        return [Ordered(self.publisher, int(delivered), int(late), int(latched), assigned, held)]

    def detection_probability(self) -> float | None:
        """How likely a loss is noticed by the records alone; None while too little has been seen."""
        reorder_buffer = self.reorder_buffer
        seen = reorder_buffer.published_seen
        if seen < DETECTION_MEASURED_AFTER:
            return None
        wanted = reorder_buffer.received + reorder_buffer.losses
        lost = reorder_buffer.losses / wanted if wanted else 0.0
        return detection_probability(min(1.0, wanted / seen), lost, self.record_entries)


def detection_probability(matched: float, lost: float, record_entries: int) -> float:
    """Equation (4.1): `matched` of all publications are wanted, and `lost` of those do not come."""
    return float(1.0 - (1.0 - matched + matched * lost) ** record_entries)
