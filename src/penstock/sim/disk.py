"""The disk of a simulated node: memory that survives a crash, and everything that disks do wrong.

An operation takes `delay` seconds; changes are made when it is answered, in the order in which they were asked, so what
was answered is there and what was not is at risk. What a crash leaves of the changes that had not been answered is the
fault's choice: none of them (`lost`: they were never synced), all of them (`kept`: they were on disk, only the answer
was not), or the first ones and part of the next (`torn`). A full disk refuses every change; a slow one has another
delay.

What was answered is at risk too: `flip` turns over one bit of an entry or a value, `roll_back` lets a block go back to
an older state, so that the last entries of a log are missing, or a value or the row of an area is the one before. The
store must find both. `restore` mends all of that, as if from a backup.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Literal

from penstock.kernel.memory_store import MemoryStore
from penstock.kernel.storage import (
    Append,
    Ask,
    Operation,
    Put,
    StorageFailed,
    StorageResult,
    Ticket,
)
from penstock.sim.disk_damage import DiskDamage
from penstock.sim.engine import Engine

Tail = Literal["lost", "kept", "torn"]

DELAY = 0.002  # seconds: a commit with a full sync on an ordinary disk


class Disk:
    """The storage of one node, over all its lives."""

    def __init__(
        self, engine: Engine, random: Random, answered: Callable[[Ticket, StorageResult], None], delay: float = DELAY
    ) -> None:
        self.delay = delay
        self.full = False
        self.store = MemoryStore()
        self.changed: Callable[[str, Operation], None] | None = None  # whoever watches what is done, answered or not
        self._damage = DiskDamage(self.store.blocks, random)
        self._engine = engine
        self._random = random
        self._answered = answered
        self._waiting: list[Ask] = []
        self._life = 0
        self._free_at = 0.0  # when the last operation will have been answered

    def ask(self, asked: Ask) -> None:
        """Answer this when its time has come; in order."""
        self._waiting.append(asked)
        self._free_at = max(self._free_at, self._engine.now + self.delay)
        self._engine.at(self._free_at, self._answer, self._life)

    def crash(self, tail: Tail) -> None:
        """The node is gone, and nobody waits for an answer any more."""
        waiting, self._waiting = self._waiting, []
        self._life += 1
        self._free_at = 0.0  # nobody waits for what was asked before
        self.store.reopen()
        if self.full or tail == "lost":
            return
        survive = len(waiting) if tail == "kept" else self._random.randint(0, len(waiting))
        for asked in waiting[:survive]:
            self._carry_out(asked.area, asked.operation)
        if tail == "torn" and survive < len(waiting):
            self._tear(waiting[survive])

    def flip(self) -> str:
        """Turn over a bit of something that is stored; says of what, or nothing if nothing is stored."""
        return self._damage.flip()

    def roll_back(self) -> str:
        """Let a block go back to an older state; says which, or nothing if there is none."""
        return self._damage.roll_back()

    def restore(self) -> None:
        """Undo all that `flip` and `roll_back` did; whoever has seen it must open the store anew."""
        self._damage.restore()
        self.store.reopen()

    def _tear(self, asked: Ask) -> None:
        """Of several entries only the first ones reached the disk; the torn one is cut off when the log is opened."""
        operation = asked.operation
        if isinstance(operation, Append) and len(operation.entries) > 1:
            kept = self._random.randrange(len(operation.entries))
            self._carry_out(asked.area, Append(operation.entries[:kept]))

    def _answer(self, life: int) -> None:
        if life != self._life:
            return
        asked = self._waiting.pop(0)
        if self.full and _needs_room(asked.operation):
            result: StorageResult = StorageFailed("the disk is full; make room, and try again")
        else:
            result = self._carry_out(asked.area, asked.operation)
        self._answered(asked.ticket, result)

    def _carry_out(self, area: str, operation: Operation) -> StorageResult:
        self._damage.before(area, operation)
        result = self.store.carry_out(area, operation)
        if self.changed is not None and not isinstance(result, StorageFailed):
            self.changed(area, operation)
        return result


def _needs_room(operation: Operation) -> bool:
    """Whether it needs room."""
    return isinstance(operation, Append) or (isinstance(operation, Put) and bool(operation.value))
