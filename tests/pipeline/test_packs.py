"""Packs: nothing is lost on the way in and out, and one number orders rows as several columns do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.pipeline import packs
from penstock.pipeline.metrics.order import late_messages
from penstock.pipeline.metrics.shared import ordinal, tally
from penstock.pipeline.packs import Rows as GroupedRows
from penstock.pipeline.packs import number_rows, pack, pack_table, unpack

LAYOUT = {"time": "<f8", "count": "<i8"}
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", ""]),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=40,
)


def table(rows: list[tuple[str, int, float, int]]) -> pa.Table:
    names, types = ["who", "number", "time", "count"], [pa.string(), pa.int64(), pa.float64(), pa.int64()]
    columns = zip(*rows, strict=True) if rows else [[], [], [], []]
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


@given(rows=ROWS, cut=st.integers(0, 40))
def test_what_is_packed_comes_out_again(rows: list[tuple[str, int, float, int]], cut: int) -> None:
    keys = ("who", "number")
    parts = [part for part in (rows[:cut], rows[cut:]) if part]
    batches = [batch for part in parts for batch in pack_table(table(part), keys, LAYOUT)]
    if not batches:
        return
    packed = pa.Table.from_batches(batches)
    numbers, first = number_rows(packed, keys)
    got = unpack(packed, numbers, LAYOUT)
    who, number = (packed.column(name).take(pa.array(first)).to_pylist() for name in keys)
    out = [(who[n], number[n], t, c) for n, t, c in zip(got.number, got["time"], got["count"], strict=True)]
    assert sorted(map(repr, out)) == sorted(map(repr, [(w, n, np.float64(t), np.int64(c)) for w, n, t, c in rows]))
    assert list(got.number) == sorted(got.number)


def test_a_task_packs_in_bounded_pieces(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spark.range(100).selectExpr("'r' as run", "id % 3 as number", "id as count").coalesce(1)
    whole = pack(rows, ("run", "number"), ("count",)).collect()
    assert sorted((row["number"], row["rows"]) for row in whole) == [(0, 34), (1, 33), (2, 33)]
    assert [len(chunk) for chunk in packs._chunks(table([("a", i, 0.0, 0)] * 4).to_batches()[0] for i in range(3))] == [
        12
    ]
    monkeypatch.setattr(packs, "PACK_ROWS_MAX", 5)
    assert [len(chunk) for chunk in packs._chunks(table([("a", i, 0.0, 0)] * 4).to_batches()[0] for i in range(3))] == [
        8,
        4,
    ]


@given(
    st.lists(
        st.tuples(
            st.integers(-5, 5), st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)), st.integers(0, 9)
        ),
        min_size=1,
        max_size=30,
    )
)
def test_an_ordinal_orders_as_the_columns_do(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    numbers = ordinal(*columns)
    for a, x in zip(rows, numbers, strict=True):
        for b, y in zip(rows, numbers, strict=True):
            assert (a < b, a == b) == (x < y, x == y)


@given(st.lists(st.integers(0, 8), max_size=30))
def test_late_messages_are_those_that_a_later_one_has_overtaken(order: list[int]) -> None:
    messages = list(dict.fromkeys(order))  # each where it comes for the first time
    late = [m for place, m in enumerate(messages) if any(other > m for other in messages[:place])]
    assert [order[place] for place in late_messages(np.array(order, dtype=np.int64))] == late


def test_a_tally_counts_pairs() -> None:
    group, cell, counts = tally(np.array([1, 0, 1, 1]), np.array([5, 7, 5, -2]))
    assert list(zip(group, cell, counts, strict=True)) == [(0, 7, 1), (1, -2, 1), (1, 5, 2)]


def test_rows_in_other_groups_still_stand_group_by_group() -> None:
    rows = GroupedRows(np.array([0, 0, 1]), {"delay": np.array([1.0, 2.0, 10.0])}).renumbered(np.array([1, 0]))
    assert (list(rows.number), list(rows["delay"])) == ([0, 1, 1], [10.0, 1.0, 2.0])
    with pytest.raises(AssertionError, match="next to each other"):
        GroupedRows(np.array([1, 1, 0]), {"delay": np.array([1.0, 2.0, 10.0])})
