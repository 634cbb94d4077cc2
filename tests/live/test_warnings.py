"""What goes wrong again and again is said once, then at growing intervals."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from itertools import pairwise

import pytest

from live_help import a_broker, run
from penstock.live.broker.dialer import WARN_AFTER, Dialer
from penstock.live.client.flow_log import FlowWatch
from penstock.live.event_loop import warn_of_failed_accepts
from penstock.live.quiet_log import INTERVAL_FIRST, INTERVAL_MAX, KEYS_MAX, QuietLog
from penstock.live.wire.addresses import Address
from penstock.live.wire.connection import Connection
from penstock.transport.records import FlowLimited


def test_intervals_grow_up_to_a_bound_and_what_was_left_out_is_counted() -> None:
    quiet = QuietLog()
    said = [now for now in range(0, 40_000, 10) if quiet.allows("it", now) is not None]
    gaps = [after - before for before, after in pairwise(said)]
    assert gaps[:4] == [INTERVAL_FIRST * factor for factor in (1, 2, 4, 8)]
    assert max(gaps) == INTERVAL_MAX
    assert quiet.allows("another", 5.0) == 0
    assert quiet.allows("another", 6.0) is None
    assert quiet.allows("another", 5.0 + INTERVAL_FIRST) == 1
    quiet.forget("another")
    assert quiet.allows("another", 5.0 + INTERVAL_FIRST) == 0


def test_kinds_of_warnings_are_bounded() -> None:
    quiet = QuietLog()
    for key in range(2 * KEYS_MAX):
        assert quiet.allows(key, 0.0) == 0
    assert len(quiet._next) == KEYS_MAX


def test_a_neighbour_that_cannot_be_reached_is_warned_of_but_not_every_time(caplog: pytest.LogCaptureFixture) -> None:
    dialer = Dialer(("a", "b"), Address("127.0.0.1", 1), no_connection, 1.0, random.Random(1))
    for now in range(int(INTERVAL_FIRST + WARN_AFTER)):
        dialer.failed("connection refused", float(now))
    assert len(caplog.records) == 1
    assert "cannot reach neighbour b at 127.0.0.1:1: connection refused" in caplog.text
    dialer.failed("connection refused", INTERVAL_FIRST + WARN_AFTER)
    assert "59 more such warnings were left out" in caplog.text


def no_connection() -> Connection:
    raise AssertionError("nobody dials here")


def test_whoever_is_no_neighbour_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def refused() -> None:
        async with a_broker() as broker:
            for _ in range(3):
                connection = broker._connection()
                broker._refuse(connection, "dialled 'b' and found 'c': mend the addresses")

    run(refused())
    assert caplog.text.count("dialled 'b' and found 'c'") == 1


def test_a_failed_accept_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def failing() -> None:
        warn_of_failed_accepts(logging.getLogger("penstock.broker"), "a")
        loop = asyncio.get_running_loop()
        for _ in range(3):
            error = OSError(24, "Too many open files")
            loop.call_exception_handler({"message": "socket.accept() out of system resource", "exception": error})
        loop.call_exception_handler({"message": "something else"})

    run(failing())
    assert caplog.text.count("Too many open files") == 1
    assert "ulimit -n" in caplog.text
    assert "something else" in caplog.text


def test_the_event_loop_still_calls_a_failed_accept_by_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    async def accept() -> str:
        loop = asyncio.get_running_loop()
        seen: asyncio.Future[str] = loop.create_future()
        loop.set_exception_handler(lambda _, context: seen.done() or seen.set_result(context["message"]))
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()

        def full(self: socket.socket) -> None:
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(socket.socket, "accept", full)
            with socket.create_connection((host, port)):
                message = await seen
        server.close()
        return message

    assert "accept" in run(accept())


def test_the_first_word_of_a_slow_subscriber_is_a_warning_and_later_ones_are_information(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch = FlowWatch("annex")
    with caplog.at_level(logging.INFO, "penstock.client"):
        for quota in (22.46, 2220.4, 0.0):
            assert watch.saw(FlowLimited("kind = 'a'", "depot", quota))
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "annex: depot takes at first no more than 22.5 messages/s of kind = 'a'"),
        ("INFO", "annex: depot takes no more than 2,220 messages/s of kind = 'a'"),
        ("INFO", "annex: depot no longer limits kind = 'a'"),
    ]
