"""More seeds for a kept result."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from penstock.lab.engine.experiment import Criterion, Experiment, Plan
from penstock.lab.engine.kept_results import keep_lines, read_results
from penstock.lab.engine.more_seeds import joined, lacking
from penstock.lab.engine.run_maker import name_of_run
from penstock.lab.engine.runner import run_experiments
from penstock.lab.engine.still_current import Repeats
from penstock.scenario.spec import BrokerSpec, Scenario

PLAN = Plan(scenario=Scenario(name="short", duration=1.0, broker=(BrokerSpec(name="a"),)))
EXAMPLE = Experiment(
    name="example",
    title="",
    source="",
    about="",
    plans=lambda scale: {"one": PLAN},
    measure=lambda views: {"x": float(views.seed)},
    draw=lambda views: (),
    criteria=(Criterion(name="x", paper="", high=3.0),),
)


class LineOf:
    """What `lab run --json` would print of some seeds."""

    def __init__(self, runs_root):
        self._runs_root = runs_root

    def __call__(self, *seeds, **changed):
        (result,) = run_experiments(
            [EXAMPLE],
            scale="paper",
            seeds=seeds,
            runs_root=self._runs_root,
            spark=lambda: None,
            processes=1,
            progress=lambda what, share: None,
        )
        return json.dumps({**result.as_json(), **changed})


@pytest.fixture
def line(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.lab.engine.view.View", lambda spark, folder, scenario: OpenedRun(folder))
    return LineOf(tmp_path / "runs")


class OpenedRun:
    """A view that needs no Spark."""

    def __init__(self, folder):
        self.folder = folder

    def close(self):
        pass


def keep(lines, folder):
    return keep_lines(lines, folder, date="", join=lambda kept, new: joined(kept, new, EXAMPLE, Repeats()))


def test_other_seeds_join_and_all_are_judged_together(line, tmp_path):
    keep([line(4, 1), line(3), line(2)], tmp_path)
    (result,) = read_results(tmp_path).values()
    assert result.seeds == (1, 2, 3, 4)
    (x,) = result.criteria
    assert (x.values, x.value, x.passed) == ((1.0, 2.0, 3.0, 4.0), 2.5, True)


def test_they_join_what_other_sources_gave_if_a_run_made_again_comes_out_the_same(line, tmp_path):
    keep([line(1, code="another"), line(2)], tmp_path)
    assert read_results(tmp_path)["example"].seeds == (1, 2)


@pytest.mark.parametrize(
    "other",
    [
        {"code": "another", "digests": {name_of_run(PLAN): "moved"}},
        {"digests": {}},
        {"criteria": []},
    ],
    ids=["moved", "without digests", "other criteria"],
)
def test_they_do_not_join_anything_else(line, tmp_path, other):
    keep([line(1, **other)], tmp_path)
    keep([line(2)], tmp_path)
    assert read_results(tmp_path)["example"].seeds == (2,)  # as before: as many seeds take the place of the older


def test_the_same_seed_again_takes_the_place_of_the_first(line, tmp_path):
    keep([line(1), line(1)], tmp_path)
    assert read_results(tmp_path)["example"].seeds == (1,)
    assert "take as many" in keep([line(1, 2), line(1)], tmp_path)[0]


def test_only_what_is_kept_with_digests_and_has_not_moved_is_not_missing(line, tmp_path):
    other = replace(EXAMPLE, name="other")
    keep([line(1, 3)], tmp_path)
    kept = read_results(tmp_path)
    assert lacking([EXAMPLE, other], kept, range(1, 4)) == {(2,): [EXAMPLE], (1, 2, 3): [other]}
    assert lacking([EXAMPLE], kept, [1, 3]) == {}
    assert lacking([EXAMPLE], kept, [1], product=True) == {(1,): [EXAMPLE]}
    for older in ({"moved": "x"}, {"digests": {}}):
        assert lacking([EXAMPLE], {"example": structs.replace(kept["example"], **older)}, [1]) == {(1,): [EXAMPLE]}


def test_an_older_result_gets_digests_when_its_first_seed_gives_the_same_numbers_again(line, tmp_path):
    keep([line(1, 2, 3, digests={})], tmp_path)
    assert keep([line(1)], tmp_path) == []
    result = read_results(tmp_path)["example"]
    assert (result.seeds, set(result.digests)) == ((1, 2, 3), {name_of_run(PLAN)})


def test_points_of_a_sweep_that_the_first_seed_alone_ran_are_compared_too(line, tmp_path):
    point = json.loads(line(1))["criteria"]
    values = json.loads(line(1, 2))["criteria"]
    for values_of_point, same in ([1.0], True), ([1.5], False), ([], False), ([1.0, 1.0, 1.0], False):
        other = [{**point[0], "name": "y", "values": values_of_point}]
        keep([line(1, 2, digests={}, criteria=values + other)], tmp_path)
        keep([line(1, criteria=[*point, {**point[0], "name": "y", "values": [1.0]}])], tmp_path)
        assert bool(read_results(tmp_path)["example"].digests) == same
        (tmp_path / "example.json").unlink()


def test_it_gets_none_if_they_are_others(line, tmp_path):
    keep([line(1, 2, digests={}).replace("1.0", "1.5")], tmp_path)
    assert "take as many" in keep([line(1)], tmp_path)[0]
    assert not read_results(tmp_path)["example"].digests
