"""What `penstock.testing` gives to tests of applications: an embedded network, ways to wait, and fixtures."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from live_help import run
from penstock.errors import InvalidScenario, PenstockError
from penstock.live.broker import plan
from penstock.live.broker.server import BrokerServer
from penstock.live.client.network import Network
from penstock.live.loop_thread import LoopThread
from penstock.live.wire.addresses import free_ports
from penstock.testing import (
    BlockingEmbeddedNetwork,
    EmbeddedNetwork,
    all_received,
    all_received_blocking,
    embedded,
    embedded_network,
    embedded_network_blocking,
    nothing_received,
    nothing_received_blocking,
    ready,
    ready_blocking,
    received,
    received_blocking,
    until,
    waiting,
)
from penstock.testing.shape import shape_of
from penstock.transport.client_service import TransportClient
from penstock.transport.wire.control_messages import Feedback, FlowQuota

ROOT = Path(__file__).parents[2]


# The network.


def test_one_broker_is_the_default_and_three_names_are_a_line() -> None:
    async def carried() -> None:
        async with embedded_network() as brokers, penstock.connect(brokers.url) as network:
            assert (brokers.names, brokers.urls) == (["broker"], {"broker": brokers.url})
            async with network.subscribe("n = 1") as messages:
                sent = await network.publish({"n": 1})
                assert [message.identity for message in await received(messages, 1)] == [sent]
        async with (
            embedded_network(("a", "b", "c")) as brokers,
            penstock.connect(brokers.urls["c"]) as there,
            there.subscribe("n >= 0") as messages,
            penstock.connect(brokers.urls["a"]) as here,
        ):
            for n in range(20):
                await here.publish({"n": n})
            assert [message.attributes["n"] for message in await received(messages, 20)] == list(range(20))
            assert brokers.lost_on_links == {}

    run(carried())


def test_a_network_file_gives_brokers_and_links_on_free_ports() -> None:
    async def town() -> None:
        file = ROOT / "networks" / "town.toml"
        async with embedded_network(file) as brokers, penstock.connect(brokers.urls["harbour"]) as network:
            assert "market" in brokers.names
            assert brokers.url_of("market") == brokers.urls["market"] != "penstock://127.0.0.1:7420"
            assert (await network.broker_report())["brokers_reachable"] == len(brokers.names) - 1

    run(town())


def test_words_for_links_make_links() -> None:
    (plain,) = shape_of(("a", "b"), None, {}).link
    assert (plain.kind, plain.loss, plain.rate_bits_per_s) == ("reliable", 0.0, None)
    (lossy,) = shape_of(("a", "b"), None, {"loss": 0.1}).link
    assert (lossy.kind, lossy.loss, lossy.rate_bits_per_s) == ("datagram", 0.1, 100e6)
    (wavering,) = shape_of(("a", "b"), None, {"jitter": 0.01}).link
    assert (wavering.kind, wavering.delay, wavering.jitter) == ("datagram", 0.01, 0.01)
    ab, cb = shape_of(("a", "b", "c"), {("a", "b"): {"loss": 0.5}, ("c", "b"): {}}, {"delay": 0.2}).link
    assert (ab.between, ab.loss, ab.delay) == (("a", "b"), 0.5, 0.2)
    assert (cb.between, cb.kind, cb.delay) == (("c", "b"), "reliable", 0.2)


@pytest.mark.parametrize(
    ("arguments", "settings", "reason"),
    [
        (("market",), {}, r"no such network file.*give a tuple: \('market',\)"),
        ((ROOT / "networks" / "town.toml",), {"loss": 0.1}, "leave out loss"),
        ((("a", "b"),), {"links": [("a", "x")]}, "no broker 'x'"),
        ((("a", "b"),), {"links": {("a", "b"): {"los": 0.1}}}, "between a and b.*did you mean 'loss'"),
        ((("a", "b"),), {"loss": 1.5}, "loss: is 1.5"),
        ((("a", "a"),), {}, "'a' is taken"),
    ],
)
def test_a_network_that_cannot_be_is_refused_before_anything_starts(
    arguments: tuple[Any, ...], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidScenario, match=reason):
        embedded_network(*arguments, **settings)


def test_a_broker_stops_and_comes_back_and_the_others_know_it_at_once() -> None:
    async def gone_and_back() -> None:
        async with (
            embedded_network(("a", "b", "c")) as brokers,
            penstock.connect(brokers.url_of("b", "a")) as network,
            network.subscribe("n = 1") as messages,
            penstock.connect(brokers.urls["c"]) as far,
        ):
            with pytest.raises(PenstockError, match="runs already"):
                await brokers.start("b")
            for end in (brokers.stop, brokers.crash):
                await end("b")
                assert (await far.broker_report())["links"][0]["up"] is False
                with pytest.raises(PenstockError, match="does not run"):
                    await brokers.stop("b")
                await brokers.start("b")
                assert (await far.broker_report())["links"][0]["up"] is True
            with pytest.raises(PenstockError, match="choose one of 'a', 'b', 'c'"):
                await brokers.stop("x")
            await ready(messages)
            await network.publish({"n": 1})
            await received(messages, 1)

    run(gone_and_back())


def test_a_link_that_loses_everything_carries_nothing_and_counts_it() -> None:
    async def lost() -> None:
        async with (
            embedded_network(("a", "b"), loss=1.0) as brokers,
            penstock.connect(brokers.urls["b"]) as there,
            there.subscribe("n >= 0") as messages,
            penstock.connect(brokers.urls["a"], name="p") as here,
        ):
            for n in range(10):
                await here.publish({"n": n})
            await until(lambda: brokers.lost_on_links == {("a", "b"): 10})
            assert messages.report().received == 0
            with pytest.raises(AssertionError, match=r"the marker of p did not come.*loses messages"):
                await nothing_received(messages, here, within=0.05)

    run(lost())


def test_a_broker_behind_a_bad_link_comes_back_too() -> None:
    async def back() -> None:
        async with embedded_network(("a", "b"), loss=0.1, jitter=0.001) as brokers:
            for name in ("a", "b"):
                await brokers.crash(name)
                await brokers.start(name)
            async with (
                penstock.connect(brokers.urls["b"]) as there,
                there.subscribe("n >= 0") as messages,
                penstock.connect(brokers.urls["a"]) as here,
            ):
                for n in range(100):
                    await here.publish({"n": n})
                await until(lambda: messages.report().received + brokers.lost_on_links.get(("a", "b"), 0) == 100)
                assert 70 < messages.report().received < 100

    run(back())


def test_a_port_that_somebody_takes_meanwhile_is_exchanged_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def taken() -> None:
        async with embedded_network() as first:
            busy = first.servers["broker"].address.port
            offers = iter([[busy], free_ports(1)])
            monkeypatch.setattr(plan, "free_ports", lambda count, host: next(offers))
            async with embedded_network() as second, penstock.connect(second.url):
                assert second.url != first.url

    run(taken())


def test_a_broker_that_leaves_something_behind_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = BrokerServer.stop

    async def forgets(server: BrokerServer) -> None:
        del server._tasks[:]
        await stop(server)

    async def leaks(fails: bool) -> None:
        monkeypatch.setattr(BrokerServer, "stop", forgets)
        monkeypatch.setattr(embedded, "LEAVE_WITHIN", 0.0)
        async with embedded_network():
            if fails:
                raise ValueError("the test's own")

    with pytest.raises(AssertionError, match=r"is left of it: the task BrokerServer\._keep"):
        run(leaks(fails=False))
    with pytest.raises(ValueError, match="the test's own") as caught:
        run(leaks(fails=True))
    assert "BrokerServer._keep" in caught.value.__notes__[0]


# Waiting.


def test_too_few_messages_are_an_error_that_says_what_came_and_what_may_be_the_reason() -> None:
    async def too_few() -> None:
        async with embedded_network() as brokers, penstock.connect(brokers.url, name="p") as network:
            async with network.subscribe("n >= 0") as messages:
                await network.publish({"n": 1})
                with pytest.raises(
                    AssertionError, match=r"1 of 3 messages came within 0.05 s for 'n >= 0'; th.*came:"
                ) as e:
                    await received(messages, 3, within=0.05)
                assert "/1 {'n': 1}" in str(e.value)
                await brokers.stop("broker")
                with pytest.raises(AssertionError, match=r"0 of 1 .*no connection to a broker"):
                    await received(messages, 1, within=0.01)
                with pytest.raises(AssertionError, match=r"not known everywhere .* there is no connection"):
                    await ready(messages, within=0.01)
                await brokers.start("broker")
                await network.wait_connected()
            unopened = network.subscribe("n = 2")
            await network.publish({"n": 2})
            with pytest.raises(AssertionError, match="not open before: open it with 'async with'"):
                await received(unopened, 1, within=0.05)
            with pytest.raises(AssertionError, match="still not so after 0 s: pigs fly"):
                await until(lambda: False, within=0.0, what="pigs fly")

    run(too_few())


def test_all_that_was_sent_before_has_come_and_nothing_means_nothing() -> None:
    """Over three brokers, of two publishers, also for a subscription that matches the marker itself."""

    async def proved() -> None:
        async with (
            embedded_network(("a", "b", "c"), delay=0.01) as brokers,
            penstock.connect(brokers.urls["c"]) as there,
            there.subscribe("n < 5") as low,
            there.subscribe("TRUE") as everything,
            penstock.connect(brokers.urls["a"], name="p") as one,
            penstock.connect(brokers.urls["b"], name="q", transport=True) as other,
        ):
            await nothing_received(low, one, other)
            for n in range(10):
                await one.publish({"n": n})
                await other.publish({"n": n + 10})
            got = await all_received(low, one, other)
            assert [message.attributes["n"] for message in got] == list(range(5))
            with pytest.raises(AssertionError, match=r"to come for 'TRUE', and this came:\n(.*\n){10}.*10 more"):
                await nothing_received(everything, one, other)
            await nothing_received(everything, one, other)
            with pytest.raises(AssertionError, match="is not open; open it before you publish"):
                await nothing_received(there.subscribe("n = 1"), one)

    run(proved())


def limit(publisher: Network, where: str, quota: float) -> None:
    """As if a slow reader had sent feedback."""
    link = publisher._link
    assert link is not None
    service, now = link.node.machine(TransportClient), link.host.now()
    feedback = Feedback("slow", now, (FlowQuota(quota, b"", where),))
    link.host.apply(service.carried_out(service.transport._send_path.feedback_received(feedback, now=now)))


def test_what_waits_in_the_publishers_rate_limiter_is_waited_for() -> None:
    """The marker belongs to no limited flow and would overtake it."""

    async def waits() -> None:
        config = penstock.TransportConfig(congestion=True, when_full="drop")
        async with (
            embedded_network() as brokers,
            penstock.connect(brokers.url, name="p", transport=config) as here,
            penstock.connect(brokers.url) as there,
            there.subscribe("n >= 0") as messages,
        ):
            limit(here, "n >= 0", 100.0)
            for n in range(10):
                await here.publish({"n": n})
            assert [message.attributes["n"] for message in await all_received(messages, here)] == list(range(10))
            limit(here, "m >= 0", 1.0)
            for m in range(10):
                await here.publish({"m": m})
            with pytest.raises(
                AssertionError, match=r"messages that p published wait to leave .*slow takes 1 messages/s of m"
            ):
                await nothing_received(messages, here, within=0.02)

    run(waits())


def test_a_marker_that_cannot_leave_ends_in_time() -> None:
    """It belongs to a flow of a subscription to everything, and its publisher waits for tokens."""

    async def held() -> None:
        config = penstock.TransportConfig(congestion=True)
        async with (
            embedded_network() as brokers,
            penstock.connect(brokers.url, name="p", transport=config) as here,
            here.subscribe("n = 1") as messages,
        ):
            limit(here, "penstock_marker > 0", 1.0)
            for _ in range(2):  # there are tokens for two
                await nothing_received(messages, here)
            with pytest.raises(AssertionError, match=r"the marker of p waits to leave .*slow takes 1 messages/s"):
                await nothing_received(messages, here, within=0.02)

    run(held())


def test_what_proves_nothing_is_refused() -> None:
    async def refused() -> None:
        async with embedded_network() as brokers, penstock.connect(brokers.url) as network:
            async with network.subscribe("n = 1") as messages:
                for proof in (all_received, nothing_received):
                    with pytest.raises(AssertionError, match=r"no publisher is named.* name everybody"):
                        await proof(messages)
            for proof in (all_received, nothing_received):
                with pytest.raises(AssertionError, match=r"'n = 1' is closed.* ask before you close it"):
                    await proof(messages, network)

    run(refused())
    with embedded_network_blocking() as brokers, penstock.connect_blocking(brokers.url) as network:
        with network.subscribe("n = 1") as messages, pytest.raises(AssertionError, match="no publisher is named"):
            nothing_received_blocking(messages)
        with pytest.raises(AssertionError, match="is closed"):
            nothing_received_blocking(messages, network)


@pytest.mark.parametrize(
    ("links", "options", "reason"),
    [({"jitter": 0.001}, {}, "have jitter"), ({"loss": 0.1}, {"recover": True}, "as repairs")],
)
def test_links_on_which_a_message_may_come_after_the_marker_are_refused(
    links: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    async def refused() -> None:
        async with (
            embedded_network(("a", "b"), **links) as brokers,
            penstock.connect(brokers.urls["b"]) as there,
            there.subscribe("n = 1", **options) as messages,
            penstock.connect(brokers.urls["a"]) as here,
        ):
            with pytest.raises(AssertionError, match=reason):
                await nothing_received(messages, here)
        assert not set(brokers._addresses.values()) & set(waiting.links_at)

    run(refused())


def test_order_and_recovery_do_not_change_what_is_proved() -> None:
    async def proved() -> None:
        async with (
            embedded_network(("a", "b")) as brokers,
            penstock.connect(brokers.urls["b"]) as there,
            there.subscribe("n >= 0", ordered=True, recover=True) as messages,
            penstock.connect(brokers.urls["a"], transport=True) as here,
        ):
            for n in range(30):
                await here.publish({"n": n})
            assert [message.attributes["n"] for message in await all_received(messages, here)] == list(range(30))

    run(proved())


def test_the_same_without_async() -> None:
    with (
        embedded_network_blocking(("a", "b")) as brokers,
        penstock.connect_blocking(brokers.urls["b"]) as there,
        there.subscribe("n >= 0") as messages,
        penstock.connect_blocking(brokers.urls["a"], name="p") as here,
    ):
        for n in range(5):
            here.publish({"n": n})
        assert [message.attributes["n"] for message in received_blocking(messages, 2)] == [0, 1]
        assert next(iter(messages)).attributes == {"n": 2}  # iterating has taken the others too
        assert [message.attributes["n"] for message in all_received_blocking(messages, here)] == [3, 4]
        nothing_received_blocking(messages, here)
        ready_blocking(messages)
        with pytest.raises(AssertionError, match="0 of 1 messages came"):
            received_blocking(messages, 1, within=0.01)
        brokers.stop("a")
        brokers.start("a")
        brokers.crash("a")
        assert (brokers.names, brokers.lost_on_links) == (["a", "b"], {})
        assert brokers.url == brokers.url_of("a")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]


def test_what_goes_wrong_in_the_thread_of_the_brokers_fails_the_test(caplog: pytest.LogCaptureFixture) -> None:
    def wrong(connection: object, packets: object) -> None:
        raise ValueError("a mistake in a broker")

    def use(brokers: BlockingEmbeddedNetwork) -> None:
        with brokers, penstock.connect_blocking(brokers.url) as network:
            brokers._network.servers["broker"].received = wrong  # type: ignore[method-assign]  # that is the mistake
            network.publish({"n": 1})

    brokers = embedded_network_blocking()
    with pytest.raises(PenstockError, match="use 'with'"):
        brokers.stop("broker")
    with pytest.raises(AssertionError, match="a mistake in a broker"):
        use(brokers)


def test_a_network_that_was_closed_says_so_and_may_be_closed_again() -> None:
    with embedded_network_blocking() as brokers:
        pass
    for verb in (brokers.stop, brokers.crash, brokers.start):
        with pytest.raises(PenstockError, match=r"this was closed.*make another one"):
            verb("broker")
    with pytest.raises(PenstockError, match="opened before; make another one"):
        brokers.open()
    brokers.__exit__(None, None, None)


def test_ctrl_c_while_the_brokers_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[BrokerServer] = []

    async def interrupted(network: EmbeddedNetwork) -> None:
        servers.extend(network.servers.values())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(EmbeddedNetwork, "_settled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embedded_network_blocking(("a", "b", "c")).open()
    assert len(servers) == 3
    for server in servers:
        assert not server._server.is_serving()
        assert not server.connections
        assert all(task.done() for task in server._tasks)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock")]


def test_a_loop_that_ends_lets_everything_in_it_clean_up() -> None:
    thread, cleaned = LoopThread("penstock ends"), list[str]()

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # as whoever closes a connection does
            cleaned.append("beside")

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(beside())
        await asyncio.sleep(0)
        return task

    task = thread.do(begin())
    thread.end()
    assert (cleaned, task.cancelled()) == (["beside"], True)


def test_a_broker_that_is_cancelled_while_it_starts_leaves_its_address_free() -> None:
    async def cancelled() -> None:
        async with embedded_network() as brokers:
            plan = brokers.servers["broker"].plan
        for turns in range(10):
            server = BrokerServer(plan)
            starting = asyncio.create_task(server.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
            if not starting.cancelled():
                await starting  # raises if the address is still taken
                await server.stop()
        assert not starting.cancelled()  # so every turn of the start was met

    run(cancelled())


# The fixtures.


def test_the_pages_examples_run_as_they_stand_and_close_cleanly(tmp_path: Path) -> None:
    """Every block of docs/testing.md is a file; pytest is started as a user would, with warnings as errors."""
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    blocks = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    assert len(blocks) >= 4
    for block in blocks:
        name = block.partition("\n")[0].removeprefix("# ")
        (tmp_path / name).write_text(block, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    options = ["-p", "no:cacheprovider", "-q", "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # no plugin but ours is needed
    process = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert process.returncode == 0, process.stdout + process.stderr
    assert "ResourceWarning" not in process.stdout + process.stderr
    assert "6 passed" in process.stdout
