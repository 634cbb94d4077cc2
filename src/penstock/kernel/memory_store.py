"""Storage without a disk: the rules of `areas` over blocks in memory.

The simulator keeps one for each node and adds the faults; tests answer from one by hand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.kernel.areas import Areas
from penstock.kernel.log_entry import Block
from penstock.kernel.storage import Operation, StorageResult


@dataclass
class MemoryArea:
    """The blocks of one area."""

    row: Block | None = None
    keys: list[int] = field(default_factory=list)
    entries: list[Block] = field(default_factory=list)
    values: dict[str, Block] = field(default_factory=dict)


class MemoryBlocks:
    """Blocks by area; whoever simulates damage changes them here."""

    def __init__(self) -> None:
        self.by_area: dict[str, MemoryArea] = {}

    def areas(self) -> Sequence[str]:
        return [name for name, area in self.by_area.items() if area.row is not None]

    def row(self, area: str) -> Block | None:
        return self._area(area).row

    def set_row(self, area: str, block: Block) -> None:
        self.by_area.setdefault(area, MemoryArea()).row = block

    def add(self, area: str, blocks: Sequence[tuple[int, Block]]) -> None:
        here = self.by_area.setdefault(area, MemoryArea())
        here.keys += (key for key, _ in blocks)
        here.entries += (block for _, block in blocks)

    def scan(self, area: str, first: int, last: int) -> Iterator[tuple[int, Block]]:
        here = self._area(area)
        for at in range(bisect_left(here.keys, first), bisect_right(here.keys, last)):
            yield here.keys[at], here.entries[at]

    def highest(self, area: str, upto: int) -> tuple[int, Block] | None:
        here = self._area(area)
        at = bisect_right(here.keys, upto) - 1
        return (here.keys[at], here.entries[at]) if at >= 0 else None

    def forget(self, area: str, upto: int) -> None:
        here = self._area(area)
        at = bisect_right(here.keys, upto)
        del here.keys[:at], here.entries[:at]

    def value(self, area: str, name: str) -> Block | None:
        return self._area(area).values.get(name)

    def set_value(self, area: str, name: str, block: Block | None) -> None:
        here = self.by_area.setdefault(area, MemoryArea())
        here.values.pop(name, None)
        if block is not None:
            here.values[name] = block

    def values(self, area: str) -> Iterator[tuple[str, Block]]:
        yield from self._area(area).values.items()

    def drop(self, area: str) -> None:
        self.by_area.pop(area, None)

    def _area(self, area: str) -> MemoryArea:
        return self.by_area.get(area) or MemoryArea()


class MemoryStore:
    """Every operation is a transaction of its own, and never fails but by the rules."""

    def __init__(self) -> None:
        self.blocks = MemoryBlocks()
        self._areas = Areas(self.blocks)

    def carry_out(self, area: str, operation: Operation) -> StorageResult:
        """Do it at once."""
        result = self._areas.carry_out(area, operation)
        self._areas.flush()
        return result

    def reopen(self) -> None:
        """As after a restart: nothing is known but the blocks."""
        self._areas = Areas(self.blocks)

    def size_bytes(self) -> int:
        """All blocks of entries and values together."""
        return sum(
            sum(map(len, area.entries)) + sum(map(len, area.values.values())) for area in self.blocks.by_area.values()
        )
