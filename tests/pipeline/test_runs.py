"""Run folders: found again when nothing has changed, known for what they are when they are not complete."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from penstock.errors import InvalidRun, InvalidScenario
from penstock.kernel.trace import Counted, Trace
from penstock.lab.engine.simulated_runs import simulate_into, simulate_run
from penstock.scenario import runs
from penstock.scenario.reader import parse_scenario
from penstock.scenario.runs import RunOutcome, code_hash, make_run, open_or_make, open_run, run_folder
from penstock.scenario.spec import BrokerSpec, Scenario
from penstock.sim.run import simulate

SCENARIO = Scenario(name="one", duration=1.0, broker=(BrokerSpec(name="a"),))
SMALL = parse_scenario(b"""
name = "small"
duration = 2.0
[[broker]]
name = "a"
[[client]]
name = "p"
broker = "a"
publish = [{ rate_messages_per_s = 10.0, attributes = { x = { integer = [1, 9] } } }]
[[client]]
name = "s"
broker = "a"
subscribe = [{ where = "x > 4" }]
""")


class Maker:
    """Makes a run of one record, and counts how often it was asked to."""

    def __init__(self, **outcome: Any) -> None:
        self.made = 0
        self.outcome = RunOutcome(**{"digest": "d", "events": 3, "virtual_seconds": 1.0, **outcome})

    def __call__(self, trace: Trace) -> RunOutcome:
        self.made += 1
        trace.write(0.5, "a", Counted("x", "", self.made))
        return self.outcome


def counted(folder: Path) -> list[int]:
    values = parquet.read_table(folder / "trace" / "counted" / "part-00000.parquet").column("value").to_pylist()
    assert all(isinstance(value, int) for value in values)
    return values


def test_a_run_is_made_once_and_found_again(tmp_path: Path) -> None:
    make = Maker(summary={"delivered": 4})
    first = open_or_make(SCENARIO, 7, tmp_path, make)
    second = open_or_make(SCENARIO, 7, tmp_path, make)
    assert make.made == 1
    assert first == second
    assert first.info.scenario == SCENARIO
    assert (first.info.complete, first.info.code, first.info.outcome) == (True, code_hash(), make.outcome)
    assert first.folder.parent == tmp_path / "one"
    assert first.folder.name.startswith("7-")


def test_another_seed_scenario_code_or_environment_is_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = Scenario(name="one", duration=2.0, broker=SCENARIO.broker)
    folders = [run_folder(SCENARIO, 7, tmp_path), run_folder(SCENARIO, 8, tmp_path), run_folder(longer, 7, tmp_path)]
    folders.append(run_folder(SCENARIO, 7, tmp_path, "live"))
    monkeypatch.setattr(runs, "environment", lambda: "another Python")
    folders.append(run_folder(SCENARIO, 7, tmp_path))
    monkeypatch.setattr(runs, "code_hash", lambda also: "other")
    folders.append(run_folder(SCENARIO, 7, tmp_path))
    assert len(set(folders)) == 6


def test_a_run_can_be_made_again(tmp_path: Path) -> None:
    make = Maker()
    open_or_make(SCENARIO, 7, tmp_path, make)
    run = open_or_make(SCENARIO, 7, tmp_path, make, again=True)
    assert counted(run.folder) == [2]


def test_a_crash_leaves_an_incomplete_run_that_can_be_read_and_is_made_again(tmp_path: Path) -> None:
    def crash(trace: Trace) -> RunOutcome:
        trace.write(0.5, "a", Counted("x", "", 99))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        open_or_make(SCENARIO, 7, tmp_path, crash)
    folder = run_folder(SCENARIO, 7, tmp_path)
    assert (open_run(folder).info.complete, open_run(folder).info.finished) == (False, None)
    assert counted(folder) == [99]
    assert open_or_make(SCENARIO, 7, tmp_path, Maker()).info.complete
    assert counted(folder) == [1]


def test_a_run_that_stopped_before_its_end_is_not_complete(tmp_path: Path) -> None:
    make = Maker(complete=False)
    assert not open_or_make(SCENARIO, 7, tmp_path, make).info.complete
    open_or_make(SCENARIO, 7, tmp_path, make)
    assert make.made == 2


def test_two_who_want_one_run_make_it_once(tmp_path: Path) -> None:
    make = Maker()
    began, go_on = threading.Event(), threading.Event()

    def slowly(trace: Trace) -> RunOutcome:
        began.set()
        assert go_on.wait(30)
        return make(trace)

    threads = [threading.Thread(target=open_or_make, args=(SCENARIO, 7, tmp_path, slowly)) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert began.wait(30)
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert make.made == 1


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidRun, match=r"holds files and no run\.json"):
        make_run(tmp_path, SCENARIO, 7, Maker())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_scenario_that_makes_no_sense_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidScenario):
        make_run(tmp_path / "run", Scenario(name="x", duration=-1.0, broker=SCENARIO.broker), 7, Maker())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "is no run"), ("{", "was not written by this version"), ("{}", "missing required field")],
)
def test_what_is_no_run_is_said_to_be_none(text: str | None, problem: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(InvalidRun, match=problem):
        open_run(tmp_path)


def test_a_name_that_is_no_path_still_has_a_folder_below_the_root(tmp_path: Path) -> None:
    odd = Scenario(name="../ä/b c", duration=1.0, broker=SCENARIO.broker)
    folder = run_folder(odd, 1, tmp_path)
    assert folder.parent == tmp_path / "-ä-b-c"
    assert open_or_make(odd, 1, tmp_path, Maker()).info.name == "../ä/b c"


def test_a_simulated_run_says_what_the_simulator_says(tmp_path: Path) -> None:
    run = simulate_run(SMALL, 3, tmp_path)
    result = simulate(SMALL, 3)
    assert run.info.outcome is not None
    assert (run.info.outcome.digest, run.info.outcome.events) == (result.digest, result.events)
    assert run.info.outcome.summary["delivered"] == result.clients["s"].delivered
    assert simulate_run(SMALL, 3, tmp_path).info.started == run.info.started
    written = {path.parent.name for path in run.folder.glob("trace/*/*.parquet")}
    assert run.info.records is not None
    assert run.info.records.keys() == written
    assert run.info.records["delivered"] == result.clients["s"].delivered
    assert run.info.cut_off == ()
    assert written == {"node_started", "node_stopped", "subscribed", "published", "delivered", "counted"}


def test_a_run_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    run, result = simulate_into(tmp_path / "mine", SMALL, 3)
    assert run.info.outcome is not None
    assert run.info.outcome.digest == result.digest
    assert json.loads((tmp_path / "mine" / "run.json").read_text())["scenario"]["name"] == "small"
    again, _ = simulate_into(tmp_path / "mine", SMALL, 4)
    assert again.info.seed == 4
