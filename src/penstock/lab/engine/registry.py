"""All experiments, by name. One file per family of figures; add yours here."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import UnknownExperiment
from penstock.lab.engine.experiment import Experiment


def experiments() -> dict[str, Experiment]:
    """Every experiment there is, in the order of the papers. Imported here because they need numpy and the pipeline."""
    return {experiment.name: experiment for family in experiments_by_family().values() for experiment in family}


def families() -> dict[str, list[str]]:
    """The names of the experiments of each family of figures."""
    return {family: [experiment.name for experiment in those] for family, those in experiments_by_family().items()}


def experiments_by_family() -> dict[str, Sequence[Experiment]]:
    """The experiments of each family of figures."""
    from penstock.lab.papers import (
        any_content,
        compared,
        congestion,
        delays,
        detection,
        gryphon,
        network_rates,
        ordering,
        recovery,
        retrieval,
        spread,
        throughput,
    )

    found = (
        *(throughput, delays, ordering, detection, recovery, any_content, congestion, network_rates),
        *(gryphon, spread, retrieval, compared),
    )
    return {family.__name__.rpartition(".")[2]: family.EXPERIMENTS for family in found}


def find(name: str) -> Experiment:
    """The experiment of this name; raises UnknownExperiment with a suggestion."""
    known = experiments()
    if name not in known:
        raise UnknownExperiment(name, list(known))
    return known[name]
