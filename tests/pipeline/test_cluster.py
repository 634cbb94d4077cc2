"""A real cluster: a master and two workers on loopback, from the pip package; same results as on this machine alone."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from penstock.pipeline.run import run_pipeline
from penstock.pipeline.session import FAST_START, log_settings, prepare_environment
from penstock.pipeline.steps import STEPS
from penstock.sim.run import RunResult
from random_traces import write_random_run

PATIENCE = 120.0  # seconds for a process of the cluster to listen; it takes three on an idle machine

SEED = 9  # of a random trace that has rows for every table, also for the models of a pair


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def daemon(kind: str, *arguments: str, port: int, work: Path) -> Iterator[None]:
    """A process of the cluster, ended with the block; ready once it listens."""
    import pyspark

    prepare_environment(local=True)
    home = Path(pyspark.__file__).parent
    options = f"-Dlog4j2.configurationFile={log_settings().as_uri()} {FAST_START}"
    environment = os.environ | {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": options,
        "SPARK_HOME": str(home),
    }
    command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments]
    with (work / f"{kind}-{port}.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
    try:
        deadline = time.monotonic() + PATIENCE
        while not listens(port):
            assert time.monotonic() < deadline, f"{kind} does not listen"
            with suppress(subprocess.TimeoutExpired):  # it should not end: that would be the reason why nobody listens
                process.wait(0.1)
                raise AssertionError((work / f"{kind}-{port}.log").read_text())
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """The address of a master that has two workers, of one core each."""
    master = free_port()
    address = f"spark://127.0.0.1:{master}"
    ui = ["--webui-port", "0"]
    with ExitStack() as stack:
        arguments = ["--host", "127.0.0.1", "--port", str(master), *ui]
        stack.enter_context(daemon("master.Master", *arguments, port=master, work=tmp_path))
        for number in range(2):
            port = free_port()
            arguments = ["--host", "127.0.0.1", "--port", str(port), "--cores", "1", "--memory", "1g", *ui]
            arguments += ["--work-dir", str(tmp_path / f"worker-{number}"), address]
            stack.enter_context(daemon("worker.Worker", *arguments, port=port, work=tmp_path))
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
