"""A real cluster: a master and two workers on loopback, from the pip package; same results as on this machine alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import penstock
from penstock.pipeline.run import run_pipeline
from penstock.pipeline.steps import STEPS
from penstock.sim.run import RunResult
from penstock.testing import embedded_network_blocking
from random_traces import write_random_run
from spark_cluster import PATIENCE, standalone_cluster

COPIES = Path(__file__).with_name("copy_orders.py")
SEED = 9  # of a random trace that has rows for every table, also for the models of a pair


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.parent.name: parquet.read_table(path).to_pylist() for path in sorted(folder.glob("metrics/*/*"))}


def test_a_cluster_gives_the_same_results_in_every_table(
    spark: SparkSession, cluster: str, town: tuple[Path, RunResult], tmp_path: Path
) -> None:
    """A real run, and a random one that fills the tables which that leaves empty."""
    folders = {}
    for place in ("here", "there"):
        folders[place] = [tmp_path / place / "town" / "7", tmp_path / place / "random" / "9"]
        shutil.copytree(town[0], folders[place][0])
        write_random_run(folders[place][1], SEED)
    run_pipeline(spark, folders["here"])
    done = subprocess.run(
        [sys.executable, "-m", "penstock.pipeline.run", *map(str, folders["there"]), "--master", cluster, "--json"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert not done.stderr, done.stderr
    assert done.returncode == 1, "the random trace fails checks"
    summary = json.loads(done.stdout)
    assert {check["run"] for check in summary["checks"] if check["level"] == "fail"} == {"random/9"}
    filled = set()
    for here, there in zip(folders["here"], folders["there"], strict=True):
        ours, theirs = results(here), results(there)
        assert list(theirs) == sorted(step.name for step in STEPS)
        for name, rows in theirs.items():
            assert rows == ours[name], name
            filled |= {name} if rows else set()
    assert filled == {step.name for step in STEPS}


def test_a_query_on_a_cluster_loses_an_executor_and_no_row(cluster: str, tmp_path: Path) -> None:
    """Its executors are processes of their own, which read and write; one is killed in the middle."""
    with (
        embedded_network_blocking(("a", "b")) as brokers,
        penstock.connect_blocking(brokers.url) as network,
    ):
        network.add_stream("orders", at=["a", "b"])
        network.add_stream("copies", at=["b"])
        rows = 1_000
        network.stream("orders").publish_many([({"n": n}, b"", f"{n}", "") for n in range(rows)])
        log = tmp_path / "query.log"
        with log.open("w") as out:
            query = subprocess.Popen(
                [sys.executable, str(COPIES), brokers.url, str(tmp_path / "checkpoint"), cluster],
                stdout=out,
                stderr=out,
            )
        try:
            with network.stream("copies").subscribe(durable="test", start="earliest") as messages:
                found = [message.attributes["n"] for message in messages.take(1, timeout=PATIENCE)]
                assert found, log.read_text()
                os.kill(executors()[0], signal.SIGKILL)
                assert sum(pubend["entries"] for pubend in network.stream("copies").survey()["pubends"]) < rows
                while len(found) < rows:
                    more = messages.take(rows - len(found), timeout=PATIENCE)
                    assert more, log.read_text()
                    found += [message.attributes["n"] for message in more]
                assert sorted(found) == list(range(rows))
                assert not messages.take(1, timeout=0.5)
        finally:
            query.kill()
            query.wait()


def executors() -> list[int]:
    """The processes that work for the workers that we started."""
    mine = {os.getpid()}
    found: list[int] = []
    parents = {int(path.name): path for path in Path("/proc").iterdir() if path.name.isdecimal()}
    for _ in range(4):  # we, the worker, the executor, and shells between them
        for number, path in parents.items():
            with suppress(OSError, ValueError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                command = (path / "cmdline").read_text()
                if parent in mine and number not in mine:
                    mine.add(number)
                    found += [number] if "CoarseGrainedExecutorBackend" in command else []
    return found
