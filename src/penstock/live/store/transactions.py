"""Carries out groups of operations, each group in one transaction, whatever keeps the blocks.

A group that fails is undone and tried again in halves, so that an operation on a damaged log, or a large one on a full
disk, fails alone.

A commit that fails may leave its group *in doubt*: nobody knows whether it will be there after a crash. Its operations
are not answered until the place is in order again and it is known which of the two holds; until then every other
operation fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from penstock.kernel.areas import Areas
from penstock.kernel.log_entry import Damaged
from penstock.kernel.storage import Ask, Extent, Get, Names, Read, StorageFailed
from penstock.live.store.group_commit import Answers
from penstock.live.store.sql_blocks import SqlBlocks

Sync = Literal["full", "relaxed"]

_READS = (Read, Extent, Get, Names)


class CommitUnknown(Exception):
    """Nobody can say whether the transaction was committed."""


class Doubt(NamedTuple):
    """A group whose commit failed: its answers if it was kept, and if it was not."""

    kept: Answers
    undone: Answers


class Transactions(ABC):
    """The part that all places share; blocks and areas are set when the place has been opened."""

    _blocks: SqlBlocks
    _areas: Areas
    _damage: tuple[type[Exception], ...]  # errors of the library that mean that what was stored is damaged

    def __init__(self, shown: str) -> None:
        self._shown = shown  # how errors call the place
        self._doubt: Doubt | None = None

    def carry_out(self, group: Sequence[Ask]) -> Answers:
        """All of them, in one transaction or few; the answers that can be given now."""
        answers = self.settle()
        if self._doubt is not None:
            return answers + self._all_fail(group, self._trouble())
        return answers + self._carried_out(group)

    def settle(self) -> Answers:
        """Get over what failed, if something did; then those who wait for it can be answered."""
        if self.retry_after is None or not self._mend() or self._doubt is None:
            return []
        doubt, self._doubt = self._doubt, None
        return doubt.kept if self._was_kept() else doubt.undone

    def _find_trimmed(self) -> None:
        """What was trimmed and not yet deleted is deleted now; for a place that was opened."""
        for area in self._blocks.areas():
            with suppress(Damaged):
                self._blocks.forget(area, self._areas.row(area).trimmed.key)
        self._blocks.committed()

    @property
    def unsettled(self) -> int:
        """How many operations wait for an answer because their commit failed."""
        return len(self._doubt.undone) if self._doubt is not None else 0

    # What a place does.

    @property
    @abstractmethod
    def retry_after(self) -> float | None:
        """Seconds after which to try again what failed; None if nothing is wrong."""

    @abstractmethod
    def _begin(self, group: Sequence[Ask]) -> None:
        """Begin a transaction."""

    @abstractmethod
    def _commit(self, group: Sequence[Ask]) -> None:
        """Commit it; CommitUnknown leaves the group in doubt, whatever else is raised means that it is not there."""

    @abstractmethod
    def _undo(self) -> None:
        """Undo the transaction, if there is one; what the blocks say counts again."""

    @abstractmethod
    def _mend(self) -> bool:
        """Try to get over what failed; whether it is in order now."""

    @abstractmethod
    def _was_kept(self) -> bool:
        """Whether the group in doubt is there; asked when all is in order again."""

    @abstractmethod
    def _trouble(self) -> StorageFailed:
        """What to say to those who ask while something is wrong."""

    def _stops_all(self, error: Exception) -> bool:
        """Whether this error concerns the place, so that halves of the group would fare no better."""
        return False

    # Groups.

    def _carried_out(self, group: Sequence[Ask]) -> Answers:
        try:
            self._begin(group)
            answers = [(asked.ticket, self._areas.carry_out(asked.area, asked.operation)) for asked in group]
            self._areas.flush()
            self._commit(group)
            self._blocks.committed()
        except CommitUnknown as error:
            self._undo()
            self._doubt = Doubt(answers, self._all_fail(group, StorageFailed(f"{self._shown}: {error}")))
            return self.settle()
        except Exception as error:  # whatever it was: everybody is answered
            return self._failed(group, error)
        return answers

    def _failed(self, group: Sequence[Ask], error: Exception) -> Answers:
        """Undo it, and try it again in halves."""
        self._undo()
        if self._stops_all(error):
            return self._all_fail(group, self._trouble())
        if len(group) > 1:
            half = len(group) // 2
            return self.carry_out(group[:half]) + self.carry_out(group[half:])
        if isinstance(error, self._damage):
            return self._all_fail(group, self._areas.condemn(group[0].area, str(error)))
        return self._all_fail(group, StorageFailed(f"{self._shown}: {error}"))

    @staticmethod
    def _all_fail(group: Sequence[Ask], problem: StorageFailed) -> Answers:
        return [(asked.ticket, problem) for asked in group]


def only_reads(group: Sequence[Ask]) -> bool:
    """Whether none of them changes anything."""
    return all(isinstance(asked.operation, _READS) for asked in group)
