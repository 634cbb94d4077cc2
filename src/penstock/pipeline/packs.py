"""Packs: many rows of one key in one row, so that numpy can do in one call what Spark would do row by row.

Spark moves rows one at a time; at ten million deliveries that, and not the arithmetic, is what takes the time. A
*pack* is a row with the key columns, the number of rows in it, and one binary column for each value, which holds these
values one after the other as 8-byte numbers:

    run  publisher  node   rows   time               count
    a/7  ticker     desk   3      |1.01|1.02|1.07|   |1|2|4|

`pack` turns a table into packs without moving anything between tasks; a pack is then shuffled like any row, at the
price of one instead of thousands; `unpack` lays all packs of a task out as arrays, with the rows of each group next to
each other. What a metric does in between is a function from arrays to a small table.

Rows keep the order in which they came in, as far as Spark keeps it: metrics that depend on order must sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    Batches = Iterable[pa.RecordBatch]

PACK_ROWS_MAX = 1 << 20  # rows that a task holds before it packs them: bounds its memory to about 100 MB
BINARY = {"double": "<f8", "bigint": "<i8"}
ROWS = "rows"


def pack(table: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """The table with the rows of each key packed, task by task; a key may come in several packs."""
    types = dict(table.dtypes)
    layout = {name: BINARY[types[name]] for name in values}
    ddl = ", ".join(
        [f"`{name}` {types[name]}" for name in keys] + [f"`{ROWS}` bigint"] + [f"`{v}` binary" for v in values]
    )
    key_names = tuple(keys)

    def work(batches: Batches) -> Iterator[pa.RecordBatch]:
        for chunk in _chunks(batches):
            yield from pack_table(chunk, key_names, layout)

    return table.select(*keys, *values).mapInArrow(work, ddl)


def is_packed(table: DataFrame) -> bool:
    """Whether the table has been packed already."""
    return ROWS in table.columns


def over_packs(packs: DataFrame, together: Sequence[str], work: Callable[[pa.Table], pa.Table], ddl: str) -> DataFrame:
    """Bring the packs that are equal in these columns into one task, and let `work` see all packs of each task."""

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        listed = list(batches)
        if listed:
            yield from work(pa.Table.from_batches(listed)).to_batches()

    return packs.repartition(*together).mapInArrow(run, ddl)


def pack_table(chunk: pa.Table, keys: Sequence[str], layout: dict[str, str]) -> list[pa.RecordBatch]:
    """The rows of one Arrow table as packs."""
    import numpy as np
    import pyarrow as pa

    numbers, first = number_rows(chunk, keys)
    order = _stable_order(numbers, len(first))
    counts = np.bincount(numbers, minlength=len(first))
    offsets = np.concatenate(([0], np.cumsum(counts))) * 8
    columns = [chunk.column(name).take(pa.array(first)) for name in keys]
    columns.append(pa.array(counts, pa.int64()))
    for name, type_ in layout.items():
        sorted_values = chunk.column(name).to_numpy()[order].astype(type_, copy=False)
        # The values lie one after the other already, so they become binary cells by naming where each begins.
        cells = [None, pa.py_buffer(offsets.astype("<i4")), pa.py_buffer(sorted_values)]
        columns.append(pa.Array.from_buffers(pa.binary(), len(first), cells))
    batches: list[pa.RecordBatch] = pa.table(columns, names=[*keys, ROWS, *layout]).combine_chunks().to_batches()
    return batches


def number_rows(table: pa.Table, keys: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the distinct keys from 0; gives each row's number, and the first row of each number."""
    import numpy as np

    numbers = np.zeros(len(table), dtype=np.int64)
    for name in keys:
        encoded = table.column(name).combine_chunks().dictionary_encode()
        numbers = _dense(numbers * max(1, len(encoded.dictionary)) + encoded.indices.to_numpy())
    first = np.zeros(int(numbers.max(initial=-1)) + 1, dtype=np.int64)
    first[numbers[::-1]] = np.arange(len(table))[::-1]  # the last assignment stays, and that is the first row
    return numbers, first


@dataclass(frozen=True)
class Rows:
    """Unpacked rows: one array for each value, and for each row the number of its group.

    They are ordered by group, so that the rows of a group stand next to each other; whoever computes relies on it.
    """

    number: NDArray[np.int64]
    values: dict[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.values[name]

    def __post_init__(self) -> None:
        assert bool((self.number[1:] >= self.number[:-1]).all()), "the rows of a group stand next to each other"

    def __len__(self) -> int:
        return len(self.number)

    def renumbered(self, numbers: NDArray[np.int64]) -> Rows:
        """The same rows in other groups: what was in group g is now in group numbers[g]."""
        new = numbers[self.number]
        order = _stable_order(new, int(numbers.max(initial=-1)) + 1)
        return Rows(new[order], {name: values[order] for name, values in self.values.items()})

    def take(self, chosen: NDArray[Any]) -> Rows:
        """Some of the rows, or all of them in another order within their groups."""
        return Rows(self.number[chosen], {name: values[chosen] for name, values in self.values.items()})


def unpack(packs: pa.Table, numbers: NDArray[np.int64], layout: dict[str, str]) -> Rows:
    """All rows of the packs, ordered by the numbers given to the packs and then by the first value of each pack.

    Name the time first in the layout: packs of consecutive parts of a trace then line up, and nobody needs to sort.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    lead = next(iter(layout))
    heads = pc.binary_slice(packs.column(lead), 0, 8).combine_chunks().cast(pa.large_binary())
    order = np.lexsort((_numbers_in(heads, layout[lead]), numbers))
    lengths = packs.column(ROWS).to_numpy()[order]
    values = {}
    for name, type_ in layout.items():
        cells = packs.column(name).cast(pa.large_binary()).combine_chunks().take(pa.array(order))
        values[name] = _numbers_in(cells, type_)
    return Rows(np.repeat(numbers[order], lengths), values)


def _numbers_in(cells: pa.Array, type_: str) -> NDArray[Any]:
    """The numbers in all cells, one after the other; cells made in one go lie in one buffer."""
    import numpy as np

    if not len(cells):
        return np.zeros(0, dtype=type_)
    _, offsets, data = cells.buffers()
    begin, *_, end = np.frombuffer(offsets, "<i8")[cells.offset : cells.offset + len(cells) + 1]
    return np.frombuffer(data, type_, count=(end - begin) // 8, offset=begin)


def _chunks(batches: Batches) -> Iterator[pa.Table]:
    """The batches of a task, joined into tables of a bounded size."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= PACK_ROWS_MAX:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _dense(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same order of numbers without gaps. A table of what occurs is faster than sorting, while it is small."""
    import numpy as np

    top = int(numbers.max(initial=-1)) + 1
    if top > 4 * len(numbers) + 1024:
        return np.unique(numbers, return_inverse=True)[1]
    occurs = np.zeros(top, dtype=np.int64)
    occurs[numbers] = 1
    return (np.cumsum(occurs) - 1)[numbers]


def _stable_order(numbers: NDArray[np.int64], top: int) -> NDArray[np.int64]:
    """Which rows come first when they are ordered by number; numpy sorts 16-bit numbers by digits, ten times faster."""
    import numpy as np

    return np.argsort(numbers.astype(np.uint16) if top <= 1 << 16 else numbers, kind="stable")
