"""The simulator's TCP: how its window moves, how it mends losses, when it times out, what it leaves behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sim.engine import Engine
from penstock.sim.pipes import Pipe
from penstock.sim.tcp.alarm import Alarm
from penstock.sim.tcp.config import TcpConfig
from penstock.sim.tcp.flow import TcpFlow
from penstock.sim.tcp.packets import ProcessingDelay, TcpPacket, beside
from penstock.sim.tcp.sender import RoundTrip

EACH = TcpConfig(acknowledge_every=1)  # without delayed acknowledgements: one segment, one acknowledgement
MBIT = 1e6
SEGMENT_SECONDS = 280 * 8 / MBIT


class Line:
    """A link both ways: 1 Mbit/s and 40 ms there and back unless told, about 18 segments of 280 bytes in flight."""

    def __init__(self, *, rate: float | None = MBIT, delay: float = 0.02, queue: int = 50, loss: float = 0.0) -> None:
        self.engine = Engine()
        self.others: list[Any] = []  # what came out of the pipes and is not TCP's
        self.sent: list[tuple[float, int]] = []  # segments
        self.answers: list[tuple[float, int]] = []  # acknowledgements
        self.drop: Callable[[int], bool] = lambda number: False
        self.there, self.back = (
            Pipe(
                self.engine,
                Random(seed),
                *beside(self.others.append, lambda item, cause: self.others.append((item, cause))),
                rate_bits_per_s=rate,
                delay=delay,
                jitter=0.0,
                loss=loss if seed == 1 else 0.0,
                queue_packets=queue,
                reliable=False,
            )
            for seed in (1, 2)
        )

    def flow(self, config: TcpConfig = EACH, **times: Any) -> TcpFlow:
        return TcpFlow(self.engine, [self.give], [self.answer], config, **times)

    def give(self, packet: TcpPacket, size_bytes: int) -> None:
        self.sent.append((self.engine.now, packet.number))
        if not self.drop(packet.number):
            self.there.send(packet, size_bytes)

    def answer(self, packet: TcpPacket, size_bytes: int) -> None:
        self.answers.append((self.engine.now, packet.number))
        self.back.send(packet, size_bytes)

    def lose_once(self, *numbers: int) -> None:
        """Each of these segments gets lost the first time it is sent."""
        left = dict.fromkeys(numbers)
        self.drop = lambda number: left.pop(number, 1) is None

    def cut(self, start: float, end: float) -> None:
        for pipe in (self.there, self.back):
            self.engine.at(start, lambda pipe: pipe.fail(), pipe)
            self.engine.at(end, lambda pipe: pipe.restore(), pipe)

    def times(self, number: int) -> list[float]:
        """When this segment was sent."""
        return [time for time, sent in self.sent if sent == number]


def jain(rates: list[float]) -> float:
    return sum(rates) ** 2 / len(rates) / sum(rate * rate for rate in rates)


# The window.


@pytest.mark.parametrize(("every", "expected"), [(1, [3, 6, 12, 24]), (2, [3, 5, 8, 12])])
def test_slow_start_adds_a_segment_per_acknowledgement(every: int, expected: list[int]) -> None:
    line = Line(rate=None, delay=0.1)
    line.flow(replace(EACH, acknowledge_every=every, acknowledgement_delay=0.001))
    line.engine.run(0.75)
    per_round_trip = [sum(start <= time < start + 0.2 for time, _ in line.sent) for start in (-0.1, 0.1, 0.3, 0.5)]
    assert per_round_trip == expected


def test_above_the_threshold_the_window_grows_by_one_per_round_trip() -> None:
    line = Line(rate=None, delay=0.05)
    flow = line.flow()
    flow.sender.threshold = flow.sender.window = 10.0
    line.engine.run(1.02)  # ten round trips
    assert flow.sender.window == pytest.approx(
        19.5, abs=0.5
    )  # a little less than one: 1/w is added w times while w grows


def test_the_receivers_window_bounds_what_is_under_way() -> None:
    line = Line(rate=None, delay=0.05)
    flow = line.flow(replace(EACH, receive_window=8))
    line.engine.run(10.0)
    assert flow.sender.window == 8.0
    assert flow.statistics.rate_bits_per_s(2.0, 10.0) == pytest.approx(8 * 280 * 8 / 0.1, rel=0.01)


def test_an_unused_window_does_not_grow() -> None:
    line = Line(rate=None, delay=0.05)
    flow = line.flow(replace(EACH, segments_max=0))
    for number in range(100):
        line.engine.at(number * 0.2, lambda _: flow.offer(1), None)
    line.engine.run(30.0)
    assert flow.receiver.expected == 100
    assert flow.sender.window == 3.0


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("queue", [20, 50, 100])
def test_one_flow_fills_a_link_whose_queue_holds_a_round_trip(queue: int, every: int) -> None:
    line = Line(queue=queue)
    flow = line.flow(replace(EACH, acknowledge_every=every))
    line.engine.run(40.0)
    assert flow.statistics.rate_bits_per_s(0.0, 40.0) > 0.95 * MBIT
    assert flow.statistics.rate_bits_per_s(10.0, 40.0) > 0.99 * MBIT


def test_two_equal_flows_share_a_link_without_any_randomness() -> None:
    line = Line()
    flows = [line.flow(start=0.37 * number) for number in range(2)]
    line.engine.run(100.0)
    rates = [flow.statistics.rate_bits_per_s(0.0, 100.0) for flow in flows]
    assert jain(rates) > 0.97
    assert sum(rates) > 0.95 * MBIT


# Losses.


def test_a_lost_segment_is_sent_again_after_three_duplicates_and_halves_the_window() -> None:
    line = Line(rate=None, delay=0.05)
    line.lose_once(100)
    flow = line.flow()
    flow.sender.window = flow.sender.threshold = 20.0
    line.engine.run(2.0)
    first, second = line.times(100)
    assert second - first < 0.12  # about a round trip
    assert flow.sender.threshold == pytest.approx(12.0, abs=1.0)  # it had grown to about 24
    assert (flow.statistics.retransmissions, flow.statistics.loss_events, flow.statistics.timeouts) == (1, 1, 0)


def test_a_burst_of_losses_is_mended_without_a_timeout_and_is_one_event() -> None:
    line = Line()
    line.lose_once(300, 301, 302, 303)
    flow = line.flow()
    flow.sender.threshold = 25.0  # so that slow start ends before the queue is full
    line.engine.run(3.0)
    assert flow.receiver.expected > 1000
    assert [len(line.times(number)) for number in range(299, 305)] == [1, 2, 2, 2, 2, 1]
    again = [line.times(number)[1] for number in range(300, 304)]
    assert all(0.03 < later - earlier < 0.2 for earlier, later in itertools.pairwise(again))  # one per round trip
    assert (flow.statistics.timeouts, flow.statistics.fast_recoveries) == (0, 1)


@pytest.mark.parametrize(("last", "window", "then"), [(12, 5.0, [16]), (16, 2.0, [16, 17])])
def test_a_recovery_step_by_step(last: int, window: float, then: list[int]) -> None:
    engine, sent = Engine(), []
    flow = TcpFlow(engine, [lambda packet, size: sent.append(packet.number)], [lambda packet, size: None], EACH)
    flow.sender.window = flow.sender.threshold = 10.0
    engine.run(0.1)
    assert sent == list(range(10))  # 0 and 4 get lost: eight duplicates, and two for what limited transmit adds

    def hears(*numbers: int) -> list[int]:
        sent.clear()
        for number in numbers:
            flow.sender.take(number)
        return sent

    assert hears(0, 0) == [10, 11]
    assert hears(0) == [0]  # the window is 5 + 3
    assert hears(0, 0, 0, 0, 0, 0, 0) == [12, 13, 14]  # and grows to 15
    assert hears(4) == [4, 15]  # a partial acknowledgement takes 4 away and gives 1 back: 12 from segment 4 on
    assert hears(last) == then  # the recovery is over at 12; the window is no larger than what is under way plus one
    assert (flow.sender.window, flow.sender.threshold) == (window, 5.0)


@pytest.mark.parametrize("impatient", [True, False])
def test_many_losses_in_one_window_wait_for_the_timeout_only_if_impatient(impatient: bool) -> None:
    line = Line()
    line.lose_once(*range(2000, 2012))
    flow = line.flow(replace(EACH, impatient=impatient))
    flow.sender.threshold = 25.0
    line.engine.run(6.0)
    assert flow.receiver.expected > 2300
    assert flow.statistics.timeouts == impatient
    assert flow.statistics.loss_events == 1
    assert flow.sender.threshold < 36.0  # half of the 70 before the loss, not half of what the recovery inflated


def test_limited_transmit_mends_a_loss_in_a_window_of_three() -> None:
    line = Line(rate=None, delay=0.05)
    line.lose_once(0)
    flow = line.flow()
    line.engine.run(1.0)
    assert flow.statistics.timeouts == 0
    assert flow.receiver.expected > 20


def test_a_retransmission_that_is_lost_too_ends_in_a_timeout() -> None:
    line = Line(rate=None, delay=0.05)
    times_lost = itertools.count()
    line.drop = lambda number: number == 50 and next(times_lost) < 2
    flow = line.flow()
    line.engine.run(3.0)
    assert len(line.times(50)) == 3
    assert (flow.statistics.timeouts, flow.statistics.loss_events) == (1, 1)
    assert flow.receiver.expected > 100


def test_what_follows_the_end_of_a_recovery_can_be_lost_too() -> None:
    # The first new segment after the loss is lost as well; the duplicates then ask for the very end of the recovery.
    line = Line(rate=None, delay=0.05)
    flow = line.flow()
    flow.sender.window = flow.sender.threshold = 20.0
    ends: list[int] = []

    def drop(number: int) -> bool:
        if number == 100 and not ends:
            ends.append(-1)
            return True
        if flow.sender.recovering and ends == [-1] and number >= flow.sender.highest - 1 > 100:
            ends.append(number)
            return True
        return False

    line.drop = drop
    line.engine.run(4.0)
    assert len(ends) == 2
    assert (flow.statistics.fast_recoveries, flow.statistics.timeouts) == (2, 0)


def test_the_last_segment_of_a_transfer_is_mended_by_the_timeout() -> None:
    line = Line(rate=None, delay=0.05)
    line.lose_once(99)
    flow = line.flow(replace(EACH, segments_max=100))
    line.engine.run(10.0)
    assert flow.statistics.finished_at is not None
    found = flow.statistics
    assert (found.timeouts, found.delivered_segments, found.retransmissions) == (1, 100, 1)


def test_lost_acknowledgements_cost_little() -> None:
    line = Line()
    line.back.loss = 0.2
    flow = line.flow()
    line.engine.run(30.0)
    assert flow.acknowledgements.lost_packets > 1000
    assert flow.statistics.rate_bits_per_s(5.0, 30.0) > 0.95 * MBIT


# Timeouts.


def test_the_timeout_follows_the_round_trip() -> None:
    estimate = RoundTrip(TcpConfig(timeout_min=0.05))
    assert estimate.timeout == 1.0
    estimate.sample(0.1)
    assert estimate.timeout == pytest.approx(0.1 + 4 * 0.05)
    estimate.sample(0.2)  # the variation moves a quarter of the way to 0.1, then the mean an eighth to 0.2
    assert estimate.timeout == pytest.approx(0.1125 + 4 * 0.0625)
    for _ in range(200):
        estimate.sample(0.01)
    assert estimate.timeout == 0.05
    for _ in range(20):
        estimate.back_off()
    assert estimate.timeout == 60.0
    estimate.sample(0.01)
    assert estimate.timeout == 0.05


def test_a_cut_link_makes_the_waits_double_and_the_flow_comes_back() -> None:
    line = Line()
    line.cut(20.0, 25.0)
    flow = line.flow()
    line.engine.run(24.0)
    assert flow.sender.threshold > 20.0  # the first timeout has halved the window, the others have not
    line.engine.run(40.0)
    missing = next(number for time, number in line.sent if time > 20.15 and len(line.times(number)) > 3)
    waits = [later - earlier for earlier, later in itertools.pairwise(line.times(missing))]
    assert waits[-4:] == pytest.approx([0.4, 0.8, 1.6, 3.2], rel=0.02)
    assert 25.0 < line.times(missing)[-1] < 27.0
    assert flow.statistics.rate_bits_per_s(21.0, 25.0) == 0.0
    assert flow.statistics.rate_bits_per_s(28.0, 40.0) > 0.99 * MBIT
    assert flow.receiver.expected == flow.statistics.delivered_segments


def test_the_wait_is_bounded_however_long_the_link_is_cut() -> None:
    line = Line()
    line.cut(5.0, 200.0)
    flow = line.flow(replace(EACH, timeout_max=10.0))
    line.engine.run(220.0)
    times = [time for time, _ in line.sent if 50.0 < time < 190.0]
    assert {round(later - earlier, 6) for earlier, later in itertools.pairwise(times)} == {10.0}
    assert flow.statistics.rate_bits_per_s(212.0, 220.0) > 0.95 * MBIT


def test_a_segment_sent_twice_gives_no_sample() -> None:
    line = Line(rate=None, delay=0.3)  # the round trip is longer than the first timeout, so segment 0 is sent twice
    flow = line.flow(replace(EACH, timeout_initial=0.2, segments_max=1))
    line.engine.run(5.0)
    assert flow.statistics.timeouts == 1
    assert flow.sender.round_trip.smoothed is None
    assert flow.sender.round_trip.timeout == 0.4
    flow.offer(1)
    line.engine.run(10.0)
    assert flow.sender.round_trip.smoothed is None  # sent twice again, for 0.4 s are too short as well


def test_an_alarm_rings_once_at_the_time_last_set() -> None:
    engine, rung = Engine(), []
    alarm = Alarm(engine, lambda: rung.append(engine.now))
    alarm.set(5.0)
    alarm.set(2.0)
    alarm.set(3.0)
    engine.run(10.0)
    alarm.set(12.0)
    alarm.due = None
    engine.run(20.0)
    assert rung == [3.0]


# The receiver.


def test_every_second_segment_is_acknowledged_and_a_lone_one_after_a_while() -> None:
    line = Line(rate=None, delay=0.05)
    line.flow(TcpConfig(segments_max=3))
    line.engine.run(1.0)
    assert line.answers == [(0.05, 2), (pytest.approx(0.09), 3)]


def test_a_gap_is_told_at_once_and_so_is_its_end() -> None:
    line = Line(rate=None, delay=0.05)
    line.flow(TcpConfig(segments_max=1))
    flow = line.flow(TcpConfig(segments_max=0))
    for number in (1, 2, 0, 2, 3):
        flow.receiver.take(number)
    assert [number for _, number in line.answers] == [0, 0, 3, 3]  # the last waits for a second
    assert flow.statistics.delivered_segments == 4


# A flow's life.


def test_a_flow_starts_and_stops_when_told() -> None:
    line = Line()
    flow = line.flow(start=3.0, stop=10.0)
    line.engine.run(30.0)
    assert line.sent[0][0] == 3.0
    assert line.sent[-1][0] < 10.0
    assert flow.statistics.bins[:3] == [0, 0, 0]
    assert len(flow.statistics.bins) == 11  # what was on its way at 10 s still arrives


def test_a_finite_transfer_ends_and_goes_on_when_there_is_more() -> None:
    line = Line(queue=1000)
    flow = line.flow(replace(EACH, segments_max=500))
    seen: list[int] = []
    flow.receiver.progress = seen.append
    line.engine.run(10.0)
    ended = flow.statistics.finished_at or 0.0
    assert 500 * SEGMENT_SECONDS < ended < 500 * SEGMENT_SECONDS + 0.5
    flow.offer(100)
    again = flow.statistics.finished_at
    assert again is None
    line.engine.run(20.0)
    assert (flow.statistics.finished_at or 0.0) > 10.0
    assert seen[-1] == flow.receiver.expected == flow.statistics.delivered_segments == 600
    assert seen == sorted(seen)


def test_other_packets_in_the_same_pipe_go_to_their_own_callbacks() -> None:
    line = Line(queue=5)
    flow = line.flow()
    for number in range(8):
        line.engine.at(1.0, lambda number: line.there.send(("message", number), 280), number)
    line.engine.run(2.0)
    arrived = [item for item in line.others if item[0] == "message"]
    lost = [item for item in line.others if item[1] == "queue full"]
    assert len(arrived) + len(lost) == len(line.others) == 8
    assert len(lost) >= 3
    assert flow.segments.lost_packets > 0
    assert flow.receiver.expected > 100


def test_a_path_may_have_several_pipes() -> None:
    first, second = Line(delay=0.02), Line(delay=0.03)
    second.there._engine = second.back._engine = first.engine
    flow = TcpFlow(
        first.engine,
        [first.there.send, second.there.send],
        [second.back.send, first.back.send],
        TcpConfig(segments_max=1),
    )
    first.engine.run(1.0)
    there, back = 0.05 + 2 * SEGMENT_SECONDS, 0.05 + 2 * 40 * 8 / MBIT
    assert flow.statistics.finished_at == pytest.approx(there + TcpConfig().acknowledgement_delay + back)


def test_a_processing_delay_keeps_the_order_and_its_bound() -> None:
    engine, left = Engine(), []
    delay = ProcessingDelay(engine, Random(1), 0.01, lambda item, size: left.append((engine.now, item)))
    for number in range(200):
        engine.at(number * 0.004, lambda number: delay.send(number, 280), number)
    engine.run(10.0)
    assert [item for _, item in left] == list(range(200))
    assert all(0.0 <= time - item * 0.004 < 0.01 for time, item in left)


def test_the_same_run_comes_out_the_same() -> None:
    def run(seed: int) -> tuple[dict[str, int], list[int]]:
        line = Line(loss=0.01)
        flow = line.flow(TcpConfig(processing_delay_max=0.002), random=Random(seed))
        line.engine.run(20.0)
        return flow.counts(), flow.statistics.bins

    assert run(1) == run(1)
    assert run(1) != run(2)


# What it leaves behind.


def test_numbers_do_not_wrap() -> None:
    line = Line(loss=0.01)
    flow = line.flow()
    flow.sender.acknowledged = flow.sender.next = flow.sender.highest = flow.receiver.expected = (1 << 32) - 1000
    line.engine.run(20.0)
    assert flow.receiver.expected > (1 << 32) + 1000


def test_nothing_grows_with_time() -> None:
    line = Line(loss=0.01)
    line.sent = line.answers = type("Nowhere", (list,), {"append": lambda self, item: None})()
    config = TcpConfig(trace_max=100, trace_interval=0.01, bins_max=30, receive_window=200)
    flow = line.flow(config)
    line.cut(20.0, 30.0)
    for until in range(10, 101, 10):
        line.engine.run(float(until))
        assert len(line.engine._heap) < 300
        assert len(flow.receiver._early) < 200
        assert len(flow.statistics.window_trace) < 100
        assert len(flow.statistics.bins) <= 30
    assert flow.statistics.unbinned_bytes > 0
    assert flow.statistics.unbinned_bytes + sum(flow.statistics.bins) == flow.counts()["delivered bytes"]
    times = [time for time, _ in flow.statistics.window_trace]
    assert times == sorted(times)
    assert times[0] < 1.0
    assert times[-1] > 90.0


def test_a_packet_costs_one_event() -> None:
    line = Line()
    flow = line.flow()
    line.engine.run(50.0)
    packets = flow.segments.sent_packets + flow.acknowledgements.sent_packets
    assert line.engine.events < 1.02 * packets


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 60),
    st.integers(1, 3),
    st.integers(2, 40),
    st.sets(st.integers(0, 150), max_size=60),
    st.sets(st.integers(0, 150), max_size=60),
    st.sampled_from([None, 1e5, 1e6]),
    st.booleans(),
)
def test_whatever_is_lost_everything_arrives_once_and_in_the_end(
    segments: int, every: int, window: int, lost: set[int], unheard: set[int], rate: float | None, impatient: bool
) -> None:
    line = Line(rate=rate, queue=10)
    config = TcpConfig(
        segments_max=segments,
        acknowledge_every=every,
        receive_window=max(window, 3),
        impatient=impatient,
        timeout_max=2.0,
    )
    line.drop = lambda number: len(line.sent) - 1 in lost
    flow = line.flow(config)
    answer = flow.acknowledgements.gives[0]

    def drop_some(packet: TcpPacket, size_bytes: int) -> None:
        if len(line.answers) in unheard:
            line.answers.append((line.engine.now, packet.number))
        else:
            answer(packet, size_bytes)

    flow.acknowledgements.gives = (drop_some,)
    line.engine.run(1000.0)
    assert flow.statistics.finished_at is not None
    assert flow.receiver.expected == flow.statistics.delivered_segments == flow.sender.acknowledged == segments
    assert flow.segments.sent_packets == segments + flow.statistics.retransmissions
    assert not flow.receiver._early
    assert not line.engine._heap


@pytest.mark.parametrize(
    "fields",
    [
        {"segment_bytes": 0},
        {"initial_window": 0},
        {"initial_window": 20, "receive_window": 10},
        {"acknowledge_every": 0},
        {"segments_max": -1},
        {"timeout_min": 0.0},
        {"timeout_min": 2.0},
        {"timeout_max": 0.5},
        {"acknowledgement_delay": 0.5},
        {"processing_delay_max": -1.0},
        {"trace_max": 1},
        {"bin_seconds": 0.0},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|less than"):
        TcpConfig(**fields)
