"""Slow readers at the edge: what a client cannot take is withheld by its broker, counted, and nobody else notices."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.content.message import Identity, Message
from penstock.kernel.packet import Lane
from penstock.kernel.trace import Delivered, Dropped, Record
from penstock.rates.config import RatesClientConfig, RatesConfig
from penstock.rates.edge import PUBLISHERS_MAX, ReaderKey, SlowReaders
from penstock.rates.records import ReaderThinned
from penstock.scenario.spec import BrokerSpec, ClientSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate

READER = ReaderKey(1, 7)


def message(number: int) -> Message:
    return Message(Identity("p", 1, number), {}, b"", 100)


def offered(edge: SlowReaders, count: int, seconds: float) -> tuple[list[int], int]:
    """Which of so many messages the reader gets, and how many it never will."""
    got, lost = [], 0
    for number in range(count):
        now = seconds * number / count
        while (at := edge.ready_at(READER)) is not None and at <= now:
            held = edge.serve(READER, at)
            got += [held[0].identity.count] if held is not None else []
        gets, missed = edge.admits(READER, message(number), Lane.BEST_EFFORT, now)
        got += [number] if gets else []
        lost += missed is not None
    return got, lost


@pytest.mark.parametrize("newest", [False, True])
def test_a_reader_gets_as_many_as_it_takes(newest: bool) -> None:
    edge = SlowReaders(100.0)
    edge.tell(READER, 10.0, newest, 0.0)
    got, lost = offered(edge, 1_000, 10.0)
    held = edge.ready_at(READER) is not None
    assert len(got) == pytest.approx(102, abs=2)
    assert len(got) + lost + held == 1_000
    assert got == sorted(got)


def test_the_newest_is_no_older_than_the_last_that_came() -> None:
    edge = SlowReaders(100.0)
    edge.tell(READER, 1.0, True, 0.0)
    for number in range(10):
        edge.admits(READER, message(number), Lane.BEST_EFFORT, 0.0)
    held = edge.serve(READER, 5.0)
    assert held is not None
    assert held[0].identity.count == 9


def test_others_are_not_slow_and_what_is_old_does_not_count() -> None:
    edge = SlowReaders(3.0)
    edge.tell(READER, 1.0, True, 0.0)
    for _ in range(5):
        assert edge.admits(ReaderKey(1, 8), message(0), Lane.BEST_EFFORT, 0.0) == (True, None)
        edge.admits(READER, message(0), Lane.BEST_EFFORT, 0.0)
    assert len(edge.expire(4.0)) == 1
    assert len(edge) == 0
    assert edge.admits(READER, message(0), Lane.BEST_EFFORT, 4.0) == (True, None)


def test_who_keeps_up_again_gets_what_waited() -> None:
    edge = SlowReaders(3.0)
    edge.tell(READER, 1.0, True, 0.0)
    for number in range(5):
        edge.admits(READER, message(number), Lane.BEST_EFFORT, 0.0)
    held = edge.tell(READER, 0.0, True, 0.1)
    assert held is not None
    assert held[0].identity.count == 4
    edge.tell(READER, 1.0, True, 0.2)
    for number in range(5):
        edge.admits(READER, message(number), Lane.BEST_EFFORT, 0.2)
    assert edge.link_down(1) == 1


class Notes:
    def __init__(self) -> None:
        self.got: Counter[str | tuple[str, str]] = Counter()
        self.dropped = self.withheld = 0

    def write(self, time: float, node: str, record: Record) -> None:
        match record:
            case Delivered():
                self.got[node] += 1
                self.got[node, record.publisher] += 1
            case Dropped():
                self.dropped += 1
            case ReaderThinned():
                self.withheld += record.messages


@pytest.mark.parametrize("keep", ["oldest", "newest"])
def test_a_slow_application_loses_nothing_in_its_own_queue_and_the_fast_one_gets_all(keep: str) -> None:
    settings = {"rates": RatesClientConfig(enabled=True, keep=keep)}  # type: ignore[arg-type]  # one of the two
    slow = SubscriptionSpec(where="x > 0", reads_messages_per_s=50.0, queue_max=200)
    publishing = PublisherSpec(rate_messages_per_s=300.0, start=1.0, attributes={"x": 1})
    notes = Notes()
    result = simulate(
        Scenario(
            name="slow reader",
            duration=8.0,
            services={"rates": RatesConfig(enabled=True)},
            broker=(BrokerSpec(name="a"),),
            client=(
                ClientSpec(name="p", broker="a", publish=(publishing,)),
                ClientSpec(name="slow", broker="a", subscribe=(slow,), services=settings),
                ClientSpec(name="fast", broker="a", subscribe=(SubscriptionSpec(where="x > 0"),)),
            ),
        ),
        1,
        trace=notes,
    )
    assert result.problems == []
    published = result.clients["p"].published
    assert notes.got["fast"] == published
    assert notes.dropped == 0
    assert notes.got["slow"] + notes.withheld == pytest.approx(published, abs=1)
    assert notes.got["slow"] >= 0.9 * 7.0 * 50.0


def test_what_was_held_goes_before_what_comes_when_the_reader_is_slow_no_longer() -> None:
    edge = SlowReaders(3.0)
    edge.tell(READER, 0.1, True, 0.0)
    got = [number for number in range(4) if edge.admits(READER, message(number), Lane.BEST_EFFORT, 0.0)[0]]
    assert got == [0, 1], "what the bucket holds; the last of the others waits"
    gets, lost = edge.admits(READER, message(4), Lane.BEST_EFFORT, 3.5)  # what it said has expired
    assert not gets
    assert lost is not None
    assert lost.identity.count == 3, "the newest waits in its place"
    ((_, held),) = edge.expire(3.5)
    assert held[0].identity.count == 4
    assert edge.admits(READER, message(5), Lane.BEST_EFFORT, 3.5) == (True, None)


@pytest.mark.parametrize("newest", [False, True])
def test_who_always_comes_a_moment_too_late_is_not_shut_out(newest: bool) -> None:
    """Two publish three messages per second, one a moment after the other, for a reader that takes three."""
    edge, got, last = SlowReaders(100.0), Counter[str](), dict.fromkeys(("first", "second"), 0.0)
    edge.tell(READER, 3.0, newest, 0.0)
    for number in range(90):
        for publisher, lag in (("first", 0.0), ("second", 0.01)):
            now = number / 3.0 + lag
            while (at := edge.ready_at(READER)) is not None and at <= now:
                held = edge.serve(READER, at)
                assert held is not None
                got[held[0].identity.publisher] += 1
                last[held[0].identity.publisher] = at
            gets, _ = edge.admits(READER, Message(Identity(publisher, 1, number), {}, b"", 9), Lane.BEST_EFFORT, now)
            if gets:
                got[publisher] += 1
                last[publisher] = now
            assert all(now - at < 6.0 for at in last.values())
    assert got.total() <= 3 * 30 + 3


@pytest.mark.parametrize("tells", [True, False])
def test_who_reads_slowly_now_and_then_shuts_nobody_out_either(tells: bool) -> None:
    """A reader that was slow a moment ago still knows of whom it got nothing (storm 70195)."""
    edge = SlowReaders(1.0)
    for begin in (0.0, 3.0):
        edge.tell(READER, 1.0, False, begin)
        while edge.admits(READER, _from("greedy"), Lane.BEST_EFFORT, begin)[0]:
            pass
        assert not edge.admits(READER, _from("seldom"), Lane.BEST_EFFORT, begin)[0]
        if tells:
            edge.tell(READER, 0.0, False, begin + 1.0)
        edge.expire(begin + 1.5)
    edge.tell(READER, 1.0, False, 5.0)
    while edge.admits(READER, _from("greedy"), Lane.BEST_EFFORT, 5.0)[0]:
        pass
    assert edge.admits(READER, _from("seldom"), Lane.BEST_EFFORT, 5.0)[0]


def _from(publisher: str) -> Message:
    return Message(Identity(publisher, 1, 1), {}, b"", 9)


def test_strangers_that_are_seen_once_do_not_make_hunger_forgotten() -> None:
    edge = SlowReaders(1e9)
    edge.tell(READER, 1.0, False, 0.0)
    for number in range(2 * PUBLISHERS_MAX):
        edge.admits(READER, _from(f"stranger {number}"), Lane.BEST_EFFORT, 0.001 * number)
    got = 0
    for tick in range(20 * 60):
        now = 1.0 + tick / 20
        edge.admits(READER, _from("busy"), Lane.BEST_EFFORT, now)
        if tick % 20 == 1:
            got += edge.admits(READER, _from("seldom"), Lane.BEST_EFFORT, now)[0]
    assert got >= 10
