"""What an experiment is: runs, what is measured in them, what the paper says, and a figure like the paper's.

An experiment is data plus three functions. `plans` names the runs it needs at a scale; runs are cached, so experiments
that share a set-up share them; one that draws everything from its seed names none. Where each seed has networks of its
own, `drawn` names the runs of a seed, and `plans` those of the first. `tasks` names simulations that return numbers and
leave no trace; seeds after the first may leave points of a sweep out. `measure` turns the runs of one seed into named
numbers; the verdict is on their mean over all seeds that have them. `draw` makes the figures from the first seed's.

A criterion says what the document implies (`paper`) or what we aim for beyond it (`goal`). It is gated at the scales
it names; elsewhere it is reported and decides nothing. Bounds come from the experiments page and are not loosened; a
live run, which is short and shares its machine, may have wider ones of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.scenario.spec import Scenario

if TYPE_CHECKING:
    from penstock.lab.engine.tasks import CountedTask
    from penstock.lab.engine.view import View

Scale = Literal["paper", "smoke"]
SCALES: tuple[Scale, ...] = ("paper", "smoke")


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One thing that must hold. `low` and `high` bound the measured value of the same name; None leaves an end open."""

    name: str
    paper: str  # what the document reports, in its own units
    low: float | None = None
    high: float | None = None
    kind: Literal["paper", "goal"] = "paper"
    scales: tuple[Scale, ...] = SCALES
    live: tuple[float | None, float | None] | None = None  # wider bounds for real sockets, gated there
    note: str = ""

    def on_sockets(self) -> Criterion:
        """As it is judged on real sockets."""
        if self.live is None:
            return self
        note = f"{self.note}; " if self.note else ""
        return replace(self, low=self.live[0], high=self.live[1], scales=SCALES, note=f"{note}wider on real sockets")

    def holds(self, value: float) -> bool:
        """Whether the value is within the bound; a value that could not be measured is not."""
        return value == value and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run that an experiment needs."""

    scenario: Scenario
    simulator: Literal["best effort", "store and forward", "live", "namespaces"] = "best effort"


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


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A criterion and what came of it."""

    criterion: Criterion
    value: float
    passed: bool
    gated: bool

    def as_json(self) -> dict[str, Any]:
        """As in the architecture's page on the lab."""
        return {
            "name": self.criterion.name,
            "kind": self.criterion.kind,
            "paper": self.criterion.paper,
            "value": self.value if self.value == self.value else None,
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

    def holds(self) -> bool:
        """Whether every gated criterion of kind paper holds."""
        return all(f.passed for f in self.findings if f.gated and f.criterion.kind == "paper")

    def as_json(self) -> dict[str, Any]:
        """One object per experiment."""
        return {
            "experiment": self.experiment.name,
            "scale": self.scale,
            "seeds": list(self.seeds),
            "run": list(self.runs),
            "criteria": [f.as_json() for f in self.findings if f.gated],
            "not_gated": [f.as_json() for f in self.findings if not f.gated],
        }
