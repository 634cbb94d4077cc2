"""Records of a running network on disk: a run's folder as any other, that is never quite finished.

    <folder>/trace/<kind>/part-00000007.parquet             what one batch of the query brought
    <folder>/trace/<kind>/part-00000000-00000006.parquet    several batches, merged: many small files are slow to read
    <folder>/trace/mark.json, run.json                      how far it goes, as for any run that is still going
    <folder>/trace/<kind>/part-silent.parquet               that nodes which are not heard of any more have ended
    <folder>/watch.json                                     what is known of the writers, and which batch was the last
    <folder>/checkpoint/                                    Spark's: where the stream is read on

So `penstock pipeline run` reads it, and what it computes is what the watch shows. Batches land exactly once: parts are
named by their batch and written whole, `watch.json` is replaced after them, and a batch that Spark tries again after a
crash either writes the same files again or, if `watch.json` has it, nothing. A part that lies within the range of
another is a leftover of a merge.

Bound: files that end before the last `keep` seconds are removed, and what was before is not judged. Only records of who
lives and what is subscribed to stay, and their ends.

Messages come from anybody, so each is checked: one that is no batch, or whose columns do not fit their kind, is left
out and counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.errors import InvalidRun
from penstock.kernel.trace import NodeStopped, Record, Unsubscribed
from penstock.kernel.trace_batch import TraceBatch, decode_batch
from penstock.kernel.trace_files import TRACE_FOLDER, arrow_schema, kind_name, write_parquet
from penstock.kernel.trace_marks import Mark, write_mark
from penstock.pipeline.read import RUN_FILE
from penstock.pipeline.watch.writers import LONG_AGO, Writer, Writers
from penstock.services import record_kinds

if TYPE_CHECKING:
    import pyarrow as pa

STATE_FILE = "watch.json"
CHECKPOINT = "checkpoint"
SILENT = "part-silent"  # the ends of nodes that have fallen silent, made anew whenever these are others
MERGED = 16  # small parts of a kind that become one
SMALL_ROWS = 50_000  # a part with fewer is small
FACTS_MAX = 1_000_000  # that are remembered, so that they land once
FACTS = ("node_started", "subscribed", "durable_began", "sharing_began", "neighbour_changed")  # that are said again
ENDS = ("node_stopped", "unsubscribed", "durable_stopped")  # of facts


Rows = dict[str, list[list[Any]]]  # of a node, by column


class WatchState(Struct, kw_only=True):
    """What a watch must know when it goes on after a crash."""

    servers: str
    began: float  # time 0 of the tables, in seconds since 1970
    batch: int = -1  # the last that has landed
    records: int = 0
    refused: int = 0  # messages of the stream that were no records
    problem: str = ""  # of the last of them
    writers: Writers = msgspec.field(default_factory=Writers)


class WatchFolder:
    """A folder that batches land in."""

    def __init__(self, path: Path, servers: str, began: float, *, keep: float = inf) -> None:
        self.path = path
        self.state = self._opened(servers, began)
        self._keep = keep
        self._kinds = {kind_name(kind): kind for kind in record_kinds()}
        self._said: set[tuple[Any, ...]] = set()  # facts that hold, which their nodes say again and again
        self._ended: dict[str, float] = {}  # who is known to be silent, and since when
        (path / TRACE_FOLDER).mkdir(parents=True, exist_ok=True)
        self._clear_leftovers()
        self._read_facts()
        self._put_ends_of_silent()
        self._put_heads()

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    def _opened(self, servers: str, began: float) -> WatchState:
        file = self.path / STATE_FILE
        if file.exists():
            try:
                state = msgspec.json.decode(file.read_bytes(), type=WatchState)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InvalidRun(str(file), f"cannot be read ({error}); name another folder with --out") from None
            if state.batch >= 0 and not self.checkpoint.exists():
                raise InvalidRun(str(self.checkpoint), "is gone, so nobody knows what has landed; name another folder")
            return state
        if self.path.exists() and any(self.path.iterdir()):
            raise InvalidRun(str(self.path), "holds something else than a watch; name another folder with --out")
        return WatchState(servers=servers, began=began)

    # Landing.

    def land(self, batch: int, messages: Iterable[tuple[float, bytes]]) -> None:
        """What a batch of the query brought: when each message was stored, and its body."""
        state = self.state
        if batch <= state.batch:
            return
        found: dict[str, list[pa.Table]] = {}
        newest = 0.0
        for heard, body in messages:
            newest = max(newest, heard)
            self._take(heard, body, found)
        state.writers.fall_silent(newest)
        for kind, tables in found.items():
            self._write(kind, f"part-{batch:08d}", tables)
        state.batch = batch
        state.records += sum(table.num_rows for tables in found.values() for table in tables)
        self._put_ends_of_silent()
        self._put_heads()
        for kind in found:
            self._merge(kind)
        self._forget_old()

    def _take(self, heard: float, body: bytes, found: dict[str, list[pa.Table]]) -> None:
        import pyarrow as pa

        state = self.state
        try:
            batch = decode_batch(body)
            checked: dict[str, list[pa.Table]] = {}
            if batch.number > state.writers.writers.get(batch.writer, Writer(node="", role="")).number:
                self._check(batch)
                self._add(batch.node, batch.kinds, checked)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            state.refused += 1
            state.problem = str(error).splitlines()[0][:200]
            return
        if state.writers.take(batch, heard):
            for kind, tables in checked.items():
                found.setdefault(kind, []).extend(tables)

    def _check(self, batch: TraceBatch) -> None:
        times = [batch.upto, batch.left_from, batch.left_upto]
        if not all(map(isfinite, times)) or batch.number < 1 or batch.left_out < 0 or batch.one_in < 1:
            raise ValueError(f"a batch of {batch.node!r:.100} with numbers that cannot be")

    def _add(self, node: str, kinds: dict[str, list[list[Any]]], found: dict[str, list[pa.Table]]) -> None:
        for name, columns in kinds.items():
            if name not in self._kinds:
                continue  # of another version, or of a service that is not installed here
            table = _table(self._kinds[name], node, columns, self.state.began)
            if name in FACTS:
                table = self._new_facts(name, table)
            if table.num_rows:
                found.setdefault(name, []).append(table)

    def _new_facts(self, name: str, table: pa.Table) -> pa.Table:
        import pyarrow as pa

        if len(self._said) > FACTS_MAX:
            self._said.clear()  # what is said twice changes no measure of messages
        facts = [(name, *row.values()) for row in table.to_pylist()]
        new = [at for at, fact in enumerate(facts) if fact not in self._said]
        self._said.update(facts)
        return table if len(new) == len(facts) else table.take(pa.array(new, pa.int64()))

    def _read_facts(self) -> None:
        for name in FACTS:
            for path in self._parts(name):
                self._said.update((name, *row.values()) for row in _read(path).to_pylist())

    def _put_ends_of_silent(self) -> None:
        """Who has fallen silent has stopped, and is subscribed to nothing; until it is heard of again."""
        writers = self.state.writers.writers.values()
        ends = {writer.node: writer.upto for writer in writers if writer.silent}
        if ends == self._ended:
            return
        self._ended = ends
        stopped: Rows = {node: [[at], ["silent"]] for node, at in ends.items()}
        unsubscribed: Rows = {}
        for kind, _, node, *fields in self._said:
            if kind == "subscribed" and node in ends:
                times, numbers = unsubscribed.setdefault(node, [[], []])
                times.append(ends[node])
                numbers.append(fields[0])
        for of, rows in ((NodeStopped, stopped), (Unsubscribed, unsubscribed)):
            (self.path / TRACE_FOLDER / kind_name(of) / f"{SILENT}.parquet").unlink(missing_ok=True)
            tables = [_table(of, node, columns, self.state.began) for node, columns in rows.items()]
            if tables:
                self._write(kind_name(of), SILENT, tables)

    # Files.

    def _parts(self, kind: str) -> list[Path]:
        return sorted((self.path / TRACE_FOLDER / kind).glob("part-[0-9]*.parquet"))

    def _write(self, kind: str, name: str, tables: Sequence[pa.Table]) -> None:
        import pyarrow as pa

        folder = self.path / TRACE_FOLDER / kind
        folder.mkdir(exist_ok=True)
        write_parquet(folder / f"{name}.parquet", pa.concat_tables(tables).combine_chunks())

    def _merge(self, kind: str) -> None:
        small = [path for path in self._parts(kind) if _rows(path) < SMALL_ROWS]
        if len(small) >= MERGED:
            first, last = _range(small[0])[0], _range(small[-1])[1]
            between = [path for path in self._parts(kind) if first <= _range(path)[0] <= _range(path)[1] <= last]
            self._write(kind, f"part-{first:08d}-{last:08d}", [_read(path) for path in between])
            for path in between:
                path.unlink()

    def _clear_leftovers(self) -> None:
        for folder in (self.path / TRACE_FOLDER).iterdir():
            if folder.is_dir():
                parts = self._parts(folder.name)
                for path in parts:
                    if any(_within(_range(path), _range(other)) for other in parts if other != path):
                        path.unlink()

    def _forget_old(self) -> None:
        if self._keep == inf:
            return
        before = self.state.writers.reached - self.state.began - self._keep
        newest = LONG_AGO
        for kind in set(self._kinds) - {*FACTS, *ENDS}:
            for path in self._parts(kind):
                if _last_time(path) < before:
                    newest = max(newest, _last_time(path))
                    path.unlink()
        if newest > LONG_AGO:
            self.state.writers.forget(newest + self.state.began)
            self._put_heads()

    def _put_heads(self) -> None:
        """`run.json`, the mark, and last what we need ourselves."""
        state, writers = self.state, self.state.writers
        until = None if writers.reached == -inf else writers.reached - state.began
        lost = [(max(LONG_AGO, begin - state.began), end - state.began) for begin, end in writers.lost]
        head = {"name": "watch", "seed": 0, "complete": writers.complete, "scenario": {}, "left_out": lost}
        head |= {"started": state.began, "servers": state.servers}
        _replace(self.path / RUN_FILE, msgspec.json.encode(head))
        write_mark(self.path / TRACE_FOLDER, Mark(writer="", until=until, closed=writers.complete))
        _replace(self.path / STATE_FILE, msgspec.json.encode(state))


def _table(kind: type[Record], node: str, columns: list[list[Any]], began: float) -> pa.Table:
    """Columns of a batch as those of a trace on disk; raises ValueError if they do not fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = arrow_schema(kind)
    if len(columns) != len(schema) - 1 or len({len(column) for column in columns}) != 1:
        raise ValueError(f"records of {kind.__name__} whose columns are not those of this version")
    own = [pa.array(column, field.type) for column, field in zip(columns[1:], list(schema)[2:], strict=True)]
    times = pc.subtract(pa.array(columns[0], pa.float64()), pa.scalar(began))
    for column in [times, *own]:
        if column.null_count or (pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py()):
            raise ValueError(f"records of {kind.__name__} with values that cannot be")
    nodes = pa.repeat(pa.scalar(node, pa.string()), len(times))
    return pa.Table.from_arrays([times, nodes, *own], schema=schema)


def _read(path: Path) -> pa.Table:
    from pyarrow import parquet

    return parquet.ParquetFile(path).read()


def _rows(path: Path) -> int:
    from pyarrow import parquet

    return int(parquet.read_metadata(path).num_rows)


def _last_time(path: Path) -> float:
    from pyarrow import parquet

    meta = parquet.read_metadata(path)
    return max((float(meta.row_group(at).column(0).statistics.max) for at in range(meta.num_row_groups)), default=inf)


def _range(path: Path) -> tuple[int, int]:
    """The batches that a part holds."""
    numbers = [int(number) for number in re.findall(r"\d+", path.stem)]
    return numbers[0], numbers[-1]


def _within(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return other[0] <= one[0] and one[1] <= other[1] and one != other


def _replace(path: Path, text: bytes) -> None:
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(text + b"\n")
    draft.replace(path)
