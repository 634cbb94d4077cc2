"""All experiments, by name. One file per family of figures; add yours here."""

from __future__ import annotations

from penstock.errors import UnknownExperiment
from penstock.lab.engine.experiment import Experiment


def experiments() -> dict[str, Experiment]:
    """Every experiment there is, in the order of the papers. Imported here because they need numpy and the pipeline."""
    from penstock.lab.papers import congestion, delays, detection, ordering, recovery, throughput

    families = (throughput, delays, ordering, detection, recovery, congestion)
    return {experiment.name: experiment for family in families for experiment in family.EXPERIMENTS}


def find(name: str) -> Experiment:
    """The experiment of this name; raises UnknownExperiment with a suggestion."""
    known = experiments()
    if name not in known:
        raise UnknownExperiment(name, list(known))
    return known[name]
