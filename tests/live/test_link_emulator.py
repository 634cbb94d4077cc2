"""The link emulator between two brokers: what it does to datagrams, how often, and that nothing else is touched."""

from __future__ import annotations

import asyncio
import socket

import pytest
from msgspec.structs import replace

import penstock
from live_help import PLAIN, a_line, known, run, until, url
from penstock.kernel.randomness import generator
from penstock.live.broker.applied import not_applied
from penstock.live.emulation import link_emulator as emulation
from penstock.live.emulation.emulated_links import needs_emulator
from penstock.live.emulation.link_emulator import REORDER_WAIT, EmulatedPath, Fates, Impairment, LinkEmulator
from penstock.live.wire.addresses import Address
from penstock.scenario.spec import LinkSpec, Scenario
from penstock.testing import embedded_network


def fates(impairment: Impairment, count: int, seed: int = 1) -> list[float | None]:
    found = Fates(impairment, generator(seed, "emulator"))
    return [found.next() for _ in range(count)]


def test_fates_follow_the_settings() -> None:
    found = fates(Impairment(loss=0.2, delay=0.1, jitter=0.05, reorder=0.1), 20_000)
    waits = [wait for wait in found if wait is not None]
    assert abs(len(found) - len(waits) - 4000) < 4 * (20_000 * 0.2 * 0.8) ** 0.5
    aside = [wait for wait in waits if wait > 0.1 + 0.05]
    assert all(0.1 <= wait <= 0.15 + REORDER_WAIT for wait in waits)
    assert 0.02 < len(aside) / len(waits) < 0.06  # of the tenth that steps aside, those whose jitter lets it be seen
    assert fates(Impairment(), 100) == [0.0] * 100
    assert fates(Impairment(loss=1.0), 100) == [None] * 100


def test_the_nth_datagram_has_the_same_fate_whatever_else_is_set() -> None:
    lost = [wait is None for wait in fates(Impairment(loss=0.3), 500)]
    assert lost == [wait is None for wait in fates(Impairment(loss=0.3, delay=1.0, jitter=2.0, reorder=0.5), 500)]
    assert lost != [wait is None for wait in fates(Impairment(loss=0.3), 500, seed=2)]


@pytest.mark.parametrize("wrong", [{"loss": 1.5}, {"loss": -0.1}, {"reorder": 2.0}, {"delay": -1.0}, {"jitter": 1e9}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"probabilities|seconds"):
        Impairment(**wrong)


def test_a_path_passes_on_in_the_order_of_its_waits_and_keeps_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "WAITING_MAX", 3)

    async def through() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            there.bind(("127.0.0.1", 0))
            there.setblocking(False)
            path = EmulatedPath(Fates(Impairment(), generator(1)))
            waits = iter([0.0, 0.02, 0.01, 0.0, 0.0, None])
            path._fates.next = lambda: next(waits)  # type: ignore[method-assign]
            path.datagram_received(b"nobody yet", None)
            assert path.astray == 1
            path.leads_to = there.getsockname()
            await path.open()
            for data in (b"third", b"second", b"first", b"too many", b"lost"):
                path.datagram_received(data, None)
            assert (path.lost, path.overflowed) == (1, 1)
            seen = [await loop.sock_recv(there, 100) for _ in range(3)]
            assert seen == [b"first", b"second", b"third"]
            assert (path.came, path.passed, path.overtaken) == (6, 3, 2)
            path.close()

    run(through())


def test_a_link_emulator_without_impairment_changes_nothing_in_either_direction() -> None:
    """A jitter too small to see makes the network set up a link emulator; everything comes through it."""

    async def both_ways() -> None:
        scenario = a_line("a", "b", rate_bits_per_s=50e6, delay=0.002, jitter=1e-9)
        async with embedded_network(scenario, node=PLAIN) as network:
            brokers, found = network.servers, network.emulated
            (emulator,) = found.emulators.values()
            for here, there in (("a", "b"), ("b", "a")):
                async with (
                    penstock.connect(url(brokers[there])) as taker,
                    taker.subscribe(f"to = '{there}'") as messages,
                    penstock.connect(url(brokers[here])) as giver,
                ):
                    await known(brokers[here], 1)
                    for n in range(100):
                        await giver.publish({"to": there, "n": n})
                    await until(lambda: messages.report().received == 100)
            assert (emulator.forth.came, emulator.forth.passed) == (100, 100)
            assert (emulator.back.came, emulator.back.passed) == (100, 100)
            ports = [port for server in brokers.values() for port in server.host.ports.values() if port.link == 0]
            assert [port.missing for port in ports] == [0, 0]  # type: ignore[attr-defined]  # they are DatagramPorts
            assert found.drops() == {}

    run(both_ways())


def test_a_cut_link_emulator_is_dialled_again_and_the_link_heals() -> None:
    async def cut() -> None:
        scenario = a_line("a", "b", rate_bits_per_s=50e6, loss=1e-12)
        async with (
            embedded_network(scenario) as network,
            penstock.connect(network.urls["b"]) as taker,
            taker.subscribe("n >= 0") as messages,
            penstock.connect(network.urls["a"]) as giver,
        ):
            brokers, (emulator,) = network.servers, network.emulated.emulators.values()
            await known(brokers["a"], 1)
            emulator.cut()
            await until(lambda: emulator.connections == 2)
            await until(lambda: 0 in brokers["a"].host.ports and 0 in brokers["b"].host.ports)
            n = 0
            while not messages.report().received:
                await giver.publish({"n": (n := n + 1)})
                await asyncio.sleep(0.003)

    run(cut())


def test_a_link_emulator_whose_neighbour_is_not_there_ends_the_connection_and_waits_for_the_next() -> None:
    async def nobody() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            target = Address(*unused.getsockname())
        async with LinkEmulator(target, Impairment(), seed=1) as emulator:
            for _ in range(2):
                reader, writer = await asyncio.open_connection(*emulator.address)
                assert await reader.read() == b""
                writer.close()
            assert emulator.connections == 2

    run(nobody())


def test_strange_first_frames_are_passed_on_as_they_are() -> None:
    """The broker behind must be the one to say what is wrong with them."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())
        writer.close()

    async def strange() -> None:
        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        target = Address(*server.sockets[0].getsockname())
        words = [b"\xff\xff\xff\xffhuge", b"\x00\x00\x00\x03abc and more", b"\x00\x00\x00\x02\xa1x", b"\x00\x00"]
        async with LinkEmulator(target, Impairment(), seed=1) as emulator:
            for sent in words:
                reader, writer = await asyncio.open_connection(*emulator.address)
                writer.write(sent)
                writer.write_eof()
                await reader.read()
                writer.close()
            await until(lambda: len(heard) == len(words))
        assert heard == [*words[:3], b""]  # less than a length says nothing
        server.close()

    run(strange())


def test_what_is_left_out_in_real_time_depends_on_link_emulators() -> None:
    scenario: Scenario = a_line("a", "b", loss=0.1)
    assert needs_emulator(scenario.link[0])
    assert not_applied(scenario) == ["jitter and loss of datagram links"]
    assert not_applied(scenario, emulated=True) == []
    shaped = replace(scenario, link=(LinkSpec(between=("a", "b"), kind="shaped", loss=0.1),))
    assert not_applied(shaped, emulated=True) == ["jitter and loss of shaped and reliable links"]
