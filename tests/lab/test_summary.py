"""Kept results, the summary that is made of them, and what a lab says before it begins."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from msgspec import structs

from penstock.errors import PenstockError
from penstock.lab.engine.estimate import estimates
from penstock.lab.engine.experiment import Criterion, Experiment, Plan
from penstock.lab.engine.kept_results import (
    KeptResult,
    judge_again,
    judged_results,
    keep_file,
    keep_lines,
    read_results,
)
from penstock.lab.engine.older_code import CHANGES
from penstock.lab.engine.registry import experiments, families, find
from penstock.lab.engine.run_maker import name_of_run
from penstock.lab.engine.runner import NOT_REPLACED, no_product, planned
from penstock.lab.engine.simulated_runs import PROCESSOR_SECONDS, simulate_run
from penstock.lab.engine.tasks import make_numbers, seconds_for_work
from penstock.lab.pages.summary import BEGIN, END, summary, with_summary
from penstock.scenario.spec import BrokerSpec, Scenario
from penstock.transport.config import TransportConfig

DOCS = Path(__file__).parents[2] / "docs"


def line(value=2.0, *, values=(1.0, 3.0), settings="paper", scale="paper", kind="paper", **more):
    criterion = {"name": "delay | s", "kind": kind, "paper": "1", "value": value, "values": values, "bound": [1, 2]}
    criterion |= {"pass": value <= 2, "note": ""}
    found = {"experiment": "example", "scale": scale, "seeds": [1, 2], "settings": settings, "criteria": [criterion]}
    return json.dumps({**found, "not_gated": [], "run": [], **more})


def kept(folder, *lines):
    assert keep_lines(lines, folder, date="2026-01-02") == []
    return read_results(folder)


def rows(results):
    made = summary(results, {"delays": ["example", "other"]})
    return [text for text in made.splitlines() if "`example`" in text or "No result" in text]


def test_the_page_is_what_the_kept_results_give():
    """So it cannot go stale: `penstock lab summary` makes it again, judged by the bounds of today."""
    page = (DOCS / "papers.md").read_text()
    made = summary(judged_results(DOCS / "results", experiments()), families())
    assert with_summary(page, made) == page, "run `penstock lab summary`"


def test_every_kept_result_is_of_an_experiment_that_exists_and_at_paper_scale():
    found = read_results(DOCS / "results")
    assert found.keys() <= {name for names in families().values() for name in names}
    assert {result.scale for result in found.values()} <= {"paper"}
    assert all(name == result.experiment for name, result in found.items())


@pytest.mark.parametrize("family", families())
def test_kept_results_have_the_bounds_and_verdicts_of_today(family):
    found, judged = read_results(DOCS / "results"), judged_results(DOCS / "results", experiments())
    names = [name for name in families()[family] if name in found]
    assert [found[name] for name in names] == [judged[name] for name in names], "run `penstock lab summary`"


def test_a_bound_that_changes_changes_the_verdict_without_a_run(tmp_path):
    kept(tmp_path, line(values=(1.0, 3.0)), line(1.5, settings="product"))
    criteria = (
        Criterion(name="delay | s", paper="2", high=2.5, judged="every seed"),
        Criterion(name="younger than the run", paper="", low=0.0),
    )
    judged = judge_again(tmp_path, {"example": replace(example(), criteria=criteria)})
    assert judged == read_results(tmp_path)
    first, second = judged["example"].criteria
    assert (first.value, first.bound, first.passed, first.product) == (3.0, (None, 2.5), False, 1.5)
    assert (second.value, second.passed, second.was_run()) == (None, False, False)
    made = summary(judged, {"delays": ["example"]})
    assert "| younger than the run |  |  | at least 0 | not run yet | - |" in made
    assert "| 1 | 1 | 0 | 1 | 0 | 0 | 0 |" in made
    with pytest.raises(PenstockError, match="no experiment"):
        judge_again(tmp_path, {})


def test_what_has_no_bound_is_reported_in_a_table_of_its_own(tmp_path):
    found = kept(tmp_path, line(), line(1.5, settings="product"))["example"]
    (bounded,) = found.criteria
    reported = structs.replace(bounded, name="delay from publish()", bound=(None, None))
    made = summary({"example": structs.replace(found, criteria=(bounded, reported))}, {"delays": ["example"]})
    assert "| `example` | delay from publish() | 1 | 2 (1 to 3) | 1.5 |" in made
    assert "| 1 | 1 | 1 | 0 | 0 | 0 | 0 |" in made


def test_results_of_before_a_change_that_moves_them_are_marked(tmp_path):
    change = CHANGES[0]
    one = structs.replace(kept(tmp_path, line())["example"], experiment=change.names[0], date="2026-03-04")
    for code, mark in ((change.before[0], "2026-03-04, older"), ("another", "2026-03-04")):
        made = summary({"one": structs.replace(one, code=code)}, {"delays": ["one"]})
        assert f"| {mark} |" in made
        assert (change.what in made) == (code != "another")


def test_a_row_has_the_range_over_seeds_the_bound_the_verdict_and_the_product(tmp_path):
    found = kept(tmp_path, line(date="2026-03-04"), line(1.5, settings="product"))
    assert rows(found) == [
        "| `example` | delay \\| s | 1 | 2 (1 to 3) | 1 to 2 | holds | 1.5 | 2 | 2026-03-04 |",
        "No result is kept of `other`.",
    ]


def test_a_dash_stands_where_the_product_has_no_part(tmp_path):
    assert "| holds | - |" in rows(kept(tmp_path, line(no_product="a formula")))[0]


def test_what_the_product_has_no_part_in_by_now_leaves_its_column(tmp_path):
    kept(tmp_path, line(), line(0.0, settings="product"))
    judged = judge_again(tmp_path, {"example": replace(example(criterion="delay | s"), product="counts feedback")})[
        "example"
    ]
    assert (judged.criteria[0].product, judged.product_seeds, judged.no_product) == (None, (), "counts feedback")


def test_what_is_missed_is_marked_and_an_illustration_counts_for_nothing(tmp_path):
    assert "**missed**" in rows(kept(tmp_path, line(3.0)))[0]
    found = kept(tmp_path, line(3.0, kind="illustration"))
    assert "| illustration |" in rows(found)[0]
    made = summary(found, {"delays": ["example"]})
    assert "| 1 | 1 | 0 | 0 | 0 | 0 | 1 |" in made


def test_a_new_result_keeps_the_products_column_until_it_is_run_again(tmp_path):
    found = kept(tmp_path, line(), line(1.5, settings="product", date="2026-05-06"), line(1.9))["example"]
    assert (found.criteria[0].value, found.criteria[0].product, found.product_date) == (1.9, 1.5, "2026-05-06")


def test_fewer_seeds_do_not_take_the_place_of_more(tmp_path):
    before = kept(tmp_path, line())
    (refused,) = keep_lines([line(1.0, values=(1.0,), seeds=[1])], tmp_path, date="")
    assert "kept with 2 seeds" in refused
    assert "this has 1" in refused
    assert read_results(tmp_path) == before


def test_times_of_runs_with_the_products_settings_are_kept_beside_the_others(tmp_path):
    lines = [line(took={"one": 1.0}), line(settings="product", took={"one-product": 2.0}), line(took={"one": 3.0})]
    assert kept(tmp_path, *lines)["example"].took == {"one": 3.0, "one-product": 2.0}


def test_a_line_without_a_date_is_of_the_day_its_file_was_written(tmp_path):
    file = tmp_path / "example.jsonl"
    file.write_text(line() + "\n\n")
    assert keep_file(file, tmp_path / "kept") == []
    assert len(read_results(tmp_path / "kept")["example"].date) == len("2026-01-02")
    with pytest.raises(PenstockError, match="cannot be read"):
        keep_file(tmp_path / "none", tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "no result of an experiment"),
        ("{}", "no result of an experiment"),
        (line(scale="smoke"), "only paper scale"),
        (line(settings="product"), "without --product first"),
    ],
)
def test_a_line_that_cannot_be_kept_changes_nothing_and_says_why(tmp_path, text, why):
    (refused,) = keep_lines([text], tmp_path, date="")
    assert why in refused
    assert read_results(tmp_path) == {}


def test_a_page_without_the_marks_is_refused():
    with pytest.raises(PenstockError, match="no place for the summary"):
        with_summary("nothing", "made")
    assert with_summary(f"a {BEGIN} old {END} b", "made") == f"a {BEGIN}\n\nmade\n{END} b"


# With the product's own settings.


def test_with_the_products_settings_only_runs_with_a_transport_change():
    experiment = find("recovery-false-negatives-over-time")
    papers, ours = (planned(experiment, "smoke", 1, product=product) for product in (False, True))
    assert ours["12, none"] == papers["12, none"]
    changed, before = ours["12, publishers answer"].scenario, papers["12, publishers answer"].scenario
    assert all(client.services["transport"] == TransportConfig() for client in changed.client)
    assert all(link.repair for link in changed.link)
    assert [client.publish for client in changed.client] == [client.publish for client in before.client]
    assert [client.subscribe for client in changed.client] == [client.subscribe for client in before.client]


def test_with_the_products_settings_streams_and_prices_have_its_rules_and_what_an_experiment_varies_stays():
    papers, ours = (planned(find("sdcc-nack-window"), "smoke", 1, product=product) for product in (False, True))
    assert papers["run"].scenario.services["streams"].control_rule == "paper"
    assert ours["run"].scenario.services["streams"].control_rule == "measured"
    assert ours["run"].scenario.link == papers["run"].scenario.link
    without = planned(find("cb-randomisation-effect"), "smoke", 1, product=True)["without chance"].scenario
    assert without.services["pricing"].even_chance
    assert not without.services["pricing"].randomised
    slow = (planned(find("pdcc-slow-relay"), "smoke", 1, product=product) for product in (False, True))
    before, after = (plans["without control"] for plans in slow)
    assert before == after


def test_where_the_product_has_no_part_it_is_said():
    assert no_product(find("tcp-response-curves"), "smoke") == NOT_REPLACED
    assert not no_product(find("cacc-variable-load"), "smoke")


# How long it will take.


def test_an_estimate_counts_what_is_missing_and_knows_what_was_timed(tmp_path):
    scenario = Scenario(name="one", duration=1.0, broker=(BrokerSpec(name="a"),))
    experiment = example(scenario)
    other = replace(experiment, name="other", plans=lambda scale: {"run": Plan(scenario=longer)})
    longer = structs.replace(scenario, name="longer", duration=3.0)
    timed = {"example": timed_result(took={"one": 60.0})}

    def estimate(results, second=experiment):
        named = {"first": [experiment], "second": [second]}
        return estimates(named, scale="paper", seeds=[1, 2], runs_root=tmp_path, kept=results)

    assert estimate({}) == [("first", 2, 2, 0.0, 2)]
    assert estimate(timed) == [("first", 2, 2, 120.0, 0)]
    assert estimate(timed, other) == [("first", 2, 2, 120.0, 0), ("second", 2, 2, 360.0, 2)]  # three times as long
    made = simulate_run(scenario, 1, tmp_path)
    assert estimate(timed) == [("first", 2, 1, 60.0, 0)]
    assert made.info.outcome is not None
    assert made.info.outcome.summary[PROCESSOR_SECONDS] >= 0.0
    assert estimate({"example": timed_result(took={"one": 60.0}, measuring=5.0)}) == [("first", 2, 1, 70.0, 0)]


def test_runs_of_one_name_have_times_of_their_own_and_the_newest_counts(tmp_path):
    scenario = Scenario(name="one", duration=1.0, broker=(BrokerSpec(name="a"),))
    bare, busy = (Plan(scenario=structs.replace(scenario, drain=drain)) for drain in (1.0, 2.0))
    experiment = replace(example(), plans=lambda scale: {"bare": bare, "busy": busy})
    old = structs.replace(timed_result(took={name_of_run(bare): 50.0, name_of_run(busy): 60.0}), date="2026-01-01")
    new = structs.replace(timed_result(took={name_of_run(bare): 5.0, "one": 1_000.0}), date="2026-01-02")
    results = {"newer": new, "older": old}
    found = estimates({"first": [experiment]}, scale="paper", seeds=[1], runs_root=tmp_path, kept=results)
    assert found == [("first", 2, 2, 65.0, 0)]


def test_tasks_are_estimated_by_their_work(tmp_path):
    experiment = replace(example(), tasks=lambda scale, seed: {"small": Sleepless(seed), "large": Sleepless(10 * seed)})
    timed = {"example": timed_result(seconds_for_work=2.0)}

    def estimate():
        return estimates({"first": [experiment]}, scale="paper", seeds=[1, 2], runs_root=tmp_path, kept=timed)

    assert estimate() == [("first", 4, 4, 2.0 * (1 + 10 + 2 + 20), 0)]
    make_numbers(tmp_path, Sleepless(10))
    assert estimate() == [("first", 4, 3, 2.0 * (1 + 2 + 20), 0)]
    assert seconds_for_work([Sleepless(1), Sleepless(10)], tmp_path) >= 0.0
    assert seconds_for_work([Sleepless(1)], tmp_path) == 0.0


@dataclass(frozen=True)
class Sleepless:
    """A task that has nothing to do."""

    units: int

    def text(self):
        return f"{self.units} units"

    def work(self):
        return float(self.units)

    def run(self):
        return {"units": self.units}


def example(scenario=None, criterion="x"):
    return Experiment(
        name="example",
        title="",
        source="",
        about="",
        plans=lambda scale: {} if scenario is None else {"run": Plan(scenario=scenario)},
        measure=lambda views: {},
        draw=lambda views: (),
        criteria=(Criterion(name=criterion, paper=""),),
    )


def timed_result(**times):
    return KeptResult(experiment="example", scale="paper", seeds=(1,), criteria=(), **times)
