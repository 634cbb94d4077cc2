"""A shared name at its pubend: who is handed what, through crashes, full disks, trims and hostile members."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.kernel.storage import Put
from penstock.kernel.trace import InputRefused
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import (
    PublishAnswer,
    Registered,
    SessionEnded,
    Share,
    SharedHandout,
    ShareVerdict,
    Tick,
    Verdicts,
    VerdictsStored,
)
from penstock.testing.pump import a_message
from pubend_bench import FULL, PubendBench

SHARE = Share(10.0, 3, "")
Got = list[tuple[Tick, int]]


class ShareBench(PubendBench):
    """A pubend with members of the name `work`."""

    def join(self, reader: str = "m1", share: Share = SHARE, credit: int = 8, **asked: Any) -> int:
        """Register and say a first word; the session."""
        answer = self.asked(reader, share, credit, **asked)
        assert answer.problem == ""
        self.say(answer.session, [], broker=asked.get("broker", 5))
        return answer.session

    def asked(self, reader: str = "m1", share: Share | None = SHARE, credit: int = 8, **asked: Any) -> Registered:
        return self.registered(self.register("work", reader=reader, share=share, credit=credit, rewind=False, **asked))

    def say(self, session: int, verdicts: list[tuple[Tick, int, ShareVerdict]], *, broker: int = 5) -> None:
        told = tuple((tick, attempt, int(verdict)) for tick, attempt, verdict in verdicts)
        packet = Verdicts(self.pubend.name, self.pubend.epoch, "work", session, told)
        self.run(self.pubend.verdicts(packet, broker, now=self.now))

    def settle(self, session: int, tick: Tick, attempt: int, verdict: ShareVerdict = ShareVerdict.DONE) -> None:
        self.say(session, [(tick, attempt, verdict)])

    def got(self, session: int) -> Got:
        """What was handed to this session so far, once each."""
        handouts = [packet for packet in self.all_sent(SharedHandout) if packet.session == session]
        return list(dict.fromkeys((tick, attempt) for packet in handouts for tick, attempt, _ in packet.items))

    def confirmed(self, session: int) -> Got:
        stored = [packet for packet in self.all_sent(VerdictsStored) if packet.session == session]
        return [handout for packet in stored for handout in packet.handouts]

    def live(self, seconds: float, *sessions: int) -> None:
        """Time passes, and these members are heard of all the while."""
        for _ in range(int(seconds)):
            self.advance(1.0)
            for session in sessions:
                self.renew("work", session)

    def share_report(self) -> dict[str, Any]:
        report: dict[str, Any] = self.report(self.command("info", durable="work"))["names"][0]["share"]
        return report


def test_a_member_begins_when_the_name_is_on_disk_and_gets_messages_whose_attempt_is() -> None:
    bench = ShareBench()
    tick = bench.store_one("one")
    bench.hold = True
    request = bench.register("work", share=SHARE, credit=8, rewind=False)
    assert bench.all_sent(Registered) == []
    bench.answer()
    session = bench.registered(request).session
    bench.say(session, [])
    bench.answer(1)  # the log is read
    assert [type(ask.operation) for ask in bench.held] == [Put]
    assert bench.got(session) == []
    bench.answer()
    assert bench.got(session) == [(tick, 1)]
    bench.settle(session, tick, 1)
    assert bench.confirmed(session) == []
    bench.answer()
    assert bench.confirmed(session) == [(tick, 1)]


def test_nothing_is_handed_to_a_member_that_has_not_said_a_word() -> None:
    bench = ShareBench()
    bench.store_one("one")
    session = bench.asked().session
    assert bench.got(session) == []
    bench.say(session, [])
    assert len(bench.got(session)) == 1


def test_each_message_goes_to_one_member_and_what_a_silent_one_held_to_another_after_its_lease() -> None:
    bench = ShareBench()
    one, other = bench.join("m1"), bench.join("m2", broker=6)
    first, second = bench.store_one("one"), bench.store_one("two")
    assert (bench.got(one), bench.got(other)) == ([(first, 1)], [(second, 1)])
    bench.settle(one, first, 1)
    bench.live(8.0, one)
    assert bench.got(one) == [(first, 1), (second, 2)]
    bench.settle(other, second, 1)
    assert bench.confirmed(other) == [], "its session is over"
    assert bench.all_sent(SessionEnded)[-1].session == other


def test_a_message_that_kills_its_reader_and_the_broker_too_fails_after_so_many_attempts() -> None:
    bench = ShareBench()
    tick = bench.store_one("poison")
    for life in range(1, 4):
        session = bench.join(f"m{life}")
        bench.live(8.0, session)
        assert bench.got(session) == [(tick, life)]
        bench.restart()
    session = bench.join("last")
    bench.live(20.0, session)
    assert bench.got(session) == []
    (failed,) = bench.report(bench.command("failed", durable="work"))["failed"]
    assert failed == {"tick": tick, "attempts": 3}


def test_after_a_restart_a_member_that_comes_back_has_what_it_had_and_no_other_gets_it() -> None:
    bench = ShareBench()
    one = bench.join("m1")
    tick = bench.store_one("one")
    assert bench.got(one) == [(tick, 1)]
    bench.restart()
    other = bench.join("m2", broker=6)
    back = bench.join("m1", broker=7)
    bench.live(4.0, other)
    assert bench.got(other) == []
    assert bench.got(back) == [(tick, 1)], "sent again: nobody knows whether it came"
    bench.say(back, [(tick, 1, ShareVerdict.DONE)], broker=7)
    assert bench.confirmed(back) == [(tick, 1)]
    bench.restart()
    last = bench.join("m3")
    bench.live(30.0, last)
    assert bench.got(last) == []


def test_what_is_done_is_done_after_a_restart_whatever_is_open_before_it() -> None:
    bench = ShareBench()
    session = bench.join(credit=100)
    ticks = [bench.store_one(f"id{number}") for number in range(50)]
    for tick in ticks[1:]:
        bench.settle(session, tick, 1)
    bench.restart()
    back = bench.join("m1", credit=100)
    assert bench.got(back) == [(ticks[0], 1)]


def test_a_name_is_shared_or_not_has_one_predicate_and_one_set_of_limits() -> None:
    bench = ShareBench()
    bench.join("m1")
    assert "is shared" in bench.asked("m2", share=None).problem
    assert "wants n > 0" in bench.asked("m2", where="TRUE").problem
    assert "attempts_max=3" in bench.asked("m2", share=Share(0.0, 7, "")).problem
    assert "the stream itself" in bench.asked("m2", share=Share(0.0, 0, "orders")).problem
    assert bench.asked("m2", share=Share()).problem == ""
    assert bench.registered(bench.register("alone")).problem == ""
    shared = bench.registered(bench.register("alone", reader="m9", share=SHARE))
    assert "is not shared" in shared.problem
    other = bench.join("m2")
    bench.unregister("work", other)
    changed = bench.registered(bench.register("work", reader="m1", share=Share(5.0, 7, ""), rewind=False))
    assert changed.problem == ""
    assert bench.share_report()["attempts_max"] == 7


def test_hostile_members_change_nothing() -> None:
    bench = ShareBench()
    one, other = bench.join("m1"), bench.join("m2", broker=6)
    tick = bench.store_one("one")
    (holder,) = [session for session in (one, other) if bench.got(session)]
    (rival,) = {one, other} - {holder}
    bench.say(rival, [(tick, 1, ShareVerdict.DONE)], broker=5 if rival == one else 6)
    bench.say(holder, [(tick, 1, ShareVerdict.DONE)], broker=9)  # from another broker than the member's
    bench.say(12345, [(tick, 1, ShareVerdict.DONE)])
    bench.say(holder, [(tick + 10**9, 1, ShareVerdict.DONE), (tick, 9, ShareVerdict.REJECTED)])
    assert len([record for record in bench.records if isinstance(record, InputRefused)]) == 3
    assert bench.share_report()["outstanding"] == 1
    assert not {(tick, 1)} & {*bench.confirmed(holder)}  # what is refused counts for nothing, and is not said again
    for _ in range(2):
        bench.say(holder, [(tick, 1, ShareVerdict.DONE)], broker=5 if holder == one else 6)
    assert (tick, 1) in bench.confirmed(holder)
    assert bench.share_report()["open"] == 0


def test_a_full_disk_stops_handing_out_and_goes_on_when_there_is_room() -> None:
    bench = ShareBench()
    session = bench.join()
    first = bench.store_one("one")
    bench.failing = lambda operation: FULL if isinstance(operation, Put) else None
    bench.settle(session, first, 1)
    second = bench.store_one("two")
    bench.live(3.0, session)
    assert (bench.got(session), bench.confirmed(session)) == ([(first, 1)], [])
    bench.failing = lambda operation: None
    bench.live(2.0, session)
    assert bench.got(session) == [(first, 1), (second, 1)]
    assert bench.confirmed(session) == [(first, 1)]


def test_a_lost_handout_is_sent_again_in_the_same_attempt_until_it_has_come() -> None:
    bench = ShareBench()
    session = bench.join()
    tick = bench.store_one("one")
    bench.live(3.0, session)
    sent = len(bench.all_sent(SharedHandout))
    assert sent > 2
    assert bench.got(session) == [(tick, 1)]
    bench.settle(session, tick, 1, ShareVerdict.RECEIVED)
    bench.live(3.0, session)
    assert len(bench.all_sent(SharedHandout)) == sent


def test_a_gap_is_told_until_a_member_has_heard_of_it_and_reading_goes_on_behind_it() -> None:
    bench = ShareBench()
    session = bench.join(credit=1)
    ticks = [bench.store_one(f"id{number}") for number in range(5)]
    bench.restart()
    assert bench.refusal(bench.command("trim", tick=ticks[3])) != ""
    bench.report(bench.command("trim", tick=ticks[3], force=True))
    session = bench.join("m2")
    bench.live(3.0, session)
    gaps = [packet.gap for packet in bench.all_sent(SharedHandout) if packet.gap is not None]
    assert len(gaps) > 1
    assert set(gaps) == {(ticks[0], ticks[3])}
    assert bench.got(session) == []
    bench.say(session, [(ticks[3], 0, ShareVerdict.RECEIVED)])
    assert bench.got(session) == [(ticks[4], 1)]
    bench.restart()
    session = bench.join("m2")
    assert bench.all_sent(SharedHandout)[-1].gap is None


def test_what_failed_moves_to_the_other_stream_under_one_id_and_is_done_when_it_is_stored_there() -> None:
    bench = ShareBench()
    session = bench.join(share=Share(10.0, 1, "bad"))
    tick = bench.store_one("one", a_message(1, body=b"body"))
    bench.settle(session, tick, 1, ShareVerdict.REJECTED)
    (stream, publication_id, message, answered) = bench.elsewhere.pop()
    assert (stream, message.body, message.attributes["failed_tick"]) == ("bad", b"body", tick)
    bench.run(answered(PublishAnswer(0, "bad/0", 0, "its disk is full", True), bench.now))
    assert "its disk is full" in bench.share_report()["problem"]
    bench.restart()
    session = bench.join("m1", share=Share())
    (_, again, content, answered) = bench.elsewhere.pop()
    assert (again, content) == (publication_id, message)
    assert bench.share_report()["failed"] == 1
    bench.run(answered(PublishAnswer(0, "bad/0", 77), bench.now))
    assert (bench.share_report()["failed"], bench.share_report()["moved"]) == (0, 1)
    bench.run(answered(PublishAnswer(0, "bad/0", 77), bench.now))
    bench.restart()
    bench.join("m1", share=Share())
    bench.live(20.0)
    assert bench.elsewhere == []


def test_failed_ones_can_be_tried_again_or_dropped_by_command() -> None:
    bench = ShareBench()
    session = bench.join(share=Share(10.0, 1, ""))
    ticks = [bench.store_one(f"id{number}") for number in range(2)]
    for tick in ticks:
        bench.settle(session, tick, 1, ShareVerdict.REJECTED)
    bench.restart()
    assert bench.report(bench.command("failed", durable="work", redeliver=True))["redelivered"] == 2
    session = bench.join(share=Share())
    assert bench.got(session) == [(tick, 2) for tick in ticks]
    for tick in ticks:
        bench.settle(session, tick, 2, ShareVerdict.REJECTED)
    assert bench.report(bench.command("failed", durable="work", drop=True))["dropped"] == 2
    assert bench.report(bench.command("failed", durable="work"))["failed"] == []
    bench.register("plain")
    assert "not shared" in bench.refusal(bench.command("failed", durable="plain"))


def test_what_is_open_or_failed_is_kept_and_what_is_done_goes() -> None:
    bench = ShareBench(StreamsConfig(history=1.0, ids_window=1.0, retain=1_000.0))
    session = bench.join(credit=100)
    ticks = [bench.store_one(f"id{number}") for number in range(10)]
    for tick in ticks[:4] + ticks[5:]:
        bench.settle(session, tick, 1)
    bench.say(session, [(ticks[4], 1, ShareVerdict.TAKEN)])
    bench.live(9.0, session)
    assert [tick for tick, _ in bench.log()] == ticks[4:]
    bench.settle(session, ticks[4], 1)
    bench.live(20.0, session)
    assert bench.log() == []


def test_a_shared_name_that_is_removed_ends_its_members_and_leaves_nothing() -> None:
    bench = ShareBench()
    session = bench.join()
    bench.store_one("one")
    assert "1 members" in bench.refusal(bench.command("rm", durable="work"))
    bench.hold = True
    bench.command("rm", durable="work", force=True)
    bench.answer()
    assert bench.all_sent(SessionEnded)[-1].session == session
    bench.hold = False
    bench.advance(5.0)
    bench.restart()
    assert bench.report(bench.command("info"))["names"] == []


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_after_any_operation_of_the_disk_loses_no_message_and_no_attempt(seed: int) -> None:
    bench = ShareBench(seed=seed)
    tried: dict[Tick, set[tuple[int, int]]] = {}
    done: set[Tick] = set()
    said: set[Tick] = set()
    ticks = []
    for life in range(6):
        session = bench.join(f"m{life}", share=Share(1_000.0, 3, ""), credit=bench.random.choice((1, 3, 8)))
        bench.live(8.0, session)
        ticks += [bench.store_one(f"{life}-{number}") for number in range(4)]
        bench.hold = True
        for tick, attempt in bench.got(session):
            if bench.random.random() < 0.6:
                bench.settle(session, tick, attempt)
                said.add(tick)
        bench.answer(bench.random.randrange(4))
        done |= {tick for tick, _ in bench.confirmed(session)}
        for tick, attempt in bench.got(session):
            tried.setdefault(tick, set()).add((life, attempt))
        bench.hold = False
        bench.restart(carried_out=bench.random.randrange(3), after=1.0)
    session = bench.join("last", share=Share(1_000.0, 3, ""), credit=100)
    for _ in range(60):
        bench.live(1.0, session)
        for tick, attempt in bench.got(session):
            assert tick not in done - {at for at, _ in bench.confirmed(session)}
            tried.setdefault(tick, set()).add((6, attempt))
            bench.settle(session, tick, attempt)
    done |= {tick for tick, _ in bench.confirmed(session)}
    failed = {one["tick"] for one in bench.report(bench.command("failed", durable="work"))["failed"]}
    assert bench.share_report()["open"] == 0
    assert done | failed | said == set(ticks)
    assert not done & failed
    assert all(len(attempts) <= 3 for attempts in tried.values())
