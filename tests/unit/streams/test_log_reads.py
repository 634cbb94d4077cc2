"""Ranges of a pubend's log for who is no reader: surveyed without reading, and read in slices that can be had again."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.content.message import DEFAULT_LIMITS
from penstock.errors import InvalidPacket
from penstock.kernel.machine import Done, Refused, Reported, Send
from penstock.kernel.storage import Read, StorageFailed
from penstock.kernel.timers import ServiceTimers, Timers
from penstock.streams import log_reads
from penstock.streams.client_reads import READS_MAX, StreamReads
from penstock.streams.config import StreamsClientConfig
from penstock.streams.log_codec import UnreadableEntry, decode_slice, unpacked_ticks
from penstock.streams.message import StreamSlice
from penstock.streams.packets import TICK_MAX, CommandAnswer, LogSlice, ReadLog
from penstock.streams.timers import StreamTimer
from penstock.testing.pump import a_message
from pubend_bench import DAMAGED, FULL, PubendBench


def a_pubend(count: int = 10) -> tuple[PubendBench, list[int]]:
    """With so many messages {"n": 1}, {"n": 2}, ...; and their ticks."""
    bench = PubendBench()
    ticks = []
    for n in range(1, count + 1):
        bench.now += 1.0
        ticks.append(bench.published(bench.publish(f"id{n}", a_message(n))).tick)
    bench.now += 1.0
    return bench, ticks


def read(bench: PubendBench, first: int = 0, last: int | None = None, where: str = "TRUE", **given: Any) -> LogSlice:
    bench.requests += 1
    last = bench.pubend.horizon(bench.now) if last is None else last
    asked = {"epoch": bench.pubend.epoch} | given
    packet = ReadLog(bench.requests, "orders/0", first=first, last=last, where=where, **asked)
    bench.run(bench.pubend.read_log(packet, 5, now=bench.now))
    return bench._answer_to(bench.requests, LogSlice)


def ticks_of(found: LogSlice) -> list[int]:
    return unpacked_ticks(found.ticks)


def numbers_of(found: LogSlice) -> list[Any]:
    return [entry.message.attributes["n"] for _, entry in decode_slice(found.ticks, found.entries)]


def test_a_slice_has_the_entries_of_a_range_and_says_how_far_it_reaches() -> None:
    bench, ticks = a_pubend()
    found = read(bench)
    assert (ticks_of(found), numbers_of(found)) == (ticks, list(range(1, 11)))
    assert found.upto == bench.pubend.horizon(bench.now)
    found = read(bench, ticks[2], ticks[5] - 1)
    assert (ticks_of(found), numbers_of(found), found.upto) == (ticks[2:5], [3, 4, 5], ticks[5] - 1)
    assert read(bench, ticks[2] + 1, ticks[3] - 1).entries == b"", "silence"


def test_only_what_matches_comes_and_silence_counts_as_read() -> None:
    bench, ticks = a_pubend()
    found = read(bench, 0, ticks[8], "n > 3 AND n < 6")
    assert (ticks_of(found), numbers_of(found), found.upto) == (ticks[3:5], [4, 5], ticks[8])


@pytest.mark.parametrize("where", ["TRUE", "n <> 4"])
def test_slices_are_bounded_and_follow_each_other(where: str) -> None:
    bench, ticks = a_pubend()
    size = len(read(bench, ticks[0], ticks[0]).entries)
    got, after = [], 0
    while after < ticks[-1]:
        found = read(bench, after + 1, ticks[-1], where, bytes_max=3 * size)
        assert found.upto > after
        assert len(ticks_of(found)) <= 3
        got += numbers_of(found)
        after = found.upto
    assert got == [n for n in range(1, 11) if where == "TRUE" or n != 4]
    assert len(ticks_of(read(bench, bytes_max=0))) == 1, "one comes in any case"


def test_what_was_trimmed_is_told_and_silence_is_no_loss() -> None:
    bench, ticks = a_pubend()
    bench.report(bench.command("trim", tick=ticks[4] - 1))
    found = read(bench)
    assert (found.gone, ticks_of(found)) == (ticks[3], ticks[4:])
    assert bench.report(bench.command("survey"))["gone"] == ticks[3], "the tick of a message, not what was asked for"
    bench.report(bench.command("trim", tick=ticks[-1]))
    report = bench.report(bench.command("survey"))
    assert (report["gone"], report["last"], report["entries"]) == (ticks[-1], ticks[-1], 0)


def test_a_survey_counts_and_cuts() -> None:
    bench, ticks = a_pubend()
    report = bench.report(bench.command("survey", ranges={"orders/0": {"parts": 5}}))
    assert report["pubend"] == "orders/0"
    assert report["epoch"] == bench.pubend.epoch
    assert (report["entries"], report["last"], report["gone"]) == (10, ticks[-1], 0)
    assert report["marks"] == [ticks[at] for at in (1, 3, 5, 7, 9)]
    asked = {"first": ticks[1], "last": ticks[8], "entries_max": 3}
    report = bench.report(bench.command("survey", ranges={"orders/0": asked}))
    assert (report["entries"], report["marks"]) == (3, [ticks[4] - 1])
    report = bench.report(bench.command("survey", ranges={"orders/1": asked}))
    assert report["entries"] == 10, "that of another pubend"
    bench.failing = lambda operation: FULL
    assert "full" in bench._answer_to(bench.command("survey"), CommandAnswer).problem


def test_wrong_questions_are_refused_and_change_nothing() -> None:
    bench, _ = a_pubend(1)
    assert "made anew" in read(bench, epoch=7).problem
    assert "is in the future" in read(bench, last=TICK_MAX).problem
    with pytest.raises(UnreadableEntry):
        decode_slice(b"12345678", b"none")
    assert read(bench, where="n = ").problem
    assert not read(bench, where="n = ").again
    assert bench.command("survey", ranges={"orders/0": {"frist": 1}})
    for wrong in (ReadLog(1, "orders/0", 1, 5, 4, "TRUE"), ReadLog(1, "orders", 1, 1, 4, "TRUE")):
        with pytest.raises(InvalidPacket):
            wrong.checked(DEFAULT_LIMITS)
    with pytest.raises(InvalidPacket):
        LogSlice(1, "orders/0", ticks=b"123").checked(DEFAULT_LIMITS)
    assert numbers_of(read(bench)) == [1]


@pytest.mark.parametrize(("failure", "again"), [(FULL, True), (DAMAGED, False)])
def test_a_disk_that_fails_is_told(failure: StorageFailed, again: bool) -> None:
    bench, _ = a_pubend(1)
    bench.failing = lambda operation: failure if isinstance(operation, Read) else None
    found = read(bench)
    assert failure.problem in found.problem
    assert found.again == again


def test_few_slices_are_read_at_once_and_more_than_can_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reads, "WAITING_MAX", 3)
    bench, _ = a_pubend(1)
    bench.hold = True
    for request in range(100, 100 + log_reads.READING_MAX + 4):
        packet = ReadLog(request, "orders/0", bench.pubend.epoch, 0, 1, "TRUE")
        bench.run(bench.pubend.read_log(packet, 5, now=bench.now))
    assert len(bench.held) == log_reads.READING_MAX
    refused = bench.all_sent(LogSlice)
    assert [found.again for found in refused] == [True]
    bench.hold = False
    bench.answer()
    assert len(bench.all_sent(LogSlice)) == log_reads.READING_MAX + 4


# The client.


class Client:
    """The part of a client that reads, and its clock."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.reads = StreamReads(ServiceTimers("streams", self.timers, StreamTimer), StreamsClientConfig())

    def ask(self, ticket: int = 1, where: str = "TRUE") -> list[Any]:
        return self.reads.read("orders/0", 3, 10, 20, where, ticket=ticket, now=0.0)

    def wake(self) -> tuple[float, list[Any]]:
        now = self.timers.deadline()
        assert now is not None
        name = self.timers.pop_due(now)
        assert name is not None
        return now, self.reads.expired(int(name[2]), now=now)


def test_a_client_asks_until_an_answer_comes() -> None:
    client = Client()
    assert client.ask() == [], "not connected"
    question = Send((7,), ReadLog(1, "orders/0", 3, 10, 20, "TRUE"), client.reads.connected(7)[0].lane)
    assert client.wake() == (2.0, [question])
    assert client.reads.answered(LogSlice(1, "orders/0", problem="not open yet", again=True)) == []
    assert client.wake() == (6.0, [question])
    client.reads.disconnected()
    assert client.wake() == (14.0, [])
    assert client.reads.connected(7) == [question]
    found = LogSlice(1, "orders/0", 20, 0)
    given = StreamSlice("orders/0", 3, 20, 0, b"", b"")
    assert client.reads.answered(found) == [Done(1, Reported({"slice": given}))]
    assert client.reads.answered(found) == [], "a repeat"
    assert client.timers.deadline() is None


def test_a_client_gives_up_and_says_why() -> None:
    client = Client()
    client.reads.connected(7)
    client.ask()
    client.reads.answered(LogSlice(1, "orders/0", problem="broker 'bank' is away", again=True))
    now, effects = 0.0, []
    while not any(isinstance(effect, Done) for effect in effects):
        now, effects = client.wake()
    assert now == 60.0
    assert "broker 'bank' is away" in effects[0].outcome.problem
    assert client.timers.deadline() is None


def test_a_client_is_refused_at_once_what_cannot_be_asked() -> None:
    client = Client()
    [done] = client.ask(where="n == 1")
    assert isinstance(done.outcome, Refused)
    for ticket in range(READS_MAX):
        assert client.ask(ticket) == []
    [done] = client.ask()
    assert "wait for them" in done.outcome.problem
    client.reads.connected(7)
    assert client.reads.answered(LogSlice(1, "orders/0", problem="gone")) == [Done(0, Refused("gone"))]
