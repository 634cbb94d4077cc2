"""A service is a folder and a line: the toy of `toy_service` runs everywhere without a change in src.

The same network file runs in the simulator, on live brokers as processes, through the pipeline, and shows up in the
report and on the command line. CONTRIBUTING shows the toy as the way to add a service.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import penstock
import penstock.errors
from penstock import services
from penstock.errors import InvalidScenario
from penstock.kernel.storage import Get, Value
from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.emulation.scenario_run import run_live, settled
from penstock.scenario.reader import parse_scenario
from penstock.scenario.runs import make_run
from penstock.scenario.spec import FaultSpec, Scenario
from penstock.sim.engine import Engine
from penstock.sim.network import SimulatedNetwork
from penstock.sim.run import simulate
from toy_service import COUNTING, CountingClient, CountingClientConfig, CountingConfig, CountsReceived, NeighbourCounted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """
name = "toy"
duration = 3.0
drain = 1.0
check = ["at-most-once", "something-came"]

[services.counting]
every = 0.5

[[broker]]
name = "left"
[[broker]]
name = "right"
[[link]]
between = ["left", "right"]
kind = "reliable"

[[client]]
name = "reader"
broker = "right"
subscribe = [{ where = "TRUE", tally = true }, { where = "n >= 0" }]
[client.counting]
ask_every = 0.5

[[client]]
name = "writer"
broker = "left"
publish = [{ rate_messages_per_s = 20.0, start = 0.5, attributes = { n = 1 } }]
[client.transport]  # its messages come in an envelope, and its heartbeats are no messages of an application
heartbeat_interval = 0.2
"""
HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PENSTOCK_SERVICES": "toy_service:COUNTING", "PYTHONPATH": str(HERE)}


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toy is in the list, here and in the processes that are started from here."""
    for name in ("PENSTOCK_SERVICES", "PYTHONPATH"):
        monkeypatch.setenv(name, ENVIRONMENT[name])
    services.install(COUNTING)
    yield
    services.remove(COUNTING)


def toy_network() -> Scenario:
    return parse_scenario(FILE.encode())


class Kept:
    """A trace in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str, object]] = []

    def write(self, time: float, node: str, record: object) -> None:
        self.lines.append((time, node, record))


def test_its_settings_and_options_stand_in_a_network_file() -> None:
    scenario = toy_network()
    assert scenario.services == {"counting": CountingConfig(every=0.5)}
    assert scenario.client[0].services == {"counting": CountingClientConfig(ask_every=0.5)}
    assert scenario.client[0].subscribe[0].options == {"tally": True}
    with pytest.raises(InvalidScenario, match=r"services.counting: unknown key 'evry'; did you mean 'every'"):
        parse_scenario(FILE.replace("every = 0.5", "evry = 0.5").encode())
    with pytest.raises(InvalidScenario, match="every must be above 0"):
        parse_scenario(FILE.replace("every = 0.5", "every = 0.0").encode())
    with pytest.raises(InvalidScenario, match=r"subscribe\[0\].*tally"):
        parse_scenario(FILE.replace("tally = true", "tally = 3").encode())


def test_in_the_simulator_it_counts_records_asks_and_serves_a_subscription() -> None:
    kept = Kept()
    result = simulate(toy_network(), 7, trace=kept)
    assert not result.problems
    counted = [record for _, node, record in kept.lines if isinstance(record, NeighbourCounted) and node == "right"]
    assert {record.neighbour for record in counted} == {"left", "reader"}
    assert max(record.packets for record in counted) > 20
    received = [record.total for _, node, record in kept.lines if isinstance(record, CountsReceived)]
    assert len(received) >= 5
    assert received == sorted(received)
    assert result.clients["reader"].delivered == 2 * result.clients["writer"].published  # tallied, and plain
    assert simulate(toy_network(), 7).digest == result.digest


class Silent:
    watches_packets = False

    def record(self, node: str, record: object) -> None: ...

    def delivered(self, node: str, subscription: int, message: object) -> None: ...

    def sent(self, packet: object, *, node: str, peer: str) -> None: ...

    def handled(self, node: str, packet: object) -> None: ...


def test_what_it_stores_survives_a_crash_in_the_simulator() -> None:
    scenario, engine = toy_network(), Engine()
    network = SimulatedNetwork(scenario, 7, engine, Silent())
    network.start(scenario)
    engine.run(2.6)
    host = network.hosts["right"]
    assert host.disk is not None
    network.strike(FaultSpec(at=2.6, kind="crash", broker="right"))
    stored = host.disk.store.carry_out("counting", Get("total"))
    assert isinstance(stored, Value)
    assert int(stored.value) > 5
    network.strike(FaultSpec(at=2.6, kind="restart", broker="right"))
    engine.run(2.7)
    assert host.machine is not None
    assert host.machine.status()["services"]["counting"]["total"] >= int(stored.value)


def test_a_broker_without_a_disk_says_so_when_it_is_assembled() -> None:
    async def refused() -> None:
        scenario = toy_network()
        with pytest.raises(penstock.errors.NotPossibleHere, match="service 'counting' stores data"):
            async with Brokers(scenario, assign_addresses(scenario, base_port=None), restart=False):
                pass

    asyncio.run(refused())


def test_live_it_counts_reports_stores_and_serves_a_subscription(tmp_path: Path) -> None:
    async def used() -> None:
        scenario = toy_network()
        addresses = assign_addresses(scenario, base_port=None)
        async with Brokers(scenario, addresses, data=tmp_path) as brokers:
            await settled(brokers.addresses, scenario)
            url = brokers.url("right")
            async with (
                penstock.connect(url, counting=True) as network,
                network.subscribe("TRUE", tally=True) as messages,
            ):
                await network.publish({"n": 1})
                assert (await anext(aiter(messages))).attributes == {"n": 1}
                assert messages.report().services == {"counting": {"tallied": 1}}
                await network.publish({"n": 2}, noted=True)
                assert (await anext(aiter(messages))).attributes == {"n": 2}
                assert network._link is not None
                assert network._link.node.machine(CountingClient).noted == 1
                with pytest.raises(penstock.errors.InvalidOption, match="did you mean 'noted'"):
                    await network.publish({"n": 3}, notd=True)
                report = await network.broker_report()
                assert report["services"]["counting"]["total"] > 0
                assert report["services"]["counting"]["neighbours"]["left"] > 0
            shown = subprocess.run(
                [sys.executable, "-m", "penstock", "report", "--url", url, "--listen", "0"],
                env={**ENVIRONMENT, "COLUMNS": "200"},
                capture_output=True,
                text=True,
                check=True,
            )
            assert "counting: total" in shown.stdout

    asyncio.run(used())
    assert (tmp_path / "right.sqlite").exists()


def test_the_command_line_has_its_option() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", "sub", "--help"], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert "--tally" in shown.stdout
    assert "Count what is delivered." in shown.stdout


def test_its_records_are_tables_of_the_pipeline_from_both_worlds(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.pipeline.read import read_runs
    from penstock.scenario.runs import RunOutcome

    scenario = toy_network()
    simulated = make_run(
        tmp_path / "toy" / "simulated",
        scenario,
        7,
        lambda trace: RunOutcome(
            digest=simulate(scenario, 7, trace=trace).digest, events=0, virtual_seconds=scenario.duration
        ),
    )
    _, live = run_live(replace(scenario, duration=2.0), 7, folder=tmp_path / "toy" / "live")
    assert live is not None
    for run in (simulated, live):
        tables = read_runs(spark, [run.folder])
        rows = tables.neighbour_counted.collect()
        assert {"left", "right"} <= {row["node"] for row in rows}
        assert all(row["packets"] > 0 for row in rows)
        assert tables.counts_received.count() > 0
    information = json.loads((simulated.folder / "run.json").read_text())
    assert information["scenario"]["services"] == {"counting": {"every": 0.5}}
