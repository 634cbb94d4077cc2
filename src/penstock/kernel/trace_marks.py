"""How far a trace has got: a small file for each writer, beside the folders of records.

    <run>/trace/mark-<writer>.json      {"writer": "north-1", "until": 12.3, "closed": false, "rows": {"dropped": 86}}

Kinds become files apart from each other, and several processes write one run, so the files of a run that is still
going, or was killed, end at different times: a delivery may be there whose publication is not. A writer therefore puts
all kinds on disk together now and then, and marks the time that all of them have reached. Whoever reads such a run
goes no further than the earliest mark.

The mark also counts rows. A folder that was lost with everything in it is missed by that, and by nothing else.

A mark is written when its writer begins, so that nobody overlooks a writer that has put nothing on disk yet. It is
replaced in one step, after the files that it speaks of.
"""

from __future__ import annotations

import os
from math import inf
from pathlib import Path

import msgspec
from msgspec import Struct


class Mark(Struct, frozen=True, kw_only=True):
    """What one writer has put on disk."""

    writer: str  # empty where there is only one
    until: float | None = None  # everything that happened before this time is on disk; None: nothing is certain yet
    closed: bool = False  # it has ended, and everything is on disk
    rows: dict[str, int] = {}  # of each kind

    @property
    def reached(self) -> float:
        """The time before which all of this writer's records are on disk."""
        if self.closed:
            return inf
        return -inf if self.until is None else self.until


class DamagedMark(Mark, frozen=True, kw_only=True):
    """One that cannot be read: nothing of its writer is certain."""


def write_mark(trace: Path, mark: Mark) -> None:
    """Put the mark in the place of the one before."""
    path = trace / (f"mark-{mark.writer}.json" if mark.writer else "mark.json")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(mark) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read_marks(trace: Path) -> list[Mark]:
    """The marks of all writers, by name. One that cannot be read says that nothing of its writer is certain."""
    return [_read(path) for path in sorted(trace.glob("mark*.json"))]


def _read(path: Path) -> Mark:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Mark)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return DamagedMark(writer=path.stem.removeprefix("mark").removeprefix("-"))
