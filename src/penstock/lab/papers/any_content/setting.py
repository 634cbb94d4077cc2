"""The runs: networks of `lab/setups/any_content.py`, each with one kind of filters and one kind of trouble.

Every run has the product's defaults at its ends. Each with `recover` is made twice: end to end, where links lose what
they lose, and with links that repair themselves, which is the product's default. Each seed has a network of its own,
drawn from a number; those of the last judgement must be numbers that nobody has looked at before, so they stand here,
in one place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.lab.engine.experiment import Plan, Scale
from penstock.lab.setups.any_content import any_content_network
from penstock.transport.config import TransportConfig

NETWORKS: Mapping[Scale, tuple[int, ...]] = {"paper": (31_957, 14_044, 16_530, 54_727, 49_829), "smoke": (1,)}
LOSSES = (0.01, 0.05, 0.15)
BURST = 8.0  # packets
RECOVERED: Mapping[str, Mapping[str, Any]] = {  # the runs in which messages are lost
    "equality, 1 %": {"filters": "equality", "loss": 0.01},
    "equality, 5 %": {"filters": "equality", "loss": 0.05},
    "equality, 15 %": {"filters": "equality", "loss": 0.15},
    "rare, 5 %": {"filters": "rare", "loss": 0.05},
    "ranges, 5 %": {"filters": "ranges", "loss": 0.05},
    "mixed, 5 %": {"filters": "mixed", "loss": 0.05},
    "bursts": {"filters": "equality", "loss": 0.05, "burst": BURST},
    "outages": {"filters": "equality", "outages": True},
}
LOSSLESS: Mapping[str, Mapping[str, Any]] = {
    "lossless, ranges and LIKE": {"filters": "ranges and LIKE"},
    "lossless, mixed": {"filters": "mixed"},
}
PLAIN = "plain, mixed"
ORDER = "order"
REPAIRED = ", links repair"  # behind the name of a run whose links repair themselves
SMOKE = ("equality, 5 %", "ranges, 5 %", "bursts", "outages", "lossless, mixed", f"equality, 5 %{REPAIRED}")


def both(runs: Iterable[str]) -> list[str]:
    """These runs end to end, and with links that repair themselves."""
    return [name + column for column in ("", REPAIRED) for name in runs]


def drawn(scale: Scale, seed: int) -> Mapping[str, Plan]:
    """Every run on the network of this seed."""
    runs = {**RECOVERED, **LOSSLESS}
    number = NETWORKS[scale][(seed - 1) % len(NETWORKS[scale])]
    found = {}
    for name in both(runs):
        if scale == "paper" or name in SMOKE:
            run, repair = runs[name.removesuffix(REPAIRED)], name.endswith(REPAIRED)
            found[name] = _plan(number, scale, transport=TransportConfig(), recover=True, repair=repair, **run)
    found[PLAIN] = _plan(number, scale, filters="mixed")
    found[ORDER] = _plan(
        number, scale, filters="mixed", spikes=True, twins=True, transport=TransportConfig(), ordered=True
    )
    return found


def _plan(number: int, scale: Scale, *, filters: str, **more: Any) -> Plan:
    return Plan(scenario=any_content_network(number, filters, scale=scale, **more))
