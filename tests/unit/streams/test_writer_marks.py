"""Marks of batch writers at a pubend: where a batch began, which parts did, and that retention heeds it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.kernel.storage import Put
from penstock.streams import writer_marks
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import CommandAnswer
from pubend_bench import DAMAGED, FULL, PubendBench


def begun(bench: PubendBench, batch: int, part: int = 0, writer: str = "query") -> tuple[int, bool]:
    """Behind which tick, and whether that part had begun before."""
    report = bench.report(bench.command("begin", begun={"writer": writer, "batch": batch, "part": part}))
    return report["after"], report["again"]


def refused(bench: PubendBench, **what: Any) -> str:
    return bench.refusal(bench.command("begin", begun={"writer": "query", **what}))


def stored(bench: PubendBench, count: int) -> list[int]:
    return [bench.published(bench.publish(f"id{bench.requests}")).tick for _ in range(count)]


def test_a_batch_began_where_it_first_did_also_after_crashes() -> None:
    bench = PubendBench()
    first, again = begun(bench, 0)
    assert not again
    bench.advance(1.0)
    ticks = stored(bench, 3)
    assert first < ticks[0]
    assert begun(bench, 0) == (first, True)
    assert begun(bench, 0, part=70) == (first, False)
    second, again = begun(bench, 1)
    assert (second >= ticks[-1], again) == (True, False), "the next batch begins behind what is there"
    assert stored(bench, 2)[0] > second
    for _ in range(2):
        bench.restart()
        assert begun(bench, 1) == (second, True)
    assert begun(bench, 1, part=1) == (second, False)
    late = bench.report(bench.command("begin", begun={"writer": "query", "batch": 0}))
    assert late["batch"] == 1, "batch 0 is over"
    assert bench.report(bench.command("begin", begun={"writer": "query", "over": True})) == {}
    bench.restart()
    assert begun(bench, 0)[1] is False


def test_nothing_has_begun_before_it_is_on_disk() -> None:
    bench = PubendBench()
    bench.hold = True
    requests = [bench.command("begin", begun={"writer": "query", "batch": 3, "part": part}) for part in (0, 1, 1)]
    assert not bench.all_sent(CommandAnswer)
    assert "just beginning" in refused(bench, batch=4)
    bench.answer(1)
    assert bench.report(requests[0])["again"] is False
    assert len(bench.all_sent(CommandAnswer)) == 2, "the others are being written"
    bench.hold = False
    bench.restart(carried_out=0)
    assert begun(bench, 3, 0)[1] is True
    assert begun(bench, 3, 1)[1] is False
    bench.failing = lambda operation: FULL if isinstance(operation, Put) else None
    assert refused(bench, batch=4) == "the disk is full"
    assert refused(bench, batch=3, part=2) == "the disk is full"
    bench.failing = lambda operation: None
    assert begun(bench, 3, 2)[1] is False
    bench.failing = lambda operation: DAMAGED if isinstance(operation, Put) else None
    assert refused(bench, batch=4) == DAMAGED.problem
    assert "is damaged" in refused(bench, batch=4)


def test_what_is_behind_a_mark_is_kept_until_it_is_over_or_too_old() -> None:
    bench = PubendBench(StreamsConfig(history=10.0, retain=1_000.0, ids_window=4.0, lease=2.0))
    stored(bench, 2)
    begun(bench, 0)
    ticks = stored(bench, 3)
    bench.advance(100.0)
    assert [tick for tick, _ in bench.log()] == ticks
    begun(bench, 1)
    bench.advance(100.0)
    assert bench.log() == []
    stored(bench, 1)
    bench.advance(2_000.0)
    assert bench.log() == []


def test_a_mark_behind_which_something_was_trimmed_holds_nothing_any_more() -> None:
    """Its query is dead: what is published later goes by `history`, as if there were no mark."""
    bench = PubendBench(StreamsConfig(history=10.0, retain=1_000.0, ids_window=4.0, lease=2.0))
    begun(bench, 0)
    stored(bench, 1)
    bench.advance(5_000.0)
    stored(bench, 3)
    bench.advance(100.0)
    assert bench.log() == []


def test_who_begins_while_the_writer_is_forgotten_hears_of_it() -> None:
    bench = PubendBench()
    bench.hold = True
    request = bench.command("begin", begun={"writer": "query", "batch": 0, "part": 0})
    bench.command("begin", begun={"writer": "query", "over": True})
    bench.hold = False
    bench.answer(10)
    (answer,) = [one for one in bench.all_sent(CommandAnswer) if one.request == request]
    assert "try again" in answer.problem


def test_there_are_only_so_many_writers_and_those_long_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_marks, "WRITERS_MAX", 2)
    bench = PubendBench(StreamsConfig(retain=100.0, history=10.0))
    for writer in "ab":
        begun(bench, 0, writer=writer)
    assert "knows 2 batch writers" in refused(bench, batch=0)
    begun(bench, 1, writer="a")
    bench.advance(150.0)
    stored(bench, 1)
    begun(bench, 2, writer="a")
    bench.advance(100.0)
    assert begun(bench, 0)[1] is False
    bench.restart()
    assert begun(bench, 2, writer="a")[1] is True, "it was heard of lately"
    assert begun(bench, 0)[1] is True
    assert "knows 2 batch writers" in bench.refusal(bench.command("begin", begun={"writer": "b"}))


@pytest.mark.parametrize(
    "wrong", [{"writer": ""}, {"writer": "a/b"}, {"writer": "x" * 65}, {"batch": -1}, {"part": -1}, {"part": 1 << 16}]
)
def test_what_no_writer_says_is_refused(wrong: dict[str, Any]) -> None:
    assert refused(PubendBench(), **wrong)
