"""Durable names at a pubend: registrations, sessions, progress, and what is refused."""

from __future__ import annotations

import pytest

from penstock.kernel.storage import Put, StorageFailed
from penstock.kernel.trace import InputRefused
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import ProgressStored, Registered, SessionEnded
from pubend_bench import FULL, PubendBench

SECOND = 1_000_000


def full(operation: object) -> StorageFailed | None:
    return FULL if isinstance(operation, Put) else None


def fine(operation: object) -> StorageFailed | None:
    return None


def confirmed(bench: PubendBench) -> list[tuple[str, int, int]]:
    return [done for packet in bench.all_sent(ProgressStored) for done in packet.done]


def test_a_new_name_is_on_disk_before_it_is_answered() -> None:
    bench = PubendBench()
    tick = bench.store_one("a")
    bench.hold = True
    request = bench.register(start="earliest")
    assert bench.all_sent(Registered) == []
    bench.answer()
    answer = bench.registered(request)
    assert (answer.problem, answer.position, answer.gone_from, answer.epoch) == ("", 0, 0, bench.pubend.epoch)
    assert answer.session > 0
    assert answer.position < tick
    bench.hold = False
    bench.restart()
    assert bench.pubend.status().names == 1


def test_latest_is_everything_after_what_is_settled_even_what_is_being_written() -> None:
    bench = PubendBench()
    before = bench.store_one("a")
    bench.hold = True
    bench.publish("b")
    request = bench.register(start="latest")
    bench.answer()
    after = bench.committed_items[-1][0]
    assert before <= bench.registered(request).position < after


@pytest.mark.parametrize(
    ("start", "seconds_back"), [("ago:60", 60), ("time:1040", 60), ("tick:1040000001", 60), ("ago:1e6", 1100)]
)
def test_a_start_in_the_past(start: str, seconds_back: int) -> None:
    bench = PubendBench()
    bench.advance(100.0)
    bench.pubend.horizon(bench.now)
    bench.wake()
    position = bench.registered(bench.register(start=start)).position
    assert abs(position - (1_100 - seconds_back) * SECOND) <= 2


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        ("soon", "none that there is"),
        ("tick:", "no number"),
        ("tick:-1", "no number"),
        ("tick:9" + "9" * 30, "no number"),
        ("tick:٣", "no number"),
        ("time:nan", "no number"),
        ("time:-5", "no number"),
        ("ago:inf", "no number"),
        ("ago:", "no number"),
        ("earliest:3", "none that there is"),
        ("time:5000", "in the future"),
        ("tick:4000000000000", "in the future"),
    ],
)
def test_a_start_that_cannot_be_changes_nothing(start: str, problem: str) -> None:
    bench = PubendBench()
    answer = bench.registered(bench.register(start=start))
    assert problem in answer.problem
    assert not answer.again
    assert bench.pubend.status().names == 0


@pytest.mark.parametrize("name", ["", "x" * 10_000, "a b", "a/b", "\ud800"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    bench = PubendBench()
    assert bench.registered(bench.register(name)).problem
    assert bench.pubend.status().names == 0


@pytest.mark.parametrize("where", ["", "n >", "n = 1 OR " * 900 + "n = 2", "(" * 100 + "n = 1" + ")" * 100])
def test_a_predicate_that_cannot_be_used_is_refused(where: str) -> None:
    bench = PubendBench()
    assert "predicate cannot be used" in bench.registered(bench.register(where=where)).problem


def test_another_predicate_for_a_known_name_is_refused_and_how_to_mend_it_is_said() -> None:
    bench = PubendBench()
    bench.register(where="n > 0")
    problem = bench.registered(bench.register(where="n > 1", takeover=True)).problem
    assert "choose another name, or remove this one with 'penstock stream rm orders --durable billing'" in problem
    assert "n > 0" in problem


def test_names_are_bounded() -> None:
    bench = PubendBench(StreamsConfig(names_max=2))
    assert [bench.registered(bench.register(name)).problem != "" for name in "abca"] == [False, False, True, False]
    assert "names_max" in bench.registered(bench.register("d")).problem


def test_a_known_name_goes_on_where_it_was_also_after_a_restart() -> None:
    bench = PubendBench()
    ticks = [bench.store_one(str(number)) for number in range(3)]
    session = bench.registered(bench.register()).session
    bench.progress("billing", session, ticks[1])
    assert confirmed(bench) == [("orders/0", session, ticks[1])]
    assert bench.registered(bench.register(start="earliest")).position == ticks[1]
    bench.restart()
    assert bench.registered(bench.register(start="earliest")).position == ticks[1]


def test_silence_that_a_reader_has_passed_is_stored_and_not_answered() -> None:
    bench = PubendBench()
    ticks = [bench.store_one(str(number)) for number in range(3)]
    session = bench.registered(bench.register(start="earliest")).session
    bench.progress("billing", session, ticks[1], silent=True)
    assert confirmed(bench) == []
    bench.progress("billing", session, ticks[0])  # somebody waits for what silence has passed already
    assert confirmed(bench) == [("orders/0", session, ticks[1])]
    bench.restart()
    assert bench.registered(bench.register(start="earliest")).position == ticks[1]


@pytest.mark.parametrize("at", [0, 2])
def test_a_presented_position_wins_and_is_stored(at: int) -> None:
    bench = PubendBench()
    ticks = [bench.store_one(str(number)) for number in range(3)]
    session = bench.registered(bench.register()).session
    bench.progress("billing", session, ticks[1])
    assert bench.registered(bench.register(position=ticks[at])).position == ticks[at]
    bench.restart()
    assert bench.registered(bench.register()).position == ticks[at]


def test_what_a_reader_has_got_is_not_yet_done() -> None:
    bench = PubendBench()
    ticks = [bench.store_one(str(number)) for number in range(4)]
    session = bench.registered(bench.register()).session
    bench.progress("billing", session, ticks[1])
    for presented, begins in ((ticks[2], ticks[2]), (ticks[0], ticks[1]), (-1, ticks[1])):
        answer = bench.registered(bench.register(position=presented, rewind=False))
        assert (answer.position, answer.done) == (begins, ticks[1])
    bench.restart()
    assert bench.registered(bench.register()).position == ticks[1]
    new = bench.registered(bench.register("new", position=ticks[2], rewind=False))
    assert (new.position, new.done) == (ticks[2], ticks[2])


def test_a_position_of_another_epoch_is_refused() -> None:
    bench = PubendBench()
    answer = bench.registered(bench.register(position=5, epoch=bench.pubend.epoch + 1))
    assert "another orders/0" in answer.problem
    assert bench.pubend.status().names == 0


def test_a_position_in_the_future_is_refused() -> None:
    bench = PubendBench()
    horizon = bench.pubend.horizon(bench.now)
    assert bench.registered(bench.register(position=horizon)).problem == ""
    assert "in the future" in bench.registered(bench.register("b", position=horizon + SECOND)).problem


def test_a_known_name_can_be_read_while_the_disk_is_full_and_a_new_one_may_try_again() -> None:
    bench = PubendBench()
    bench.register("known")
    bench.failing = full
    assert bench.registered(bench.register("known")).problem == ""
    answer = bench.registered(bench.register("new"))
    assert answer.again
    assert "the disk is full" in answer.problem
    assert bench.pubend.status().names == 1
    bench.failing = fine
    assert bench.registered(bench.register("new")).problem == ""


def test_a_second_reader_is_refused_unless_it_takes_over() -> None:
    bench = PubendBench()
    first = bench.registered(bench.register(reader="alice", broker=5)).session
    problem = bench.registered(bench.register(reader="bob", broker=6)).problem
    assert problem == "'billing' is being read by client 'alice' at broker 5; takeover=True takes its place"
    second = bench.registered(bench.register(reader="bob", broker=6, takeover=True)).session
    ended = SessionEnded("orders/0", "billing", first, "client 'bob' at broker 6 has taken over 'billing'")
    assert (5, ended) in bench.sent
    tick = bench.store_one("a")
    bench.progress("billing", first, tick)
    assert bench.sent[-1] == (5, SessionEnded("orders/0", "billing", first))
    assert confirmed(bench) == []
    bench.progress("billing", second, tick, broker=6)
    assert confirmed(bench) == [("orders/0", second, tick)]


def test_the_same_reader_replaces_itself() -> None:
    bench = PubendBench()
    first = bench.registered(bench.register(broker=5)).session
    second = bench.registered(bench.register(broker=6)).session
    assert bench.all_sent(SessionEnded) == []
    bench.renew("billing", first)
    assert bench.all_sent(SessionEnded) == [SessionEnded("orders/0", "billing", first)]
    bench.renew("billing", second)
    assert len(bench.all_sent(SessionEnded)) == 1


def test_a_reader_that_asks_again_before_it_was_answered_is_written_once() -> None:
    bench = PubendBench()
    bench.hold = True
    first, second = bench.register(), bench.register()
    assert len(bench.held) == 1
    bench.answer()
    assert [answer.request for answer in bench.all_sent(Registered)] == [second]
    assert first != second


def test_whoever_is_overtaken_before_it_was_answered_is_told_so() -> None:
    bench = PubendBench()
    bench.hold = True
    first = bench.register(reader="alice")
    second = bench.register(reader="bob", takeover=True)
    bench.answer()
    assert "client 'bob' at broker 5 has taken over" in bench.registered(first).problem
    assert bench.registered(second).problem == ""


def test_a_session_ends_when_it_is_not_heard_of() -> None:
    bench = PubendBench(StreamsConfig(session_lease=6.0))
    session = bench.registered(bench.register(reader="alice")).session
    for _ in range(4):
        bench.advance(4.0)
        bench.renew("billing", session)
    assert bench.registered(bench.register(reader="bob")).problem
    bench.advance(10.0)
    assert bench.registered(bench.register(reader="bob")).problem == ""
    bench.renew("billing", session)
    assert bench.all_sent(SessionEnded) == [SessionEnded("orders/0", "billing", session)]


def test_a_clock_that_is_set_back_does_not_keep_a_session_alive() -> None:
    bench = PubendBench(StreamsConfig(session_lease=6.0))
    bench.register(reader="alice")
    bench.now -= 500.0
    bench.pubend.horizon(bench.now)
    bench.wake()
    bench.advance(13.0)
    assert bench.pubend.status().readers == 0


def test_whoever_leaves_makes_room_and_the_position_stays() -> None:
    bench = PubendBench()
    tick = bench.store_one("a")
    session = bench.registered(bench.register(reader="alice")).session
    bench.progress("billing", session, tick)
    bench.unregister("billing", session + 1)
    assert bench.pubend.status().readers == 1
    bench.unregister("billing", session)
    assert bench.registered(bench.register(reader="bob")).position == tick


def test_after_a_restart_no_session_is_known() -> None:
    bench = PubendBench()
    session = bench.registered(bench.register()).session
    bench.restart()
    bench.renew("billing", session)
    bench.progress("billing", session, 1)
    assert bench.all_sent(SessionEnded) == [SessionEnded("orders/0", "billing", session)] * 2


def test_progress_is_told_when_it_is_on_disk_and_never_goes_back() -> None:
    bench = PubendBench()
    ticks = [bench.store_one(str(number)) for number in range(3)]
    session = bench.registered(bench.register()).session
    bench.hold = True
    for tick in (ticks[0], ticks[2], ticks[1]):
        bench.progress("billing", session, tick)
    assert len(bench.held) == 1
    assert confirmed(bench) == []
    bench.answer(1)
    assert confirmed(bench) == [("orders/0", session, ticks[0])]
    assert len(bench.held) == 1
    bench.answer()
    assert confirmed(bench)[1:] == [("orders/0", session, ticks[2])]
    bench.progress("billing", session, ticks[1])
    assert confirmed(bench)[2:] == [("orders/0", session, ticks[2])]
    assert bench.held == []


def test_progress_beyond_what_there_is_changes_nothing() -> None:
    bench = PubendBench()
    session = bench.registered(bench.register()).session
    bench.progress("billing", session, bench.pubend.horizon(bench.now) + 5)
    assert isinstance(bench.records[-1], InputRefused)
    assert confirmed(bench) == []
    bench.progress("billing", session, 5, epoch=bench.pubend.epoch + 1)
    assert bench.sent[-1][1] == SessionEnded("orders/0", "billing", session)
    assert bench.registered(bench.register()).position == 0


def test_progress_that_the_disk_refused_is_written_when_there_is_room() -> None:
    bench = PubendBench(StreamsConfig(session_lease=6.0))
    tick = bench.store_one("a")
    session = bench.registered(bench.register()).session
    bench.failing = full
    bench.progress("billing", session, tick)
    assert confirmed(bench) == []
    bench.failing = fine
    bench.advance(4.0)
    assert confirmed(bench) == [("orders/0", session, tick)]


def test_when_a_name_was_last_seen_is_written_now_and_then() -> None:
    bench = PubendBench()
    bench.register()
    (name,) = bench.report(bench.command("info"))["names"]
    bench.advance(30.0)
    bench.register()
    assert bench.report(bench.command("info"))["names"][0]["seen"] == name["seen"]
    bench.pubend.horizon(bench.now)
    bench.advance(100.0)
    bench.pubend.horizon(bench.now)
    bench.wake()
    bench.register()
    assert bench.report(bench.command("info"))["names"][0]["seen"] > name["seen"] + 60 * SECOND
    assert bench.all_sent(ProgressStored) == []
