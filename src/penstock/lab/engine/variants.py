"""Variants of an experiment for a sweep: its scenario with some parameters changed, simulated and counted in place.

A sweep runs thousands of simulations, each in one Spark task, so a variant leaves no traces on disk: it counts while it
runs. A parameter is a field of every link, of every broker, or of the scenario itself, under its name in a network
file: `loss`, `delay`, `queue_packets`, `workers`, `service_mean`, `duration`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.errors import InvalidScenario, NotPossibleHere, choose_one
from penstock.kernel.trace import Delivered, Record
from penstock.lab.engine.experiment import Scale
from penstock.lab.engine.registry import find
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario
from penstock.scenario.validate import validate
from penstock.sim.run import simulate

OF_SCENARIO = ("duration", "drain")


@dataclass(frozen=True)
class Variants:
    """An experiment as a sweep wants it."""

    scenario: Scenario

    def measure(self, parameters: Mapping[str, float | str], seed: int) -> Mapping[str, float]:
        """Simulate the variant and count."""
        order = _Order()
        result = simulate(varied(self.scenario, parameters), seed, trace=order)
        delays = sorted(delay for tally in result.clients.values() for delay in tally.delays)
        delivered = max(1, len(delays))
        return {
            "published": sum(tally.published for tally in result.clients.values()),
            "delivered": len(delays),
            "dropped packets": sum(result.drops.values()),
            "delay p50 (s)": delays[len(delays) // 2] if delays else 0.0,
            "delay p99 (s)": delays[len(delays) * 99 // 100] if delays else 0.0,
            "FIFO violations per 1000 deliveries": 1000 * order.violations / delivered,
        }


def variants(name: str, scale: Scale = "smoke") -> Variants:
    """The variants of an experiment's first best-effort run; raises UnknownExperiment, or NotPossibleHere if none."""
    for plan in find(name).plans(scale).values():
        if plan.simulator == "best effort":
            return Variants(plan.scenario)
    raise NotPossibleHere(f"{name} needs no simulation, so there is nothing to vary", "choose another experiment")


def varied(scenario: Scenario, parameters: Mapping[str, float | str]) -> Scenario:
    """The scenario with these parameters; raises InvalidScenario for one that there is not, or cannot be."""
    of_links, of_brokers = _names(LinkSpec, "between"), _names(BrokerSpec, "name")
    for name, value in parameters.items():
        if name in of_links:
            scenario = replace(scenario, link=tuple(_set(link, name, value) for link in scenario.link))
        elif name in of_brokers:
            scenario = replace(scenario, broker=tuple(_set(broker, name, value) for broker in scenario.broker))
        elif name in OF_SCENARIO:
            scenario = _set(scenario, name, value)
        else:
            known = [*of_links, *of_brokers, *OF_SCENARIO]
            raise InvalidScenario("--grid", f"there is no parameter '{name}'; {choose_one(name, known)}")
    validate(scenario)
    return scenario


def _names(kind: type[msgspec.Struct], identity: str) -> list[str]:
    return [name for name in kind.__struct_fields__ if name != identity]


def _set(spec: Any, name: str, value: float | str) -> Any:
    """The specification with one field changed, checked for its type as if it had been read from a file."""
    whole = int(value) if isinstance(value, float) and value.is_integer() else value
    data = {**msgspec.to_builtins(spec), name: whole}
    try:
        return msgspec.convert(data, type(spec))
    except msgspec.ValidationError as error:
        raise InvalidScenario("--grid", f"{name}={value}: {error}") from None


@dataclass
class _Order:
    """Counts messages that came after a later one of the same publisher."""

    violations: int = 0
    _latest: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def write(self, time: float, node: str, record: Record) -> None:
        if type(record) is Delivered:
            key = (record.publisher, node, record.subscription)
            if record.count < self._latest.get(key, 0):
                self.violations += 1
            else:
                self._latest[key] = record.count
