"""Congestion control on real sockets: a slow reader slows down the content that it wants, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from math import inf, nan
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner

import penstock
from live_help import a_broker, run, until, url
from penstock.cli.main import app
from penstock.content.message import Identity, Message, make_message
from penstock.errors import InvalidOption, NotConnected, NotPossibleHere
from penstock.kernel.machine import Accepted, Refused, Withheld
from penstock.kernel.reader_pace import CALM, LOOK_EVERY, ReaderPace
from penstock.kernel.reader_queue import READING_EVERY
from penstock.kernel.service import Reading
from penstock.kernel.trace import Counted, Delivered, Record
from penstock.lab.pages.twins import narrow_ways
from penstock.lab.setups.dumbbell import WIRE_BYTES, DumbbellPair, Stretch, dumbbell
from penstock.live.client.network import Network
from penstock.live.client.subscription import Sink, Subscription
from penstock.live.client.tickets import Tickets
from penstock.live.emulation.namespace_run import drive_in_namespaces
from penstock.live.emulation.namespaces import PREFIX, possible, sweep
from penstock.scenario.reader import read_scenario
from penstock.services import options
from penstock.testing import a_client
from penstock.transport.client_service import TransportClient

CONTROLLED = penstock.TransportConfig(congestion=True, record_entries=2, distance_first=0.005)
WITHHOLDS = structs.replace(CONTROLLED, when_full="drop")
BODY = bytes(200)


async def reads_slowly(messages: Subscription, seen: list[int], work: float = 0.004) -> None:
    async for message in messages:
        await asyncio.sleep(work)
        seen.append(message.identity.count)


async def writes(network: Network, kind: str, sent: list[int]) -> None:
    while True:
        sent.append((await network.publish({"kind": kind}, BODY)).count)
        await asyncio.sleep(0)


def test_a_slow_reader_slows_its_content_before_anything_is_lost_and_other_content_is_not_delayed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def beside() -> None:
        slow_got: list[int] = []
        slow_sent: list[int] = []
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", transport=CONTROLLED) as writer,
            penstock.connect(url(broker), name="slow", transport=CONTROLLED) as slow,
            penstock.connect(url(broker), name="fast", transport=CONTROLLED) as fast,
            slow.subscribe("kind = 'b'", queue_max=4000) as wanted_slowly,
            fast.subscribe("kind = 'a'", queue_max=100_000) as wanted,
        ):
            reading = asyncio.ensure_future(reads_slowly(wanted_slowly, slow_got))
            writing = asyncio.ensure_future(writes(writer, "b", slow_sent))
            await until(lambda: any(flow.queue for flow in writer.flows()))
            (flow,) = writer.flows()
            assert flow.limiting_receiver == "slow"
            assert 0.0 < flow.quota < 2000.0
            assert flow.since > 0.0
            before = len(slow_sent)
            for _ in range(2000):
                await writer.publish({"kind": "a"}, BODY)
            assert len(slow_sent) - before < 1000  # the others of the same time had to wait
            await until(lambda: wanted.report().received == 2000)
            writing.cancel()
            reading.cancel()
            report = wanted_slowly.report()
            assert (report.dropped, report.lost_at_broker) == (0, 0)
            assert report.feedbacks > 0
            assert report.allowed_rate is not None
            assert report.round_trip is not None
            assert wanted.report().allowed_rate is None
            assert writer.withheld == 0
            left = len(slow_got) + 1 + report.queue  # one is lost with the reader's task
            assert left <= len(slow_sent) + 1

    with caplog.at_level(logging.WARNING, "penstock.client"):
        run(beside())
    assert any("slow takes at first no more than" in line for line in caplog.messages)


def test_a_publisher_that_would_rather_drop_never_waits_and_is_told_what_did_not_leave() -> None:
    async def beside() -> None:
        got: list[int] = []
        sent: list[int] = []
        told: Counter[str] = Counter()
        gone: set[int] = set()
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", transport=WITHHOLDS) as writer,
            penstock.connect(url(broker), name="slow", transport=CONTROLLED) as slow,
            slow.subscribe("kind = 'b'", queue_max=4000) as wanted,
        ):
            writer.on_withheld(lambda count, receiver: (told.update([receiver]), gone.add(count))[0])
            reading = asyncio.ensure_future(reads_slowly(wanted, got))
            writing = asyncio.ensure_future(writes(writer, "b", sent))
            await until(lambda: writer.withheld > 500)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await until(lambda: not any(flow.queue for flow in writer.flows()))
            await until(lambda: wanted.report().received + len(gone) == len(sent))
            reading.cancel()
            assert wanted.report().dropped == 0
            assert told == Counter({"slow": writer.withheld})
            assert len(gone) == writer.withheld
            assert not gone & set(got)

    run(beside())


def test_a_reader_that_keeps_up_again_is_no_longer_followed() -> None:
    async def beside() -> None:
        forgets = structs.replace(CONTROLLED, flow_timeout=0.2)
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", transport=forgets) as writer,
            penstock.connect(url(broker), name="reader", transport=forgets) as other,
            other.subscribe("kind = 'b'", queue_max=4000) as wanted,
        ):
            reading = asyncio.ensure_future(reads_slowly(wanted, []))
            writing = asyncio.ensure_future(writes(writer, "b", []))
            await until(lambda: any(flow.limiting_receiver == "reader" for flow in writer.flows()))
            assert wanted.report().allowed_rate is not None
            reading.cancel()
            writing.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

            async def takes_all() -> bool:
                """A few messages at a time, and all that wait are taken."""
                await writer.publish({"kind": "b"}, BODY)
                await wanted.take(4000)
                return wanted.report().allowed_rate is None and not writer.flows()

            await until(takes_all)
            assert wanted.report().dropped == 0
            assert wanted.report().loss_event_rate == 0.0

    run(beside())


def test_what_the_receive_queue_drops_is_a_loss_like_any_other() -> None:
    async def beside() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", transport=WITHHOLDS) as writer,
            penstock.connect(url(broker), name="deaf", transport=CONTROLLED) as deaf,
            deaf.subscribe("kind = 'b'", queue_max=20) as wanted,
        ):
            for _ in range(200):  # in one go, so that the queue is full before anybody has had a look at it
                await writer.publish({"kind": "b"}, BODY)
            writing = asyncio.ensure_future(writes(writer, "b", []))
            await until(lambda: bool(writer.flows()) and bool(wanted.report().loss_event_rate))
            writing.cancel()
            report = wanted.report()
            assert report.dropped > 0
            assert report.loss_event_rate is not None
            assert report.loss_event_rate > 0.0
            assert writer.flows()[0].limiting_receiver == "deaf"

    run(beside())


def test_whoever_waits_for_tokens_hears_that_the_connection_is_gone() -> None:
    async def broken() -> None:
        sent: list[int] = []
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", transport=CONTROLLED) as writer,
            penstock.connect(url(broker), name="deaf", transport=CONTROLLED) as deaf,
            deaf.subscribe("kind = 'b'", queue_max=200),
        ):
            writing = asyncio.ensure_future(writes(writer, "b", sent))
            await until(lambda: any(flow.queue for flow in writer.flows()))
            await broker.stop()
            with pytest.raises(NotConnected):
                await writing

    run(broken())


def test_a_publication_that_was_cancelled_while_it_waited_does_not_leave() -> None:
    async def cancelled() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", transport=CONTROLLED) as writer,
            penstock.connect(url(broker), name="slow", transport=CONTROLLED) as slow,
            slow.subscribe("kind = 'b'", queue_max=200) as read_slowly,
            penstock.connect(url(broker), name="reader") as reader,
            reader.subscribe("kind = 'b'", queue_max=100_000) as messages,
        ):
            reading = asyncio.ensure_future(reads_slowly(read_slowly, []))
            writing = asyncio.ensure_future(writes(writer, "b", []))
            await until(lambda: any(flow.queue for flow in writer.flows()))
            given_up, kept = [asyncio.ensure_future(writer.publish({"kind": "b"})) for _ in range(2)]
            await until(lambda: any(flow.queue == 3 for flow in writer.flows()))
            for task in (given_up, writing):  # the other way round it may get the place that becomes free
                task.cancel()
            last = (await kept).count
            seen: list[int] = []
            while last not in seen:
                seen += [message.identity.count for message in await messages.take()]
            assert last - 1 not in seen
            assert writer.withheld == 0
            reading.cancel()

    run(cancelled())


def test_a_reader_that_blocks_does_not_keep_the_connection_from_being_read() -> None:
    async def beside() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer") as writer,
            penstock.connect(url(broker), name="reader") as reader,
            reader.subscribe("kind = 'b'") as messages,
        ):
            for _ in range(100):
                await writer.publish({"kind": "b"}, BODY)
            await until(lambda: messages.report().received == 100)
            for _ in range(10):
                await writer.publish({"kind": "b"}, BODY)
            for _ in range(60):
                await anext(messages)
                time.sleep(0.005)  # what the application should not do, and does
            assert messages.report().received > 100

    run(beside())


def test_without_congestion_control_nobody_is_limited() -> None:
    async def beside() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="writer", transport=True) as writer,
            penstock.connect(url(broker), name="deaf", transport=CONTROLLED) as deaf,
            deaf.subscribe("kind = 'b'", queue_max=20) as messages,
        ):
            for _ in range(1000):
                await writer.publish({"kind": "b"}, BODY)
            await until(lambda: messages.report().received == 1000)
            assert writer.flows() == []
            assert messages.report().feedbacks == 0
        assert penstock.connect(url(broker)).flows() == []

    run(beside())


# With a bottleneck of the kernel.


def namespaces_possible() -> str:
    try:
        possible()
    except NotPossibleHere as error:
        return str(error)
    return ""


IMPOSSIBLE = namespaces_possible()


@pytest.mark.skipif(bool(IMPOSSIBLE), reason=IMPOSSIBLE)
def test_content_makes_room_for_a_tcp_of_the_kernel_and_nothing_is_left_behind() -> None:
    """000 section IV-D with a real TCP, for a third of a minute; the bounds are wide.

    The content has time to recover from a first loss, which a busy machine brings about.
    """
    settles, begins, counts, ends = 6.0, 9.0, 11.0, 21.0
    scenario = dumbbell(
        "kernel", [DumbbellPair(1.0, (Stretch(0.0, ends, 600.0),))], rate_bits_per_s=1e6, duration=ends,
        controlled=True,
        tcp_start=begins,
    )  # fmt: skip
    content: list[float] = []
    tcp: list[tuple[float, int]] = []

    class Kept:
        def write(self, time: float, node: str, record: Record) -> None:
            if isinstance(record, Delivered):
                content.append(time)
            elif isinstance(record, Counted) and node == "tcp":
                tcp.append((time, record.value))

    async def there() -> str:
        await drive_in_namespaces(scenario, 1, trace=Kept())
        process = await asyncio.create_subprocess_exec("ip", "netns", "list", stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0].decode()

    left_behind = run(there())
    alone = sum(settles <= at < begins for at in content) * WIRE_BYTES * 8.0 / (begins - settles)
    beside = sum(counts <= at < ends for at in content) * WIRE_BYTES * 8.0 / (ends - counts)
    shared = sum(value for at, value in tcp if counts <= at < ends) * 8.0 / (ends - counts)
    assert alone > 0.8e6, alone
    assert 0.2e6 < beside < 0.65e6
    assert 0.3e6 < shared < 0.8e6
    assert beside + shared > 0.85e6
    assert f"{PREFIX}{os.getpid()}" not in left_behind


@pytest.mark.skipif(bool(IMPOSSIBLE), reason=IMPOSSIBLE)
def test_what_a_killed_process_left_behind_is_removed_by_the_next() -> None:
    async def listed(*command: str) -> str:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0].decode()

    async def swept() -> None:
        dead = await asyncio.create_subprocess_exec("true")
        await dead.wait()
        stale, ours = f"{PREFIX}{dead.pid}l", f"{PREFIX}{os.getpid()}r"
        for name in (stale, ours):
            await listed("ip", "netns", "add", name)
        await sweep()
        found = await listed("ip", "netns", "list")
        await listed("ip", "netns", "delete", ours)
        assert stale not in found
        assert ours in found

    run(swept())


def test_without_root_or_tools_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda tool: None)
    with pytest.raises(NotPossibleHere, match="install iproute2"):
        possible()
    monkeypatch.setattr("shutil.which", lambda tool: tool)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(NotPossibleHere, match="need root"):
        possible()


def test_the_demo_finds_the_two_narrow_ways_of_the_town() -> None:
    town = read_scenario(Path(__file__).parents[2] / "networks" / "town.toml")
    assert narrow_ways(town) == [("annex", "depot", True), ("archive", "warehouse", False)]
    uncontrolled = structs.replace(town, client=tuple(each for each in town.client if each.name != "annex"))
    assert narrow_ways(uncontrolled) == []


# The parts.


def test_a_reader_is_spoken_of_while_it_is_behind_and_freed_when_it_has_kept_up() -> None:
    reader = ReaderPace(1000)
    now = 100.0

    def look(queue: int) -> float | None:
        nonlocal now
        now += 0.1
        reader.taken += 10
        return reader.look(queue, now)

    assert [look(40) for _ in range(50)] == [None] * 50  # it keeps up, at 100 messages/s
    for fill, told in ((250, 100.0), (1000, 10.0), (150, 120.0), (0, 150.0)):
        rate = look(fill)
        assert rate is not None
        assert abs(rate - told) < 1.0
    assert reader.look(1000, now + LOOK_EVERY / 2.0) is None  # too soon
    found = [look(0) for _ in range(int(CALM / 0.1) + 1)]
    assert found.count(inf) == 1
    assert look(0) is None


class Reported:
    """Stands for the holder of a subscription, and keeps what is reported to it."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.drops: list[int] = []
        self.sink: Sink | None = None

    async def open(self, subscription: Subscription, sink: Sink) -> None:
        self.sink = sink

    def close(self, number: int) -> None:
        self.sink = None

    async def settle(self) -> None:
        pass

    def read(self, number: int, reading: Reading) -> None:
        assert number == 1
        self.readings.append(reading)

    def reader_dropped(self, message: Message) -> None:
        self.drops.append(message.identity.count)

    def service_reports(self, number: int) -> dict[str, object]:
        return {}


def test_a_subscription_gives_a_reading_some_time_after_messages_came_and_never_while_they_come() -> None:
    async def watched() -> None:
        reported = Reported()
        made = Subscription(reported, 1, "a", 100, None, options({}))  # type: ignore[arg-type]  # of a Holder, some verbs
        async with made as messages:
            assert reported.sink is not None
            for count in range(1, 103):
                reported.sink.put(make_message(Identity("p", 1, count), {"a": True}))
            assert reported.readings == []  # whoever puts stands inside the machine's effects
            assert reported.drops == [1, 2]
            await messages.take(40)
            await until(lambda: bool(reported.readings))
            (reading,) = reported.readings
            assert (reading.taken, reading.waiting, reading.queue_max) == (40, 60, 100)
            assert [message.identity.count for message in reading.dropped] == [1, 2]
            for count in range(1000, 1050):
                reported.sink.put(make_message(Identity("p", 1, count), {"a": True}))
                await messages.take(100)
            await until(lambda: len(reported.readings) == 2)  # one for all of them
            assert reported.readings[1].dropped == ()
            assert not made._reading_soon  # where nothing comes, nothing is read
            reported.sink.put(make_message(Identity("p", 1, 1051), {"a": True}))
        made._read()  # as the timer would
        assert len(reported.readings) == 2  # it is closed

    run(watched())


@pytest.mark.parametrize("congestion", [True, False])
def test_readings_become_rates_only_where_congestion_control_is_on(congestion: bool) -> None:
    """While the queue fills, before anything is dropped."""
    config = structs.replace(CONTROLLED, congestion=congestion)
    client = a_client("c", settings={"transport": config})
    client.link_changed(0, up=True, now=100.0)
    client.subscribe(1, "a", options({"ordered": True}), ticket=1, now=100.0)
    transport = client.node.machine(TransportClient).transport
    rates: list[float] = []
    lost: list[int] = []
    transport.reader_takes = lambda number, rate, now: rates.append(rate)  # type: ignore[method-assign]
    transport.dropped_here = lambda message, now: lost.append(message.identity.count)  # type: ignore[method-assign]
    now = 100.0

    def read(taken: int, waiting: int, *dropped: Message) -> None:
        nonlocal now
        now += 1.1 * READING_EVERY
        assert client.read(1, Reading(taken, waiting, 100, dropped), now=now) == []

    for waiting in range(5, 101, 5):
        read(0, waiting)
    if not congestion:
        read(0, 100, make_message(Identity("p", 1, 7), {"a": True}))
        assert rates == lost == []
        return
    assert len(rates) == 18  # not before a tenth of the queue is used
    assert set(rates) == {0.0}  # nobody reads
    for _ in range(60):
        read(6, 0)  # about a hundred messages/s
    assert rates[-2] == pytest.approx(150.0, rel=0.2)  # more than it takes: the queue is empty
    assert rates[-1] == inf
    assert rates.count(inf) == 1
    read(0, 100, make_message(Identity("p", 1, 7), {"a": True}))
    assert lost == [7]


@pytest.mark.parametrize("priority", [0.0, -1.0, inf, nan])
def test_a_priority_must_be_finite_and_above_zero(priority: float) -> None:
    network = penstock.connect("penstock://127.0.0.1:1")
    with pytest.raises(InvalidOption, match="priority"):
        network.subscribe("a", priority=priority)
    with pytest.raises(InvalidOption, match="priority"):
        penstock.connect_blocking("penstock://127.0.0.1:1").subscribe("a", priority=priority)
    refused = CliRunner().invoke(app, ["sub", "a", "--priority", str(priority)])
    assert refused.exit_code == 2
    assert "priority" in refused.output


def test_a_subscription_keeps_its_priority_and_the_network_hears_it() -> None:
    async def asked() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), transport=CONTROLLED) as network,
            network.subscribe("a", priority=2.0) as dear,
            network.subscribe("b"),
        ):
            assert dear.options.priority == 2.0
            flows = network._link.node.machine(TransportClient).transport._feedback_scheduler._receiver_flows
            assert [flow.priority for flow in flows.kept] == [2.0, 1.0]

    run(asked())


def test_a_slow_reader_holds_up_one_subscription_of_its_client_and_no_longer_than_that_is_open() -> None:
    """On a way so short that one message per round trip would be a thousand per second."""

    async def shown() -> None:
        async with (
            a_broker() as broker,
            penstock.connect(url(broker), name="p", transport=WITHHOLDS) as publisher,
            penstock.connect(url(broker), name="c", transport=WITHHOLDS) as client,
            client.subscribe("kind = 'b'", queue_max=500) as slow,
            client.subscribe("kind = 'a'", queue_max=100_000) as fast,
        ):
            seen: list[int] = []
            reading = asyncio.create_task(reads_slowly(slow, seen, 0.02))
            began, sent = time.monotonic(), 0
            while time.monotonic() < began + 3.0:
                for kind in ("a", "b"):
                    await publisher.publish({"kind": kind}, BODY)
                sent += 1
                await asyncio.sleep(0.002)
            allowed = slow.report().allowed_rate
            assert allowed is not None
            assert 20.0 < allowed < 100.0
            assert fast.report().allowed_rate is None
            assert {flow.limiting_receiver for flow in publisher.flows()} == {"c"}
            assert len(publisher.flows()) == 1
            assert slow.report().dropped == 0
            reading.cancel()
            await slow.close()
            await until(lambda: fast.report().received == sent)
            await until(lambda: not publisher.flows())

    run(shown())


def test_a_message_that_left_at_once_needs_no_future() -> None:
    async def asked() -> None:
        tickets = Tickets()
        ticket = tickets.begin()
        tickets.done(ticket, Accepted(), connected=True)
        await tickets.left(ticket)
        ticket = tickets.begin()
        tickets.done(ticket, Withheld("slow takes 1 message/s"), connected=True)
        with pytest.raises(penstock.PenstockError, match="slow takes"):
            await tickets.left(ticket)
        ticket = tickets.begin()
        asyncio.get_running_loop().call_soon(lambda: tickets.done(ticket, Accepted(), connected=True))
        await tickets.left(ticket)
        last = tickets.begin()
        asyncio.get_running_loop().call_soon(lambda: tickets.done(last, Refused("gone"), connected=False))
        with pytest.raises(NotConnected, match="gone"):
            await tickets.left(last)
        tickets.done(0, Withheld("nobody waits for it"), connected=True)

    asyncio.run(asked())
