"""What an experiment is: runs, what is measured in them, what the paper says, and a figure like the paper's.

An experiment is data plus three functions. `plans` names the runs it needs at a scale; runs are cached, so experiments
that share a set-up share them; one that draws everything from its seed names none. Where each seed has networks of its
own, `drawn` names the runs of a seed, and `plans` those of the first. `tasks` names simulations that return numbers and
leave no trace; seeds after the first may leave points of a sweep out. `measure` turns the runs of one seed into named
numbers; the verdict is on their mean over all seeds that have them, or on the worst of them where a mean says nothing
(a p-value, a distance of distributions). `draw` makes the figures from the first seed's.

A criterion says what the document implies (`paper`) or what we aim for beyond it (`goal`). An `illustration` follows
from the set-up, or the set-up was fitted to it: it is shown beside the paper's number and not counted. A criterion is
gated at the scales it names; elsewhere it is reported and decides nothing. Bounds come from the experiments page and
are not loosened; a live run, which is short and shares its machine, may have wider ones of its own.

Any experiment can be run once more with the product's own settings in the place of the paper's
(`lab/setups/product.py`); `product` says why, where that has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf, isfinite, nan
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from penstock.scenario.runs import code_hash, environment
from penstock.scenario.spec import Scenario

if TYPE_CHECKING:
    from penstock.lab.engine.tasks import CountedTask
    from penstock.lab.engine.view import View

Scale = Literal["paper", "smoke"]
SCALES: tuple[Scale, ...] = ("paper", "smoke")
Simulator = Literal["best effort", "store and forward", "live", "namespaces", "traced namespaces"]


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One thing that must hold. `low` and `high` bound the measured value of the same name; None leaves an end open."""

    name: str
    paper: str  # what the document reports, in its own units
    low: float | None = None
    high: float | None = None
    kind: Literal["paper", "goal", "illustration"] = "paper"
    judged: Literal["mean", "every seed"] = "mean"
    scales: tuple[Scale, ...] = SCALES
    live: tuple[float | None, float | None] | None = None  # wider bounds for real sockets, gated there
    note: str = ""

    def on_sockets(self) -> Criterion:
        """As it is judged on real sockets."""
        if self.live is None:
            return self
        note = f"{self.note}; " if self.note else ""
        return replace(self, low=self.live[0], high=self.live[1], scales=SCALES, note=f"{note}wider on real sockets")

    def judge(self, values: Sequence[float]) -> float:
        """The number that is judged, of one for each seed: their mean, or the one that is furthest out of the bound."""
        if self.judged == "mean" or not values:
            return fmean(values) if values else nan
        return max(values, key=self._excess)

    def _excess(self, value: float) -> float:
        """How far a value is above its bound, or below it; what could not be measured is furthest out."""
        if value != value:
            return inf
        below = self.low - value if self.low is not None else -inf
        return max(below, value - self.high if self.high is not None else -inf)

    def holds(self, value: float) -> bool:
        """Whether the value is within the bound; a value that could not be measured is not."""
        return value == value and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run that an experiment needs."""

    scenario: Scenario
    simulator: Simulator = "best effort"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A Vega-Lite drawing with its caption. Figures with the same word in `compared` have one scale."""

    caption: str
    spec: Mapping[str, Any]
    compared: str = ""


class Views(dict[str, "View"]):
    """The runs of one seed, by the names that the experiment gave them. One that draws its own needs only the seed."""

    def __init__(
        self,
        runs: Mapping[str, View] | None = None,
        *,
        seed: int,
        scale: Scale,
        numbers: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        super().__init__(runs or {})
        self.seed = seed
        self.scale = scale
        self.numbers = numbers or {}  # of its tasks, by the names that the experiment gave them


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure or table of a paper, made again."""

    name: str
    title: str
    source: str  # document, section, figure
    about: str  # two sentences for the report
    plans: Callable[[Scale], Mapping[str, Plan]]
    measure: Callable[[Views], Mapping[str, float]]
    draw: Callable[[Views], Sequence[Figure]]
    criteria: tuple[Criterion, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)  # what the report says about the set-up
    live: Callable[[], Mapping[str, Plan]] | None = None  # the same on real sockets, at a small scale
    tasks: Callable[[Scale, int], Mapping[str, CountedTask]] | None = None  # simulations that count, of a seed
    drawn: Callable[[Scale, int], Mapping[str, Plan]] | None = None  # the runs of a seed, if they are drawn from it
    product: str = ""  # why it says nothing of the product's settings; empty: it does, if there is a transport in it

    def plans_of(self, scale: Scale, seed: int) -> Mapping[str, Plan]:
        """The runs of this seed."""
        return self.plans(scale) if self.drawn is None else self.drawn(scale, seed)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A criterion and what came of it."""

    criterion: Criterion
    value: float
    passed: bool
    gated: bool
    values: tuple[float, ...] = ()  # one for each seed that has it

    def as_json(self) -> dict[str, Any]:
        """As in the architecture's page on the lab."""
        return {
            "name": self.criterion.name,
            "kind": self.criterion.kind,
            "paper": self.criterion.paper,
            "value": measured_or_none(self.value),
            "values": [measured_or_none(value) for value in self.values],
            "bound": [self.criterion.low, self.criterion.high],
            "pass": self.passed,
            "note": self.criterion.note,
        }


@dataclass(frozen=True, kw_only=True)
class Result:
    """An experiment that has been run."""

    experiment: Experiment
    scale: Scale
    seeds: tuple[int, ...]
    runs: tuple[str, ...]  # folders
    values: Mapping[str, tuple[float, ...]]  # every measured number, one per seed
    findings: tuple[Finding, ...]
    figures: tuple[Figure, ...]
    command: str
    product: bool = False  # with the product's own settings in the place of the paper's
    no_product: str = ""  # why there can be no such run
    took: Mapping[str, float] = field(default_factory=dict)  # processor seconds of each run, `name_of_run`
    digests: Mapping[str, str] = field(default_factory=dict)  # of each run and task of the first seed
    measuring: float = 0.0  # seconds that Spark and `measure` took for a seed
    seconds_for_work: float = 0.0  # that its tasks took for one unit of their `work`; 0 if it has none

    def holds(self) -> bool:
        """Whether every gated criterion of kind paper holds."""
        return all(f.passed for f in self.findings if f.gated and f.criterion.kind == "paper")

    def as_json(self) -> dict[str, Any]:
        """One object per experiment."""
        return {
            "experiment": self.experiment.name,
            "scale": self.scale,
            "seeds": list(self.seeds),
            "settings": "product" if self.product else "paper",
            "no_product": self.no_product,
            "date": datetime.now(UTC).date().isoformat(),
            "code": code_hash(),
            "environment": environment(),
            "took": {name: round(seconds, 1) for name, seconds in sorted(self.took.items())},
            "digests": dict(sorted(self.digests.items())),
            "measuring": round(self.measuring, 1),
            "seconds_for_work": self.seconds_for_work,
            "run": list(self.runs),
            "criteria": [f.as_json() for f in self.findings if f.gated],
            "not_gated": [f.as_json() for f in self.findings if not f.gated],
        }


def measured_or_none(value: float) -> float | None:
    """As JSON has it: what could not be measured is nothing, and so is what has no end."""
    return value if isfinite(value) else None
