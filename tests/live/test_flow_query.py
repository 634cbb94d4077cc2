"""Who slows whom, asked on real sockets: by a client in Python, and by `penstock report` in a terminal of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rich.console import Console

import penstock
from live_help import a_broker, a_network, known, run, subscriptions, until, url
from penstock.cli.report import _drawn_slowed
from penstock.errors import NotConnected
from penstock.live.broker.server import BrokerServer
from penstock.live.client.network import Network
from penstock.overlay.broker import Broker
from penstock.overlay.routing import Routing
from penstock.transport.wire.control_messages import QUESTION

CONTROLLED = penstock.TransportConfig(congestion=True, record_entries=2, distance_first=0.005)
ASKS = penstock.TransportConfig(publisher_answers=False)
WHERE = "price < 10"


async def reads_slowly(network: Network, ready: asyncio.Event) -> None:
    async with network.subscribe(WHERE, queue_max=4000) as messages:
        ready.set()
        async for _ in messages:
            await asyncio.sleep(0.004)


async def writes(network: Network) -> None:
    while True:
        await network.publish({"price": 5}, bytes(200))
        await asyncio.sleep(0)


def listened_for(broker: BrokerServer) -> bool:
    """Whether a client at this broker listens for questions."""
    return any(QUESTION in predicate.text for predicate in broker.node.machine(Broker)._index._predicates.values())


@asynccontextmanager
async def slowed(place: BrokerServer) -> AsyncIterator[Network]:
    """At this broker a publisher, slowed down by a subscriber that is called slow."""
    async with (
        penstock.connect(url(place), name="writer", transport=CONTROLLED) as writer,
        penstock.connect(url(place), name="slow", transport=CONTROLLED) as slow,
    ):
        ready = asyncio.Event()
        reading = asyncio.ensure_future(reads_slowly(slow, ready))
        await ready.wait()
        writing = asyncio.ensure_future(writes(writer))
        try:
            await until(lambda: any(flow.queue for flow in writer.flows()))
            yield writer
        finally:
            writing.cancel()
            reading.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)


async def report(place: BrokerServer, *options: str) -> str:
    """What `penstock report` prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "penstock", "report", "--url", url(place), *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


def test_the_report_names_who_is_slow_at_another_broker_and_leaves_no_traces() -> None:
    async def there() -> dict[str, Any]:
        async with a_network(("east", "west")) as brokers, slowed(brokers["west"]):
            await until(lambda: listened_for(brokers["west"]))
            encodings = len(brokers["west"].node.machine(Routing).own)
            await known(brokers["east"], encodings)
            assert len(brokers["west"].node.machine(Routing).form) == 0
            found = json.loads(await report(brokers["east"], "--json", "--listen", "3"))
            await until(lambda: len(brokers["west"].node.machine(Routing).form) == 0)
            assert subscriptions(brokers["east"]) == 0
            return found  # type: ignore[no-any-return]

    found = run(there())
    (each,) = found["slowed"]
    assert (each["publisher"], each["limiting_receiver"], each["flow"]) == ("writer", "slow", WHERE)
    assert 0.0 < each["quota"] < 2000.0
    assert each["since"] > 0.0
    assert (each["withheld"], each["flows_in_all"]) == (0, 1)
    assert found["broker"] == "east"
    assert found["clients"] == []


def test_the_report_shows_a_table_or_says_that_nobody_slows_anybody_or_does_not_ask() -> None:
    async def there() -> tuple[str, str, str]:
        async with a_broker() as broker:
            before = await report(broker, "--listen", "0.2")
            async with slowed(broker):
                return before, await report(broker), await report(broker, "--listen", "0")

    before, shown, unasked = run(there())
    assert "nobody slows anybody" in before
    assert "who slows whom" in shown
    (row,) = [line.split() for line in shown.splitlines() if WHERE in line]
    assert row[0] == "writer"
    assert "slow" in row
    assert "slow" not in unasked.split("drop")[-1]


def test_a_client_asks_again_and_again_and_never_hears_that_all_is_well() -> None:
    """A publisher answers once a second; the answers between are those of the second before."""

    async def there() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="asker", transport=ASKS) as asker,
            asker.subscribe("TRUE") as everything,
        ):
            assert await asker.slowed(within=0.05) == []
            async with slowed(broker) as writer:
                await until(lambda: listened_for(broker))
                for _ in range(3):
                    (each,) = await asker.slowed(within=0.5)
                    assert (each.publisher, each.limiting_receiver) == ("writer", "slow")
                both = await asyncio.gather(asker.slowed(within=0.5), asker.slowed(within=0.4))
                assert [len(found) for found in both] == [1, 1]
                assert await writer.slowed(within=0.05) == []  # its own flows are in flows()
            seen = {message.identity.publisher for message in await everything.take(100_000)}
            assert seen == {"writer"}

    run(there())


def test_the_blocking_client_asks_too() -> None:
    async def there() -> None:
        async with a_broker() as broker, slowed(broker):

            def asked() -> list[str]:
                with penstock.connect_blocking(url(broker), transport=ASKS) as network:
                    return [each.limiting_receiver for each in network.slowed(within=0.5)]

            async def finds() -> bool:
                return await asyncio.to_thread(asked) == ["slow"]

            await until(finds)

    run(there())


def test_who_cannot_hear_an_answer_is_told_so() -> None:
    async def there() -> None:
        async with a_broker() as broker:
            async with penstock.connect(url(broker)) as plain:
                with pytest.raises(penstock.PenstockError, match="transport=True"):
                    await plain.slowed()
            async with penstock.connect(url(broker), transport=True) as network:
                await broker.stop()
                await until(lambda: not network.connected)
                with pytest.raises(NotConnected):
                    await network.slowed()

    run(there())


def test_others_words_do_nothing_to_a_terminal() -> None:
    console = Console(width=200, force_terminal=True, color_system="truecolor")
    wild = "[/red] \x1b[2J [bold]loud[/bold] \r\n\x9b31m \\"
    row = {"publisher": wild, "flow": wild * 20, "quota": 12345.6, "limiting_receiver": wild, "queue": 1, "since": 2.0}
    with console.capture() as capture:
        console.print(*_drawn_slowed([{**row, "withheld": 1234, "flows_in_all": 40}]))
    out = capture.get()
    assert "[/red]" in out
    assert "\x1b[2J" not in out
    assert not any(letter in out for letter in "\r\x9b")
    assert "12,300/s" in out
    assert "39 more flows, 1,234 messages withheld" in out
