"""Storms with the transport switched on: random networks in which everything goes wrong, and every invariant holds.

The scenarios are those of `scenario.storm`, quieter, with clients that publish with headers, subscribe with order and
recovery, and have clocks that are wrong. Besides the checkers of every storm, order is checked: what comes after a
later one is counted as late by the transport itself. `pytest tests/simulation/test_transport.py -k seed7` replays.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Literal

import pytest
from msgspec.structs import replace

from penstock.errors import CheckFailed
from penstock.kernel.randomness import generator
from penstock.kernel.trace import Delivered, Record
from penstock.scenario.spec import ClientSpec, Scenario
from penstock.scenario.storm import storm
from penstock.scenario.transport_checkers import TOLD
from penstock.sim import run
from penstock.sim.network import SimulatedNetwork
from penstock.sim.run import RunResult, simulate
from penstock.transport.config import TransportConfig

SEEDS = 20
RATE = 6.0  # messages per second of all clients together; requests and repairs make ten times as much of it
HERE = Path(__file__)


def a_config(random: Random, scheme: Literal["ledgers", "papers"]) -> TransportConfig:
    """Settings of one client; the scheme and the bits of the record must be the same everywhere."""
    return TransportConfig(
        scheme=scheme,
        record_entries=random.choice((0, 2, 10, 25)),
        record_form=random.choice(("whole", "shared")),
        latch=random.choice(("two-laplace", "conditional", "static")),
        late=random.choice(("deliver", "hold")),
        request_to=random.choice(("peers", "peers", "publisher")),
        repair_to=random.choice(("all", "all", "requester")),
        publisher_answers=random.random() < 0.8,
        adaptive_suppression=random.random() < 0.3,
        echo_interval=random.choice((0.0, 5.0)),
        heartbeat_interval=random.choice((0.0, 0.5)),
        hold_max=1.0,
    )


def with_transport(scenario: Scenario, seed: int) -> Scenario:
    """The same storm, with transports."""
    random = generator(seed, "transport-storm")
    scheme: Literal["ledgers", "papers"] = "papers" if seed % 2 else "ledgers"

    def changed(client: ClientSpec) -> ClientSpec:
        subscriptions = tuple(
            replace(subscription, options={"ordered": random.random() < 0.7, "recover": random.random() < 0.7})
            for subscription in client.subscribe
        )
        return replace(
            client,
            subscribe=subscriptions,
            services={"transport": a_config(random, scheme)} if random.random() < 0.85 else {},
            clock_offset=random.uniform(-1e3, 1e3),
            clock_drift=random.uniform(-1e-4, 1e-4),
        )

    checks = scenario.check
    if scheme == "papers":  # 002's scheme loses bursts, tails and first messages in silence
        checks = tuple(name for name in checks if name != "transport-accounted")
    clients = tuple(map(changed, scenario.client))
    return replace(scenario, name=f"transport-{scenario.name}", client=clients, check=checks, drain=TOLD)


def transport_storm(seed: int, rate: float = RATE) -> Scenario:
    return with_transport(storm(seed, rate_messages_per_s=rate), seed)


class Order:
    """A trace that counts, for each subscription, what came after a later one of the same publisher's life."""

    def __init__(self) -> None:
        self.overtaken: Counter[tuple[str, int]] = Counter()
        self._highest: dict[tuple[str, int, str, int], int] = {}

    def write(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, Delivered):
            stream_of = (node, record.subscription, record.publisher, record.incarnation)
            highest = self._highest.get(stream_of, 0)
            self.overtaken[node, record.subscription] += record.count < highest
            self._highest[stream_of] = max(highest, record.count)


def watched(
    scenario: Scenario, seed: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[RunResult, Order, SimulatedNetwork]:
    """A run, what its trace says about order, and the network as it is at the end."""
    networks: list[SimulatedNetwork] = []

    def kept(*arguments: object) -> SimulatedNetwork:
        networks.append(SimulatedNetwork(*arguments))  # type: ignore[arg-type]
        return networks[0]

    monkeypatch.setattr(run, "SimulatedNetwork", kept)
    order = Order()
    return simulate(scenario, seed, trace=order), order, networks[0]


def check_order(scenario: Scenario, order: Order, network: SimulatedNetwork) -> None:
    for client in scenario.client:
        verbs = network.verbs[client.name]
        for number, subscription in enumerate(client.subscribe):
            report = verbs.reports(number).get("transport")
            if report is not None and subscription.options["ordered"]:
                # Those without a header are in no order at all.
                assert order.overtaken[client.name, number] <= report.late + report.without_header, (
                    client.name,
                    number,
                )


@pytest.mark.parametrize("seed", range(SEEDS), ids=lambda seed: f"seed{seed}")
def test_every_invariant_holds_in_every_storm(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = transport_storm(seed)
    result, order, network = watched(scenario, seed, monkeypatch)
    if result.problems:
        replay = f".venv/bin/python -m pytest tests/simulation/test_transport.py -k seed{seed}"
        raise CheckFailed("\n".join(result.problems), replay=replay)
    assert result.complete
    check_order(scenario, order, network)


def test_storms_show_what_they_are_meant_to_show() -> None:
    """Losses are noticed, asked for and repaired, and something is given up."""
    records: Counter[str] = Counter()
    for seed in (5, 8, 9):
        records.update(simulate(transport_storm(seed), seed).records)
    for kind in ("LossDetected", "RequestSent", "RepairSent", "Recovered", "GaveUp", "Ordered"):
        assert records[kind] > 0, kind


DIGEST = f"""
import sys
sys.path.insert(0, {str(HERE.parent)!r})
from test_transport import transport_storm
from penstock.sim.run import simulate
print(simulate(transport_storm(1, 2.0), 1).digest)
"""


def test_a_storm_replays_from_its_seed_in_any_process() -> None:
    here = simulate(transport_storm(1, 2.0), 1).digest
    assert simulate(transport_storm(1, 2.0), 1).digest == here
    assert simulate(transport_storm(1, 2.0), 2).digest != here
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    there = subprocess.run(
        [sys.executable, "-c", DIGEST], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert there.stdout.strip() == here
