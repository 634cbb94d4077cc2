"""Commands about one pubend: info with lag in messages that match, trim, rm, verify."""

from __future__ import annotations

import pytest

from penstock.kernel.storage import Drop, Read, StorageFailed
from penstock.streams import pubend_commands
from penstock.streams.packets import CommandAnswer, SessionEnded
from penstock.testing.pump import a_message
from pubend_bench import DAMAGED, FULL, PubendBench


def filled(count: int = 10) -> tuple[PubendBench, list[int]]:
    bench = PubendBench()
    ticks = [bench.store_one(str(number), a_message(number, {"n": number})) for number in range(1, count + 1)]
    return bench, ticks


def lags(bench: PubendBench) -> dict[str, tuple[int, bool]]:
    names = bench.report(bench.command("info"))["names"]
    return {name["name"]: (name["lag"], name["lag_is_exact"]) for name in names}


def test_info_counts_what_matches_after_each_position() -> None:
    bench, ticks = filled()
    bench.register("all", "n > 0")
    bench.register("even", "n IN (2, 4, 6, 8, 10)")
    bench.register("none", "n > 99")
    bench.register("half", "n > 0", position=ticks[4])
    bench.register("done", "n > 0", "latest")
    assert lags(bench) == {
        "all": (10, True),
        "even": (5, True),
        "none": (0, True),
        "half": (5, True),
        "done": (0, True),
    }


def test_info_says_how_the_pubend_is() -> None:
    bench, ticks = filled()
    bench.register("billing", reader="alice", broker=7)
    report = bench.report(bench.command("info"))
    assert (report["pubend"], report["first"], report["last"]) == ("orders/0", ticks[0], ticks[-1])
    assert (report["entries"], report["gone"], report["problem"]) == (10, 0, "")
    (name,) = report["names"]
    assert (name["name"], name["reader"], name["broker"], name["where"]) == ("billing", "alice", 7, "n > 0")
    assert bench.report(bench.command("info", durable="billing"))["names"] == [name]
    assert "no durable name 'biling'" in bench.refusal(bench.command("info", durable="biling"))


def test_a_lag_beyond_the_bound_is_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pubend_commands, "LAG_ENTRIES_MAX", 6)
    bench, ticks = filled()
    bench.register("far", "n > 0")
    bench.register("near", "n > 0", position=ticks[6])
    assert lags(bench) == {"far": (6, False), "near": (3, True)}


def test_the_log_is_read_in_slices_and_others_go_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pubend_commands, "SLICE_MAX", 3)
    bench, _ = filled()
    bench.hold = True
    request = bench.command("verify")
    reads = 0
    while not bench.all_sent(CommandAnswer):
        reads += sum(isinstance(ask.operation, Read) for ask in bench.held)
        assert all(not isinstance(ask.operation, Read) or ask.operation.count <= 3 for ask in bench.held)
        bench.answer(1)
    assert reads >= 4
    assert bench.report(request)["entries"] == 10


def test_only_so_many_walks_at_once() -> None:
    bench, _ = filled()
    bench.hold = True
    requests = [bench.command("verify") for _ in range(6)]
    bench.answer()
    problems = [answer.problem for answer in bench.all_sent(CommandAnswer)]
    assert sorted(problem != "" for problem in problems) == [False] * 4 + [True] * 2
    assert len(problems) == len(requests)


def test_trim_takes_what_nobody_needs_and_asks_for_force_otherwise() -> None:
    bench, ticks = filled()
    assert bench.report(bench.command("trim", tick=ticks[2])) == {
        "pubend": "orders/0",
        "entries": 3,
        "bytes": bench.report(bench.command("info"))["bytes"] * 3 // 7,
        "gone": ticks[2],
    }
    bench.register("billing", position=ticks[4])
    assert "still needed by 'billing'" in bench.refusal(bench.command("trim", tick=ticks[5]))
    assert bench.report(bench.command("trim", tick=ticks[4]))["entries"] == 2
    assert bench.report(bench.command("trim", age=0, force=True))["entries"] == 5
    assert bench.log() == []
    assert bench.pubend.gone == ticks[-1]
    assert bench.registered(bench.register("billing")).gone_from == ticks[4] + 1


@pytest.mark.parametrize(
    "arguments", [{}, {"tick": 1, "age": 1}, {"tick": -1}, {"age": 1e400}, {"tick": 10**18}, {"time": "now"}]
)
def test_a_trim_of_nothing_that_can_be_changes_nothing(arguments: dict[str, object]) -> None:
    bench, _ = filled()
    assert bench.refusal(bench.command("trim", **arguments))
    assert len(bench.log()) == 10


def test_a_trim_that_fails_says_so() -> None:
    bench, ticks = filled()
    bench.failing = lambda operation: FULL if isinstance(operation, Read) else None
    assert bench.refusal(bench.command("trim", tick=ticks[2])) == "the disk is full"


def test_one_durable_name_is_removed() -> None:
    bench, ticks = filled()
    session = bench.registered(bench.register("billing", reader="alice")).session
    assert "being read by client 'alice'" in bench.refusal(bench.command("rm", durable="billing"))
    assert bench.report(bench.command("rm", durable="billing", force=True))["durable"] == "billing"
    assert SessionEnded("orders/0", "billing", session, "'billing' was removed") in bench.all_sent(SessionEnded)
    assert "there are none" in bench.refusal(bench.command("rm", durable="billing"))
    bench.restart()
    assert bench.pubend.status().names == 0
    assert bench.registered(bench.register("billing", "n > 5", position=ticks[0])).problem == ""


def test_a_name_is_removed_after_what_is_being_written() -> None:
    bench, ticks = filled()
    session = bench.registered(bench.register("billing")).session
    bench.hold = True
    bench.progress("billing", session, ticks[2])
    request = bench.command("rm", durable="billing", force=True)
    assert bench.registered(bench.register("billing")).again
    assert "is being removed" in bench.refusal(bench.command("rm", durable="billing"))
    bench.answer()
    assert bench.report(request)
    bench.hold = False
    bench.restart()
    assert bench.pubend.status().names == 0


def test_all_of_it_is_removed_and_may_be_made_anew() -> None:
    bench, _ = filled()
    epoch = bench.pubend.epoch
    session = bench.registered(bench.register("billing")).session
    assert "10 messages and 1 durable names" in bench.refusal(bench.command("rm"))
    assert bench.report(bench.command("rm", force=True)) == {"pubend": "orders/0", "entries": 10, "names": 1}
    assert bench.pubend.removed
    assert bench.pubend.problem == "orders/0 was removed"
    assert bench.refusal(bench.command("rm", force=True)) == "orders/0 was removed"
    assert bench.gone_told
    assert bench.all_sent(SessionEnded)[-1].session == session
    assert not bench.published(bench.publish("x")).again
    assert bench.store.blocks.areas() == []
    bench.restart()
    assert bench.pubend.epoch not in (0, epoch)
    assert "another orders/0" in bench.registered(bench.register(position=5, epoch=epoch)).problem


def test_nothing_is_written_any_more_once_it_is_being_removed() -> None:
    bench, ticks = filled()
    session = bench.registered(bench.register("billing")).session
    bench.hold = True
    bench.progress("billing", session, ticks[2])
    bench.progress("billing", session, ticks[3])
    bench.publish("x")
    bench.publish("y")
    walk = bench.command("verify")
    bench.answer(4)  # the walk has begun
    bench.command("rm", force=True)
    assert bench.published(bench.publish("z")).again
    bench.answer()
    bench.hold = False
    bench.advance(100.0)
    assert bench.store.blocks.areas() == []
    assert bench.report(walk)["damage"] == "orders/0 is being removed"


def test_a_removal_that_fails_leaves_it_as_it_was() -> None:
    bench, ticks = filled()
    bench.register("billing", position=ticks[3])
    bench.failing = lambda operation: FULL if isinstance(operation, Drop) else None
    assert "could not be deleted" in bench.refusal(bench.command("rm", force=True))
    assert bench.pubend.ready
    assert bench.registered(bench.register("billing")).position == ticks[3]
    assert bench.store_one("x")
    assert len(bench.log()) == 11


def test_verify_finds_damage_stops_the_pubend_and_deletes_nothing() -> None:
    bench, _ = filled()
    entries = bench.store.blocks.by_area["streams/orders/0"].entries
    block = entries[4]
    changed = bytearray(block)
    changed[-1] ^= 1
    entries[4] = type(block)(changed) if not isinstance(block, bytes) else bytes(changed)
    bench.store.reopen()
    report = bench.report(bench.command("verify"))
    assert report["damage"]
    assert bench.pubend.problem
    assert bench.report(bench.command("verify"))["damage"]
    assert bench.report(bench.command("info"))["problem"] == bench.pubend.problem
    assert len(entries) == 10
    bench.store.reopen()
    bench.start()
    assert "with force all of it is deleted" in bench.refusal(bench.command("rm"))
    bench.report(bench.command("rm", force=True))
    assert bench.store.blocks.areas() == []


def test_damage_that_verify_meets_is_its_answer() -> None:
    bench, _ = filled()

    def fails(operation: object) -> StorageFailed | None:
        return DAMAGED if isinstance(operation, Read) else None

    bench.failing = fails
    assert bench.report(bench.command("verify"))["damage"] == DAMAGED.problem
    assert "damaged" in bench.pubend.problem


def test_an_unknown_command_or_bad_arguments() -> None:
    bench, _ = filled()
    assert "did you mean 'verify'" in bench.refusal(bench.command("verfy"))
    assert "arguments of 'info'" in bench.refusal(bench.command("info", durable=5))
