"""The experiments that protect most, from end to end at smoke scale: simulation, traces, Spark, verdicts, report.

`make lab-smoke` runs all of them.
"""

import json

import pytest

from lab_help import SMOKE
from penstock.lab.engine.registry import find
from penstock.lab.engine.runner import run_experiments
from penstock.lab.pages.experiment_page import write_reports


@pytest.mark.parametrize("number", range(len(SMOKE)), ids=SMOKE)
def test_the_criteria_of_the_paper_hold_at_smoke_scale(smoke_results, number):
    found = smoke_results[number]
    failed = [f"{f.criterion.name}: {f.value}" for f in found.findings if f.gated and not f.passed]
    assert found.holds(), failed


def test_a_run_is_made_once_and_found_again(smoke_results, spark, lab_root):
    before = {path: path.stat().st_mtime_ns for path in lab_root.rglob("run.json")}
    run_experiments(
        [find(SMOKE[0])],
        scale="smoke",
        seeds=[1],
        runs_root=lab_root,
        spark=lambda: spark,
        processes=1,
        progress=lambda what, share: None,
    )
    assert {path: path.stat().st_mtime_ns for path in lab_root.rglob("run.json")} == before


def test_the_report_needs_no_network(smoke_results, tmp_path):
    index = write_reports(smoke_results, tmp_path)
    for name in SMOKE:
        page = (tmp_path / f"{name}.html").read_text()
        assert "data-spec=" in page
        assert len(page) > 500_000, "the drawing library is in the page itself"
        assert f"href={name}.html" in index.read_text()
        head = page[: page.index("<script")]
        assert "http" not in head.replace("https://vega.github.io/schema/", "")
        assert json.loads((tmp_path / f"{name}.json").read_text())["experiment"] == name
