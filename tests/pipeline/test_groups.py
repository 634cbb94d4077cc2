"""Rows in groups: the rows of a group stand next to each other, and one number orders rows as several columns do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.groups import Rows, grouped, ordinal, tally
from penstock.pipeline.metrics.delay import percentiles
from penstock.pipeline.metrics.order import late_messages


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.floats(allow_nan=False)), max_size=30))
def test_rows_are_grouped_and_keep_their_order(rows: list[tuple[str, int, float]]) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    types = (pa.string(), pa.int64(), pa.float64())
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    keys, found = grouped(pa.table(arrays, names=["who", "number", "value"]), ["who", "number"], ["value"])
    groups = [tuple(key.values()) for key in keys.to_pylist()]
    assert len(set(groups)) == len(groups) == len(found.starts)
    for number, key in enumerate(groups):
        assert list(found["value"][found.starts[number] : found.ends[number]]) == [r[2] for r in rows if r[:2] == key]


def test_rows_of_a_group_stand_next_to_each_other() -> None:
    with pytest.raises(AssertionError, match="next to each other"):
        Rows(np.array([1, 1, 0]), {"delay": np.array([1.0, 2.0, 10.0])})


def test_the_mean_of_a_group_is_over_its_own_delays() -> None:
    """Groups that come in another order than their names have been numbered: [1, 1, 0] with delays 1, 2 and 10."""
    names = pa.DictionaryArray.from_arrays(pa.array([1, 1, 0], pa.int32()), pa.array(["a", "b"]))
    run = pa.array(["r"] * 3)
    delays = pa.array([1.0, 2.0, 10.0])
    columns = {"run": run, "publisher": names, "client": names, "delay": delays, "delay_from_publish": delays}
    rows = percentiles("x").work({"delays": pa.table(columns)}).to_pylist()
    assert {(row["client"], row["since"]): row["mean"] for row in rows} == {
        ("a", "publish"): 10.0,
        ("a", "sent"): 10.0,
        ("b", "publish"): 1.5,
        ("b", "sent"): 1.5,
    }


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
