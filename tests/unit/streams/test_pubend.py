"""A pubend stores what is published, gives ticks that grow, and says what is settled."""

from __future__ import annotations

import pytest

from penstock.kernel.storage import Append, Operation, Put, Read, StorageFailed
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import PublishAnswer
from penstock.streams.records import PubendStopped
from penstock.testing.pump import a_message
from pubend_bench import DAMAGED, FULL, START, PubendBench

SECOND = 1_000_000
START_TICK = int(START * SECOND)


def failing(*kinds: type, with_: StorageFailed = FULL):
    def fails(operation: Operation) -> StorageFailed | None:
        return with_ if isinstance(operation, kinds) else None

    return fails


def test_a_publication_is_answered_when_it_is_on_disk_and_not_before() -> None:
    bench = PubendBench()
    bench.hold = True
    request = bench.publish("a")
    assert bench.all_sent(PublishAnswer) == []
    bench.answer()
    answer = bench.published(request)
    assert (answer.problem, answer.pubend) == ("", "orders/0")
    assert answer.tick >= START_TICK
    assert [(tick, entry.publication_id) for tick, entry in bench.log()] == [(answer.tick, "a")]
    assert [tick for tick, _ in bench.committed_items] == [answer.tick]


def test_a_new_pubend_draws_an_epoch_and_keeps_it() -> None:
    bench = PubendBench()
    epoch = bench.pubend.epoch
    assert bench.pubend.ready
    assert epoch > 0
    bench.restart()
    assert bench.pubend.epoch == epoch
    assert bench.ready_count == 2


def test_without_a_log_and_leave_to_make_one_it_says_so() -> None:
    bench = PubendBench(open_it=False)
    bench.start(create=False)
    assert bench.pubend.problem == "there is no orders/0 on this disk"
    assert "no orders/0" in bench.published(bench.publish("a")).problem


def test_ticks_follow_the_clock_and_always_grow() -> None:
    bench = PubendBench()
    ticks = [bench.store_one("a"), bench.store_one("b")]
    bench.advance(2.0)
    ticks.append(bench.store_one("c"))
    assert ticks[1] == ticks[0] + 1
    assert ticks[2] == START_TICK + 2 * SECOND


def test_when_the_nodes_clock_is_set_back_the_pubends_goes_on_at_normal_speed() -> None:
    bench = PubendBench()
    bench.advance(100.0)
    before = bench.store_one("a")
    bench.now -= 3_600.0
    bench.wake()
    after = bench.store_one("b")
    assert before < after < before + SECOND
    bench.advance(5.0)
    assert abs(bench.store_one("c") - after - 5 * SECOND) < SECOND


def test_after_a_restart_ticks_begin_above_all_that_was_ever_told() -> None:
    bench = PubendBench()
    bench.advance(3.0)
    tick = bench.store_one("a")
    horizon = bench.pubend.horizon(bench.now)
    bench.now -= 500.0  # the clock is wrong in the new life
    bench.restart()
    assert bench.pubend.horizon(bench.now) >= horizon
    after = bench.store_one("b")
    assert after > max(tick, horizon)
    bench.advance(5.0)
    assert abs(bench.store_one("c") - after - 5 * SECOND) < SECOND


def test_the_horizon_follows_the_clock_but_never_passes_the_lease_on_disk() -> None:
    bench = PubendBench()
    first = bench.pubend.horizon(bench.now)
    bench.advance(1.0)
    assert bench.pubend.horizon(bench.now) == first + SECOND
    bench.hold = True
    bench.now += 100.0
    bench.wake()
    lease = bench.pubend.status().lease
    assert bench.pubend.horizon(bench.now) == lease
    bench.wake()  # the horizon was asked for, so the lease is renewed
    bench.answer()
    assert bench.pubend.horizon(bench.now) > lease


def test_the_horizon_stays_below_what_is_being_written_and_includes_what_is() -> None:
    bench = PubendBench()
    bench.hold = True
    bench.publish("a")
    bench.now += 1.0
    tick = bench.appends_held()[0].entries[0][0]
    assert bench.pubend.horizon(bench.now) == tick - 1
    bench.answer()
    assert bench.pubend.horizon(bench.now) > tick


def test_what_comes_during_a_write_goes_together_into_the_next() -> None:
    bench = PubendBench()
    bench.hold = True
    requests = [bench.publish(str(number)) for number in range(50)]
    bench.answer(1)
    (append,) = bench.appends_held()
    assert len(append.entries) == 49
    bench.answer()
    ticks = [bench.published(request).tick for request in requests]
    assert ticks == sorted(ticks)
    assert [tick for tick, _ in bench.committed_items] == ticks


def test_a_repeat_gets_the_same_tick_and_is_not_stored_again() -> None:
    bench = PubendBench()
    message = a_message(1)
    tick = bench.store_one("a", message)
    assert bench.published(bench.publish("a", message, age=3.0)).tick == tick
    again = bench.publish("a", a_message(1, publisher="p"), broker=9)
    assert bench.published(again).tick == tick
    assert len(bench.log()) == 1


def test_a_repeat_while_it_is_being_written_is_answered_with_the_first() -> None:
    bench = PubendBench()
    bench.hold = True
    message = a_message(1)
    first, second = bench.publish("a", message), bench.publish("a", message, age=1.0, broker=7)
    assert bench.sent == []
    bench.answer()
    assert bench.published(first).tick == bench.published(second).tick
    assert [broker for broker, _ in bench.sent] == [5, 7]
    assert len(bench.log()) == 1


@pytest.mark.parametrize(
    "other",
    [a_message(1, {"n": 2}), a_message(1, body=b"x"), a_message(1, {"n": 1.0})],
    ids=["attributes", "body", "type"],
)
@pytest.mark.parametrize("held", [True, False])
def test_the_same_id_for_another_message_is_refused(other, held: bool) -> None:
    bench = PubendBench()
    bench.hold = held
    bench.publish("a", a_message(1))
    answer = bench.published(bench.publish("a", other))
    assert "used for another message" in answer.problem
    assert not answer.again
    bench.answer()
    assert len(bench.log()) == 1


def test_another_life_of_the_publisher_may_repeat_under_the_same_id() -> None:
    bench = PubendBench()
    tick = bench.store_one("a", a_message(1, {"n": 1}))
    assert bench.store_one("a", a_message(99, {"n": 1})) == tick


def test_ids_are_known_after_a_restart() -> None:
    bench = PubendBench()
    message = a_message(1)
    tick = bench.store_one("a", message)
    bench.restart(after=30.0)
    assert bench.published(bench.publish("a", message, age=31.0)).tick == tick
    assert len(bench.log()) == 1


def test_ids_survive_leaps_of_the_clock_and_restarts_after_them() -> None:
    bench = PubendBench()
    message = a_message(1)
    tick = bench.store_one("a", message)
    bench.now += 1e5  # more than the window and than `history`
    bench.wake()
    bench.store_one("b")
    bench.restart(after=-2e5)
    assert bench.published(bench.publish("a", message, age=20.0)).tick == tick


def test_what_was_first_tried_before_the_window_is_refused() -> None:
    bench = PubendBench(StreamsConfig(ids_window=60.0))
    answer = bench.published(bench.publish("a", age=61.0))
    assert answer.unknown
    assert not answer.again
    assert bench.log() == []


def test_ids_are_bounded_in_number_and_what_may_have_been_forgotten_is_refused() -> None:
    bench = PubendBench(StreamsConfig(ids_max=10))
    for number in range(20):
        bench.advance(1.0)
        bench.store_one(str(number), a_message(number + 1))
    assert bench.pubend.status().ids == 10
    assert bench.published(bench.publish("0", a_message(1), age=15.0)).problem
    assert bench.published(bench.publish("new", age=5.0)).problem == ""
    bench.restart()
    assert bench.published(bench.publish("1", a_message(2), age=15.0)).problem
    assert bench.published(bench.publish("another", age=0.5)).problem == ""
    assert len(bench.log()) == 22


def test_ids_leave_the_table_when_their_window_has_passed() -> None:
    bench = PubendBench(StreamsConfig(ids_window=8.0))
    bench.store_one("a")
    for _ in range(4):
        bench.advance(5.0)
        bench.pubend.horizon(bench.now)
        bench.wake()
    bench.store_one("b")
    assert bench.pubend.status().ids == 1


def test_a_write_that_fails_leaves_nothing_and_may_be_tried_again() -> None:
    bench = PubendBench()
    bench.failing = failing(Append)
    message = a_message(1)
    answer = bench.published(bench.publish("a", message))
    assert "the disk is full" in answer.problem
    assert answer.again
    horizon = bench.pubend.horizon(bench.now)
    bench.failing = failing()
    assert bench.published(bench.publish("a", message, age=1.0)).tick > horizon
    assert len(bench.log()) == 1


def test_without_a_lease_publishers_are_refused_until_the_disk_has_room() -> None:
    bench = PubendBench()
    bench.failing = failing(Append, Put)
    bench.now += 100.0
    answer = bench.published(bench.publish("a"))
    assert answer.again
    assert "the disk is full" in answer.problem
    still = bench.pubend.horizon(bench.now)
    bench.advance(100.0)
    assert bench.pubend.horizon(bench.now) == still
    bench.failing = failing()
    assert bench.published(bench.publish("b")).problem == ""
    assert bench.pubend.horizon(bench.now) > still


def test_what_waits_for_the_disk_is_bounded() -> None:
    bench = PubendBench(StreamsConfig(pending_bytes_max=10_000))
    bench.hold = True
    requests = [bench.publish(str(number), a_message(number + 1, body=bytes(3_000))) for number in range(5)]
    refused = [answer for answer in bench.all_sent(PublishAnswer) if answer.problem]
    assert len(refused) == 3  # one is being written, one waits; alone, a publisher has half of what is free
    assert all(answer.again and "pending_bytes_max" in answer.problem for answer in refused)
    bench.answer()
    assert len(bench.log()) == 2
    assert bench.pubend.status().waiting_bytes == 0
    assert len(requests) == len(bench.all_sent(PublishAnswer))


def test_one_message_is_taken_whatever_the_bound() -> None:
    bench = PubendBench(StreamsConfig(pending_bytes_max=10))
    assert bench.store_one("a")


def test_slices_of_the_log_end_where_they_are_covered() -> None:
    bench = PubendBench()
    ticks = [bench.store_one(str(number)) for number in range(10)]
    bench.run(bench.pubend.read(1, ticks[-1] + 10**9, count=4, token=1, now=bench.now))
    bench.run(bench.pubend.read(ticks[4], ticks[6], count=100, token=2, now=bench.now))
    first = bench.slices[1]
    assert first is not None
    assert (first[0], first[1], [tick for tick, _ in first[2]]) == (1, ticks[3], ticks[:4])
    second = bench.slices[2]
    assert second is not None
    assert (second[0], second[1], [tick for tick, _ in second[2]]) == (ticks[4], ticks[6], ticks[4:7])
    assert second[2][0][1].attributes == {"n": 5}


def test_a_slice_never_covers_what_is_being_written() -> None:
    bench = PubendBench()
    bench.hold = True
    bench.publish("a")
    bench.run(bench.pubend.read(1, 10**17, count=10, token=1, now=bench.now))
    bench.answer()
    tick = bench.committed_items[0][0]
    assert bench.slices[1] == (1, tick - 1, [])


def test_a_slice_that_cannot_be_read_is_told_and_may_be_asked_for_again() -> None:
    bench = PubendBench()
    bench.store_one("a")
    bench.failing = failing(Read)
    bench.run(bench.pubend.read(1, bench.pubend.horizon(bench.now), count=10, token=1, now=bench.now))
    assert bench.slices == {1: None}
    assert bench.pubend.problem == ""


def test_damage_stops_it_and_says_so_to_everybody() -> None:
    bench = PubendBench()
    bench.store_one("a")
    session = bench.registered(bench.register()).session
    bench.failing = failing(Read, with_=DAMAGED)
    bench.run(bench.pubend.read(1, bench.pubend.horizon(bench.now), count=10, token=1, now=bench.now))
    assert bench.slices == {1: None}
    reason = "orders/0 is damaged: entry 7 has a wrong checksum"
    assert bench.pubend.problem == bench.pubend.status().problem == reason
    answer = bench.published(bench.publish("b"))
    assert (answer.problem, answer.again) == (reason, False)
    assert bench.registered(bench.register("other")).problem == reason
    bench.renew("billing", session)
    assert bench.sent[-1][1].problem == reason  # type: ignore[union-attr]
    assert PubendStopped("orders/0", reason) in bench.records
    assert len(bench.log()) == 1
    assert bench.timers.deadline() is None


def test_damage_found_by_a_write_refuses_what_waits_behind_it() -> None:
    bench = PubendBench()
    bench.hold = True
    bench.failing = failing(Append, with_=DAMAGED)
    requests = [bench.publish(str(number)) for number in range(3)]
    bench.answer()
    assert [bench.published(request).again for request in requests] == [False] * 3


def test_damage_found_on_opening_stops_it() -> None:
    bench = PubendBench()
    bench.store_one("a")
    bench.failing = failing(Read, with_=DAMAGED)
    bench.restart()
    assert not bench.pubend.ready
    assert "damaged" in bench.pubend.problem


def test_an_opening_that_fails_is_tried_again() -> None:
    bench = PubendBench(open_it=False)
    bench.failing = failing(Put)
    bench.start()
    answer = bench.published(bench.publish("a"))
    assert (answer.problem, answer.again) == ("orders/0 is opening", True)
    bench.failing = failing()
    bench.advance(2.0)
    assert bench.store_one("b")


def test_while_it_is_opening_nobody_is_served_and_nobody_turned_away_for_good() -> None:
    bench = PubendBench(open_it=False)
    bench.hold = True
    bench.start()
    assert bench.registered(bench.register()).again
    bench.renew("billing", 7)
    assert len(bench.sent) == 1
    bench.answer()
    assert bench.pubend.ready


def test_an_answer_that_it_did_not_ask_for_is_none_of_its_own() -> None:
    bench = PubendBench()
    assert bench.pubend.completed(10**6, FULL, now=bench.now) is None
