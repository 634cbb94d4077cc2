"""A trace on disk: one folder for each kind of record, Parquet files in it, columns made from its declaration.

    <run>/trace/delivered/part-00000.parquet      time, node, subscription, publisher, incarnation, count

Writing is on the path of every record, so `write` only appends to a list; a list becomes a file when it is full
(`ROWS_MAX` rows or about `TEXT_BYTES_MAX` of text, whichever comes first), so memory stays bounded however long the
run. A file is written under a name that begins with a dot, which Spark and people overlook, and gets its real name
when it is whole and on disk: after a crash everything that was flushed can be read, and nothing else is there.

Kinds become full at different times, so now and then all of them are written together, and a mark says up to which time
everything is on disk (`trace_marks`). That happens when the trace has grown by an eighth: a run that is killed loses
no more than that, and the number of files that are not full stays small, however long the run.

If a file cannot be written, because the disk is full for instance, that is a `NotPossibleHere` which names the folder.

A kind that never happened has no folder. Within a kind, files and rows stand in the order in which they were written.
Pages carry checksums, so a damaged file is found and not believed.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import inf
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_type_hints

from penstock.errors import InvalidRun, NotPossibleHere
from penstock.kernel.trace import Record
from penstock.kernel.trace_marks import Mark, write_mark

if TYPE_CHECKING:
    from pyarrow import Schema

ROWS_MAX = 50_000  # rows of a part file: about 5 MB of Python objects, written in 50 ms
TEXT_BYTES_MAX = 32 << 20  # attributes may be long; counted every ROWS_WEIGHED rows, so it may be overrun by as many
ROWS_WEIGHED = 1024
TRACE_FOLDER = "trace"
FULL_PARTS_PER_MARK = 4  # all kinds are written together after as many rows as these hold,
GROWTH_PER_MARK = 1 / 8  # and not before the trace has grown by this part

_Line = tuple[float, str, Record]


@cache
def kind_name(kind: type[Record]) -> str:
    """The kind in snake case: the name of its folder and of its table."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


@cache
def columns(kind: type[Record]) -> dict[str, type]:
    """The columns of a kind and their types (bool, int, float or str): time and node, then the record's own fields."""
    hints = get_type_hints(kind)
    return {"time": float, "node": str, **{name: hints[name] for name in kind.__struct_fields__}}


def arrow_schema(kind: type[Record]) -> Schema:
    """The columns of a kind as Arrow knows them; nothing is ever null."""
    import pyarrow as pa

    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    return pa.schema([pa.field(name, types[type_], nullable=False) for name, type_ in columns(kind).items()])


class TraceFiles:
    """A trace that writes Parquet files into a run's folder; a context manager that closes itself."""

    def __init__(self, folder: Path, *, rows_max: int = ROWS_MAX, writer: str = "") -> None:
        self._root = folder / TRACE_FOLDER
        self._writer = f"{writer}-" if writer else ""  # several processes may write one trace, each under its own name
        if not writer and self._root.exists() and any(self._root.iterdir()):
            raise InvalidRun(str(self._root), "holds a trace already; name another folder, or remove this one")
        self._root.mkdir(parents=True, exist_ok=True)
        self._rows_max = rows_max
        self._waiting: defaultdict[type[Record], list[_Line]] = defaultdict(list)
        self._text_bytes: Counter[type[Record]] = Counter()
        self._parts: Counter[type[Record]] = Counter()
        self._mark = Mark(writer=writer)
        self._rows: Counter[str] = Counter()  # on disk, of each kind
        self._latest = -inf  # the time of the last record on disk
        self._whole = True  # nothing has been left out
        self._put_mark()

    def write(self, time: float, node: str, record: Record) -> None:
        """One fact, stamped."""
        lines = self._waiting[type(record)]
        lines.append((time, node, record))
        if not len(lines) % ROWS_WEIGHED or len(lines) >= self._rows_max:
            self._weigh(type(record), lines)

    def flush(self, now: float | None = None) -> None:
        """Put everything on disk; whoever reads the folder now sees all that has happened.

        No record will come that is earlier than `now`; if it is not given, than the last that came.
        """
        for kind, lines in self._waiting.items():
            if lines:
                self._write_part(kind, lines)
        self._put_mark(until=self._latest if now is None else now)

    def close(self) -> None:
        """Put everything on disk, and say that this is all."""
        self.flush()
        self._put_mark(closed=True)

    def discard(self) -> None:
        """Throw away what is not on disk: it cannot be written, and must not be kept."""
        self._waiting.clear()
        self._text_bytes.clear()
        self.stop_marking()

    def stop_marking(self) -> None:
        """Records have been left out: from now on no mark may say that everything is there."""
        self._whole = False

    def __enter__(self) -> TraceFiles:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with suppress(NotPossibleHere):  # the first error counts; what can be saved is
            self.close()

    def _weigh(self, kind: type[Record], lines: list[_Line]) -> None:
        """Write the lines if they are many, or if their text is long."""
        for name in _text_columns(kind):
            self._text_bytes[kind] += sum(len(getattr(line[2], name)) for line in lines[-ROWS_WEIGHED:])
        if len(lines) >= self._rows_max or self._text_bytes[kind] >= TEXT_BYTES_MAX:
            self._write_part(kind, lines)
            rows, marked = self._rows.total(), sum(self._mark.rows.values())
            if rows - marked >= max(FULL_PARTS_PER_MARK * self._rows_max, GROWTH_PER_MARK * rows):
                self.flush()

    def _write_part(self, kind: type[Record], lines: list[_Line]) -> None:
        folder = self._root / kind_name(kind)
        try:
            folder.mkdir(exist_ok=True)
            write_parquet(folder / f"part-{self._writer}{self._parts[kind]:05d}.parquet", _table(kind, lines))
        except OSError as error:
            raise self._unwritable(error) from None
        self._parts[kind] += 1
        self._rows[kind_name(kind)] += len(lines)
        self._latest = max(self._latest, lines[-1][0])
        self._text_bytes[kind] = 0
        lines.clear()

    def _put_mark(self, *, until: float = -inf, closed: bool = False) -> None:
        """Say how much there is, and how far it goes without a gap."""
        before = self._mark.until
        further = self._whole and until > (-inf if before is None else before)
        mark = Mark(
            writer=self._mark.writer,
            until=until if further else before,
            closed=closed and self._whole,
            rows=dict(self._rows),
        )
        try:
            write_mark(self._root, mark)
        except OSError as error:
            raise self._unwritable(error) from None
        self._mark = mark

    def _unwritable(self, error: OSError) -> NotPossibleHere:
        problem = f"the trace in {self._root} cannot be written: {error.strerror or error}"
        return NotPossibleHere(problem, "make room there, or write it to another folder")


def write_parquet(path: Path, table: Any) -> None:
    """Write an Arrow table so that the file is there whole or not at all, also after a loss of power."""
    from pyarrow import parquet

    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            parquet.write_table(table, file, compression="zstd", write_page_checksum=True)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _table(kind: type[Record], lines: list[_Line]) -> Any:
    """The lines as an Arrow table: one pass for each column is several times faster than one dict for each row."""
    import pyarrow as pa

    schema = arrow_schema(kind)
    times, nodes, records = zip(*lines, strict=True)
    arrays = [pa.array(times, schema.field("time").type), pa.array(nodes, schema.field("node").type)]
    arrays += [
        pa.array(map(get, records), field.type) for get, field in zip(_getters(kind), list(schema)[2:], strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


@cache
def _getters(kind: type[Record]) -> tuple[Callable[[Record], Any], ...]:
    return tuple(attrgetter(name) for name in kind.__struct_fields__)


@cache
def _text_columns(kind: type[Record]) -> tuple[str, ...]:
    """The fields of a kind that may be of any length."""
    return tuple(name for name in kind.__struct_fields__ if columns(kind)[name] is str)
