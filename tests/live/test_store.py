"""Storage on a real disk: what `kernel.storage` says, from a file, through a thread."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from threading import Event

import pytest

from live_help import run, until
from penstock.errors import NotPossibleHere
from penstock.kernel.machine import Effect
from penstock.kernel.storage import (
    ENTRY_BYTES_MAX,
    READ_MAX,
    Append,
    Appended,
    Ask,
    Drop,
    Entries,
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
    Stored,
    Trim,
    Value,
)
from penstock.live.broker.plan import BrokerPlan
from penstock.live.broker.server import BrokerServer
from penstock.live.store import group_commit, sqlite_file
from penstock.live.store.group_commit import Answers
from penstock.live.store.sqlite_file import SqliteFile
from penstock.live.store.sqlite_store import SqliteStore
from penstock.live.wire.addresses import Address
from store_help import ALL, Asker, an_asker, answers_like_memory

ABC = ((10, b"a"), (20, b"bb"), (30, b"ccc"))


def a_store(path: Path) -> AbstractAsyncContextManager[Asker[SqliteStore]]:
    return an_asker(lambda answered: SqliteStore(path, answered))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a folder" / "that is not there yet" / "node.sqlite"


def test_every_operation_is_answered_as_the_rules_say(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            assert await store.answered(ALL) == Entries((), True)
            assert await store.answered(Extent()) == LogExtent(0, 0, 0, 0)
            assert await store.answered(Append(ABC)) == Appended()
            assert await store.answered(Append(())) == Appended()
            assert isinstance(await store.answered(Append(((30, b"x"),))), StorageFailed)
            assert await store.answered(Read(11, 99, 1)) == Entries(ABC[1:2], False)
            assert await store.answered(Trim(15)) == Stored()
            assert await store.answered(ALL) == Entries(ABC[1:], True)
            assert await store.answered(Extent()) == LogExtent(20, 30, 5, 2)
            assert await store.answered(Get("name")) == Value(b"")
            assert await store.answered(Put("name", b"value")) == Stored()
            assert await store.answered(Put("name", b"another")) == Stored()
            assert await store.answered(Get("name")) == Value(b"another")
            assert await store.answered(Names()) == NamesFound(("name",))
            assert await store.answered(Put("name", b"")) == Stored()
            assert await store.answered(Get("name")) == Value(b"")
            assert await store.answered(Drop()) == Stored()
            assert await store.answered(Append(ABC)) == Appended()

    run(asked())


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_it_answers_like_the_store_in_memory_also_when_opened_again(path: Path, seed: int) -> None:
    run(answers_like_memory(lambda: a_store(path), seed))


def test_the_bounds_are_those_of_the_rules(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            largest = bytes(ENTRY_BYTES_MAX)
            assert await store.answered(store.append(largest)) == Appended()
            assert await store.answered(Put("large", largest)) == Stored()
            for operation in (Append(((2, b"small"), (3, largest + b"x"))), Put("larger", largest + b"x")):
                refused = await store.answered(operation)
                assert isinstance(refused, StorageFailed)
                assert "ENTRY_BYTES_MAX" in refused.problem
            assert await store.answered(Read(2, 9, 10)) == Entries((), True)  # the small one was not kept either
            assert await store.answered(store.append(*(b"",) * (READ_MAX + 1))) == Appended()
            entries = await store.answered(Read(2, 2 * READ_MAX, 2 * READ_MAX))
            assert isinstance(entries, Entries)
            assert (len(entries.entries), entries.complete) == (READ_MAX, False)

    run(asked())


# The group.


def held_up(store: SqliteStore) -> Event:
    """Let the thread wait before its next transaction, until the event is set; what is asked meanwhile is a group."""
    go, carry_out = Event(), store._file.carry_out

    def wait(group: list[Ask]) -> Answers:
        go.wait()
        return carry_out(group)

    store._file.carry_out = wait  # type: ignore[method-assign,assignment]
    return go


def commits(store: SqliteStore) -> list[str]:
    """The commits from now on."""
    found: list[str] = []

    def traced(cursor: object, statement: str, bindings: object) -> bool:
        if statement == "COMMIT":
            found.append(statement)
        return True

    store._file._connection.exec_trace = traced
    return found


def test_what_waits_is_one_transaction_and_is_answered_in_order(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            committed = commits(store.store)
            go = held_up(store.store)
            for number in range(500):
                store.ask(store.append(b"%d" % number))
                store.ask(Read(number + 1, number + 1, 1))  # sees what was asked before it
            await asyncio.sleep(0.02)
            assert store.answers == []  # before it is on disk nobody is answered
            go.set()
            await until(lambda: len(store.answers) == 1000)
            expected: list[StorageResult] = []
            for number in range(500):
                expected += [Appended(), Entries(((number + 1, b"%d" % number),), True)]
            assert store.answers == list(enumerate(expected, start=1))
            assert 1 <= len(committed) <= 2  # the first question, and all others together

    run(asked())


def test_a_group_is_bounded_and_so_is_what_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "GROUP_MAX", 10)
    monkeypatch.setattr(group_commit, "WAITING_MAX", 50)

    async def asked() -> None:
        async with a_store(path) as store:
            committed = commits(store.store)
            go = held_up(store.store)
            for _ in range(60):
                store.ask(store.append(b"x"))
            assert store.answers == []  # never from inside `ask`: the machine is at work there
            await until(lambda: len(store.answers) == 10)
            assert [ticket for ticket, _ in store.answers] == list(range(51, 61))
            assert all(
                isinstance(result, StorageFailed) and "WAITING_MAX" in result.problem for _, result in store.answers
            )
            go.set()
            await until(lambda: len(store.answers) == 60)
            assert store.answers[10:] == [(ticket, Appended()) for ticket in range(1, 51)]
            assert len(committed) >= 5
            assert await store.answered(store.append(b"x")) == Appended()  # and it takes questions again

    run(asked())


def test_a_group_has_about_so_many_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "GROUP_BYTES_MAX", 1_000)

    async def asked() -> None:
        async with a_store(path) as store:
            committed = commits(store.store)
            go = held_up(store.store)
            for _ in range(30):
                store.ask(store.append(bytes(500)))
            go.set()
            await until(lambda: len(store.answers) == 30)
            assert 15 <= len(committed) <= 16

    run(asked())


# What goes wrong.


def test_where_nothing_can_be_written_every_change_fails_and_what_is_there_can_be_read(path: Path) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            await store.answered(store.append(b"before"))
            store.store._file._connection.pragma("query_only", 1)
            for operation in (Append(((2, b"x"),)), Trim(1), Put("name", b"x"), Drop()):
                result = await store.answered(operation)
                assert isinstance(result, StorageFailed)
                assert not result.damaged
                assert "readonly" in result.problem
            assert await store.answered(ALL) == Entries(((1, b"before"),), True)
            store.store._file._connection.pragma("query_only", 0)
            assert await store.answered(ALL) == Entries(((1, b"before"),), True)
            assert await store.answered(store.append(b"x")) == Appended()

    run(asked())


def test_an_operation_that_fails_is_undone_alone_and_the_thread_lives_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked() -> None:
        async with a_store(path) as store:
            carry_out = store.store._file._areas.carry_out

            def fail(area: str, operation: Operation) -> StorageResult:
                result = carry_out(area, operation)
                if operation == Put("bad", b"value"):
                    raise RuntimeError("for whatever reason")
                return result

            monkeypatch.setattr(store.store._file._areas, "carry_out", fail)
            go = held_up(store.store)
            store.ask(Get("warm up"))  # perhaps alone in its transaction
            store.ask(store.append(b"x"))
            store.ask(Put("name", b"value"))
            failing = store.ask(Put("bad", b"value"))
            store.ask(store.append(b"y"))
            go.set()
            await until(lambda: len(store.answers) == 5)
            assert [ticket for ticket, _ in store.answers] == list(range(1, 6))
            found = dict(store.answers)
            assert found.pop(failing) == StorageFailed(f"{path}: for whatever reason")
            assert list(found.values()) == [Value(b""), Appended(), Stored(), Appended()]
        async with a_store(path) as store:
            assert await store.answered(ALL) == Entries(((1, b"x"), (2, b"y")), True)
            assert await store.answered(Names()) == NamesFound(("name",))

    run(asked())


@pytest.mark.parametrize("wrong", ["a folder", "no database", "below a file", "another database", "an older store"])
def test_a_place_where_nothing_can_be_stored_is_refused_at_once(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "node.sqlite"
    if wrong == "a folder":
        path.mkdir()
    elif wrong == "no database":
        path.write_bytes(b"somebody's letters " * 100)
    elif wrong == "below a file":
        path.write_bytes(b"")
        path = path / "node.sqlite"
    else:
        with closing(sqlite3.connect(path)) as connection:
            table = (
                "entry (area TEXT, position INTEGER, data BLOB)" if wrong == "an older store" else "letter (text TEXT)"
            )
            connection.execute(f"CREATE TABLE {table}")
    before = path.read_bytes() if path.is_file() else b""

    async def opened() -> None:
        with pytest.raises(NotPossibleHere, match=r"cannot store in .*--data"):
            SqliteStore(path, lambda ticket, result: None)

    run(opened())
    assert not path.is_file() or path.read_bytes() == before


def test_two_processes_cannot_have_one_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "LOCK_WITHIN", 0.01)

    async def opened() -> None:
        for number in (1, 2):  # a new file, and one that has been there
            async with a_store(path) as store:
                with pytest.raises(NotPossibleHere, match="another process"):
                    SqliteStore(path, lambda ticket, result: None)
                assert await store.answered(Append(((number, b"x"),))) == Appended()

    run(opened())


# The end.


def test_closing_carries_out_what_was_asked_and_answers_nobody_any_more(path: Path) -> None:
    async def asked() -> None:
        store = Asker(lambda answered: SqliteStore(path, answered))
        assert await store.answered(store.append(b"0")) == Appended()
        go = held_up(store.store)
        for number in range(1, 3000):
            store.ask(store.append(b"%d" % number))
        store.ask(Put("name", b"value"))
        asyncio.get_running_loop().call_later(0.02, go.set)
        await asyncio.to_thread(store.store.close)
        await asyncio.sleep(0.01)
        assert len(store.answers) == 1
        store.store.close()  # once more does nothing
        async with a_store(path) as again:
            found = await again.answered(ALL)
            assert found == Entries(tuple((number + 1, b"%d" % number) for number in range(3000)), True)
            assert await again.answered(Get("name")) == Value(b"value")

    run(asked())


KILLED = """
import asyncio, sys
from pathlib import Path
from penstock.kernel.storage import Append, Ask
from penstock.live.store.sqlite_store import SqliteStore

async def write():
    def answered(ticket, result):
        sys.stdout.write(f"{ticket}\\n")
        sys.stdout.flush()
        ask(ticket + 1)
    def ask(ticket):
        store.ask(Ask(ticket, "toy", Append(((2 * ticket, b"%d" % ticket), (2 * ticket + 1, b"%d again" % ticket)))))
    store = SqliteStore(Path(sys.argv[1]), answered)
    ask(1)
    await asyncio.sleep(60)

asyncio.run(write())
"""


def test_what_was_answered_is_there_after_a_kill_and_nothing_is_there_in_part(path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        answered = [int(process.stdout.readline()) for _ in range(30)]
        process.send_signal(signal.SIGKILL)
        answered += [int(line) for line in process.stdout.read().split()]
    assert answered == list(range(1, len(answered) + 1))

    async def found() -> None:
        async with a_store(path) as store:
            entries = await store.answered(ALL)
            assert isinstance(entries, Entries)
            last = len(entries.entries) // 2
            wanted = [
                entry
                for number in range(1, last + 1)
                for entry in ((2 * number, b"%d" % number), (2 * number + 1, b"%d again" % number))
            ]
            assert list(entries.entries) == wanted
            assert len(answered) <= last <= len(answered) + 1
            assert await store.answered(Append(((2 * last + 2, b"x"),))) == Appended()

    run(found())


# In a broker.


def test_a_broker_keeps_its_file_in_the_folder_and_lets_go_of_it(tmp_path: Path) -> None:
    plan = BrokerPlan(name="keeper", listen=Address("127.0.0.1", 0))
    answers: list[tuple[int, StorageResult]] = []

    def completed(ticket: int, result: StorageResult, *, now: float) -> list[Effect]:
        answers.append((ticket, result))
        return []

    async def served(first: int) -> None:
        answers.clear()
        server = BrokerServer(plan, data=tmp_path)
        await server.start()
        server.node.completed = completed  # type: ignore[method-assign]
        server.host.apply([Ask(7, "toy", Append(((first, b"x"),)))])
        await until(lambda: bool(answers))
        server.host.apply([Ask(8, "toy", Append(((first + 1, b"at the last moment"),)))])
        await server.stop()
        assert answers in ([(7, Appended())], [(7, Appended()), (8, Appended())])

    run(served(1))
    run(served(3))
    file = SqliteFile(tmp_path / "keeper.sqlite")
    found = file.carry_out([Ask(1, "toy", ALL)])
    file.close()
    assert found == [(1, Entries(((1, b"x"), (2, b"at the last moment"), (3, b"x"), (4, b"at the last moment")), True))]


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
