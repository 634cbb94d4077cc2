"""Parcels: nothing is lost on the way, equal keys meet in one bucket, and rows come out in the order of the trace."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.parcels import ParcelSender, conform, open_parcels, split

DDL = "run string, who string, number bigint, time double, attributes string"
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["r", "s"]),
        st.sampled_from(["a", "b", ""]),
        st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)),
        st.floats(allow_nan=False),
        st.text(max_size=3),
    ),
    max_size=40,
)
Rows = list[tuple[str, str, int, float, str]]


def table(rows: Rows) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 5
    types = (pa.string(), pa.string(), pa.int64(), pa.float64(), pa.string())
    names = ["run", "who", "number", "time", "attributes"]
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


def rows_of(found: pa.Table) -> Rows:
    return [tuple(row.values()) for row in found.to_pylist()]


@given(rows=ROWS, cut=st.integers(0, 40), bytes_max=st.sampled_from([1, 100, 1 << 20]))
def test_what_is_sent_comes_out_again(rows: Rows, cut: int, bytes_max: int) -> None:
    arrived: dict[int, list[pa.RecordBatch]] = {}
    for task, part in enumerate((rows[:cut], rows[cut:])):
        for parcel in ParcelSender(task, 3, bytes_max).to_keys(conform(table(part), DDL), ("who",), 1, "x"):
            arrived.setdefault(parcel["bucket"][0].as_py(), []).append(parcel)
    seen: Rows = []
    for parcels in arrived.values():
        found = open_parcels(pa.Table.from_batches(parcels[::-1]), {"x": DDL})["x"]  # whoever came first
        seen += rows_of(found)
        for key in {row[:2] for row in rows_of(found)}:
            assert [row for row in rows_of(found) if row[:2] == key] == [row for row in rows if row[:2] == key]
    assert sorted(map(repr, seen)) == sorted(map(repr, rows))


def test_the_bucket_of_a_key_does_not_depend_on_what_is_beside_it() -> None:
    one, two = [("r", "a", 1, 0.0, "")], [("s", "b", 1, 0.0, ""), ("r", "a", 2, 0.0, ""), ("r", "", 3, 0.0, "")]
    ((bucket, _),) = split(table(one), ("who",), 5)
    assert bucket in {
        number for number, part in split(table(two), ("who",), 5) if ("r", "a") in {row[:2] for row in rows_of(part)}
    }


def test_nothing_is_an_empty_table_with_the_right_columns() -> None:
    sender = ParcelSender(0, 2)
    assert list(sender.to_keys(table([]), ("who",), 1, "x")) == list(sender.to_end(table([]), 1, "x")) == []
    parcels = pa.Table.from_batches(sender.to_end(table([("r", "a", 1, 0.0, "")]), 1, "y"))
    found = open_parcels(parcels, {"x": DDL, "y": DDL})
    assert (found["x"].num_rows, found["x"].column_names) == (0, found["y"].column_names)


def test_no_parcel_is_larger_than_java_can_hold() -> None:
    """All deliveries of a publisher have one key, however many they are."""
    many = table([("r", "a", number, number / 7, "") for number in range(40_000)])
    for send in (lambda one: one.to_keys(many, ("who",), 1, "x"), lambda one: one.to_end(many, 1, "x")):
        parcels = list(send(ParcelSender(0, 3, 64 << 10)))
        assert len(parcels) > 5
        assert max(parcel["data"][0].as_buffer().size for parcel in parcels) <= 64 << 10
        assert rows_of(open_parcels(pa.Table.from_batches(parcels), {"x": DDL})["x"]) == rows_of(many)


def test_a_column_that_says_the_same_as_another_travels_once() -> None:
    ddl = "run string, delay double, delay_from_publish double"
    delay = [number / 7 for number in range(1_000)]

    def sent(other: list[float]) -> tuple[int, list[float]]:
        rows = pa.table({"run": ["r"] * 1_000, "delay": delay, "delay_from_publish": other}, metadata={"of": "a file"})
        (parcel,) = ParcelSender(0, 1).to_keys(conform(rows, ddl), (), 1, "x")
        found = open_parcels(pa.Table.from_batches([parcel]), {"x": ddl})["x"]
        assert found.column_names == ["run", "delay", "delay_from_publish"]
        assert found["delay"].to_pylist() == delay
        return parcel["data"][0].as_buffer().size, found["delay_from_publish"].to_pylist()

    waited = [*delay[:-1], 1e9]
    (same_bytes, same), (other_bytes, other) = sent(delay), sent(waited)
    assert (same, other) == (delay, waited)
    assert other_bytes - same_bytes > 7_000
