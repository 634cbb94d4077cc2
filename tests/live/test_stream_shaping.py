"""Streams on real brokers and links that are too narrow: publishers wait and know why; slow readers hurt nobody."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

import penstock
from live_help import run
from penstock.cli.main import app
from penstock.lab.setups.gryphon import KB, PAPER_CONTROL, WIRE_BYTES, link_messages_per_s
from penstock.live.emulation.scenario_run import drive_clients
from penstock.overlay.assembly import NodeConfig
from penstock.scenario.spec import BrokerSpec, ClientSpec, LaneSpec, LinkSpec, Scenario, StreamSpec, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate
from penstock.streams.broker_service import StreamBroker
from penstock.streams.config import StreamsClientConfig, StreamsConfig
from penstock.streams.status import StreamsStatus
from penstock.testing import EmbeddedNetwork, embedded_network, until

WITHIN = 30.0  # seconds; no healthy machine comes near
BODY = bytes(900)
IMPATIENT = StreamsClientConfig(give_up_after=1.5, retry_min=0.05, retry_max=0.1)
# Quick to notice, quick to lower the rate, and slow to raise it.
QUICK = StreamsConfig(
    control_rule="paper",
    query_interval=0.1,
    smoothing=0.5,
    pace_interval=0.1,
    lag_max=0.3,
    quiet=60.0,
    decrease=0.1,
    rate_floor=40.0,
)


def streams(brokers: EmbeddedNetwork, name: str) -> StreamsStatus:
    return brokers.servers[name].node.machine(StreamBroker).status()


def test_publishers_that_are_slowed_down_wait_do_not_fail_and_know_who_slows_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A hundred messages are under way at forty per second; a client gives up after 1.5 s in which it hears nothing."""

    async def slowed() -> None:
        node = NodeConfig(services={"streams": QUICK})
        narrow = {"kind": "shaped", "rate_bits_per_s": 200e3}
        async with (
            asyncio.timeout(WITHIN),
            embedded_network(("bank", "edge"), node=node, **narrow) as brokers,
            penstock.connect(brokers.urls["bank"], name="writer", streams=IMPATIENT) as writer,
            penstock.connect(brokers.urls["edge"]) as reader,
        ):
            await writer.add_stream("orders", at="bank")
            orders = writer.stream("orders")
            async with reader.stream("orders").subscribe(durable="all"), asyncio.TaskGroup() as group:
                writing = [group.create_task(_writes(orders)) for _ in range(100)]
                await until(lambda: any(slow.rate == 40.0 for slow in orders.report().slowed), within=WITHIN)
                report = orders.report()
                assert (report.stream, report.unanswered) == ("orders", 100)
                (slow,) = report.slowed
                assert (slow.pubend, slow.edge, slow.recovering) == ("orders/0", "edge", False)
                assert "broker 'edge' cannot keep up" in slow.reason
                with pytest.raises(TimeoutError):  # the application's own patience counts as ever
                    async with asyncio.timeout(0.05):
                        await orders.publish({"n": 1})
                waited = group.create_task(orders.publish({"n": 2}, BODY))
                shown = await asyncio.to_thread(_shown, brokers.url)
                await asyncio.to_thread(_publishes_blocking, brokers.url)
                await waited
                for task in writing:
                    task.cancel()
            assert "orders/0" in shown
            assert "broker 'edge' cannot" in shown

    with caplog.at_level(logging.WARNING, logger="penstock.client"):
        run(slowed())
    assert any("publish() waits: broker 'edge'" in record.message for record in caplog.records)


async def _writes(orders: penstock.Stream) -> None:
    while True:
        await orders.publish({"n": 0}, BODY)


def _publishes_blocking(url: str) -> None:
    with penstock.connect_blocking(url, streams=IMPATIENT) as network:
        orders = network.stream("orders")
        orders.publish({"n": 3}, BODY)
        assert [slow.edge for slow in orders.report().slowed] == ["edge"]


def _shown(url: str) -> str:
    """What `penstock report` says, and that `stream info --json` says the same."""
    info = CliRunner().invoke(app, ["stream", "info", "orders", "--url", url, "--json"])
    (pubend,) = json.loads(info.stdout)["pubends"]
    assert pubend["limit"]["edge"] == "edge"
    assert pubend["waiting"] > 0
    assert pubend["waiting_since"] > pubend["limit"]["since"]
    pub = CliRunner().invoke(app, ["pub", "--stream", "orders", "-a", "n=4", "--url", url, "--report"])
    assert "orders/0 takes 40 messages/s of all publishers: broker 'edge' cannot keep up" in pub.stderr
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["report", "--url", url, "--listen", "0"]).stdout


def test_a_reader_that_takes_nothing_slows_nobody_and_its_broker_keeps_little() -> None:
    """001 1.1: a subscribing application never slows its broker."""

    async def stuck() -> None:
        # An edge that is behind the pubend alerts; one whose pubend waits for a slow disk does not.
        calm = replace(QUICK, cache_bytes=100_000, alert_below=1.0, lag_max=0.5)
        node = NodeConfig(services={"streams": calm})
        async with (
            asyncio.timeout(WITHIN),
            embedded_network(("bank", "edge"), node=node) as brokers,
            penstock.connect(brokers.urls["bank"]) as writer,
            penstock.connect(brokers.urls["edge"], streams=StreamsClientConfig(window=10)) as reader,
        ):
            await writer.add_stream("orders", at="bank")
            orders = writer.stream("orders")
            controls = brokers.servers["bank"].node.machine(StreamBroker)._controls._at_source
            async with reader.stream("orders").subscribe(durable="stuck") as messages:
                await until(lambda: "orders/0" in controls, within=WITHIN)
                control = controls["orders/0"]
                for part in range(4):
                    await asyncio.gather(*(orders.publish({"n": part}, BODY) for _ in range(250)))
                    enough = control._sequence + 3  # queries, while the reader is far behind
                    await until(lambda enough=enough: control._sequence >= enough, within=WITHIN)
                assert control._last is None, "an alert"
                assert streams(brokers, "bank").pubends[0].limit is None
                (relay,) = streams(brokers, "edge").relays
                assert relay.cached_bytes < 200_000 < 1_000 * len(BODY)
                assert relay.horizon >= relay.newest - 1_000_000
                assert messages.report().received <= 20
                assert await messages.lag() == 1_000

    run(stuck())


# E2 of 001 made small: one pubend, one narrow link, and control that decides four times a second instead of once. It
# decreases gently: with the paper's halving a run of a few seconds is one draw of how often it halved.
KILOBYTES_PER_S = 60.0
GENTLE = replace(
    PAPER_CONTROL,
    query_interval=0.25,
    quiet=0.5,
    lag_max=1.0,
    silence_first=0.25,
    silence_interval=0.25,
    rate_step=10.0,
    smoothing=0.5,
    alert_below=0.2,
    decrease=0.85,
)
SETTLED, SECONDS = 2, 4


def narrow_way() -> Scenario:
    offered = 2.5 * link_messages_per_s(KILOBYTES_PER_S)
    flow = PublisherSpec(
        rate_messages_per_s=offered,
        start=0.5,
        attributes={"x": 1},
        body_bytes=WIRE_BYTES - 96,
        options={"stream": "orders"},
        unanswered_max=64,
    )
    reading = SubscriptionSpec(where="TRUE", options={"stream": "orders", "durable": "all"})
    link = LinkSpec(
        between=("bank", "edge"),
        kind="reliable",
        delay=0.005,
        rate_bits_per_s=KILOBYTES_PER_S * KB,
        queue_packets=10**6,
    )
    return Scenario(
        name="narrow way",
        duration=float(SECONDS),
        drain=0.1,
        services={"streams": GENTLE},
        lanes={"stream": LaneSpec(bytes_max=5_000_000, overflow="drop")},
        broker=(BrokerSpec(name="bank"), BrokerSpec(name="edge")),
        link=(link,),
        stream=(StreamSpec(name="orders", at=("bank",)),),
        client=(
            ClientSpec(name="writer", broker="bank", publish=(flow,)),
            ClientSpec(name="reader", broker="edge", subscribe=(reading,)),
        ),
    )


def test_simulated_and_live_brokers_fill_a_narrow_link_alike() -> None:
    """What readers get after two seconds is at most a quarter of the link apart; publishers wait, and none fails."""
    scenario, carried = narrow_way(), link_messages_per_s(KILOBYTES_PER_S)

    async def live() -> dict[str, Any]:
        async with embedded_network(scenario) as brokers:
            addresses = {name: server.address for name, server in brokers.servers.items()}
            return dict((await drive_clients(scenario, 7, addresses)).clients)

    shares = []
    for clients in (simulate(scenario, 7).clients, run(live())):
        (written,) = clients["writer"].streams.values()
        assert written.not_stored == 0
        assert written.offered < 0.9 * 2.5 * carried * (SECONDS - 0.5), "it was not slowed down"
        got = sum(clients["reader"].per_second[second] for second in range(SETTLED, SECONDS))
        shares.append(got / (SECONDS - SETTLED) / carried)
    assert 0.6 < shares[0] < 1.0
    assert abs(shares[0] - shares[1]) < 0.25, shares
