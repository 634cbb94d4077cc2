"""Links that are simulated TCP connections: order, loss, the send buffer, sharing, and what a broken one leaves."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InvalidScenario
from penstock.scenario.reader import parse_scenario
from penstock.sim.engine import Engine
from penstock.sim.pipes import Pipe
from penstock.sim.run import simulate
from penstock.sim.tcp.config import HEADER_BYTES, TcpConfig
from penstock.sim.tcp.connection import TcpPipe
from penstock.sim.tcp.packets import beside

SEGMENT = 1_000
MBIT = 1e6


class Line:
    """A wire, and any number of connections on it."""

    def __init__(self, *, rate: float = MBIT, loss: float = 0.0, queue: int = 20, seed: int = 1) -> None:
        self.engine = Engine()
        self.there, self.back = (
            Pipe(
                self.engine,
                Random(seed + number),
                *beside(_nobody, _nobody),
                rate_bits_per_s=rate,
                delay=0.01,
                jitter=0.0,
                loss=loss,
                queue_packets=queue,
                reliable=False,
            )
            for number in range(2)
        )


class End:
    """One direction of a connection, and a sender that always has a packet for it."""

    def __init__(self, line: Line, *, buffer: int = 16_000) -> None:
        config = TcpConfig(segment_bytes=SEGMENT + HEADER_BYTES, segments_max=0)
        self.arrived: list[Any] = []
        self.lost: list[Any] = []
        self.pipe = TcpPipe(
            line.engine,
            [line.there.send],
            [line.back.send],
            self.arrived.append,
            lambda item, cause: self.lost.append(item),
            config,
            buffer_bytes=buffer,
        )
        self.sent = 0
        self.fullest = 0

    def fill(self, _: Any = None) -> None:
        """Send while there is room, and again when there is some."""
        while self.pipe.room_bytes() > 0:
            self.pipe.send(self.sent, SEGMENT)
            self.sent += 1
        self.fullest = max(self.fullest, self.pipe.buffered_bytes)
        self.pipe.call_with_room(self.fill, None)


def _nobody(*_: Any) -> None:
    raise AssertionError("only TCP travels here")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 5_000), min_size=1, max_size=60),
    st.floats(0.0, 0.3),
    st.integers(0, 1_000),
)
def test_whatever_is_lost_on_the_wire_every_packet_comes_once_and_in_order(sizes, loss, seed):
    line = Line(loss=loss, queue=5, seed=seed)
    end = End(line)
    for number, size in enumerate(sizes):
        end.pipe.send(number, size)
    line.engine.run(100_000.0)
    assert end.arrived == list(range(len(sizes)))
    assert end.pipe.carried_bytes == sum(sizes)
    assert end.pipe.buffered_bytes == 0
    assert not end.lost


def test_a_connection_alone_fills_its_wire_and_never_holds_more_than_its_buffer_and_a_packet():
    line = Line()
    end = End(line)
    end.fill()
    line.engine.run(30.0)
    payload = SEGMENT / (SEGMENT + HEADER_BYTES)
    assert 0.97 * payload <= end.pipe.carried_bytes * 8 / 30.0 / MBIT <= payload
    assert end.fullest < 16_000 + SEGMENT


def test_every_segment_has_a_header_on_the_wire_and_so_does_an_acknowledgement():
    line = Line()
    end = End(line)
    end.pipe.send("in three segments", 2 * SEGMENT + 1)
    end.pipe.send("in one", 1)
    line.engine.run(10.0)
    assert end.arrived == ["in three segments", "in one"]
    assert line.there.carried_bytes == 2 * SEGMENT + 2 + 4 * HEADER_BYTES
    assert line.back.carried_bytes == line.back.carried_packets * HEADER_BYTES
    assert end.pipe.carried_bytes == 2 * SEGMENT + 2


def test_a_buffer_below_bandwidth_times_delay_limits_the_connection():
    line = Line(rate=10 * MBIT)
    end = End(line, buffer=4_000)
    end.fill()
    line.engine.run(30.0)
    assert 0.6 <= end.pipe.carried_bytes / 30.0 / (4_000 / 0.0216) <= 1.0  # half of the buffer is waited for


def test_connections_that_share_a_wire_share_its_rate():
    line = Line(rate=4 * MBIT)
    ends = [End(line, buffer=64_000) for _ in range(4)]
    for end in ends:
        end.fill()
    line.engine.run(120.0)
    rates = [end.pipe.carried_bytes * 8 / 120.0 / MBIT for end in ends]
    assert sum(rates) > 3.6
    assert min(rates) > 0.6


def test_a_broken_connection_loses_what_had_not_arrived_and_begins_anew():
    line = Line()
    end = End(line)
    for number in range(10):
        end.pipe.send(number, SEGMENT)
    line.engine.run(0.05)
    come = len(end.arrived)
    assert 0 < come < 10
    end.pipe.fail()
    assert end.lost == list(range(come, 10))
    assert end.pipe.room_bytes() == 16_000
    end.pipe.send("after", SEGMENT)
    line.engine.run(10.0)
    assert end.arrived == [*range(come), "after"]


NETWORK = """
name = "shared"
duration = 20.0
drain = 5.0
broker = [{ name = "a" }, { name = "b" }, { name = "c" }]

[[link]]
between = ["a", "b"]
kind = "tcp"
rate_bits_per_s = 400_000

[[link]]
between = ["a", "c"]
kind = "tcp"
along = ["a", "b"]

[[client]]
name = "reader"
broker = "b"
subscribe = [{ where = "k = 1" }]

[[client]]
name = "other"
broker = "c"
subscribe = [{ where = "k = 2" }]

[[client]]
name = "writer"
broker = "a"

[[client.publish]]
rate_messages_per_s = 100
attributes = { k = { integer = [1, 2] } }
body_bytes = 300
"""


def test_links_that_go_along_another_share_its_wire_and_nothing_ends_in_silence():
    result = simulate(parse_scenario(NETWORK.encode()), seed=3)
    assert not result.problems
    got = [result.clients[name].delivered for name in ("reader", "other")]
    assert min(got) > 800


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ('along = ["a", "b"]', 'along = ["a"]', "along"),
        ('along = ["a", "b"]', 'along = ["b", "c"]', "along"),
        ('kind = "tcp"\nalong', 'kind = "reliable"\nalong', "along"),
        ("rate_bits_per_s = 400_000", "send_buffer_bytes = 10", "send_buffer_bytes"),
    ],
)
def test_a_link_that_makes_no_sense_is_refused(before, after, place):
    with pytest.raises(InvalidScenario) as refused:
        parse_scenario(NETWORK.replace(before, after).encode())
    assert place in str(refused.value)
