"""What goes wrong in a worker, or with Java itself, is said in one line that names it."""

from __future__ import annotations

import json
import subprocess
import sys
from math import inf, nan
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import PipelineError
from penstock.kernel.trace import Delivered, Published, Record, Subscribed
from penstock.kernel.trace_files import TraceFiles
from penstock.pipeline.failure import last_words
from penstock.pipeline.read import part_files
from penstock.pipeline.run import run_pipeline

SOUND: list[tuple[float, Record]] = [
    (0.0, Subscribed(1, "a = 1")),
    (1.0, Published("n", 1, 1, '{"a": 1}', 0, 0.0)),
    (1.5, Delivered(1, "n", 1, 1)),
]


def write_run(folder: Path, *more: tuple[float, Record], rows_max: int = 100) -> Path:
    with TraceFiles(folder, rows_max=rows_max) as trace:
        for time, record in (*SOUND, *more):
            trace.write(time, "n", record)
    (folder / "run.json").write_text(json.dumps({"name": "x", "seed": 1, "complete": True}))
    return folder


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        ((2.0, Subscribed(2, "not ( a")), r"WHERE 'not \( a': the text ends too early; expected"),
        ((2.0, Published("n", 1, 2, "{oops", 0, 0.0)), r"has attributes '{oops': JSON is malformed"),
        ((nan, Delivered(1, "n", 1, 1)), r"delivered/part-00000.parquet: has a record whose `time` is nan or inf"),
        (
            (inf, Published("n", 1, 2, "{}", 0, 0.0)),
            r"published/part-00000.parquet: has a record whose `time` is nan or inf",
        ),
        (
            (2.0, Published("n", 1, 2, "{}", 0, nan)),
            r"published/part-00000.parquet: has a record whose `waited` is nan",
        ),
    ],
)
def test_what_is_wrong_with_a_record_is_said(
    odd: tuple[float, Record], problem: str, spark: SparkSession, tmp_path: Path
) -> None:
    folder = write_run(tmp_path / "a" / "7", odd)
    with pytest.raises(PipelineError, match=problem) as raised:
        run_pipeline(spark, [folder])
    assert "\n" not in str(raised.value)


def test_a_file_that_was_left_out_is_not_blamed(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "a" / "7", (2.0, Delivered(1, "n", 1, 1)), (2.0, Subscribed(2, "not ( a")), rows_max=1
    )
    part_files(folder, Delivered)[0].write_bytes(b"junk")
    with pytest.raises(PipelineError, match=r"WHERE 'not \( a'"):
        run_pipeline(spark, [folder], allow_partial=True)


def test_the_last_words_of_a_traceback() -> None:
    stack = 'oh\nTraceback (most recent call last):\n  File "x", line 1, in y\n    y()\n    ^^^\n'
    assert last_words(f"{stack}KeyError: 'a'\n") == "KeyError: 'a'"
    assert last_words(f"{stack}a.B: one\n  two\n\n{stack}a.C: three\n   four\n\n\tat org.x\n") == "a.C: three four"
    assert last_words(f"{stack}penstock.errors.PipelineError: no\n") == "no"
    assert last_words("\n no traceback\n at all") == "no traceback"
    assert last_words("[FAILED] Query 5: penstock.errors.InvalidOption: where: no\n SQLSTATE: 38000") == "where: no"
    assert last_words("") == "it does not say why"


PROGRAM = """
import os, sys
from penstock.pipeline import run

def ends(spark, tables, names):
    java = spark._jvm.java.lang.ProcessHandle.current().pid()
    def kill(batches):
        os.kill(java, 9)
        yield from batches
    return spark.range(3).mapInArrow(kill, "id bigint").toArrow()

run.results_of = ends
sys.exit(run.main([sys.argv[1]]))
"""


def test_a_java_that_ends_is_said_in_one_line(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a" / "7")
    done = subprocess.run([sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, timeout=120)
    (line,) = [line for line in done.stderr.splitlines() if "Killed" not in line]  # which a shell may say
    assert line.startswith("error: Java, in which Spark works, has ended")
    assert (done.returncode, done.stdout) == (2, "")
