"""Whether kept results are of the code as it is."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from penstock.lab.engine.experiment import Criterion, Experiment, Plan
from penstock.lab.engine.kept_results import KeptCriterion, KeptResult
from penstock.lab.engine.registry import find
from penstock.lab.engine.run_maker import name_of_run
from penstock.lab.engine.runner import planned, run_experiments
from penstock.lab.engine.still_current import Checked, Repeats, marked
from penstock.lab.engine.tasks import numbers_digest
from penstock.lab.pages.summary import summary
from penstock.scenario.spec import BrokerSpec, Scenario
from penstock.sim.run import simulate

SHORT = Plan(scenario=Scenario(name="short", duration=1.0, broker=(BrokerSpec(name="a"),)))
LONG = Plan(scenario=structs.replace(SHORT.scenario, name="long", duration=2.0))
CRITERION = KeptCriterion(name="x", kind="paper", paper="", value=1.0, bound=(0.0, None), passed=True)


def example(*plans, tasks=()):
    return Experiment(
        name="example",
        title="",
        source="",
        about="",
        plans=lambda scale: {plan.scenario.name: plan for plan in plans},
        measure=lambda views: {"x": 1.0},
        draw=lambda views: (),
        criteria=(Criterion(name="x", paper="", low=0.0),),
        tasks=(lambda scale, seed: {task.text(): task for task in tasks}) if tasks else None,
    )


def kept(**more):
    return KeptResult(experiment="example", scale="paper", seeds=(1,), criteria=(CRITERION,), date="2026-03-04", **more)


@dataclass(frozen=True)
class Counting:
    """A task that is over at once."""

    units: int

    def text(self):
        return f"counting to {self.units}"

    def work(self):
        return float(self.units)

    def run(self):
        return {"units": self.units}


def test_a_run_that_comes_out_the_same_is_as_kept_and_one_that_does_not_marks_its_result():
    name, digest = name_of_run(SHORT), simulate(SHORT.scenario, 1).digest
    for given, verdict in ((digest, "as kept"), ("another", "moved")):
        result = kept(digests={name: given})
        checked = Repeats().check(example(SHORT), result)
        assert checked == Checked("example", verdict, (name,))
        made = summary({"example": marked(result, checked)}, {"delays": ["example"]})
        assert ("| 2026-03-04, older |" in made) == (f"({name}, by code " in made) == (verdict == "moved")
    moved = marked(result, checked)
    assert moved.moved
    assert not marked(moved, Checked("example", "as kept", (name,))).moved  # the change was taken back


def test_the_shortest_run_stands_for_all_unless_all_are_wanted():
    digests = {name_of_run(SHORT): simulate(SHORT.scenario, 1).digest, name_of_run(LONG): "another"}
    experiment = example(LONG, SHORT)
    assert Repeats().check(experiment, kept(digests=digests)).verdict == "as kept"
    every = Repeats(every_run=True).check(experiment, kept(digests=digests))
    assert every == Checked("example", "moved", (name_of_run(SHORT), name_of_run(LONG)))
    timed = kept(digests=digests, took={name_of_run(SHORT): 9.0, name_of_run(LONG): 1.0})  # what it took counts first
    assert Repeats().check(experiment, timed) == Checked("example", "moved", (name_of_run(LONG),))


def test_a_result_without_digests_is_not_known_and_stays_as_it_was():
    checked = Repeats().check(example(SHORT), kept())
    assert checked == Checked("example", "not known", ())
    assert marked(kept(), checked) == kept()


def test_tasks_are_made_again_too_whatever_time_they_take():
    tasks = (Counting(3), Counting(2))
    digests = {task.text(): numbers_digest({**task.run(), "processor seconds": 1.0}) for task in tasks}
    result = kept(digests={**digests, "counting to 3": "another"}, seconds_for_work=1.0)
    assert Repeats().check(example(tasks=tasks), result) == Checked("example", "as kept", ("counting to 2",))
    assert Repeats(every_run=True).check(example(tasks=tasks), result).verdict == "moved"


def test_runs_with_the_products_settings_are_asked_too():
    experiment = find("cacc-content-awareness")
    papers, products = ({*map(name_of_run, planned(experiment, "paper", 1, product=one).values())} for one in (0, 1))
    digests = dict.fromkeys(products - papers, "another")
    assert Repeats().check(experiment, kept(digests=digests)).verdict == "not known"  # they are not the paper's
    assert Repeats().check(experiment, kept(product_digests=digests)).verdict == "moved"


def test_a_result_of_the_lab_has_the_digests_of_its_first_seed(tmp_path):
    experiment = example(SHORT, tasks=(Counting(2),))
    (result,) = run_experiments(
        [experiment],
        scale="smoke",
        seeds=[3, 4],
        runs_root=tmp_path,
        spark=lambda: None,
        processes=1,
        progress=lambda what, share: None,
    )
    digests = {name_of_run(SHORT): simulate(SHORT.scenario, 3).digest, "counting to 2": numbers_digest({"units": 2.0})}
    assert result.as_json()["digests"] == digests
