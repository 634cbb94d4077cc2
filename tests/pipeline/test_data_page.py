"""docs/data.md names every table and column that there is, and none that is not, and its three examples run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.kernel.trace_files import kind_name
from penstock.pipeline.checks import LEVELS
from penstock.pipeline.run import run_pipeline
from penstock.pipeline.schema import file_ddl, parse_ddl
from penstock.pipeline.steps import STEPS
from penstock.services import record_kinds
from penstock.sim.run import RunResult

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
FOLDER = "runs/demo/live"
TRACES, RESULTS = "## Traces", "## Results"


def described(part: str) -> dict[str, dict[str, str]]:
    """The tables under a heading of the page: each with its columns and their types."""
    text = PAGE.partition(f"\n{part}\n")[2].partition("\n## ")[0]
    tables: dict[str, dict[str, str]] = {}
    for section in text.split("\n### ")[1:]:
        columns = tables.setdefault(section.partition("\n")[0], {})
        for names, types in re.findall(r"^\| (`.*?`) \| (.*?) \|", section, flags=re.MULTILINE):
            listed = [name.strip("` ") for name in names.split(",")]
            kinds = types.split(", ")
            columns |= dict(zip(listed, kinds * len(listed) if len(kinds) == 1 else kinds, strict=len(kinds) > 1))
    return tables


def columns_of(ddl: str, but: tuple[str, ...]) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in parse_ddl(ddl) if field.name not in but}


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_describes_every_kind_of_record() -> None:
    kinds = {kind_name(kind): columns_of(file_ddl(kind), ("time", "node")) for kind in record_kinds()}
    assert described(TRACES) == kinds


def test_the_page_describes_every_result() -> None:
    results = {step.name: columns_of(step.ddl, ("run",)) for step in STEPS}
    assert described(RESULTS) == results
    assert [list(described(RESULTS)[name]) for name in results] == [list(columns) for columns in results.values()]


def test_the_page_lists_every_check() -> None:
    section = PAGE.partition("\n### checks\n")[2].partition("\n## ")[0]
    assert dict(re.findall(r"^\| ([^`|]*) \| (fail|warn) \|", section, flags=re.MULTILINE)) == LEVELS


def test_the_examples_run(
    spark: SparkSession, town: tuple[Path, RunResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "demo" / "live"
    shutil.copytree(town[0], folder)
    run_pipeline(spark, [folder], only=["delay_percentiles", "withheld", "drops"])
    said = []
    for example in examples():
        assert FOLDER in example
        exec(compile(example.replace(FOLDER, str(folder)), "docs/data.md", "exec"), {})
        said.append(capsys.readouterr().out)
    slowest, withheld, lost = said
    assert "trader" in slowest
    assert "limiting_receiver" in withheld
    assert "sum(packets)" in lost
