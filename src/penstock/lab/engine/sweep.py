"""A sweep: one experiment at every point of a grid of parameters, with many seeds, each simulation one Spark task.

    penstock lab sweep NAME --grid loss=0.001,0.01 --grid brokers=2,8 --seeds 20

A simulation returns named numbers. For every point and name, the result is their mean over the seeds with a 95 %
confidence interval by Student's t: seeds are independent, and few, so the normal distribution would promise too much.

An experiment travels to the workers by its name; `find`, a function of an importable module, makes the experiment of
it there. A simulation that fails does not end the sweep: the others are finished first, then all failures are raised,
each with its parameters and the command that replays it alone. If a worker dies (no memory, a crash in native code),
Spark gives up on all of them, and the error names the one that it was at.
"""

from __future__ import annotations

import re
import shlex
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import isfinite, nan, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Protocol

from penstock.errors import CheckFailed, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONFIDENCE = 0.95
TASKS_MAX = 100_000  # simulations in one sweep; more is a slip in the grid
SUMMARY_SCHEMA = (
    "experiment string, parameters map<string,string>, measure string, seeds bigint,"
    " mean double, low double, high double"
)

Setting = float | str
Parameters = Mapping[str, Setting]


class Measurable(Protocol):
    """What a sweep needs of an experiment."""

    def measure(self, parameters: Parameters, seed: int) -> Mapping[str, float]:
        """Simulate once and say what came out."""


@dataclass(frozen=True)
class Simulated:
    """One simulation; `failure` is the traceback if there are no measures."""

    parameters: dict[str, Setting]
    seed: int
    measures: dict[str, float]
    failure: str = ""


@dataclass(frozen=True)
class Estimate:
    """The mean of one measure at one point of the grid, and where the true mean lies with 95 % confidence."""

    parameters: dict[str, Setting]
    measure: str
    seeds: int
    mean: float
    low: float  # as `high`, not a number for a single seed
    high: float


@dataclass(frozen=True)
class Sweep:
    """Every simulation of a sweep, and what they amount to."""

    experiment: str
    simulated: tuple[Simulated, ...]

    def summary(self) -> list[Estimate]:
        """Points in the order of the grid, measures in the order in which the experiment gave them."""
        values: dict[tuple[tuple[str, Setting], ...], dict[str, list[float]]] = {}
        for one in self.simulated:
            point = values.setdefault(tuple(one.parameters.items()), {})
            for name, value in one.measures.items():
                point.setdefault(name, []).append(value)
        return [_estimate(dict(point), name, some) for point, named in values.items() for name, some in named.items()]

    def table(self, spark: SparkSession) -> DataFrame:
        """The summary as SUMMARY_SCHEMA, to be joined or written."""
        rows = [
            (self.experiment, _texts(one.parameters), one.measure, one.seeds, one.mean, one.low, one.high)
            for one in self.summary()
        ]
        return spark.createDataFrame(rows, SUMMARY_SCHEMA)


def sweep(
    spark: SparkSession,
    experiment: str,
    grid: Mapping[str, Sequence[Setting]],
    *,
    find: Callable[[str], Measurable],
    seeds: int,
    first_seed: int = 0,
) -> Sweep:
    """Simulate every point of the grid with every seed; raises CheckFailed when any of them failed."""
    if seeds < 1:
        raise PenstockError(f"seeds is {seeds}; a sweep needs at least one")
    names = list(grid)
    points: list[dict[str, Setting]] = [dict(zip(names, values, strict=True)) for values in product(*grid.values())]
    tasks = [(point, first_seed + offset) for point in points for offset in range(seeds)]
    if not 0 < len(tasks) <= TASKS_MAX:
        raise PenstockError(f"the grid has {len(points)} points, with seeds {len(tasks)} simulations; 1 to {TASKS_MAX}")
    spread = spark.sparkContext.parallelize(tasks, len(tasks))
    try:
        simulated = spread.map(partial(_simulate, experiment, find)).collect()
    except Exception as error:
        raise _lost(experiment, tasks, error) from error
    failed = [one for one in simulated if one.failure]
    if failed:
        raise _failed(experiment, failed, len(tasks))
    return Sweep(experiment, tuple(simulated))


def parse_grid(texts: Sequence[str]) -> dict[str, list[Setting]]:
    """`["loss=0.001,0.01"]` -> `{"loss": [0.001, 0.01]}`; what is no number stays a text."""
    grid: dict[str, list[Setting]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        settings = [_setting(part.strip()) for part in values.split(",")]
        if not equals or not name.strip() or "" in settings:
            raise PenstockError(f"--grid {text}: write a name and its values, such as --grid loss=0.001,0.01")
        if name.strip() in grid or len(set(settings)) < len(settings):
            raise PenstockError(f"--grid {text}: a name is given once, and each of its values once")
        grid[name.strip()] = settings
    return grid


def replay_command(experiment: str, parameters: Parameters, seed: int) -> str:
    """The command that runs this one simulation again."""
    points = " ".join("--grid " + shlex.quote(f"{name}={value}") for name, value in parameters.items())
    return " ".join(filter(None, ["penstock lab sweep", experiment, points, f"--seeds 1 --first-seed {seed}"]))


def confidence_interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the mean of the law that the values come from lies, with 95 % confidence."""
    from scipy.special import stdtrit

    if len(values) < 2:
        return nan, nan
    half = float(stdtrit(len(values) - 1, (1.0 + CONFIDENCE) / 2.0)) * stdev(values) / sqrt(len(values))
    return fmean(values) - half, fmean(values) + half


def _simulate(experiment: str, find: Callable[[str], Measurable], task: tuple[dict[str, Setting], int]) -> Simulated:
    """What a task does, in a worker."""
    parameters, seed = task
    try:
        measures = {name: float(value) for name, value in find(experiment).measure(parameters, seed).items()}
        bad = [name for name, value in measures.items() if not isfinite(value)]
        if bad:
            return Simulated(parameters, seed, {}, f"not a finite number: {', '.join(bad)}")
    except Exception:  # whatever it was: the others go on, and it is raised in the end with what replays it
        return Simulated(parameters, seed, {}, traceback.format_exc())
    return Simulated(parameters, seed, measures)


def _estimate(parameters: dict[str, Setting], measure: str, values: list[float]) -> Estimate:
    return Estimate(parameters, measure, len(values), fmean(values), *confidence_interval(values))


def _failed(experiment: str, failed: list[Simulated], total: int) -> CheckFailed:
    def lines() -> Iterator[str]:
        yield f"{len(failed)} of {total} simulations of {experiment} failed"
        for one in failed:
            yield f"  {_named(one.parameters, one.seed)}: {one.failure.strip().splitlines()[-1]}"
            yield f"    {replay_command(experiment, one.parameters, one.seed)}"
        yield f"the first of them reported:\n{failed[0].failure.rstrip()}"

    return CheckFailed("\n".join(lines()), replay_command(experiment, failed[0].parameters, failed[0].seed))


def _lost(experiment: str, tasks: list[tuple[dict[str, Setting], int]], error: Exception) -> PenstockError:
    """A worker died. Spark says which task of the stage it had, and tasks are numbered like simulations."""
    found = re.search(r"Task (\d+) in stage", str(error))
    if found is None or int(found[1]) >= len(tasks):
        return PenstockError(f"Spark gave up on the sweep of {experiment}: {error}")
    parameters, seed = tasks[int(found[1])]
    problem = f"a worker died in the simulation of {experiment} with {_named(parameters, seed)}"
    return CheckFailed(problem, replay_command(experiment, parameters, seed))


def _named(parameters: Parameters, seed: int) -> str:
    return ", ".join(f"{name}={value}" for name, value in {**parameters, "seed": seed}.items())


def _texts(parameters: Parameters) -> dict[str, str]:
    return {name: str(value) for name, value in parameters.items()}


def _setting(text: str) -> Setting:
    try:
        return float(text)
    except ValueError:
        return text
