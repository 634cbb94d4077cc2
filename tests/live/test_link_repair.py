"""Datagram links of real brokers that repair themselves, behind a link emulator that loses; and those that do not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock
from live_help import run
from penstock.live.broker.offers import Offers
from penstock.live.broker.plan import BrokerPlan, plan_for
from penstock.live.broker.server import BrokerServer
from penstock.live.wire.addresses import Address
from penstock.live.wire.datagram_port import DatagramPort
from penstock.live.wire.frames import FrameDecoder, Handshake, encode_close, encode_handshake
from penstock.live.wire.udp import CONTROL_BIT, stamped, unstamped
from penstock.overlay.repair.controls import NUMBER_MAX
from penstock.overlay.repair.queue_delay import STAMP_MASK
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario
from penstock.testing import embedded_network, received, until
from penstock.testing.embedded import EmbeddedNetwork

MESSAGES = 300


def link_of(brokers: EmbeddedNetwork, name: str) -> dict[str, Any]:
    """What a broker reports of its only link."""
    [link] = brokers.servers[name].node.status()["links"]
    return dict(link)


def port_of(brokers: EmbeddedNetwork, name: str) -> DatagramPort:
    [port] = [one for one in brokers.servers[name].host.ports.values() if isinstance(one, DatagramPort)]
    return port


async def publish_over(brokers: EmbeddedNetwork, count: int) -> int:
    """From a to b; returns how many came. The last one is waited for if it comes at all."""
    async with (
        penstock.connect(brokers.urls["b"]) as there,
        there.subscribe("n >= 0") as messages,
        penstock.connect(brokers.urls["a"]) as here,
    ):
        for n in range(count):
            await here.publish({"n": n})
            if n % 10 == 9:
                await asyncio.sleep(0)  # some leave before others come
        lost = ("a", "b")
        await until(lambda: messages.report().received + brokers.lost_on_links.get(lost, 0) >= count)
        return messages.report().received


def test_what_a_link_loses_it_sends_again() -> None:
    async def repaired() -> None:
        async with embedded_network(("a", "b"), loss=0.1, repair=True) as brokers:
            came = await publish_over(brokers, MESSAGES)
            link = link_of(brokers, "b")
            assert came + brokers.lost_on_links.get(("a", "b"), 0) == MESSAGES
            assert came >= 0.95 * MESSAGES  # without repair nine tenths
            assert link["repaired_datagrams"] > 0.05 * MESSAGES
            assert link_of(brokers, "a")["repair_bytes"] > 0

    run(repaired())


def test_a_link_that_loses_nothing_carries_nothing_for_repair() -> None:
    async def lossless() -> None:
        async with embedded_network(("a", "b"), kind="datagram", repair=True) as brokers:
            assert await publish_over(brokers, MESSAGES) == MESSAGES
            for name in ("a", "b"):
                repair = port_of(brokers, name).repair
                assert repair is not None
                assert (repair.sending.resent, repair.receiving.repaired, repair.receiving.missing()) == (0, 0, 0)

    run(lossless())


def test_with_repair_off_there_is_none() -> None:
    async def off() -> None:
        async with embedded_network(("a", "b"), loss=0.2) as brokers:
            assert await publish_over(brokers, 100) < 100
            assert link_of(brokers, "b")["repaired_datagrams"] is None
            assert not port_of(brokers, "a").repairs

    run(off())


def test_the_field_of_the_handshake_is_left_out_where_there_is_no_repair() -> None:
    plain = Handshake(role="broker", name="a", broker=1, datagram_port=7, datagram_token=9)
    offered = Handshake(role="broker", name="a", broker=1, datagram_port=7, datagram_token=9, repairs=True)
    assert len(encode_handshake(offered)) == len(encode_handshake(plain)) + 1
    for handshake in (plain, offered):
        assert FrameDecoder().feed(encode_handshake(handshake)) == [handshake]


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("dials", [False, True])
def test_repair_is_agreed_if_both_ends_want_it(here: bool, there: bool, dials: bool) -> None:
    offers = Offers(dict(enumerate(a_plan(1, repair=here).neighbours)), ("rates",))
    offer = Handshake(role="broker", name="b", repairs=there)
    said = offers.say(0, None if dials else offer)
    assert said.repairs == (here and (dials or there))
    answer = Handshake(role="broker", name="b", repairs=there and said.repairs)
    assert offers.agreed(0, answer if dials else offer) == (here and there)


@pytest.mark.parametrize("repeated", [False, True])
def test_the_head_of_a_datagram_holds_number_time_and_marks(repeated: bool) -> None:
    for number in (0, 1, NUMBER_MAX):
        for stamp in (0, 12_345, STAMP_MASK):
            field = stamped(number, stamp, repeated=repeated)
            assert unstamped(field) == (number, stamp, repeated)
            assert 0 <= field < CONTROL_BIT


def test_a_neighbour_that_cannot_read_the_offer_is_dialled_without_it() -> None:
    """An older broker refuses a handshake with one field more; the next one has the form that it knows."""

    async def older() -> None:
        seen: list[Handshake] = []

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = await reader.readexactly(4)
            [frame] = FrameDecoder().feed(head + await reader.readexactly(int.from_bytes(head, "big")))
            assert isinstance(frame, Handshake)
            seen.append(frame)
            writer.write(encode_close("a handshake that cannot be read: Expected `array` of at most length 7, got 8"))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        broker = BrokerServer(a_plan(port))
        await broker.start()
        try:
            await until(lambda: len(seen) >= 3)
            assert [one.repairs for one in seen[:3]] == [True, False, True]  # it may have been renewed meanwhile
        finally:
            await broker.stop()
            server.close()

    run(older())


def a_plan(port: int, *, repair: bool = True) -> BrokerPlan:
    """A broker that dials a neighbour at this port over a datagram link."""
    scenario = Scenario(
        name="two",
        duration=1.0,
        broker=(BrokerSpec(name="a"), BrokerSpec(name="b")),
        link=(LinkSpec(between=("a", "b"), repair=repair),),
    )
    return plan_for(scenario, "a", {"a": Address("127.0.0.1", 0), "b": Address("127.0.0.1", port)})


def test_link_control_that_cannot_be_read_is_refused_with_a_record() -> None:
    async def hostile() -> None:
        async with embedded_network(("a", "b"), kind="datagram", repair=True) as brokers:
            port, server = port_of(brokers, "a"), brokers.servers["a"]
            head = port.own_token.to_bytes(8, "big") + CONTROL_BIT.to_bytes(8, "big")
            before = server.host.refusals
            for payload in (b"\xc1", b"\x92\xa1n\x93\x01\x02\x03", b"\x90" * 3_000):
                server.endpoint.datagram_received(head + payload, ("127.0.0.1", 1))
            assert server.host.refusals == before + 3
            async with (
                penstock.connect(brokers.urls["b"]) as there,
                there.subscribe("TRUE") as messages,
                penstock.connect(brokers.urls["a"]) as here,
            ):
                await here.publish({"n": 1})
                await received(messages, 1)

    run(hostile())
