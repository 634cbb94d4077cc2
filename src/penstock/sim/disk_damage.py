"""Damage to what a simulated disk has stored, and its repair.

One block at a time: an entry or a value of which a bit flips; or a block that goes back to an older state, which is the
end of a log without its last entries, a value as it was before it was last changed, or the row of an area likewise.
What was there is remembered, for `restore`: what has been trimmed, dropped or written anew since then stays as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from random import Random

from penstock.kernel.log_entry import Block, open_row
from penstock.kernel.memory_store import MemoryArea, MemoryBlocks
from penstock.kernel.storage import Append, Operation, Put, Trim

ROLLED_BACK_MAX = 5  # entries at the end of a log


class DiskDamage:
    """Damages blocks."""

    def __init__(self, blocks: MemoryBlocks, random: Random) -> None:
        self._blocks = blocks
        self._random = random
        self._older: dict[tuple[str, str], Block] = {}  # (area, name, or nothing for the row) -> the state before
        self._repairs: list[Callable[[], None]] = []

    def before(self, area: str, operation: Operation) -> None:
        """This is about to be done: what changes has an older state then."""
        here = self._blocks.by_area.get(area)
        if here is None:
            return
        if isinstance(operation, Put) and operation.name in here.values:
            self._older[area, operation.name] = here.values[operation.name]
        if isinstance(operation, Append | Put | Trim) and here.row is not None:
            self._older[area, ""] = here.row

    def flip(self) -> str:
        """One bit of one block; says which, or nothing if there are none."""
        places: list[tuple[str, int | str]] = []
        for name, area in self._blocks.by_area.items():
            places += ((name, key) for key in area.keys)
            places += ((name, key) for key in area.values)
        if not places:
            return ""
        name, key = self._random.choice(places)
        area = self._blocks.by_area[name]
        whole = area.values[key] if isinstance(key, str) else area.entries[area.keys.index(key)]
        damaged = bytearray(whole)
        damaged[self._random.randrange(len(damaged))] ^= 1 << self._random.randrange(8)
        _replace(area, key, bytes(damaged))
        self._repairs.append(lambda: _mend(self._blocks.by_area.get(name), key, bytes(damaged), whole))
        return f"a bit of {name}, {key}"

    def roll_back(self) -> str:
        """One block to an older state; says which, or nothing if there is none."""
        logs = [name for name, area in self._blocks.by_area.items() if area.keys]
        changed = [place for place in self._older if self._differs(*place)]
        place = self._random.choice([*logs, *changed]) if logs or changed else ""
        if not place:
            return ""
        return self._shorten(place) if isinstance(place, str) else self._take_older(*place)

    def restore(self) -> None:
        """Undo the damage, the last first."""
        while self._repairs:
            self._repairs.pop()()

    def _shorten(self, name: str) -> str:
        area = self._blocks.by_area[name]
        count = self._random.randint(1, min(ROLLED_BACK_MAX, len(area.keys)))
        missing = list(zip(area.keys[-count:], area.entries[-count:], strict=True))
        del area.keys[-count:], area.entries[-count:]
        self._repairs.append(lambda: _add_again(name, self._blocks.by_area.get(name), missing))
        return f"the last {count} entries of {name}"

    def _take_older(self, name: str, value: str) -> str:
        area, older = self._blocks.by_area[name], self._older[name, value]
        newer = area.values[value] if value else area.row
        assert newer is not None
        _replace(area, value, older)
        self._repairs.append(lambda: _mend(self._blocks.by_area.get(name), value, older, newer))
        return f"{name}, {value or 'its row'}"

    def _differs(self, name: str, value: str) -> bool:
        area = self._blocks.by_area.get(name)
        now = None if area is None else area.values.get(value) if value else area.row
        return now is not None and now != self._older[name, value]


def _replace(area: MemoryArea, place: int | str, block: Block) -> None:
    if isinstance(place, int):
        area.entries[area.keys.index(place)] = block
    elif place:
        area.values[place] = block
    else:
        area.row = block


def _mend(area: MemoryArea | None, place: int | str, damaged: Block, whole: Block) -> None:
    """Put it back where it was, if what stands there is still the damaged block."""
    if area is None:
        return
    if isinstance(place, int):
        found = area.entries[area.keys.index(place)] if place in area.keys else None
    else:
        found = area.values.get(place) if place else area.row
    if found == damaged:
        _replace(area, place, whole)


def _add_again(name: str, area: MemoryArea | None, missing: list[tuple[int, Block]]) -> None:
    """Put back what the log still needs."""
    if area is None or area.row is None:
        return
    row = open_row(name, area.row)
    for key, block in missing:
        if row.trimmed.key < key <= row.last.key and key not in area.keys:
            at = bisect_left(area.keys, key)
            area.keys.insert(at, key)
            area.entries.insert(at, block)
