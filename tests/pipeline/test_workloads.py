"""Large workloads: the same rows however the work is shared, with the shape that was asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.workload import app
from penstock.content.language.parser import parse_predicate
from penstock.errors import PenstockError
from penstock.pipeline.workloads import (
    ROWS_PER_BLOCK,
    WorkloadSpec,
    publications,
    read_publications,
    read_subscriptions,
    subscriptions,
    write_workload,
)

SPEC = WorkloadSpec(
    seed=5, publications=2 * ROWS_PER_BLOCK + 100, subscriptions=500, names=6, number_names=2, names_per_message=4
)


def test_rows_do_not_depend_on_the_partitions(spark: SparkSession, tmp_path: Path) -> None:
    for partitions in (1, 3):
        write_workload(spark, SPEC, tmp_path / str(partitions), partitions=partitions)
    one, three = ([*read_publications(tmp_path / name)] for name in ("1", "3"))
    assert one == three
    assert len(one) == SPEC.publications
    assert [*read_subscriptions(tmp_path / "1")] == [*read_subscriptions(tmp_path / "3")]
    assert len([*(tmp_path / "3" / "publications").glob("*.parquet")]) == 3


def test_publications_come_in_order_of_time_and_over_the_whole_duration(spark: SparkSession) -> None:
    times = [row["time"] for row in publications(spark, SPEC).collect()]
    assert times == sorted(times)
    assert times[0] < 1.0
    assert SPEC.duration - 1.0 < times[-1] < SPEC.duration


def test_the_seed_changes_the_rows_and_subscriptions_leave_publications_alone(spark: SparkSession) -> None:
    small = replace(SPEC, publications=50)
    rows = publications(spark, small).collect()
    assert rows != publications(spark, replace(small, seed=6)).collect()
    assert rows == publications(spark, replace(small, subscriptions=7)).collect()


def test_a_message_has_sorted_attributes_of_their_kinds(spark: SparkSession) -> None:
    for row in publications(spark, replace(SPEC, publications=200)).collect():
        said = msgspec.json.decode(row["attributes"])
        assert len(said) == 4
        assert list(said) == sorted(said)
        assert all(type(value) is (int if name >= "a004" else str) for name, value in said.items())
        assert row["body_bytes"] == SPEC.body_bytes


def test_hot_publishers_send_their_share_and_values_are_zipf(spark: SparkSession) -> None:
    rows = publications(spark, SPEC).collect()
    senders = Counter(row["publisher"] for row in rows)
    assert len(senders) == SPEC.publishers
    assert senders["client-0"] + senders["client-1"] == pytest.approx(SPEC.hot_share * len(rows), rel=0.02)
    values = Counter(value for row in rows for value in msgspec.json.decode(row["attributes"]).values())
    assert values["v0"] / values["v1"] == pytest.approx(2.0, rel=0.05)
    assert values["v0"] / values["v9"] == pytest.approx(10.0, rel=0.15)


def test_locality_gives_each_broker_favourites_of_its_own(spark: SparkSession) -> None:
    local = replace(SPEC, subscriptions=4000, locality=1.0, number_names=0, constraints_max=1)
    favourites = {}
    rows = subscriptions(spark, local).collect()
    for broker in ("broker-0", "broker-4"):
        wanted = Counter(row["where"].split("'")[1] for row in rows if row["broker"] == broker)
        favourites[broker] = wanted.most_common(1)[0][0]
    assert favourites == {"broker-0": "v0", "broker-4": "v50"}


def test_every_subscription_parses_and_belongs_to_a_client_at_its_broker(spark: SparkSession) -> None:
    rows = subscriptions(spark, SPEC).collect()
    sizes = Counter(len(parse_predicate(row["where"]).filters[0].constraints) for row in rows)
    assert set(sizes) == {1, 2, 3}
    assert min(sizes.values()) > 100
    assert {(row["client"], row["broker"]) for row in rows if row["client"] == "client-9"} == {("client-9", "broker-1")}


def test_writing_again_replaces_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    write_workload(spark, replace(SPEC, publications=30), tmp_path)
    write_workload(spark, replace(SPEC, publications=0, subscriptions=0), tmp_path)
    assert [*read_publications(tmp_path)] == []
    assert '"publications": 0' in (tmp_path / "workload.json").read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"publishers": 500},
        {"hot_publishers": 51},
        {"names_per_message": 7},
        {"constraints_min": 4},
        {"hot_share": 1.5},
        {"brokers": 0},
        {"duration": 0.0},
    ],
)
def test_a_specification_that_makes_no_sense_is_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        replace(SPEC, **change)


def test_the_command_makes_a_workload_and_shows_it(spark: SparkSession, tmp_path: Path) -> None:
    run = CliRunner().invoke
    made = run(app, ["make", str(tmp_path), "--set", "publications=10", "--set", "zipf=1.5"], catch_exceptions=False)
    assert made.output == f"10 publications and 400 subscriptions are in {tmp_path}\n"
    shown = run(app, ["show", str(tmp_path), "--first", "2"], catch_exceptions=False).output.splitlines()
    assert [msgspec.json.decode(line)["body_bytes"] for line in shown] == [300, 300]


@pytest.mark.parametrize("setting", ["colour=1", "zipf=steep", "zipf=99"])
def test_the_command_refuses_what_it_does_not_know(setting: str, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="zipf"):
        CliRunner().invoke(app, ["make", str(tmp_path), "--set", setting], catch_exceptions=False)
