"""What a pubend keeps: what somebody needs, and the rest for a while."""

from __future__ import annotations

import pytest

from penstock.kernel.storage import Get, Put, Read, StorageFailed, Trim
from penstock.streams.config import StreamsConfig
from penstock.streams.log_codec import GONE
from penstock.streams.packets import Registered
from penstock.testing.pump import a_message
from pubend_bench import FULL, PubendBench

SHORT = StreamsConfig(history=10.0, retain=1_000.0, ids_window=4.0, lease=2.0)


def stored(bench: PubendBench, count: int, *, every: float = 1.0, body: bytes = b"") -> list[int]:
    ticks = []
    for _ in range(count):
        number = bench.requests + 1
        ticks.append(bench.store_one(f"id{number}", a_message(number, body=body)))
        bench.advance(every)
    return ticks


def kept(bench: PubendBench) -> list[int]:
    return [tick for tick, _ in bench.log()]


def decide(bench: PubendBench) -> None:
    """Go on until `gone` is being written."""
    bench.hold = True
    bench.now += 30.0
    bench.wake()
    while not any(isinstance(ask.operation, Put) and ask.operation.name == GONE for ask in bench.held):
        assert bench.held
        bench.answer(1)


def test_what_nobody_needs_is_kept_for_history_and_then_goes() -> None:
    bench = PubendBench(SHORT)
    ticks = stored(bench, 30)
    assert kept(bench) == ticks[-len(kept(bench)) :]
    assert 9 <= len(kept(bench)) <= 13
    assert bench.pubend.gone == bench.gone_told[-1]
    assert max(tick for tick in ticks if tick not in kept(bench)) == bench.pubend.gone
    bench.advance(30.0)
    assert kept(bench) == []
    assert bench.pubend.gone == ticks[-1]
    assert bench.pubend.status().entries == 0
    assert bench.pubend.status().log_bytes == 0


def test_what_a_name_has_not_acknowledged_stays() -> None:
    bench = PubendBench(SHORT)
    ticks = stored(bench, 3)
    session = bench.registered(bench.register()).session
    bench.register("ahead", start="latest")
    bench.advance(50.0)
    assert kept(bench) == ticks
    session = bench.registered(bench.register()).session
    bench.progress("billing", session, ticks[1])
    bench.advance(5.0)
    assert kept(bench) == ticks[2:]
    assert bench.pubend.gone == ticks[1]


def test_ids_keep_their_entries_longer_than_history() -> None:
    bench = PubendBench(StreamsConfig(history=5.0, ids_window=60.0))
    ticks = stored(bench, 3)
    bench.advance(30.0)
    assert kept(bench) == ticks
    bench.advance(60.0)
    assert kept(bench) == []


def test_nothing_is_kept_beyond_retain_and_whoever_needs_it_gets_a_gap_again_and_again() -> None:
    bench = PubendBench(StreamsConfig(history=5.0, retain=20.0, ids_window=4.0))
    ticks = stored(bench, 3)
    bench.register()
    bench.advance(30.0)
    assert kept(bench) == []
    for _ in range(2):  # until it makes progress, in case the answer was lost
        answer = bench.registered(bench.register())
        assert (answer.position, answer.gone_from) == (ticks[-1], 1)
    bench.restart()
    answer = bench.registered(bench.register())
    assert (answer.position, answer.gone_from) == (ticks[-1], 1)
    bench.progress("billing", answer.session, answer.position)
    answer = bench.registered(bench.register())
    assert (answer.position, answer.gone_from) == (ticks[-1], 0)


def test_a_position_or_a_tick_below_what_is_kept_is_a_gap_and_earliest_is_none() -> None:
    bench = PubendBench(SHORT)
    stored(bench, 3)
    bench.advance(30.0)
    gone = bench.pubend.gone
    asked = [
        bench.register("a", position=5),
        bench.register("b", start="tick:5"),
        bench.register("c", start="earliest"),
        bench.register("d", start="ago:500"),
    ]
    answers = [bench.registered(request) for request in asked]
    assert [answer.position for answer in answers] == [gone] * 4
    assert [answer.gone_from for answer in answers] == [6, 5, 0, 0]


def test_no_more_bytes_are_kept_than_allowed_the_oldest_go_first() -> None:
    bench = PubendBench(StreamsConfig(retain_bytes=20_000))
    bench.register()
    ticks = stored(bench, 40, every=0.01, body=bytes(1_000))
    left = kept(bench)
    assert left == ticks[-len(left) :]
    assert 15 <= len(left) <= 20
    assert bench.pubend.status().log_bytes <= 20_000
    assert bench.registered(bench.register()).gone_from == 1


def test_steps_are_bounded_and_follow_each_other() -> None:
    bench = PubendBench(SHORT)
    bench.hold = True
    for number in range(2_500):
        bench.publish(f"id{number}")
    bench.answer()
    bench.now += 30.0
    bench.hold = False
    bench.wake()
    bench.advance(30.0)
    assert kept(bench) == []
    assert len(bench.gone_told) == 3


def test_gone_never_goes_back_whatever_the_disk_has_done() -> None:
    for carried_out in range(4):
        bench = PubendBench(SHORT)
        ticks = stored(bench, 5)
        decide(bench)
        told = bench.pubend.gone
        bench.hold = False
        bench.restart(carried_out=carried_out)
        assert bench.pubend.gone >= told
        bench.advance(20.0)
        assert kept(bench) == []
        assert bench.pubend.gone == ticks[-1]


def test_a_trim_that_was_interrupted_is_carried_out_on_opening() -> None:
    bench = PubendBench(SHORT)
    ticks = stored(bench, 5)
    bench.failing = lambda operation: FULL if isinstance(operation, Trim) else None
    bench.advance(20.0)
    assert bench.pubend.gone == ticks[-1]
    assert kept(bench) == ticks
    bench.failing = lambda operation: None
    bench.restart()
    assert kept(bench) == []


@pytest.mark.parametrize("failing", [True, False])
def test_a_registration_waits_while_a_trim_is_decided(failing: bool) -> None:
    bench = PubendBench(SHORT)
    ticks = stored(bench, 5)
    decide(bench)
    request = bench.register(position=ticks[1])
    assert bench.all_sent(Registered) == []

    def fails(operation: object) -> StorageFailed | None:
        return FULL if failing and isinstance(operation, Put) and operation.name == GONE else None

    bench.failing = fails
    bench.answer()
    answer = bench.registered(request)
    assert answer.problem == ""
    expected = (ticks[1], 0, ticks) if failing else (ticks[-1], ticks[1] + 1, [])
    assert (answer.position, answer.gone_from, kept(bench)) == expected
    bench.failing = lambda operation: None
    bench.hold = False
    bench.advance(60.0)
    assert kept(bench) == (ticks[2:] if failing else [])


def test_a_registration_that_is_being_written_keeps_what_it_needs() -> None:
    bench = PubendBench(SHORT)
    ticks = stored(bench, 5)
    bench.hold = True
    bench.register(position=ticks[1])
    bench.now += 30.0
    bench.wake()
    name = bench.held.pop(0)  # the disk takes its time
    bench.answer()
    assert kept(bench) == ticks[2:]
    bench.held.append(name)
    bench.answer()
    assert bench.all_sent(Registered)[-1].position == ticks[1]


def test_progress_counts_when_it_is_on_disk() -> None:
    bench = PubendBench(SHORT)
    ticks = stored(bench, 5)
    session = bench.registered(bench.register()).session
    bench.failing = lambda operation: FULL if isinstance(operation, Put) and operation.name != GONE else None
    bench.progress("billing", session, ticks[-1])
    bench.now += 8.0
    bench.wake()
    bench.renew("billing", session)
    bench.advance(10.0)
    assert kept(bench) == ticks


def test_progress_that_waits_behind_a_write_does_not_count_yet() -> None:
    bench = PubendBench(SHORT)
    ticks = stored(bench, 5)
    session = bench.registered(bench.register(position=ticks[0])).session
    bench.now += 30.0
    bench.renew("billing", session)
    bench.hold = True
    bench.wake()  # the log is being read
    bench.progress("billing", session, ticks[1])  # is being written
    bench.progress("billing", session, ticks[4])  # waits
    while not any(isinstance(ask.operation, Put) and ask.operation.name == GONE for ask in bench.held):
        bench.answer(1)
    bench.hold = False
    bench.restart(carried_out=len(bench.held))
    answer = bench.registered(bench.register())
    assert (answer.position, answer.gone_from) == (ticks[1], 0)
    assert kept(bench)[-3:] == ticks[2:]


def test_a_log_that_cannot_be_read_is_looked_at_again_later() -> None:
    bench = PubendBench(SHORT)
    stored(bench, 5)
    bench.failing = lambda operation: FULL if isinstance(operation, Read) else None
    bench.advance(30.0)
    assert len(kept(bench)) == 5
    bench.failing = lambda operation: None
    bench.advance(5.0)
    assert kept(bench) == []


def test_ids_of_entries_that_were_trimmed_are_known_until_a_restart_and_then_nobody_knows() -> None:
    bench = PubendBench()
    message = a_message(1)
    tick = bench.store_one("a", message)
    bench.advance(1.0)
    bench.report(bench.command("trim", tick=tick, force=True))
    assert kept(bench) == []
    assert bench.published(bench.publish("a", message, age=2.0)).tick == tick
    bench.restart()
    assert bench.published(bench.publish("a", message, age=2.0)).unknown
    assert bench.published(bench.publish("b", age=0.0)).problem == ""


def test_a_trim_by_retention_leaves_no_doubt_about_ids_after_a_restart() -> None:
    bench = PubendBench(SHORT)
    stored(bench, 5)
    bench.advance(30.0)
    assert kept(bench) == []
    bench.restart(after=1.0)
    assert bench.published(bench.publish("new", age=2.0)).problem == ""


def test_values_on_disk_are_few() -> None:
    bench = PubendBench(SHORT)
    stored(bench, 30)
    assert len(bench.store.blocks.by_area["streams/orders/0"].values) == 3
    assert bench.store.carry_out("streams/orders/0", Get(GONE))
