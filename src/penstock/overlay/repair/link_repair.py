"""One end of a datagram link that repairs itself: what it sends (`SentRing`), what comes (`GapDetector`).

Links between our own brokers number their datagrams. Who sees a gap asks for it on the link itself, a few times; then
it is left to the ends. So a loss costs one datagram and one short request, and one round trip of one hop, where the
ends would need the whole way. The host below the node drives this, in virtual and in real time alike: it hands in what
leaves and what comes, sends what is returned, and calls `wake` at the `deadline`.

Messages: `controls`. Timers: one, for the earlier of the tail and of the first missing number. Bounds: those of its two
parts. A link that loses nothing has no deadline and returns nothing.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from penstock.overlay.repair.config import RepairConfig
from penstock.overlay.repair.controls import LinkControl, LinkTail
from penstock.overlay.repair.gap_detector import GapDetector
from penstock.overlay.repair.sent_ring import Resend, SentRing

Item = TypeVar("Item")


class LinkRepair(Generic[Item]):
    """Drives both halves."""

    def __init__(self, config: RepairConfig | None = None, *, first: int | None = 0) -> None:
        self._config = config = config or RepairConfig()
        self.sending: SentRing[Item] = SentRing(config)
        self.receiving = GapDetector(config, first)

    def sent(self, item: Item, size_bytes: int, now: float) -> int:
        """A datagram leaves for the wire; returns its number."""
        return self.sending.sent(item, size_bytes, now)

    def arrived(self, number: int, now: float, *, stamp: int, repeated: bool) -> bool:
        """A datagram has come; False if it is a double."""
        return self.receiving.arrived(number, now, stamp=stamp, repeated=repeated)

    def heard(self, control: LinkControl, now: float) -> list[Resend[Item]]:
        """The other end has told us something; returns what must be sent again."""
        if isinstance(control, LinkTail):
            self.receiving.told(control.last, now)
            return []
        return self.sending.asked(control, now)

    def peer_restarted(self) -> None:
        """Whoever sends to us begins anew, with number 0."""
        self.receiving = GapDetector(self._config)

    def deadline(self) -> float:
        """When to call `wake`; infinity if there is no reason."""
        return min(self.sending.tail_at, self.receiving.due)

    def wake(self, now: float) -> list[LinkControl]:
        """What the other end must be told now."""
        controls: list[LinkControl] = list(self.receiving.requests(now))
        tail = self.sending.tail_due(now)
        return controls if tail is None else [*controls, tail]
