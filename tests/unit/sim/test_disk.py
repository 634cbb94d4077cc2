"""The simulated disk: answers in order after its delay; what a crash leaves; full and slow disks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from penstock.kernel.machine import Effect
from penstock.kernel.packet import BROKER
from penstock.kernel.service import Context, Service
from penstock.kernel.storage import (
    Append,
    Appended,
    Ask,
    Entries,
    Extent,
    Get,
    Names,
    Operation,
    Put,
    Read,
    StorageFailed,
    StorageResult,
    Stored,
    Ticket,
    Trim,
    Value,
)
from penstock.scenario.spec import BrokerSpec, FaultSpec, Scenario
from penstock.services import install, remove
from penstock.sim.disk import DELAY, Disk, Tail
from penstock.sim.engine import Engine
from penstock.sim.network import SimulatedNetwork

ALL = Read(1, 1_000, 1_000)


class Bench:
    """A disk, and what it answered when."""

    def __init__(self, delay: float = DELAY, seed: int = 1) -> None:
        self.engine = Engine()
        self.answers: list[tuple[float, Ticket, StorageResult]] = []
        self.disk = Disk(self.engine, Random(seed), self._answered, delay)
        self._ticket = self._key = 0

    def _answered(self, ticket: Ticket, result: StorageResult) -> None:
        self.answers.append((self.engine.now, ticket, result))

    def ask(self, *operations: Operation) -> None:
        for operation in operations:
            self._ticket += 1
            self.disk.ask(Ask(self._ticket, "here", operation))

    def at(self, time: float, action: Any) -> None:
        self.engine.at(time, lambda _: action(), None)

    def run(self, until: float = 100.0) -> None:
        self.engine.run(until)

    def times(self) -> list[float]:
        return [time for time, *_ in self.answers]

    def results(self) -> list[StorageResult]:
        return [result for *_, result in self.answers]

    def append(self, *entries: bytes) -> Append:
        """With the next keys."""
        first = self._key + 1
        self._key += len(entries)
        return Append(tuple(enumerate(entries, start=first)))

    def log(self) -> tuple[bytes, ...]:
        found = self.disk.store.carry_out("here", ALL)
        assert isinstance(found, Entries)
        return tuple(entry for _, entry in found.entries)


def test_answers_come_in_order_after_the_delay_and_changes_are_made_when_they_come() -> None:
    bench = Bench(delay=0.5)
    bench.ask(bench.append(b"a"), ALL, Put("x", b"1"), Get("x"), Trim(1))
    assert bench.log() == ()
    bench.run(0.49)
    assert (bench.answers, bench.log()) == ([], ())
    bench.run()
    assert [ticket for _, ticket, _ in bench.answers] == [1, 2, 3, 4, 5]
    assert bench.results() == [Appended(), Entries(((1, b"a"),), True), Stored(), Value(b"1"), Stored()]
    assert bench.times() == [0.5] * 5


def test_a_later_question_waits_its_own_time() -> None:
    bench = Bench(delay=0.5)
    bench.ask(Get("x"))
    bench.at(0.2, lambda: bench.ask(Get("x")))
    bench.run()
    assert bench.times() == pytest.approx([0.5, 0.7])


def test_a_disk_that_becomes_slow_or_fast_again_lets_no_question_overtake_another() -> None:
    bench = Bench(delay=0.1)
    bench.ask(bench.append(b"a"))

    def change(delay: float) -> None:
        bench.disk.delay = delay
        bench.ask(bench.append(str(delay).encode()))

    bench.at(0.05, lambda: change(5.0))
    bench.at(1.0, lambda: change(0.1))
    bench.at(6.0, lambda: bench.ask(bench.append(b"z")))
    bench.run()
    assert bench.times() == pytest.approx([0.1, 5.05, 5.05, 6.1])
    assert [ticket for _, ticket, _ in bench.answers] == [1, 2, 3, 4]
    assert bench.log() == (b"a", b"5.0", b"0.1", b"z")


def test_a_full_disk_refuses_what_needs_room_and_goes_on_when_there_is_some() -> None:
    bench = Bench()
    bench.ask(bench.append(b"a", b"b"), Put("x", b"1"))
    bench.run(1.0)
    bench.disk.full = True
    bench.ask(bench.append(b"c"), Put("x", b"2"), ALL, Get("x"), Trim(1), Put("x", b""), Get("x"))
    bench.run(2.0)
    first, second, *others = bench.results()[2:]
    assert first == second
    assert isinstance(first, StorageFailed)
    assert "the disk is full" in first.problem
    read = [Entries(((1, b"a"), (2, b"b")), True), Value(b"1")]
    assert others == [*read, Stored(), Stored(), Value(b"")], "reading, trimming and removing need no room"
    bench.disk.full = False
    bench.ask(bench.append(b"d"), Put("x", b"3"), Get("x"))
    bench.run(3.0)
    assert bench.results()[-3:] == [Appended(), Stored(), Value(b"3")]
    assert bench.log() == (b"b", b"d")


# Crashes.


def crashed(tail: Tail, *operations: Operation, seed: int = 1) -> Bench:
    """One entry that was answered, then operations that were not."""
    bench = Bench(seed=seed)
    bench.ask(bench.append(b"answered"))
    bench.run(1.0)
    bench.ask(*operations)
    bench.disk.crash(tail)
    bench.run(2.0)
    return bench


UNANSWERED = (Append(((2, b"1"), (3, b"2"), (4, b"3"))), Append(((5, b"4"),)), Put("x", b"1"))


def test_of_a_lost_tail_nothing_is_there_and_of_a_kept_one_everything() -> None:
    lost, kept = crashed("lost", *UNANSWERED), crashed("kept", *UNANSWERED)
    assert lost.log() == (b"answered",)
    assert lost.disk.store.carry_out("here", Get("x")) == Value(b"")
    assert kept.log() == (b"answered", b"1", b"2", b"3", b"4")
    assert kept.disk.store.carry_out("here", Get("x")) == Value(b"1")
    assert len(lost.answers) == len(kept.answers) == 1, "whoever has crashed is never answered"


def test_of_a_torn_tail_the_first_changes_and_the_first_entries_are_there_and_nothing_behind_them() -> None:
    everything = (b"answered", b"1", b"2", b"3", b"4")
    found = set()
    for seed in range(60):
        bench = crashed("torn", *UNANSWERED, seed=seed)
        log, value = bench.log(), bench.disk.store.carry_out("here", Get("x"))
        assert log == everything[: len(log)]
        assert value == Value(b"") or len(log) == 5, "the value was put last"
        assert len(bench.answers) == 1
        found.add((len(log), value))
    assert {length for length, _ in found} == {1, 2, 3, 4, 5}, "torn at every place"
    assert {value for length, value in found if length == 5} == {Value(b""), Value(b"1")}


def test_where_a_tail_is_torn_depends_on_the_seed_alone() -> None:
    assert [crashed("torn", *UNANSWERED, seed=seed).log() for seed in range(20)] == [
        crashed("torn", *UNANSWERED, seed=seed).log() for seed in range(20)
    ]


@pytest.mark.parametrize("tail", ["lost", "kept", "torn"])
def test_a_full_disk_has_no_room_for_a_tail(tail: Tail) -> None:
    bench = Bench()
    bench.ask(bench.append(b"a"))
    bench.disk.full = True
    bench.disk.crash(tail)
    assert bench.log() == ()


@pytest.mark.parametrize("tail", ["lost", "kept", "torn"])
def test_the_next_life_is_served_and_hears_no_answer_to_the_one_before(tail: Tail) -> None:
    bench = crashed(tail)
    bench.ask(bench.append(b"new"), ALL)
    bench.run(3.0)
    assert bench.results()[1:] == [Appended(), Entries(((1, b"answered"), (2, b"new")), True)]


def test_the_next_life_does_not_wait_for_the_questions_of_the_one_before() -> None:
    bench = Bench(delay=50.0)
    bench.ask(bench.append(b"old"))
    bench.disk.crash("lost")
    bench.disk.delay = 0.5
    bench.ask(bench.append(b"new"))
    bench.run()
    assert bench.answers == [(0.5, 2, Appended())]


# Damage.


def stored(seed: int) -> Bench:
    """A disk with a log and values that have changed."""
    bench = Bench(seed=seed)
    for number in range(8):
        bench.ask(bench.append(b"%d" % number, b"again"), Put("x", b"%d" % number), Put("y", b"y"))
    bench.ask(Trim(3))
    bench.run(1.0)
    return bench


QUESTIONS: tuple[Operation, ...] = (Extent(), Get("x"), Get("y"), Names(), Read(4, 9, 99), ALL)


def said(bench: Bench) -> list[StorageResult]:
    return [bench.disk.store.carry_out("here", question) for question in QUESTIONS]


@pytest.mark.parametrize("way", ["flip", "roll_back"])
@pytest.mark.parametrize("restarted", [False, True])
def test_damage_is_found_and_never_returned_as_right_and_restoring_mends_it(way: str, restarted: bool) -> None:
    kinds = set()
    for seed in range(40):
        bench = stored(seed)
        right = said(bench)
        kinds.add(getattr(bench.disk, way)().strip("0123456789"))
        if restarted:
            bench.disk.crash("lost")
        found = said(bench)
        for was, now in zip(right, found, strict=True):
            assert now == was or (isinstance(now, StorageFailed) and now.damaged)
        assert found != right or (way == "roll_back" and not restarted), "a row that is known is not read again"
        if found != right:
            for operation in (Append(((100, b"new"),)), Trim(5), Put("x", b"new")):
                refused = bench.disk.store.carry_out("here", operation)
                assert isinstance(refused, StorageFailed)
                assert refused.damaged, "nothing more is changed"
        bench.disk.restore()
        assert said(bench) == right
        assert bench.disk.store.carry_out("here", Append(((100, b"new"),))) == Appended()
    assert len(kinds) >= 2


def test_what_was_written_or_trimmed_since_the_damage_is_not_undone_by_mending_it() -> None:
    for seed in range(20):
        bench = stored(seed)
        bench.disk.roll_back()
        bench.ask(bench.append(b"new"), Put("x", b"new"))
        bench.run(2.0)
        answered = [not isinstance(result, StorageFailed) for result in bench.results()[-2:]]
        bench.disk.restore()
        assert (b"new" in bench.log()) == answered[0]
        assert (bench.disk.store.carry_out("here", Get("x")) == Value(b"new")) == answered[1]


def test_an_empty_disk_has_nothing_to_damage_and_damage_depends_on_the_seed_alone() -> None:
    bench = Bench()
    assert (bench.disk.flip(), bench.disk.roll_back()) == ("", "")
    for _ in range(2):
        assert [stored(seed).disk.flip() for seed in range(9)] == [stored(seed).disk.flip() for seed in range(9)]


# In a network.


class Diary:
    """A broker's machine that writes each life into its log, and keeps all answers."""

    lives: list[Diary]
    days: int

    def __init__(self, context: Context) -> None:
        self.answers: list[StorageResult] = []
        self.storage = context.storage
        self.incarnation = context.incarnation
        Diary.lives.append(self)

    def begin(self) -> list[Effect]:
        Diary.days += 2
        entries = tuple((day, str(self.incarnation).encode()) for day in (Diary.days - 1, Diary.days))
        return [self.storage.ask(Append(entries)), self.storage.ask(ALL)]

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        self.answers.append(result)
        return []

    def read(self) -> list[bytes]:
        """What it last read."""
        found = self.answers[-1]
        assert isinstance(found, Entries)
        return [entry for _, entry in found.entries]


DIARY = Service(name="diary", broker=Diary, stores=(BROKER,))


class Nobody:
    """An observer of nothing."""

    watches_packets = False

    def record(self, node: str, record: object) -> None: ...

    def delivered(self, node: str, subscription: int, message: object) -> None: ...

    def sent(self, packet: object, *, node: str, peer: str) -> None: ...

    def handled(self, node: str, packet: object) -> None: ...


class Network:
    """One broker that keeps a diary."""

    def __init__(self, disk_delay: float = 0.5) -> None:
        scenario = Scenario(name="disk", duration=1.0, broker=(BrokerSpec(name="a", disk_delay=disk_delay),))
        self.engine = Engine()
        self.network = SimulatedNetwork(scenario, 1, self.engine, Nobody())
        self.network.start(scenario)

    def begin(self, until: float) -> Diary:
        diary = Diary.lives[-1]
        self.network.hosts["a"].apply(diary.begin())
        self.engine.run(until)
        return diary

    def strike(self, *faults: Any, **fields: Any) -> None:
        for kind in faults:
            self.network.strike(FaultSpec(at=0.0, kind=kind, broker="a", **fields))


@pytest.fixture(autouse=True)
def diary() -> Any:
    Diary.lives, Diary.days = [], 0
    install(DIARY)
    yield
    remove(DIARY)


def test_a_broker_is_answered_after_its_disks_delay_and_finds_its_log_in_the_next_life() -> None:
    bench = Network(disk_delay=0.5)
    assert bench.begin(0.4).answers == []
    bench.engine.run(0.5)
    assert Diary.lives[0].answers == [Appended(), Entries(((1, b"1"), (2, b"1")), True)]
    bench.strike("crash", "restart")
    assert bench.begin(2.0).read() == [b"1", b"1", b"2", b"2"]


@pytest.mark.parametrize(("tail", "left"), [("lost", ()), ("kept", (b"1", b"1"))])
def test_what_a_crash_leaves_is_the_faults_choice(tail: Tail, left: Sequence[bytes]) -> None:
    bench = Network(disk_delay=0.5)
    bench.begin(0.4)
    bench.strike("crash", tail=tail)
    bench.strike("restart")
    second = bench.begin(5.0)
    assert Diary.lives[0].answers == [], "a node that crashes is never answered"
    assert second.read() == [*left, b"2", b"2"]


def test_faults_fill_free_and_slow_down_a_disk_and_heal_mends_it() -> None:
    bench = Network(disk_delay=0.5)
    bench.strike("disk_full")
    diary = bench.begin(1.0)
    answers = diary.answers
    assert isinstance(answers[0], StorageFailed)
    bench.strike("disk_freed")
    bench.begin(2.0)
    assert answers[2] == Appended()
    assert diary.read() == [b"1", b"1"]
    bench.strike("disk_slow", seconds=3.0)
    bench.begin(4.9)
    assert len(answers) == 4
    bench.engine.run(5.0)
    assert len(answers) == 6
    bench.strike("disk_full", "heal")
    bench.begin(5.5)
    assert answers[6] == Appended()
