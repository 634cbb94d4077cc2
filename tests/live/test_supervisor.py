"""Brokers as processes: they start together, survive a `kill -9` of any of them, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from live_help import a_line, run, until
from penstock.errors import NotConnected, NotPossibleHere
from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.emulation.scenario_run import settled
from penstock.live.process_name import process_name


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_broker_that_is_killed_in_traffic_comes_back_and_the_network_heals() -> None:
    async def killed() -> None:
        scenario = a_line("a", "b", "c", kind="reliable")
        async with Brokers(scenario, assign_addresses(scenario, base_port=None)) as brokers:
            await settled(brokers.addresses, scenario)
            async with (
                penstock.connect(brokers.url("a")) as here,
                penstock.connect(brokers.url("c")) as there,
                penstock.connect(brokers.url("b")) as middle,
                there.subscribe("n >= 0") as far,
                here.subscribe("n >= 0") as near,
                middle.subscribe("n >= 0") as between,
            ):
                traffic = asyncio.ensure_future(publish_all_the_time(here))
                await asyncio.gather(*(anext(messages) for messages in (far, near, between)))
                pid = brokers.pid("b")
                await brokers.kill("b")
                seen = near.report().received
                await until(lambda: near.report().received > seen + 50)  # those who need not pass b notice nothing
                await until(lambda: brokers.pid("b") != pid)
                await settled(brokers.addresses, scenario)
                await until(lambda: middle.connected)
                seen_far, seen_between = far.report().received, between.report().received
                await until(lambda: far.report().received > seen_far + 20)
                await until(lambda: between.report().received > seen_between + 20)
                assert here.reconnects == there.reconnects == 0
                assert middle.reconnects == 1
                traffic.cancel()

    async def publish_all_the_time(network: penstock.Network) -> None:
        n = 0
        while True:
            n += 1
            await network.publish({"n": n})
            await asyncio.sleep(0.002)

    run(killed())


@pytest.mark.skipif(sys.platform != "linux", reason="names of processes are Linux's")
def test_broker_processes_have_names() -> None:
    async def named() -> None:
        scenario = a_line("market", "exchange of the north", kind="reliable")
        async with Brokers(scenario, assign_addresses(scenario, base_port=None)) as brokers:
            shown = {name: Path(f"/proc/{brokers.pid(name)}") for name in brokers.addresses}
            assert [(place / "comm").read_text() for place in shown.values()] == [
                "penstock market\n",
                "penstock exchan\n",
            ]
            words = [(place / "cmdline").read_bytes().split(b"\0")[-3:-1] for place in shown.values()]
            assert words == [[b"broker", name.encode()] for name in shown]

    run(named())


def test_a_name_for_a_list_of_processes_is_short_and_has_nothing_that_a_terminal_obeys() -> None:
    assert process_name("penstock \x1b[31m\0") == "penstock ·[31m"
    assert process_name("penstock äöüß") == "penstock äöü", "no half letters"


def test_a_broker_that_hangs_is_found_by_its_silence_and_taken_back_when_it_wakes() -> None:
    async def hangs() -> None:
        scenario = a_line("a", "b", kind="reliable")
        async with Brokers(scenario, assign_addresses(scenario, base_port=None)) as brokers:
            await settled(brokers.addresses, scenario)
            async with penstock.connect(brokers.url("a")) as network:
                os.kill(brokers.pid("b"), signal.SIGSTOP)
                try:
                    await until(lambda: link_is(network, up=False))
                finally:
                    os.kill(brokers.pid("b"), signal.SIGCONT)
                await until(lambda: link_is(network, up=True))

    async def link_is(network: penstock.Network, *, up: bool) -> bool:
        report = await network.broker_report()
        return bool(report["links"][0]["up"] is up)

    run(hangs())


def test_stopping_ends_every_process_and_sigterm_is_a_clean_exit() -> None:
    async def stopping() -> None:
        scenario = a_line("a", "b")
        async with Brokers(scenario, assign_addresses(scenario, base_port=None), restart=False) as brokers:
            pids = [brokers.pid(name) for name in ("a", "b")]
            process = brokers._processes["a"]
            async with penstock.connect(brokers.url("a")) as network:
                os.kill(pids[0], signal.SIGTERM)
                assert await process.wait() == 0
                await until(lambda: not network.connected)
                with pytest.raises(NotConnected):
                    await network.publish({"n": 1})
        assert not any(is_running(pid) for pid in pids)

    run(stopping())


def test_a_port_in_use_is_said_and_nothing_is_left_running() -> None:
    async def in_use() -> None:
        scenario = a_line("a", "b")
        addresses = assign_addresses(scenario, base_port=None)
        addresses["b"] = addresses["a"]
        brokers = Brokers(scenario, addresses)
        with pytest.raises(NotPossibleHere, match=r"listens at .* already; stop it"):
            async with brokers:
                raise AssertionError("two brokers cannot share a port")
        assert not any(is_running(brokers.pid(name)) for name in ("a", "b"))

    run(in_use())


def test_the_first_that_cannot_start_is_named_while_others_are_still_starting() -> None:
    async def in_use() -> None:
        scenario = a_line("a", "b", "c", "d")
        addresses = assign_addresses(scenario, base_port=None)
        with socket.create_server((addresses["a"].host, addresses["a"].port)):
            silent = ("sh", "-c", "while read line; do :; done")  # in the place of a broker that takes its time
            brokers = Brokers(scenario, addresses, before=dict.fromkeys("bcd", silent))
            with pytest.raises(NotPossibleHere, match=f"broker a: somebody listens at {addresses['a']} already"):
                async with brokers:
                    raise AssertionError("a port that is taken")
        assert not any(is_running(brokers.pid(name)) for name in "abcd")

    run(in_use())


def test_a_broker_whose_parent_is_gone_before_its_orders_ends_without_a_word() -> None:
    words = [sys.executable, "-m", "penstock.live.broker.process_main", "broker", "a"]
    ended = subprocess.run(words, input=b"", capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_brokers_stop_when_their_parent_is_gone() -> None:
    async def orphaned() -> None:
        scenario = a_line("a")
        async with Brokers(scenario, assign_addresses(scenario, base_port=None), restart=False) as brokers:
            process = brokers._processes["a"]
            assert process.stdin is not None
            process.stdin.close()
            assert await process.wait() == 0

    run(orphaned())
