"""The store when the power is cut at every step, when disks are full at every write, and when a sync fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from penstock.kernel.memory_store import MemoryStore
from penstock.kernel.storage import (
    Append,
    Appended,
    Ask,
    Drop,
    Extent,
    Get,
    LogExtent,
    Names,
    NamesFound,
    Operation,
    Put,
    Read,
    StorageFailed,
    StorageResult,
    Trim,
)
from penstock.live.store import sql_blocks, sqlite_blocks, sqlite_file
from penstock.live.store.sqlite_file import SqliteFile
from power_cut_vfs import Disk, Image, PowerCutVfs, Step, images

PATH = Path("/node.sqlite")
AREAS = ("streams", "streams/a/0", "streams/b/0")
Group = Sequence[tuple[str, Operation]]
State = dict[str, Any]


@pytest.fixture(scope="module")
def vfs() -> Iterator[PowerCutVfs]:
    vfs = PowerCutVfs()
    yield vfs
    vfs.unregister()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short workload reaches everything."""
    monkeypatch.setattr(sqlite_file, "CHECKPOINT_PAGES", 12)
    monkeypatch.setattr(sql_blocks, "SLICE_ENTRIES", 3)
    monkeypatch.setattr(sqlite_blocks, "FREE_PAGES_MIN", 1)
    monkeypatch.setattr(sqlite_blocks, "FREE_SHARE", 1_000)


def workload(seed: int, groups: int = 14) -> list[Group]:
    """Groups of changes, each accepted by the rules."""
    random = Random(seed)
    keys = dict.fromkeys(AREAS, 0)
    made: list[Group] = []
    for _ in range(groups):
        group: list[tuple[str, Operation]] = []
        for _ in range(random.randint(1, 3)):
            area = random.choice(AREAS)
            kind = random.random()
            if kind < 0.6:
                first = keys[area] + random.randint(1, 5)
                keys[area] = first + 2
                sizes = (random.choice((5, 300, 6_000)) for _ in range(3))
                group.append((area, Append(tuple(enumerate(map(random.randbytes, sizes), start=first)))))
            elif kind < 0.8:
                group.append((area, Put(random.choice("xyz"), random.randbytes(random.choice((0, 8, 700))))))
            elif kind < 0.97 or not keys[area]:
                group.append((area, Trim(keys[area] - random.randint(0, 6))))
            else:
                group.append((area, Drop()))
        made.append(group)
    return made


def state_of(carry_out: Any) -> State:
    """All that can be read."""
    state: State = {}
    for area in AREAS:
        extent, names = carry_out(area, Extent()), carry_out(area, Names())
        assert isinstance(extent, LogExtent), extent
        assert isinstance(names, NamesFound), names
        values = tuple((name, carry_out(area, Get(name))) for name in names.names)
        state[area] = (extent, carry_out(area, Read(1, 1 << 60, 1_000)), values)
    return state


def state_in(file: SqliteFile) -> State:
    return state_of(lambda area, operation: file.carry_out([Ask(1, area, operation)])[0][1])


class Work:
    """A workload on a disk, and what was answered at which step."""

    def __init__(self, vfs: PowerCutVfs, groups: Sequence[Group], disk: Disk | None = None, sync: Any = "full") -> None:
        self.vfs = vfs
        self.disk = vfs.disk = disk or Disk()
        self.answered = [0]  # after how many steps each group was
        self.states: list[State] = []
        memory = MemoryStore()
        self.states.append(state_of(memory.carry_out))
        file = SqliteFile(PATH, sync=sync, vfs=PowerCutVfs.NAME)
        for group in groups:
            answers = file.carry_out([Ask(number, *asked) for number, asked in enumerate(group)])
            for (_, answer), asked in zip(answers, group, strict=True):
                assert answer == memory.carry_out(*asked)
            self.answered.append(len(self.disk.steps))
            self.states.append(state_of(memory.carry_out))
            file.tidy()
        self.whole = len(self.disk.steps)
        file.close()

    def at(self, steps: int) -> int:
        """How many groups had been answered."""
        return sum(answered <= steps for answered in self.answered) - 1


def found_in(vfs: PowerCutVfs, image: Image) -> tuple[State, Disk]:
    """What the store finds after a power cut, and goes on with."""
    disk = vfs.disk = Disk(image)
    with closing(SqliteFile(PATH, vfs=PowerCutVfs.NAME)) as file:
        state = state_in(file)
        for area in AREAS:
            last = state[area][0].last
            ((_, answer),) = file.carry_out([Ask(1, area, Append(((last + 1, b"and it goes on"),)))])
            assert not isinstance(answer, StorageFailed)
        while file.tidy():
            pass
    return state, disk


@pytest.mark.parametrize("seed", range(2))
def test_a_power_cut_at_every_step_takes_nothing_that_was_answered_and_leaves_nothing_half(
    vfs: PowerCutVfs, seed: int
) -> None:
    work = Work(vfs, workload(seed))
    assert sum(step.kind == "sync" and step.name == str(PATH) for step in work.disk.steps) > 5, "it was checkpointed"
    assert any(step.kind == "truncate" and step.offset for step in work.disk.steps), "and space given back"
    for steps, image in images(work.disk.steps, {}, Random(seed)):
        groups = work.at(steps)
        state, _ = found_in(vfs, image)
        assert state in work.states[groups : groups + 2], f"seed {seed}, cut before step {steps}, {groups} groups"


def test_a_power_cut_while_the_store_recovers_from_one_takes_nothing_either(vfs: PowerCutVfs) -> None:
    work = Work(vfs, workload(7))
    for steps, image in list(images(work.disk.steps, {}, Random(7), parts=1))[::23]:
        state, disk = found_in(vfs, image)
        opening = list(takewhile(lambda step: step.kind != "sync", disk.steps))
        for again in range(len(opening) + 1):
            for _, second in images(opening[:again], image, Random(again), parts=1):
                assert found_in(vfs, second)[0] == state, f"cut before step {steps}, and again"


def lost(vfs: PowerCutVfs, work: Work) -> int:
    """After how many power cuts something that was answered is missing; whatever else is wrong counts too."""
    count = 0
    for steps, image in images(work.disk.steps, {}, Random(1), parts=1):
        groups = work.at(steps)
        with suppress(Exception, AssertionError):
            if found_in(vfs, image)[0] in work.states[groups : groups + 2]:
                continue
        count += 1
    return count


def test_this_layer_bites_without_syncs_it_finds_losses(vfs: PowerCutVfs, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: SqliteFile, connection: apsw.Connection, sync: Any) -> None:
        connection.pragma("synchronous", "OFF")

    monkeypatch.setattr(SqliteFile, "_set_sync", careless)
    work = Work(vfs, workload(1))
    monkeypatch.undo()
    assert lost(vfs, work) > 50


def test_relaxed_may_lose_the_last_answers_but_leaves_nothing_half_and_nothing_out(vfs: PowerCutVfs) -> None:
    work = Work(vfs, workload(1), sync="relaxed")
    behind = []
    for steps, image in images(work.disk.steps, {}, Random(1), parts=1):
        groups = work.at(steps)
        state, _ = found_in(vfs, image)
        assert state in work.states[: groups + 2]
        behind.append(state not in work.states[groups : groups + 2])
    assert any(behind), "this is what full is for"


# Disks that fail.


def growing(groups: int) -> list[Group]:
    """Any of these can be left out."""
    made: list[Group] = []
    for number in range(1, groups + 1):
        entries = tuple((10 * number + one, bytes([number]) * 3_000) for one in range(3))
        named = (AREAS[0], Put("x", b"%d" % number))
        made.append([(AREAS[1], Append(entries)), named, (AREAS[2], Append(entries[:1])), (AREAS[1], Trim(8 * number))])
    return made


class Failing:
    """A disk that fails from the step with this number on, so many times."""

    def __init__(self, kinds: tuple[str, ...], first: int, times: int, error: type[apsw.Error]) -> None:
        self._kinds = kinds
        self._before = first
        self.left = times
        self._error = error

    def __call__(self, step: Step) -> None:
        if step.kind in self._kinds and self.left:
            self._before -= 1
            if self._before < 0:
                self.left -= 1
                raise self._error(f"as if it were so at {step.kind}")


def survives(vfs: PowerCutVfs, groups: Sequence[Group], failing: Failing) -> int:
    """Run the workload on a disk that fails: what was refused is not there, what was answered is, and it recovers.

    That holds if the power is cut after any group, too. How many operations were refused.
    """
    disk = vfs.disk = Disk()
    refused, cuts = 0, list[tuple[Image, State]]()
    memory = MemoryStore()
    with closing(SqliteFile(PATH, vfs=PowerCutVfs.NAME)) as file:
        disk.fault = failing
        for group in groups:
            asks = [Ask(number, *asked) for number, asked in enumerate(group)]
            answers = dict(file.carry_out(asks))
            while file.unsettled:
                answers |= file.settle()
            for number, asked in enumerate(group):
                answer = answers[number]
                if not isinstance(answer, StorageFailed):
                    assert answer == memory.carry_out(*asked)
                else:
                    refused += 1
                    assert not answer.damaged
            state = state_of(memory.carry_out)
            assert state_in(file) == state
            if answers_failed(answers):
                cuts += ((image, state) for _, image in images(disk.steps, {}, Random(1), 1, first=len(disk.steps)))
            file.tidy()
        assert not failing.left, "it has failed, and recovered"
        while file.tidy():
            pass
    assert found_in(vfs, disk.image())[0] == state
    for image, state in cuts:
        assert found_in(vfs, image)[0] == state
    return refused


def answers_failed(answers: dict[int, StorageResult]) -> bool:
    return any(isinstance(answer, StorageFailed) for answer in answers.values())


@pytest.mark.parametrize(("times", "refused_min"), [(1, 0), (30, 30)])
def test_a_disk_that_is_full_at_any_write_refuses_and_goes_on_when_there_is_room(
    vfs: PowerCutVfs, times: int, refused_min: int
) -> None:
    """Full for one write, or for many."""
    refused = [
        survives(vfs, growing(8), Failing(("write",), first, times, apsw.FullError)) for first in range(0, 80, 2)
    ]
    assert sum(number > 0 for number in refused) >= refused_min


@pytest.mark.parametrize("times", [1, 3])
def test_what_is_refused_because_a_sync_failed_never_turns_up(vfs: PowerCutVfs, times: int) -> None:
    refused = [survives(vfs, growing(8), Failing(("sync",), first, times, apsw.IOError)) for first in range(10)]
    assert sum(number > 0 for number in refused) > 3


def test_while_the_log_cannot_be_copied_into_the_file_it_grows_only_so_far(
    vfs: PowerCutVfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "WAL_PAGES_MAX", 60)
    disk = vfs.disk = Disk()

    def fault(step: Step) -> None:
        if step.name == str(PATH) and step.kind == "write":
            raise apsw.FullError("no space left on device")

    answers = []
    with closing(SqliteFile(PATH, vfs=PowerCutVfs.NAME)) as file:
        disk.fault = fault
        for number in range(1, 80):
            answers += file.carry_out([Ask(number, AREAS[1], Append(((number, bytes(3_000)),)))])
            file.tidy()
        refused = [answer for _, answer in answers if isinstance(answer, StorageFailed)]
        assert 10 < len(refused) < 70
        assert "cannot be copied" in refused[-1].problem
        assert len(disk.files[f"{PATH}-wal"]) < 80 * 4_120
        ((_, found),) = file.carry_out([Ask(1, AREAS[1], Extent())])
        assert found == LogExtent(1, 79 - len(refused), 3_000 * (79 - len(refused)), 79 - len(refused))
        disk.fault = lambda step: None
        file.tidy()
        ((_, answer),) = file.carry_out([Ask(1, AREAS[1], Append(((100, b"there is room"),)))])
        assert answer == Appended()
