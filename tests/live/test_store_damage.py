"""The store on a damaged disk: nothing wrong is ever returned as right, one log's damage is not another's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from penstock.errors import NotPossibleHere
from penstock.kernel.areas import AreaVerdict
from penstock.kernel.storage import Append, Ask, Extent, Get, Names, Operation, Put, Read, StorageFailed, Trim
from penstock.live.store import sql_blocks, sqlite_file
from penstock.live.store.sqlite_file import SqliteFile
from penstock.live.store.verify import verify_file
from power_cut_vfs import Disk, Image, PowerCutVfs

PATH = Path("/node.sqlite")
AREAS = ("streams", "streams/a/0", "streams/b/0", "streams/c/0")
PAGE_BYTES = 4_096
QUESTIONS: tuple[Operation, ...] = (
    Extent(),
    Names(),
    *(Get(name) for name in ("x", "y", "long")),
    *(Read(first, first + 9, 100) for first in range(1, 100, 10)),
    Read(1, 1 << 60, 1_000),
)


@pytest.fixture
def vfs() -> Iterator[PowerCutVfs]:
    vfs = PowerCutVfs()
    yield vfs
    vfs.unregister()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "CHECKPOINT_PAGES", 12)
    monkeypatch.setattr(sql_blocks, "SLICE_ENTRIES", 3)


ROUNDS = 55


def changes(number: int, random: Random) -> list[tuple[str, Operation]]:
    """Three logs that grow, one of them is trimmed; values that change; an area that comes late."""
    made: list[tuple[str, Operation]] = [(area, Put("x", b"%08d" % number)) for area in AREAS[:2]]
    made += [(area, Append(((number, random.randbytes(random.choice((10, 400, 5_000)))),))) for area in AREAS[1:3]]
    if number % 7 == 0:
        made += [
            (AREAS[2], Trim(number - 9)),
            (AREAS[1], Put("y", b"y" * number)),
            (AREAS[0], Put("long", b"l" * 9_000)),
        ]
    if number > ROUNDS - 6:
        made.append((AREAS[3], Append(((number, b"late"),))))
    if number == ROUNDS:
        made.append((AREAS[1], Trim(number - 15)))  # pages become free
    return made


Found = dict[tuple[str, Operation], object]


def asked(file: SqliteFile) -> Found:
    """What it says, each question for itself."""
    questions = [(area, operation) for area in AREAS for operation in QUESTIONS]
    return {question: file.carry_out([Ask(1, *question)])[0][1] for question in questions}


def written(vfs: PowerCutVfs, *, closed: bool) -> tuple[Image, Found, list[Image]]:
    """What a disk holds; what it should say; and what it held before, after each round."""
    disk = vfs.disk = Disk()
    random, before = Random(3), list[Image]()
    with closing(SqliteFile(PATH, vfs=PowerCutVfs.NAME)) as file:
        for number in range(1, ROUNDS + 1):
            before.append(disk.image())
            answers = file.carry_out([Ask(at, *asked) for at, asked in enumerate(changes(number, random))])
            assert not any(isinstance(answer, StorageFailed) for _, answer in answers)
            while file.tidy():
                pass
        right, image = asked(file), disk.image()
    return disk.image() if closed else image, right, before


def judged(vfs: PowerCutVfs, image: Image, right: Found, what: str) -> dict[str, bool]:
    """Which areas are as they were; none if the file is refused. What is not must say so, and none is overwritten."""
    vfs.disk = Disk(image)
    whole: dict[str, bool] = {}
    try:
        file = SqliteFile(PATH, vfs=PowerCutVfs.NAME)
    except NotPossibleHere:
        return whole
    with closing(file):
        found = asked(file)
        for (area, operation), answer in found.items():
            damaged = isinstance(answer, StorageFailed) and answer.damaged
            assert damaged or answer == right[area, operation], f"{what}: {area}, {operation}: {answer}"
            whole[area] = whole.get(area, True) and not damaged
        for number in range(1_000, 1_003):
            for area in AREAS:
                file.carry_out([Ask(1, area, Append(((number, bytes(9_000)),)))])
    with closing(SqliteFile(PATH, vfs=PowerCutVfs.NAME)) as file:
        again = asked(file)
        for area, good in whole.items():
            for read in QUESTIONS[2:-1]:
                assert not good or again[area, read] == found[area, read], f"{what}: {area}, {read} was overwritten"
    return whole


def flipped(data: bytes, at: int, random: Random) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 1 << random.randrange(8)
    return bytes(damaged)


def test_a_flipped_bit_is_found_and_stops_one_log_at_most_or_the_whole_file(vfs: PowerCutVfs) -> None:
    image, right, _ = written(vfs, closed=True)
    assert judged(vfs, image, right, "nothing") == dict.fromkeys(AREAS, True)
    random, data, verdicts = Random(1), image[str(PATH)], list[tuple[bool, ...]]()
    places = [*range(0, 100, 4), *range(100, len(data), 1_009)]
    for at in places:
        damaged = {str(PATH): flipped(data, at, random)}
        verdicts.append(tuple(judged(vfs, damaged, right, f"byte {at}").values()))
    assert verdicts.count(()) < 40, "refused"
    alone = sum(verdict.count(False) == 1 for verdict in verdicts)
    assert alone > 50
    assert sum(verdict.count(False) > 1 for verdict in verdicts) < 5


def test_a_list_of_free_pages_that_is_damaged_lets_nothing_be_overwritten(vfs: PowerCutVfs) -> None:
    image, right, _ = written(vfs, closed=True)
    data = image[str(PATH)]
    first, count = int.from_bytes(data[32:36], "big"), int.from_bytes(data[36:40], "big")
    assert count > 10
    for at in range(4 * count):
        damaged = {str(PATH): flipped(data, (first - 1) * PAGE_BYTES + at, Random(at))}
        assert judged(vfs, damaged, right, f"byte {at} of the list") == {}


def test_a_page_that_goes_back_to_an_older_state_is_found_or_does_no_harm(vfs: PowerCutVfs) -> None:
    image, right, before = written(vfs, closed=True)
    data, found = image[str(PATH)], list[bool]()
    for begin in range(0, len(data), PAGE_BYTES):
        page = slice(begin, begin + PAGE_BYTES)
        states = dict.fromkeys(old[str(PATH)][page] for old in before[::2])
        for state in states:
            if len(state) == PAGE_BYTES and state != data[page]:
                rolled_back = {str(PATH): data[:begin] + state + data[begin + PAGE_BYTES :]}
                whole = judged(vfs, rolled_back, right, f"page {begin // PAGE_BYTES + 1}")
                found.append(not whole or not all(whole.values()))
    assert found.count(True) > 50


def test_a_flipped_bit_in_the_log_of_sqlite_is_found_unless_it_cuts_off_the_last_commit_which_is_reported(
    vfs: PowerCutVfs,
) -> None:
    image, right, _ = written(vfs, closed=False)
    name = f"{PATH}-wal"
    assert judged(vfs, image, right, "nothing") == dict.fromkeys(AREAS, True)
    random, refused, cut = Random(1), 0, 0
    for at in (*range(32), *range(32, len(image[name]), 331)):
        damaged = image | {name: flipped(image[name], at, random)}
        disk = vfs.disk = Disk(damaged)
        try:
            file = SqliteFile(PATH, vfs=PowerCutVfs.NAME)
        except NotPossibleHere:
            refused += 1
            assert disk.image() == damaged, "nothing is deleted"
            continue
        with closing(file):
            if file.cut:
                cut += 1
            else:
                assert asked(file) == right, f"byte {at} of the log"
    assert refused > 10
    assert cut > 0


# Verifying.


def test_verifying_says_of_each_area_what_is_there_and_where_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "node.sqlite"
    with pytest.raises(NotPossibleHere, match="there is no store"):
        verify_file(path)
    assert not path.exists()
    with closing(SqliteFile(path)) as file:
        for area in ("a", "b"):
            marked = tuple((number, b"%s entry %03d" % (area.encode(), number)) for number in range(1, 201))
            file.carry_out([Ask(1, area, Append(marked))])
        file.carry_out([Ask(2, "b", Put("name", b"value")), Ask(3, "b", Trim(50))])
    whole = [AreaVerdict("a", 200, 2_200, 0), AreaVerdict("b", 150, 1_650, 1)]
    assert verify_file(path) == whole
    data = path.read_bytes()
    path.write_bytes(data.replace(b"a entry 120", b"a entry 121", 1))
    a, b = verify_file(path)
    assert a == AreaVerdict("a", 119, 1_309, 0, "entry 120 has a wrong checksum")
    assert b == whole[1]
    with closing(SqliteFile(path)) as file, pytest.raises(NotPossibleHere, match="another process"):
        verify_file(path)
