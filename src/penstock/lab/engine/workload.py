"""A large workload, drawn by the pipeline, carried by a simulated network.

The network file gives brokers, links and faults; clients and what they want come from the workload. Its n-th broker is
the n-th broker of the file, counted round, so a workload for eight brokers runs on a network of five as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from penstock.pipeline.workloads import WorkloadSpec, client_name, read_publications, read_spec, read_subscriptions
from penstock.scenario.reader import read_scenario
from penstock.scenario.spec import ClientSpec, Scenario, SubscriptionSpec
from penstock.sim.run import RunResult, simulate

SETTLING = 2.0  # seconds that subscriptions get to be known everywhere before the first publication


def carry(
    folder: Path, network: Path, seed: int, *, progress: Callable[[float], None] | None = None
) -> tuple[Scenario, RunResult]:
    """Run the workload; returns the scenario it became and what came of it."""
    spec = read_spec(folder)
    scenario = with_clients(read_scenario(network), spec, folder)
    drawn = (
        (SETTLING + time, client, attributes, size) for time, client, attributes, size in read_publications(folder)
    )
    return scenario, simulate(scenario, seed, publications=drawn, progress=progress)


def with_clients(scenario: Scenario, spec: WorkloadSpec, folder: Path) -> Scenario:
    """The network of the scenario with the clients of the workload."""
    subscriptions: dict[str, list[SubscriptionSpec]] = {client_name(number): [] for number in range(spec.clients)}
    for subscription in read_subscriptions(folder):
        subscriptions[subscription.client].append(SubscriptionSpec(where=subscription.where))
    brokers = [broker.name for broker in scenario.broker]
    clients = tuple(
        ClientSpec(name=name, broker=brokers[number % spec.brokers % len(brokers)], subscribe=tuple(wanted))
        for number, (name, wanted) in enumerate(subscriptions.items())
    )
    return replace(scenario, client=clients, duration=SETTLING + spec.duration)
