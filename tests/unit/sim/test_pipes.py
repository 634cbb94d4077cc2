"""Pipes: rate, delay, loss, a drop-tail queue; order is kept, and every loss is reported."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sim.engine import Engine
from penstock.sim.pipes import HELD_UP, RETRANSMISSION_MIN, SOCKET_BYTES, Pipe


class Bench:
    """A pipe with an engine, and what came out of it."""

    def __init__(self, *, seed: int = 1, **spec: object) -> None:
        self.engine = Engine()
        self.arrived: list[tuple[float, object]] = []
        self.lost: list[tuple[float, object, str]] = []
        fields = {
            "rate_bits_per_s": None,
            "delay": 0.0,
            "jitter": 0.0,
            "loss": 0.0,
            "queue_packets": 1000,
            "reliable": False,
            **spec,
        }
        self.pipe = Pipe(
            self.engine,
            Random(seed),
            lambda item: self.arrived.append((self.engine.now, item)),
            lambda item, cause: self.lost.append((self.engine.now, item, cause)),
            **fields,  # type: ignore[arg-type]
        )

    def send_at(self, time: float, item: object, size_bytes: int = 1000) -> None:
        self.engine.at(time, lambda _: self.pipe.send(item, size_bytes), None)

    def run(self, until: float = 1000.0) -> None:
        self.engine.run(until)

    def items(self) -> list[object]:
        return [item for _, item in self.arrived]


def test_without_rate_and_delay_a_packet_arrives_at_once() -> None:
    bench = Bench()
    bench.send_at(1.0, "a")
    bench.run()
    assert bench.arrived == [(1.0, "a")]


def test_a_packet_arrives_one_delay_later() -> None:
    bench = Bench(delay=0.25)
    bench.send_at(1.0, "a")
    bench.run()
    assert bench.arrived == [(1.25, "a")]


def test_the_rate_spaces_packets_out() -> None:
    bench = Bench(rate_bits_per_s=8000.0, delay=0.5)
    for item in "abc":
        bench.send_at(0.0, item)
    bench.send_at(10.0, "d", 500)
    bench.run()
    assert bench.arrived == [(1.5, "a"), (2.5, "b"), (3.5, "c"), (11.0, "d")]


def test_what_is_urgent_neither_waits_behind_data_nor_needs_its_places() -> None:
    bench = Bench(rate_bits_per_s=8000.0, queue_packets=3)
    for item in "abc":
        bench.send_at(0.0, item)
    bench.engine.at(0.0, lambda _: bench.pipe.send("urgent", 500, urgent=True), None)
    bench.send_at(3.0, "d")
    bench.run()
    assert bench.arrived == [(0.5, "urgent"), (1.0, "a"), (2.0, "b"), (3.0, "c"), (4.5, "d")]  # the rate is kept
    assert bench.lost == []


def test_a_full_queue_drops_the_newest_and_says_so_at_once() -> None:
    bench = Bench(rate_bits_per_s=8000.0, queue_packets=2)
    for item in "abcd":
        bench.send_at(0.0, item)
    bench.send_at(1.5, "e")
    bench.run()
    assert bench.items() == ["a", "b", "e"]
    assert bench.lost == [(0.0, "c", "queue full"), (0.0, "d", "queue full")]


def test_loss_loses_its_share_and_reports_each() -> None:
    bench = Bench(loss=0.2)
    for number in range(2000):
        bench.send_at(float(number), number)
    bench.run(3000.0)
    assert len(bench.lost) == pytest.approx(400, rel=0.15)
    assert {cause for _, _, cause in bench.lost} == {"lost on the wire"}
    assert len(bench.lost) + len(bench.arrived) == 2000


def test_what_is_lost_on_the_wire_has_used_the_wire() -> None:
    bench = Bench(rate_bits_per_s=8000.0, loss=1.0)
    bench.send_at(0.0, "lost")
    bench.engine.at(0.0, lambda _: setattr(bench.pipe, "loss", 0.0), None)
    bench.send_at(0.0, "next")
    bench.run()
    assert bench.arrived == [(2.0, "next")]


def test_jitter_moves_the_delay_within_its_bounds_and_slowly() -> None:
    bench = Bench(delay=0.1, jitter=0.05)
    for number in range(500):
        bench.send_at(number / 50, number)
    bench.run()
    delays = [time - number / 50 for time, number in bench.arrived]  # type: ignore[operator]
    assert 0.05 - 1e-9 <= min(delays) < 0.08
    assert 0.12 < max(delays) <= 0.15 + 1e-9
    assert max(abs(b - a) for a, b in itertools.pairwise(delays)) < 0.005


def test_the_pipe_itself_never_puts_packets_out_of_order() -> None:
    bench = Bench(delay=0.2, jitter=0.2)
    for number in range(3000):
        bench.send_at(number / 1000, number)
    bench.run()
    assert bench.items() == list(range(3000))


def test_a_reliable_link_loses_nothing_but_what_would_be_lost_comes_late_and_holds_up_the_rest() -> None:
    bench = Bench(delay=0.01, loss=1.0, reliable=True)
    bench.send_at(0.0, "a")
    bench.engine.at(0.05, lambda _: setattr(bench.pipe, "loss", 0.0), None)
    bench.send_at(0.1, "b")
    bench.run()
    assert bench.arrived == [(0.01 + RETRANSMISSION_MIN, "a"), (0.01 + RETRANSMISSION_MIN, "b")]
    assert bench.lost == []


def test_a_reliable_link_has_no_tail_to_drop() -> None:
    bench = Bench(rate_bits_per_s=1e6, queue_packets=1, reliable=True)
    for number in range(100):
        bench.send_at(0.0, number)
    bench.run()
    assert bench.items() == list(range(100))


def test_order_is_kept_when_a_retransmission_lands_at_the_moment_of_sending() -> None:
    bench = Bench(loss=1.0, reliable=True)
    bench.send_at(0.0, "late")
    bench.engine.at(0.0, lambda _: setattr(bench.pipe, "loss", 0.0), None)
    bench.engine.at(0.0, lambda _: bench.send_at(RETRANSMISSION_MIN, "next"), None)
    # "next" is sent at the very time at which "late" lands, by an action that was scheduled before the landing.
    early = Bench(loss=1.0, reliable=True)
    early.send_at(RETRANSMISSION_MIN, "next")
    early.send_at(0.0, "late")
    early.engine.at(0.0, lambda _: setattr(early.pipe, "loss", 0.0), None)
    for run in (bench, early):
        run.run()
        assert run.items() == ["late", "next"]


def test_a_failure_loses_what_is_under_way_and_says_so() -> None:
    bench = Bench(delay=1.0)
    bench.send_at(0.0, "a")
    bench.engine.at(0.5, lambda _: bench.pipe.fail(), None)
    bench.send_at(0.6, "b")
    bench.engine.at(0.7, lambda _: bench.pipe.restore(), None)
    bench.send_at(0.8, "c")
    bench.run()
    assert bench.arrived == [(1.8, "c")]
    assert [(item, cause) for _, item, cause in bench.lost] == [("b", "link down"), ("a", "link down")]


def test_a_failure_empties_the_queue_so_that_the_restored_link_begins_afresh() -> None:
    bench = Bench(rate_bits_per_s=8000.0, delay=0.0, queue_packets=20)
    for number in range(20):
        bench.send_at(0.0, number)
    bench.engine.at(0.5, lambda _: (bench.pipe.fail(), bench.pipe.restore()), None)
    bench.send_at(1.0, "fresh")
    bench.run()
    assert bench.arrived == [(2.0, "fresh")]
    assert len(bench.lost) == 20


def test_what_is_lost_in_two_failures_is_reported_once() -> None:
    bench = Bench(delay=5.0)
    bench.send_at(0.0, "a")
    for time in (1.0, 2.0):
        bench.engine.at(time, lambda _: (bench.pipe.fail(), bench.pipe.restore()), None)
    bench.run()
    assert [(item, cause) for _, item, cause in bench.lost] == [("a", "link down")]


def test_carried_counts_what_was_put_on_the_wire() -> None:
    bench = Bench(rate_bits_per_s=8e6, queue_packets=2)
    for item in "abcd":
        bench.send_at(0.0, item, 100)
    bench.run()
    assert (bench.pipe.carried_packets, bench.pipe.carried_bytes) == (2, 200)


def test_a_shaped_sender_learns_when_the_wire_is_free() -> None:
    bench = Bench(rate_bits_per_s=8000.0)
    bench.engine.run(3.0)
    assert bench.pipe.idle_at() == 3.0
    bench.pipe.send("a", 1000)
    assert bench.pipe.idle_at() == 4.0


def test_a_reliable_sender_learns_how_much_its_socket_takes() -> None:
    bench = Bench(rate_bits_per_s=8000.0, reliable=True)
    called: list[float] = []
    assert bench.pipe.room_bytes() == SOCKET_BYTES
    bench.pipe.send("a", 10_000)
    assert bench.pipe.room_bytes() == SOCKET_BYTES - 10_000
    bench.pipe.call_with_room(lambda _: called.append(bench.engine.now), None)
    bench.engine.run(4.0)
    assert called == [pytest.approx((10_000 - SOCKET_BYTES // 2) / 1000)]
    assert bench.pipe.room_bytes() == SOCKET_BYTES - 6_000
    assert Bench(reliable=True).pipe.room_bytes() == SOCKET_BYTES


@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 3000)), max_size=30),
    st.sampled_from([None, 8e3, 1e6]),
    st.floats(0.0, 0.5),
    st.booleans(),
    st.floats(0.0, 1.0),
    st.lists(st.floats(0.0, 3.0), max_size=2),
    st.integers(0, 9),
)
def test_every_packet_arrives_in_order_or_is_reported_lost_exactly_once(
    sends: list[tuple[float, int]],
    rate: float | None,
    delay: float,
    reliable: bool,
    loss: float,
    failures: list[float],
    seed: int,
) -> None:
    bench = Bench(
        seed=seed, rate_bits_per_s=rate, delay=delay, jitter=delay, loss=loss, queue_packets=5, reliable=reliable
    )
    for number, (time, size) in enumerate(sorted(sends)):
        bench.send_at(time, number, size)
    for time in failures:
        bench.engine.at(time, lambda _: (bench.pipe.fail(), bench.pipe.restore()), None)
    bench.run()
    arrived, lost = bench.items(), [item for _, item, _ in bench.lost]
    assert arrived == sorted(arrived)  # type: ignore[type-var]
    assert sorted(arrived + lost) == list(range(len(sends)))  # type: ignore[type-var]
    if reliable and not failures:
        assert lost == []


def test_a_share_of_packets_arrives_twice_and_the_second_copy_comes_later() -> None:
    bench = Bench(delay=0.1, duplicate=0.3)
    for number in range(1000):
        bench.send_at(number * 0.001, number)
    bench.run()
    first = list(dict.fromkeys(bench.items()))
    assert first == list(range(1000))
    assert 200 < len(bench.arrived) - 1000 < 400
    assert bench.lost == []


@pytest.mark.parametrize("rate", [None, 1e9])
@pytest.mark.parametrize("urgent", [False, True])
def test_a_share_of_packets_is_held_up_and_overtaken(rate: float | None, urgent: bool) -> None:
    bench = Bench(delay=0.1, reorder=0.3, rate_bits_per_s=rate)
    for number in range(1000):
        bench.engine.at(number * 0.001, lambda _, number=number: bench.pipe.send(number, 100, urgent), None)
    bench.run()
    assert sorted(bench.items()) == list(range(1000))  # type: ignore[type-var]
    assert 200 < sum(later < earlier for earlier, later in itertools.pairwise(bench.items())) < 400  # type: ignore[operator]
    assert max(time for time, _ in bench.arrived) < 1.0 + 0.1 + HELD_UP * 0.1


def test_copies_that_are_on_the_way_when_the_link_fails_do_not_arrive() -> None:
    bench = Bench(delay=0.1, duplicate=1.0, reorder=1.0)
    bench.send_at(0.0, "x")
    bench.engine.at(0.05, lambda _: bench.pipe.fail(), None)
    bench.run()
    assert bench.arrived == []
    assert [cause for _, _, cause in bench.lost] == ["link down"] * 2
