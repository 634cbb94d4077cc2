"""Who is who on real connections: names of clients, names of neighbours, and logs that stay readable."""

from __future__ import annotations

import logging

import pytest

import penstock
from live_help import IMPATIENT, RawClient, a_broker, a_network, dropped, run, subscriptions, until, url
from penstock.content.message import INBOX
from penstock.errors import Unreachable
from penstock.live.broker.server import BrokerServer, ServerConfig
from penstock.live.wire.frames import Handshake, encode_frame, encode_handshake
from penstock.overlay.packets import Attach, Publish
from penstock.overlay.routing import Routing
from penstock.testing import a_message, embedded_network


def as_client(name: str, secret: bytes = b"") -> bytes:
    return encode_handshake(Handshake(role="client", name=name, credentials=secret))


def as_broker(name: str, number: int) -> bytes:
    return encode_handshake(Handshake(role="broker", name=name, broker=number))


async def called(broker: BrokerServer, handshake: bytes) -> RawClient:
    raw = await RawClient.connect(broker.address)
    raw.send(handshake)
    return raw


# Clients.


def test_a_name_in_use_is_refused_to_another_client() -> None:
    async def twice() -> None:
        async with a_broker() as broker, penstock.connect(url(broker), name="carl") as first:
            with pytest.raises(
                Unreachable, match="refuses us: the name 'carl' is in use by another client; choose another name"
            ):
                await penstock.connect(url(broker), name="carl", connect_within=0.3).open()
            stolen = await called(broker, as_client("carl", b"a guess"))
            assert "in use" in await stolen.close_reason()
            assert first.connected
            assert first.reconnects == 0

    run(twice())


def test_who_shows_the_secret_of_the_first_connection_replaces_it() -> None:
    async def again() -> None:
        async with a_broker() as broker:
            old = await called(broker, as_client("carl", b"secret"))
            old.subscribe("n = 1", "carl")
            await until(lambda: subscriptions(broker) == 1)
            new = await called(broker, as_client("carl", b"secret"))
            await old.close_reason()
            new.subscribe("n = 2", "carl")
            await until(lambda: subscriptions(broker) == 1 and len(broker.host.ports) == 1)
            assert [info.peer for info in broker.links.values()] == ["carl"]
            new.writer.close()
            await until(lambda: not broker.links)

    run(again())


def test_a_name_is_free_again_when_its_client_has_fallen_silent() -> None:
    async def silent() -> None:
        async with a_broker(ServerConfig(connection=IMPATIENT, sweep_interval=0.05)) as broker:
            old = await called(broker, as_client("carl"))
            await until(lambda: len(broker.host.ports) == 1)
            async with penstock.connect(url(broker), name="carl") as new:  # it dials until the name is free
                assert new.connected
            old.writer.close()

    run(silent())


@pytest.mark.parametrize(("name", "reason"), [("b", "a broker's"), ("a", "a broker's"), ("~carl", "begin with '~'")])
def test_names_that_are_no_clients(name: str, reason: str) -> None:
    async def refused() -> None:
        async with a_network(("a", "b")) as brokers:
            raw = await called(brokers["a"], as_client(name))
            assert reason in await raw.close_reason()

    run(refused())


def test_a_client_publishes_and_reads_under_its_own_name_only() -> None:
    async def pretends() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="reader") as reader,
            reader.subscribe("EXISTS n") as messages,
        ):
            raw = await called(broker, as_client("mallory"))
            false, true = a_message(1, publisher="bank"), a_message(2, publisher="mallory")
            raw.send(encode_frame([Attach("mallory", 1), Publish(false), Publish(true)]))
            assert (await anext(messages)).identity == true.identity
            assert broker.host.refusals == 1
            raw.subscribe(f"{INBOX} = 'reader'", "mallory")
            await until(lambda: broker.host.refusals == 2)
            other = await called(broker, as_client("other"))
            other.send(encode_frame([Attach("bank", 1), Publish(false)]))
            await until(lambda: broker.host.refusals == 3)
            assert sum(broker.host.drops.values()) == 2
            raw.writer.close()
            other.writer.close()

    run(pretends())


# Neighbours.


def neighbour_changes(broker: BrokerServer) -> list[int]:
    """Counts how often neighbours come and go from now on."""
    changes: list[int] = []
    before = broker.host.on_record

    def seen(record: object) -> None:
        if type(record).__name__ == "NeighbourChanged":
            changes.append(record.neighbour)  # type: ignore[attr-defined]
        before(record)  # type: ignore[arg-type]

    broker.host.on_record = seen
    return changes


def test_who_calls_under_the_name_of_a_living_neighbour_does_not_replace_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def calls() -> None:
        async with a_network(("a", "b")) as brokers:
            b = brokers["b"]  # "a" dials it
            changes = neighbour_changes(b)
            callers = []
            for _ in range(20):
                callers.append(await called(b, as_broker("a", 0)))
            for caller in callers:
                assert "is connected and alive" in await caller.close_reason()
            assert changes == []
            assert b.node.machine(Routing).is_neighbour(0)

    with caplog.at_level(logging.WARNING, "penstock.broker"):
        run(calls())
    warnings = [record.getMessage() for record in caplog.records if "connected and alive" in record.getMessage()]
    assert 1 <= len(warnings) < 10


def test_nobody_calls_under_the_name_of_a_neighbour_that_we_dial() -> None:
    async def calls() -> None:
        async with a_network(("a", "b")) as brokers:
            caller = await called(brokers["a"], as_broker("b", 1))
            assert "takes no calls from it" in await caller.close_reason()

    run(calls())


def test_a_neighbour_whose_old_connection_is_dead_gets_in() -> None:
    async def restarts() -> None:
        async with embedded_network(("a", "b"), config=ServerConfig(takeover_after=0.2)) as network:
            await network.stop("a")  # others call under its name
            b = network.servers["b"]
            silent = await called(b, as_broker("a", 0))  # it says nothing more
            await until(lambda: 0 in b.host.ports)
            second = await called(b, as_broker("a", 0))
            await silent.close_reason()
            await until(lambda: len(b.connections) == 1 and 0 in b.host.ports)
            third = await called(b, as_broker("a", 0))
            await until(lambda: len(b.connections) == 2)
            await second.vanish()  # the old one ends while the new one waits
            await until(lambda: len(b.connections) == 1 and 0 in b.host.ports)
            third.writer.close()

    run(restarts())


def test_what_a_replaced_connection_held_is_counted() -> None:
    async def replaced() -> None:
        async with a_broker() as broker, penstock.connect(url(broker)) as network:
            old = await called(broker, as_client("slow", b"secret"))
            old.subscribe("n >= 0", "slow")
            await until(lambda: subscriptions(broker) == 1)
            for number in range(500):
                await network.publish({"n": number}, bytes(2_000))
            await network.broker_report()  # the broker has had all of them
            new = await called(broker, as_client("slow", b"secret"))
            await until(lambda: dropped(broker) == 500)
            for raw in (old, new):
                await raw.vanish()

    run(replaced())
