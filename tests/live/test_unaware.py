"""Peers that lack a service: nobody sends them its packets, which they cannot read, and their links stay up.

A broker `without` rates has no machine of theirs and no codec for their packets: it ends a connection on which it gets
one.
"""

from __future__ import annotations

import asyncio

import pytest

import penstock
from live_help import RawClient, dropped, run, until
from penstock.errors import InvalidPacket
from penstock.live.broker.plan import plan_for
from penstock.live.broker.server import BrokerServer
from penstock.live.wire.addresses import Address
from penstock.live.wire.frames import FrameDecoder, Handshake, encode_close, encode_frame, encode_handshake, services_of
from penstock.overlay.codec import encode
from penstock.overlay.egress import NOT_KNOWN_THERE
from penstock.rates.broker_service import RatesBroker
from penstock.rates.packets import ClientTerms, LinkRate
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario
from penstock.services import UNSAID, codec_of, services, services_without, unknown_kinds
from penstock.testing import embedded_network

BODY = bytes(400)
MESSAGES = 300
WORD = LinkRate(0, 1, 1, 1, 1_000.0)


def a_line(unaware: str) -> Scenario:
    """From a over b to c by a narrow link; one of them has no rates."""
    return Scenario(
        name="line",
        duration=1.0,
        broker=tuple(BrokerSpec(name=name, without=("rates",) if name == unaware else ()) for name in "abc"),
        link=(
            LinkSpec(between=("a", "b"), kind="reliable"),
            LinkSpec(between=("b", "c"), kind="reliable", rate_bits_per_s=300_000.0, queue_packets=50),
        ),
    )


def test_a_broker_without_a_service_cannot_read_its_packets() -> None:
    reads = codec_of(services_without(("rates",)))
    with pytest.raises(InvalidPacket):
        reads.decode(encode(WORD))
    assert LinkRate in unknown_kinds(UNSAID)
    assert not unknown_kinds(service.name for service in services())


@pytest.mark.parametrize("unaware", ["a", "b", "c"])
def test_word_of_a_busy_link_breaks_no_link_to_a_broker_that_has_no_rates(unaware: str) -> None:
    async def beside() -> None:
        async with (
            embedded_network(a_line(unaware)) as network,
            penstock.connect(network.urls["a"], name="writer") as writer,
            penstock.connect(network.urls["b"], name="near") as near,
            penstock.connect(network.urls["c"], name="far") as far,
            near.subscribe("x > 0", queue_max=100_000) as near_messages,
            far.subscribe("x > 0", queue_max=100_000) as far_messages,
        ):
            brokers = network.servers
            connections = {name: set(broker.connections) for name, broker in brokers.items()}

            def ended() -> int:
                """Messages that came to the far end, were withheld from it or dropped on the way."""
                rates = brokers["a"].node.machines.get("rates")
                withheld = rates.status().withheld_in_all if isinstance(rates, RatesBroker) else 0
                drops = [(cause, n) for broker in brokers.values() for (*_, cause), n in broker.host.drops.items()]
                lost = sum(packets for cause, packets in drops if cause != NOT_KNOWN_THERE)
                return far_messages.report().received + withheld + lost

            for number in range(MESSAGES):
                await writer.publish({"x": number + 1}, BODY)
            await until(lambda: near_messages.report().received == MESSAGES)
            await until(lambda: ended() == MESSAGES)
            assert ended() > far_messages.report().received, "the link was too narrow"
            assert {name: set(broker.connections) for name, broker in brokers.items()} == connections
            assert not any(broker.host.refusals for broker in brokers.values())
            assert "rates" not in brokers[unaware].node.machines
            spared = dropped(brokers["b"], cause=NOT_KNOWN_THERE)
            assert bool(spared) is (unaware != "b"), "word of its link for a, or of what was withheld for c"

    run(beside())


def test_a_client_with_terms_stays_with_a_broker_that_has_no_rates_and_one_without_with_a_broker_that_has() -> None:
    async def attached() -> None:
        wanted = penstock.RatesClientConfig(when_full="wait")
        async with (
            embedded_network(Scenario(name="one", duration=1.0, broker=a_line("a").broker[:1])) as network,
            penstock.connect(network.urls["a"], rates=wanted) as client,
            client.subscribe("x > 0") as messages,
        ):
            await client.publish({"x": 1})
            await until(lambda: messages.report().received == 1)
            assert network.servers["a"].host.refusals == 0

            raw = await RawClient.connect(network.servers["a"].address)
            raw.handshake()
            raw.send(encode_frame([ClientTerms()]))
            assert "no packets of this protocol" in await raw.close_reason()

    run(attached())


def test_a_peer_that_names_no_services_gets_an_answer_that_it_can_read_and_no_rates() -> None:
    async def answered() -> None:
        async with embedded_network(("solo",)) as network:
            server = network.servers["solo"]
            raw = await RawClient.connect(server.address)
            raw.handshake("older")
            head = await raw.reader.readexactly(4)
            [answer] = FrameDecoder().feed(head + await raw.reader.readexactly(int.from_bytes(head, "big")))
            assert isinstance(answer, Handshake)
            assert answer.services == ()
            assert services_of(answer) == UNSAID
            await until(lambda: server.admission.link_of("older") is not None)
            [older] = [info for info in server.links.values() if info.peer == "older"]
            assert LinkRate in older.unknown
            await raw.vanish()

    run(answered())


def test_an_older_broker_is_called_once_more_without_the_names_of_services() -> None:
    async def older() -> None:
        seen: dict[str, list[tuple[str, ...]]] = {"broker": [], "client": []}

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readexactly(4)
            [said] = FrameDecoder().feed(head + await reader.readexactly(int.from_bytes(head, "big")))
            assert isinstance(said, Handshake)
            seen[said.role].append(said.services)
            if said.services:
                writer.write(
                    encode_close("a handshake that cannot be read: Expected `array` of at most length 8, got 9")
                )
            else:
                writer.write(encode_handshake(Handshake(role="broker", name="b", broker=1)))
                await reader.read()
            writer.close()

        listener = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        scenario = Scenario(
            name="two",
            duration=1.0,
            broker=(BrokerSpec(name="a"), BrokerSpec(name="b")),
            link=(LinkSpec(between=("a", "b"), kind="reliable"),),
        )
        server = BrokerServer(plan_for(scenario, "a", {"a": Address("127.0.0.1", 0), "b": Address("127.0.0.1", port)}))
        await server.start()
        try:
            await until(lambda: bool(server.host.ports))
            assert seen["broker"] == [tuple(service.name for service in services()), ()]
            assert LinkRate in server.links[0].unknown
            client = penstock.connect(f"penstock://127.0.0.1:{port}")
            opening = asyncio.create_task(client.open())
            await until(lambda: len(seen["client"]) >= 2)
            opening.cancel()  # the listener is no broker, and says nothing of prices
            await asyncio.gather(opening, return_exceptions=True)
            assert seen["client"][0]
            assert seen["client"][1] == ()
        finally:
            await server.stop()
            listener.close()

    run(older())
