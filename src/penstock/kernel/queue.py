"""A bounded queue with lanes: what waits for a link, and what waits for a broker's workers.

Control goes first. The other lanes share by weight: each round, a lane may send as many bytes as its weight says
(deficit round robin), so a lane that is quiet costs the others nothing and a busy one cannot starve them. Every lane
has its own bound in packets and bytes, its weight, and its overflow rule. `put` says no when the bound is reached; what
then becomes of the packet is the caller's business.

A lane may be blocked: what is in it waits, whatever room there is, and the other lanes go on. That is how the peer's
credit holds one lane of a link (overlay.egress).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Generic, TypeVar

from penstock.kernel.packet import DATA_LANES, Lane

Item = TypeVar("Item")

UNBOUNDED_PACKETS = 1 << 62
HOLD_BYTES = 1 << 18  # of a lane that holds, for each neighbour: 20 Mbit/s over 100 ms, 10 Gbit/s over 200 us
CROWDED_PACKETS = 16
QUANTUM_BYTES = 1500  # one full frame per unit of weight and round


class Overflow(Enum):
    """What a full lane does."""

    DROP = "drop"  # what does not fit is dropped and recorded
    HOLD = (
        "hold"  # each neighbour may have `bytes_max` waiting here in this lane; it gets no more credit before they left
    )


@dataclass(frozen=True, kw_only=True)
class LaneBounds:
    """How much one lane may hold, its share of the link, and what happens when it is full."""

    packets_max: int = 1000  # where the lane drops
    bytes_max: int = 4 << 20
    weight: int = 1
    overflow: Overflow = Overflow.DROP

    def __post_init__(self) -> None:
        if self.packets_max < 1 or self.bytes_max < 1 or self.weight < 1:
            raise ValueError(f"{self}: packets_max, bytes_max and weight must be at least 1")


# Control has room for what comes in one go: all subscriptions of a client that attaches again, a large snapshot.
CONTROL_BOUNDS = LaneBounds(packets_max=10_000, bytes_max=64 << 20)


# What services tell each other is short and seldom; it gets its turn within a few packets of the other lanes.
SERVICE_CONTROL_BOUNDS = LaneBounds(packets_max=1_000, bytes_max=4 << 20, weight=4)
OWN_BOUNDS = {Lane.CONTROL: CONTROL_BOUNDS, Lane.SERVICE_CONTROL: SERVICE_CONTROL_BOUNDS}  # whatever data may have


def _default_bounds() -> dict[Lane, LaneBounds]:
    return {lane: OWN_BOUNDS.get(lane, LaneBounds()) for lane in Lane}


@dataclass(frozen=True, kw_only=True)
class QueueConfig:
    """The bounds of all lanes."""

    lanes: Mapping[Lane, LaneBounds] = field(default_factory=_default_bounds)

    def sized(self, packets_max: int) -> QueueConfig:
        """The same, but with this many packets in every lane of data that drops; those that hold count bytes."""
        data: dict[Lane, LaneBounds] = {
            lane: replace(bounds, packets_max=packets_max)
            for lane, bounds in self.lanes.items()
            if lane not in OWN_BOUNDS and bounds.overflow is Overflow.DROP
        }
        return QueueConfig(lanes={**self.lanes, **data})

    @cached_property
    def held_lanes(self) -> tuple[Lane, ...]:
        """The lanes that hold their neighbours instead of dropping."""
        return tuple(lane for lane in DATA_LANES if self.lanes[lane].overflow is Overflow.HOLD)


class _LaneState(Generic[Item]):
    __slots__ = ("blocked", "bounds", "bytes", "deficit_bytes", "items", "packets_max")

    def __init__(self, bounds: LaneBounds) -> None:
        self.bounds = bounds
        self.items: deque[tuple[Item, int]] = deque()
        self.bytes = 0
        self.deficit_bytes = 0
        self.blocked = False
        self.packets_max = UNBOUNDED_PACKETS if bounds.overflow is Overflow.HOLD else bounds.packets_max


class LaneQueue(Generic[Item]):
    """First in, first out within a lane; by priority and weight between lanes."""

    def __init__(self, config: QueueConfig) -> None:
        # A list, because the hash of an enumeration's member is a call of a Python function.
        self._lanes: list[_LaneState[Item]] = [_LaneState(config.lanes[lane]) for lane in Lane]
        self._control = self._lanes[Lane.CONTROL]
        self._round: deque[Lane] = deque()  # lanes other than control that hold something
        self._packets = 0

    def __len__(self) -> int:
        return self._packets

    def put(self, lane: Lane, item: Item, size_bytes: int, *, granted: bool = False) -> bool:
        """Append the item, or say False and change nothing if its lane is full; what was granted has its place."""
        state = self._lanes[lane]
        items = state.items
        if not granted and not self.has_room(lane, size_bytes):
            return False
        if not items and lane is not Lane.CONTROL and not state.blocked:
            state.deficit_bytes = state.bounds.weight * QUANTUM_BYTES
            self._round.append(lane)
        items.append((item, size_bytes))
        state.bytes += size_bytes
        self._packets += 1
        return True

    def get(self) -> tuple[Item, int] | None:
        """Take the next item and its size, or None if nothing waits."""
        if self._control.items:
            return self._take(self._control)
        while self._round:
            lane = self._round[0]
            state = self._lanes[lane]
            if state.items and state.items[0][1] <= state.deficit_bytes:
                state.deficit_bytes -= state.items[0][1]
                taken = self._take(state)
                if not state.items:
                    self._round.popleft()
                return taken
            state.deficit_bytes += state.bounds.weight * QUANTUM_BYTES
            self._round.rotate(-1)
        return None

    def block(self, lane: Lane) -> None:
        """Let nothing of this lane leave until it is unblocked."""
        assert lane is not Lane.CONTROL, "control is never blocked"
        state = self._lanes[lane]
        if not state.blocked:
            state.blocked = True
            if lane in self._round:
                self._round.remove(lane)

    def unblock(self, lane: Lane) -> None:
        """Let it leave again."""
        state = self._lanes[lane]
        if state.blocked:
            state.blocked = False
            if state.items:
                state.deficit_bytes = state.bounds.weight * QUANTUM_BYTES
                self._round.append(lane)

    def lane_bytes(self, lane: Lane) -> int:
        """How much waits in one lane."""
        return self._lanes[lane].bytes

    def lane_packets(self, lane: Lane) -> int:
        """How many wait in one lane."""
        return len(self._lanes[lane].items)

    def has_room(self, lane: Lane, size_bytes: int, after_packets: int = 0) -> bool:
        """Whether `put` would take it, behind so many more packets."""
        state = self._lanes[lane]
        return (
            len(state.items) + after_packets < state.packets_max and state.bytes + size_bytes <= state.bounds.bytes_max
        )

    def crowded(self, lane: Lane) -> bool:
        """Whether more waits in one lane than comes together by chance."""
        state = self._lanes[lane]
        return len(state.items) >= min(CROWDED_PACKETS, state.packets_max / 4)

    def heads(self) -> list[Item]:
        """The first of each lane in which something waits."""
        return [state.items[0][0] for state in self._lanes if state.items]

    def clear(self) -> list[Item]:
        """Empty the queue and return what was in it, lane by lane."""
        left = [item for lane in Lane for item in self.clear_lane(lane)]
        for state in self._lanes:
            state.blocked = False
        return left

    def clear_lane(self, lane: Lane) -> list[Item]:
        """Empty one lane and return what was in it; it stays blocked if it is."""
        state = self._lanes[lane]
        left = [item for item, _ in state.items]
        state.items.clear()
        state.bytes = 0
        self._packets -= len(left)
        if lane in self._round:
            self._round.remove(lane)
        return left

    def _take(self, state: _LaneState[Item]) -> tuple[Item, int]:
        item, size_bytes = state.items.popleft()
        state.bytes -= size_bytes
        self._packets -= 1
        return item, size_bytes
