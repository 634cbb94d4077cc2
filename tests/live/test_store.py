"""Storage on a real disk: what `kernel.storage` says, from a file, through a thread."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Event

import pytest

from live_help import run, until
from penstock.errors import NotPossibleHere
from penstock.kernel.machine import Effect
from penstock.kernel.storage import (
    ENTRY_BYTES_MAX,
    READ_MAX,
    VALUES_MAX,
    Append,
    Appended,
    Ask,
    Entries,
    Get,
    MemoryStore,
    Operation,
    Put,
    Read,
    StorageFailed,
    StorageResult,
    Stored,
    Trim,
    Value,
)
from penstock.live.broker.plan import BrokerPlan
from penstock.live.broker.server import BrokerServer
from penstock.live.store import sqlite_store
from penstock.live.store.sqlite_store import SqliteStore
from penstock.live.wire.addresses import Address


class Asker:
    """Asks a store, and keeps what it answers."""

    def __init__(self, path: Path) -> None:
        self.answers: list[tuple[int, StorageResult]] = []
        self.store = SqliteStore(path, lambda ticket, result: self.answers.append((ticket, result)))
        self._ticket = 0

    def ask(self, operation: Operation, area: str = "toy") -> int:
        self._ticket += 1
        self.store.ask(Ask(self._ticket, area, operation))
        return self._ticket

    async def answered(self, operation: Operation, area: str = "toy") -> StorageResult:
        ticket = self.ask(operation, area)
        await until(lambda: bool(self.answers) and self.answers[-1][0] == ticket)
        return self.answers[-1][1]


@asynccontextmanager
async def a_store(path: Path) -> AsyncIterator[Asker]:
    asker = Asker(path)
    try:
        yield asker
    finally:
        asker.store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a folder" / "that is not there yet" / "node.sqlite"


def test_every_operation_is_answered_as_the_rules_say(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            assert await store.answered(Read(0, 10)) == Entries(0, ())
            assert await store.answered(Append((b"zero", b"one", b""))) == Appended(0)
            assert await store.answered(Append(())) == Appended(3)
            assert await store.answered(Append((b"three",))) == Appended(3)
            assert await store.answered(Read(1, 2)) == Entries(1, (b"one", b""))
            assert await store.answered(Read(3, 10)) == Entries(3, (b"three",))
            assert await store.answered(Read(4, 10)) == Entries(4, ())
            assert await store.answered(Trim(2)) == Stored()
            assert await store.answered(Read(0, 10)) == Entries(2, (b"", b"three"))
            assert await store.answered(Trim(1)) == Stored()  # what is gone stays gone
            assert await store.answered(Read(0, 1)) == Entries(2, (b"",))
            assert await store.answered(Trim(100)) == Stored()
            assert await store.answered(Read(0, 10)) == Entries(4, ())
            assert await store.answered(Append((b"four",))) == Appended(4)  # positions are never given twice
            assert await store.answered(Get("name")) == Value(b"")
            assert await store.answered(Put("name", b"value")) == Stored()
            assert await store.answered(Put("name", b"another")) == Stored()
            assert await store.answered(Get("name")) == Value(b"another")
            assert await store.answered(Put("name", b"")) == Stored()
            assert await store.answered(Get("name")) == Value(b"")
            assert await store.answered(Put("name", b"")) == Stored()

    run(asked())


def test_each_service_has_an_area_of_its_own(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            assert await store.answered(Append((b"a",)), "one") == Appended(0)
            assert await store.answered(Append((b"b",)), "two") == Appended(0)
            assert await store.answered(Put("name", b"of one"), "one") == Stored()
            assert await store.answered(Trim(1), "one") == Stored()
            assert await store.answered(Read(0, 9), "two") == Entries(0, (b"b",))
            assert await store.answered(Get("name"), "two") == Value(b"")

    run(asked())


def random_operation(random: Random) -> Operation:
    names = ("a", "b", "a name with spaces", "ü\0")
    match random.randrange(5):
        case 0:
            return Append(tuple(random.randbytes(random.randrange(4)) for _ in range(random.randrange(4))))
        case 1:
            return Read(random.choice((-3, 0, random.randrange(60), 2**80)), random.choice((-1, 0, 1, 3, 2**80)))
        case 2:
            return Trim(random.choice((-3, random.randrange(40), random.randrange(10))))
        case 3:
            return Put(random.choice(names), random.randbytes(random.randrange(4)))
        case _:
            return Get(random.choice(names))


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_it_answers_like_the_store_in_memory_also_when_opened_again(path: Path, seed: int) -> None:
    random, memory = Random(seed), MemoryStore()

    async def asked() -> None:
        for _ in range(4):
            async with a_store(path) as store:
                expected = []
                for _ in range(100):
                    operation, area = random_operation(random), random.choice(("one", "two"))
                    expected.append((store.ask(operation, area), memory.carry_out(area, operation)))
                await until(lambda: len(store.answers) == 100)
                assert store.answers == expected

    run(asked())


def test_the_bounds_are_those_of_the_rules(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            largest = bytes(ENTRY_BYTES_MAX)
            assert await store.answered(Append((largest,))) == Appended(0)
            assert await store.answered(Put("large", largest)) == Stored()
            for operation in (Append((b"small", largest + b"x")), Put("larger", largest + b"x")):
                refused = await store.answered(operation)
                assert isinstance(refused, StorageFailed)
                assert "ENTRY_BYTES_MAX" in refused.problem
            assert await store.answered(Read(1, 10)) == Entries(1, ())  # the small one was not kept either
            assert await store.answered(Append((b"",) * (READ_MAX + 1))) == Appended(1)
            entries = await store.answered(Read(1, 2 * READ_MAX))
            assert isinstance(entries, Entries)
            assert len(entries.entries) == READ_MAX
            for number in range(VALUES_MAX - 1):
                store.ask(Put(f"name {number}", b"x"))
            refused = await store.answered(Put("one more", b"x"))
            assert isinstance(refused, StorageFailed)
            assert "VALUES_MAX" in refused.problem
            assert await store.answered(Put("large", b"small now")) == Stored()  # a name that is there may change
            assert await store.answered(Put("one more", b"x"), "another") == Stored()
            assert await store.answered(Put("name 0", b"")) == Stored()
            assert await store.answered(Put("one more", b"x")) == Stored()

    run(asked())


# The group.


def held_up(store: SqliteStore) -> Event:
    """Let the thread wait before its next transaction, until the event is set; what is asked meanwhile is a group."""
    go, carried_out = Event(), store._carried_out

    def wait(group: list[Ask]) -> list[tuple[int, StorageResult]]:
        go.wait()
        return carried_out(group)

    store._carried_out = wait  # type: ignore[method-assign,assignment]
    return go


def test_what_waits_is_one_transaction_and_is_answered_in_order(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            statements: list[str] = []
            store.store._connection.set_trace_callback(statements.append)
            go = held_up(store.store)
            for number in range(500):
                store.ask(Append((b"%d" % number,)))
                store.ask(Read(number, 1))  # sees what was asked before it
            await asyncio.sleep(0.02)
            assert store.answers == []  # before it is on disk nobody is answered
            go.set()
            await until(lambda: len(store.answers) == 1000)
            expected: list[StorageResult] = []
            for number in range(500):
                expected += [Appended(number), Entries(number, (b"%d" % number,))]
            assert store.answers == list(enumerate(expected, start=1))
            assert 1 <= statements.count("COMMIT") <= 2  # the first question, and all others together

    run(asked())


def test_a_group_is_bounded_and_so_is_what_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "GROUP_MAX", 10)
    monkeypatch.setattr(sqlite_store, "WAITING_MAX", 50)

    async def asked() -> None:
        async with a_store(path) as store:
            statements: list[str] = []
            store.store._connection.set_trace_callback(statements.append)
            go = held_up(store.store)
            for _ in range(60):
                store.ask(Append((b"x",)))
            assert store.answers == []  # never from inside `ask`: the machine is at work there
            await until(lambda: len(store.answers) == 10)
            assert [ticket for ticket, _ in store.answers] == list(range(51, 61))
            assert all(
                isinstance(result, StorageFailed) and "WAITING_MAX" in result.problem for _, result in store.answers
            )
            go.set()
            await until(lambda: len(store.answers) == 60)
            assert store.answers[10:] == [(ticket, Appended(ticket - 1)) for ticket in range(1, 51)]
            assert statements.count("COMMIT") >= 5
            assert await store.answered(Append((b"x",))) == Appended(50)  # and it takes questions again

    run(asked())


# What goes wrong.


def fill(store: SqliteStore) -> None:
    """The disk is full: the file cannot grow."""
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")


def test_on_a_full_disk_what_fails_is_not_there_and_what_was_answered_is(path: Path) -> None:
    """SQLite undoes the whole transaction when the disk is full; if it did not, the small ones might be kept."""

    async def asked() -> None:
        async with a_store(path) as store:
            assert await store.answered(Append((b"before",))) == Appended(0)
            fill(store.store)
            go = held_up(store.store)
            store.ask(Get("warm up"))  # perhaps alone in its transaction
            small = store.ask(Append((b"small",)))
            named = store.ask(Put("name", b"value"))
            large = store.ask(Append((bytes(1 << 20),)))
            go.set()
            await until(lambda: len(store.answers) == 5)
            found = dict(store.answers)
            failed = found[large]
            assert isinstance(failed, StorageFailed)
            assert "full" in failed.problem
            assert str(path) in failed.problem
            kept = [b"before", *([b"small"] if found[small] == Appended(1) else [])]
            value = Value(b"value" if found[named] == Stored() else b"")
            assert await store.answered(Read(0, 10)) == Entries(0, tuple(kept))
            assert await store.answered(Get("name")) == value
            store.store._connection.execute("PRAGMA max_page_count = 1000000")  # somebody has made room
            assert await store.answered(Append((bytes(1 << 20),))) == Appended(len(kept))  # no position was used up
        async with a_store(path) as store:
            assert await store.answered(Read(0, 10)) == Entries(0, (*kept, bytes(1 << 20)))
            assert await store.answered(Get("name")) == value

    run(asked())


def test_where_nothing_can_be_written_every_change_fails_and_what_is_there_can_be_read(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            await store.answered(Append((b"before",)))
            store.store._connection.execute("PRAGMA query_only = ON")
            for operation in (Append((b"x",)), Trim(1), Put("name", b"x")):
                result = await store.answered(operation)
                assert isinstance(result, StorageFailed)
                assert "readonly" in result.problem
            assert await store.answered(Read(0, 10)) == Entries(0, (b"before",))
            store.store._connection.execute("PRAGMA query_only = OFF")
            assert await store.answered(Read(0, 10)) == Entries(0, (b"before",))
            assert await store.answered(Append((b"x",))) == Appended(1)

    run(asked())


def test_an_operation_that_fails_is_undone_alone_and_the_thread_lives_on(path: Path) -> None:
    """For example because SQLite has no words for it."""

    async def asked() -> None:
        async with a_store(path) as store:
            go = held_up(store.store)
            store.ask(Get("warm up"))  # perhaps alone in its transaction
            store.ask(Append((b"x",)))
            store.ask(Put("name", b"value"))
            failing = store.ask(Put("\ud800", b"half a letter"))
            store.ask(Append((b"y",)))
            go.set()
            await until(lambda: len(store.answers) == 5)
            assert [ticket for ticket, _ in store.answers] == list(range(1, 6))
            found = dict(store.answers)
            assert isinstance(found.pop(failing), StorageFailed)
            assert list(found.values()) == [Value(b""), Appended(0), Stored(), Appended(1)]
        async with a_store(path) as store:
            assert await store.answered(Read(0, 10)) == Entries(0, (b"x", b"y"))
            assert await store.answered(Get("name")) == Value(b"value")

    run(asked())


def test_an_operation_that_fails_halfway_leaves_nothing_of_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            assert await store.answered(Append((b"before",))) == Appended(0)
            with monkeypatch.context() as patched:

                def fail(area: str, start: int, following: int) -> None:
                    raise sqlite3.OperationalError("disk I/O error")

                patched.setattr(store.store, "_set_log", fail)  # the entries are written by then
                failed = await store.answered(Append((b"one", b"two")))
                assert failed == StorageFailed(f"{path}: disk I/O error")
            assert await store.answered(Read(0, 10)) == Entries(0, (b"before",))
            assert await store.answered(Append((b"after",))) == Appended(1)

    run(asked())


def test_when_the_commit_fails_nothing_is_kept_and_the_bound_on_names_is_still_right(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "VALUES_MAX", 3)

    class NoCommit:
        """A connection whose commits fail."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self._connection = connection

        def execute(self, text: str, *values: object) -> sqlite3.Cursor:
            if text == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return self._connection.execute(text, *values)

        def __getattr__(self, name: str) -> object:
            return getattr(self._connection, name)

    async def asked() -> None:
        async with a_store(path) as store:
            assert await store.answered(Put("a", b"1")) == Stored()
            healthy = store.store._connection
            store.store._connection = NoCommit(healthy)  # type: ignore[assignment]
            for operation in (Put("b", b"2"), Put("c", b"3"), Append((b"x",)), Put("a", b"")):
                assert await store.answered(operation) == StorageFailed(f"{path}: disk I/O error")
            store.store._connection = healthy
            assert await store.answered(Get("a")) == Value(b"1")
            assert await store.answered(Read(0, 10)) == Entries(0, ())
            for name in ("b", "c"):
                assert await store.answered(Put(name, b"x")) == Stored()
            assert isinstance(await store.answered(Put("d", b"x")), StorageFailed)

    run(asked())


@pytest.mark.parametrize("wrong", ["a folder", "no database", "below a file"])
def test_a_place_where_nothing_can_be_stored_is_refused_at_once(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "node.sqlite"
    if wrong == "a folder":
        path.mkdir()
    elif wrong == "no database":
        path.write_bytes(b"somebody's letters " * 100)
    else:
        path.write_bytes(b"")
        path = path / "node.sqlite"

    async def opened() -> None:
        with pytest.raises(NotPossibleHere, match=r"cannot store in .*--data"):
            SqliteStore(path, lambda ticket, result: None)

    run(opened())


def test_two_processes_cannot_have_one_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "LOCK_WITHIN", 0.01)

    async def opened() -> None:
        for _ in range(2):  # a new file, and one that has been there
            async with a_store(path) as store:
                with pytest.raises(NotPossibleHere, match="locked"):
                    SqliteStore(path, lambda ticket, result: None)
                assert isinstance(await store.answered(Append((b"x",))), Appended)

    run(opened())


# The end.


def test_closing_carries_out_what_was_asked_and_answers_nobody_any_more(path: Path) -> None:
    async def asked() -> None:
        store = Asker(path)
        assert await store.answered(Append((b"0",))) == Appended(0)
        go = held_up(store.store)
        for number in range(1, 3000):
            store.ask(Append((b"%d" % number,)))
        store.ask(Put("name", b"value"))
        asyncio.get_running_loop().call_later(0.02, go.set)
        await asyncio.to_thread(store.store.close)
        await asyncio.sleep(0.01)
        assert len(store.answers) == 1
        store.store.close()  # once more does nothing
        async with a_store(path) as again:
            found = await again.answered(Read(0, READ_MAX))
            assert found == Entries(0, tuple(b"%d" % number for number in range(3000)))
            assert await again.answered(Get("name")) == Value(b"value")

    run(asked())


KILLED = """
import asyncio, sys
from pathlib import Path
from penstock.kernel.storage import Append, Ask
from penstock.live.store.sqlite_store import SqliteStore

async def write():
    def answered(ticket, result):
        sys.stdout.write(f"{result.position}\\n")
        sys.stdout.flush()
        store.ask(Ask(ticket + 1, "toy", Append((b"%d" % ticket, b"%d again" % ticket))))
    store = SqliteStore(Path(sys.argv[1]), answered)
    store.ask(Ask(1, "toy", Append((b"0", b"0 again"))))
    await asyncio.sleep(60)

asyncio.run(write())
"""


def test_what_was_answered_is_there_after_a_kill_and_nothing_is_there_in_part(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        answered = [int(process.stdout.readline()) for _ in range(30)]
        process.send_signal(signal.SIGKILL)
        answered += [int(line) for line in process.stdout.read().split()]
    assert answered == list(range(0, 2 * len(answered), 2))

    async def found() -> None:
        async with a_store(path) as store:
            entries = await store.answered(Read(0, READ_MAX))
            assert isinstance(entries, Entries)
            wanted = [text for number in range(len(entries.entries) // 2) for text in (f"{number}", f"{number} again")]
            assert [entry.decode() for entry in entries.entries] == wanted
            assert 2 * len(answered) <= len(wanted) <= 2 * len(answered) + 2
            assert await store.answered(Append((b"x",))) == Appended(len(wanted))

    run(found())


def test_a_commit_is_synced_before_it_is_answered(path: Path) -> None:
    async def opened() -> None:
        async with a_store(path) as store:
            (level,) = store.store._connection.execute("PRAGMA synchronous").fetchone()
            assert level >= 2  # FULL or EXTRA
            (mode,) = store.store._connection.execute("PRAGMA journal_mode").fetchone()
            assert mode == "truncate"

    run(opened())


# In a broker.


def test_a_broker_keeps_its_file_in_the_folder_and_lets_go_of_it(tmp_path: Path) -> None:
    plan = BrokerPlan(name="keeper", listen=Address("127.0.0.1", 0))
    answers: list[tuple[int, StorageResult]] = []

    def completed(ticket: int, result: StorageResult, *, now: float) -> list[Effect]:
        answers.append((ticket, result))
        return []

    async def served(positions: tuple[int, int]) -> None:
        answers.clear()
        server = BrokerServer(plan, data=tmp_path)
        await server.start()
        server.node.completed = completed  # type: ignore[method-assign]
        server.host.apply([Ask(7, "toy", Append((b"x",)))])
        await until(lambda: bool(answers))
        server.host.apply([Ask(8, "toy", Append((b"at the last moment",)))])
        await server.stop()
        assert answers in ([(7, Appended(positions[0]))], [(7, Appended(positions[0])), (8, Appended(positions[1]))])

    run(served((0, 1)))
    run(served((2, 3)))
    connection = sqlite3.connect(tmp_path / "keeper.sqlite")
    rows = connection.execute("SELECT position, data FROM entry ORDER BY position").fetchall()
    connection.close()
    assert rows == [(0, b"x"), (1, b"at the last moment"), (2, b"x"), (3, b"at the last moment")]


def test_a_broker_that_cannot_store_or_listen_leaves_nothing_open(tmp_path: Path) -> None:
    async def started() -> None:
        (tmp_path / "keeper.sqlite").mkdir()
        first = BrokerServer(BrokerPlan(name="keeper", listen=Address("127.0.0.1", 0)), data=tmp_path)
        with pytest.raises(NotPossibleHere, match="cannot store"):
            await first.start()
        (tmp_path / "keeper.sqlite").rmdir()
        second = BrokerServer(BrokerPlan(name="other", listen=Address("127.0.0.1", 0)))
        await second.start()
        third = BrokerServer(BrokerPlan(name="keeper", listen=second.address), data=tmp_path)
        with pytest.raises(NotPossibleHere, match="somebody listens"):
            await third.start()
        fourth = BrokerServer(BrokerPlan(name="keeper", listen=Address("127.0.0.1", 0)), data=tmp_path)
        await fourth.start()  # the file is free
        await fourth.stop()
        await second.stop()

    run(started())
