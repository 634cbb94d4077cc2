"""Parcels: a part of a table in one row, on its way from task to task.

Spark moves rows one at a time; at ten million deliveries that, and not the arithmetic, is what takes the time. A
*parcel* is a row that holds many rows of one table as bytes, together with where they go:

    bucket  round  address                  place  data
    3       1      delivered by publisher   17     <an Arrow stream: run, publisher, node, time, count>

All rows that must meet have keys that lead to the same bucket, and a bucket is one task of the next round, so a task
finds in its parcels everything about its keys. Inside, numbers are as narrow as their values allow, and texts are
numbers into a list, so a delivery takes some 20 bytes. A column that says the same as another travels once: most
messages never wait, and both their delays are one number. What is large goes in several parcels, because Java keeps
each in one piece, and more than once.

`place` numbers the parcels in the order of the trace. Whoever opens them puts them back into that order: results do not
depend on who was first, and what was sorted by time when it was sent still is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from penstock.pipeline.groups import number_rows, stable_order

if TYPE_CHECKING:
    import pyarrow as pa

PARCELS = "bucket int, round int, address string, place bigint, data binary"
PLACES_PER_TASK = 1 << 32
PARCEL_BYTES_MAX = 16 << 20  # Java holds a few at a time for each core, and has 2 GB; smaller ones gain nothing


class ParcelSender:
    """Makes the parcels of one task, in order."""

    def __init__(self, task: int, buckets: int, bytes_max: int = PARCEL_BYTES_MAX) -> None:
        self._place = task * PLACES_PER_TASK
        self._buckets = buckets
        self._bytes_max = bytes_max

    def to_keys(self, table: pa.Table, keys: Sequence[str], to_round: int, address: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table, each to the bucket of its keys."""
        for bucket, part in split(table, keys, self._buckets):
            yield from self._parcels(part, bucket, to_round, address)

    def to_end(self, table: pa.Table, to_round: int, address: str) -> Iterator[pa.RecordBatch]:
        """A part of a result; any bucket will do."""
        if table.num_rows:
            yield from self._parcels(table, self._place % self._buckets, to_round, address)

    def _parcels(self, table: pa.Table, bucket: int, to_round: int, address: str) -> Iterator[pa.RecordBatch]:
        """The rows in order, as many in each parcel as the limit allows; rows of a table are about the same size."""
        rows = max(1, table.num_rows * self._bytes_max // max(1, table.nbytes))
        for begin in range(0, table.num_rows, rows):
            yield self._parcel(table.slice(begin, rows), bucket, to_round, address)

    def _parcel(self, table: pa.Table, bucket: int, to_round: int, address: str) -> pa.RecordBatch:
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        narrow = _narrowed(_without_twins(table))
        with pa.ipc.new_stream(sink, narrow.schema) as stream:
            stream.write_table(narrow)
        data = sink.getvalue()
        # The bytes become a cell by naming where it begins and ends: no copy.
        cell = pa.Array.from_buffers(pa.binary(), 1, [None, pa.array([0, data.size], pa.int32()).buffers()[1], data])
        self._place += 1
        numbers = [pa.array([bucket], pa.int32()), pa.array([to_round], pa.int32())]
        columns = [*numbers, pa.array([address]), pa.array([self._place], pa.int64()), cell]
        return pa.RecordBatch.from_arrays(columns, names=["bucket", "round", "address", "place", "data"])


def open_parcels(parcels: pa.Table, ddls: dict[str, str]) -> dict[str, pa.Table]:
    """The rows in these parcels by address, in the order of the trace, with the types of the DDL of each address."""
    import pyarrow as pa

    ordered = parcels.sort_by("place") if parcels.num_rows > 1 else parcels
    parts: dict[str, list[pa.Table]] = {address: [] for address in ddls}
    for address, data in zip(ordered["address"].to_pylist(), _buffers(ordered["data"]), strict=True):
        parts[address].append(conform(_with_twins(pa.ipc.open_stream(data).read_all()), ddls[address]))
    return {address: joined(tables, ddls[address]) for address, tables in parts.items()}


def split(table: pa.Table, keys: Sequence[str], buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket, those of a key next to each other."""
    import numpy as np
    import pyarrow as pa

    if not table.num_rows:
        return
    names = ["run", *keys]
    numbers, first = number_rows(table, names)
    texts = zip(*(table[name].take(pa.array(first)).to_pylist() for name in names), strict=True)
    bucket = np.array([crc32("\0".join(map(str, key)).encode()) % buckets for key in texts], dtype=np.int64)
    ranked = np.argsort(bucket, kind="stable")
    rank = np.empty(len(first), dtype=np.int64)
    rank[ranked] = np.arange(len(first))
    if len(first) > 1:
        table = table.take(pa.array(stable_order(rank[numbers], len(first))))
    ends = np.cumsum(np.bincount(bucket, weights=np.bincount(numbers), minlength=buckets)).astype(np.int64)
    for number, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if begin < end:
            yield number, table.slice(begin, end - begin)


def joined(tables: Sequence[pa.Table], ddl: str) -> pa.Table:
    """One table of several parts, each column in one piece."""
    import pyarrow as pa

    some = [table for table in tables if table.num_rows]
    if not some:
        return conform(arrow_schema(ddl).empty_table(), ddl)
    return pa.concat_tables(some).unify_dictionaries().combine_chunks()


def conform(table: pa.Table, ddl: str) -> pa.Table:
    """The columns of the DDL that the table has, in its order, numbers with its types, texts as numbers into a list."""
    import pyarrow as pa

    schema, columns, text = arrow_schema(ddl), {}, pa.dictionary(pa.int32(), pa.string())
    for name in (field.name for field in schema if field.name in table.column_names):
        column, wanted = table[name], schema.field(name).type
        if pa.types.is_dictionary(column.type):
            column = column if column.type == text else column.cast(text)
        elif pa.types.is_string(wanted) and name not in LONG_TEXTS:
            column = column.cast(wanted).dictionary_encode()
        elif column.type != wanted:
            column = column.cast(wanted)
        columns[name] = column
    return pa.table(columns)


def plain(table: pa.Table, ddl: str) -> pa.Table:
    """The table exactly as its DDL says."""
    return table.select(arrow_schema(ddl).names).cast(arrow_schema(ddl))


def plain_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with its texts as texts, not as numbers into a list."""
    import pyarrow as pa

    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


LONG_TEXTS = frozenset({"attributes"})  # hardly one like the other: a list of them would save nothing


def arrow_schema(ddl: str) -> pa.Schema:
    """A line of DDL as Arrow's own schema."""
    import pyarrow as pa

    types: dict[str, Any] = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "array<double>": pa.list_(pa.float64()),
        "string": pa.string(),
        "binary": pa.binary(),
    }
    pairs = [column.strip().rsplit(" ", 1) for column in ddl.split(",")]
    return pa.schema([(name.strip("`"), types[type_]) for name, type_ in pairs])


def _narrowed(table: pa.Table) -> pa.Table:
    """Every column of whole numbers in the narrowest type that holds its values."""
    import pyarrow as pa

    columns = {}
    for name in table.column_names:
        column = table[name]
        if pa.types.is_int64(column.type) and not column.null_count:
            column = pa.chunked_array([_narrow(chunk.to_numpy()) for chunk in [column.combine_chunks()]])
        elif pa.types.is_dictionary(column.type):
            whole = column.combine_chunks()
            if len(whole.dictionary) <= 1 << 15:
                index = pa.int8() if len(whole.dictionary) <= 1 << 7 else pa.int16()
                column = pa.DictionaryArray.from_arrays(whole.indices.cast(index), whole.dictionary)
        columns[name] = column
    return pa.table(columns).replace_schema_metadata(table.schema.metadata)


def _without_twins(table: pa.Table) -> pa.Table:
    """Without the columns of floats that are equal to one before them; the schema's metadata say which was which."""
    import numpy as np
    import pyarrow as pa

    kept: dict[str, Any] = {}
    twins: dict[str, str] = {}
    for name in table.column_names:
        if pa.types.is_float64(table[name].type) and not table[name].null_count:
            values = table[name].to_numpy()
            same = (other for other, values_ in kept.items() if np.array_equal(values.view("i8"), values_))
            twin = next(same, None)
            if twin is None:
                kept[name] = values.view("i8")  # compared bit by bit: -0.0 is not 0.0, and NaN is NaN
            else:
                twins[name] = twin
    return table.drop_columns(list(twins)).replace_schema_metadata(twins or None)


def _with_twins(table: pa.Table) -> pa.Table:
    for name, twin in (table.schema.metadata or {}).items():
        table = table.append_column(name.decode(), table[twin.decode()])
    return table


def _narrow(values: Any) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    low, high = int(values.min()), int(values.max())
    for type_ in (np.int8, np.int16, np.int32):
        if np.iinfo(type_).min <= low and high <= np.iinfo(type_).max:
            return pa.array(values.astype(type_))
    return pa.array(values)


def _buffers(cells: pa.ChunkedArray) -> Iterator[pa.Buffer]:
    for chunk in cells.chunks:
        for cell in chunk:
            yield cell.as_buffer()


def batches_of(parcels: Iterable[pa.RecordBatch]) -> pa.Table | None:
    """All parcels of a task; None if there are none."""
    import pyarrow as pa

    listed = list(parcels)
    return pa.Table.from_batches(listed) if listed else None
