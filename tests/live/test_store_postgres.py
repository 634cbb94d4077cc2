"""Storage at a PostgreSQL server: the rules of all stores, and what happens when the server or the connection fails."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, closing
from functools import partial
from itertools import count
from random import Random

import pytest

import penstock
from cutting_proxy import CuttingProxy, Direction
from live_help import run, until
from penstock.errors import NotPossibleHere
from penstock.kernel.areas import AreaVerdict
from penstock.kernel.storage import (
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
from penstock.live.store.place import open_store, verify_place
from penstock.live.store.postgres_url import PostgresUrl, parse_url
from penstock.live.wire.addresses import Address
from postgres_server import PostgresServer, a_server, why_not
from store_help import ALL, Asker, an_asker, answers_like_memory

pytestmark = [
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is one"),
    pytest.mark.xdist_group("postgres"),
]
if not why_not():
    from penstock.live.store import postgres_blocks, postgres_schema
    from penstock.live.store.postgres_schema import PostgresSchema
    from penstock.live.store.postgres_store import PostgresStore


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    yield from a_server()


_schemas = count()


@pytest.fixture
def url(server: PostgresServer) -> PostgresUrl:
    """A place of its own."""
    server.ready()
    return parse_url(server.url(schema=f"test{next(_schemas)}"))


def a_store(url: PostgresUrl) -> AbstractAsyncContextManager[Asker[PostgresStore]]:
    return an_asker(lambda answered: PostgresStore(url, "north", answered))


def a_schema(url: PostgresUrl) -> PostgresSchema:
    return PostgresSchema(url, url.schema_of("north"))


def asked(store: PostgresSchema, *operations: Operation, area: str = "toy") -> list[StorageResult]:
    """The answers, also if some of them come late."""
    group = [Ask(ticket, area, operation) for ticket, operation in enumerate(operations)]
    answers = store.carry_out(group)
    while len(answers) < len(group):
        time.sleep(store.retry_after or 0.0)  # as its thread does: before that it does not try again
        answers += store.settle()
    assert [ticket for ticket, _ in answers] == list(range(len(group)))
    return [result for _, result in answers]


def end_session(server: PostgresServer, schema: str) -> None:
    """As if the connection had been cut; returns when the server has noticed."""
    ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s"
    assert server.execute(ended, f"penstock {schema}") == [(True,)]


# The rules.


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_asked_it_answers_like_the_store_in_memory(url: PostgresUrl, seed: int) -> None:
    run(answers_like_memory(lambda: a_store(url), seed))


def test_a_log_is_read_in_pages_whatever_the_size_of_its_entries(
    url: PostgresUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_blocks, "PAGE_ROWS", (2, 3, 5))
    monkeypatch.setattr(postgres_blocks, "PAGE_BYTES", 20_000)
    random = Random(5)
    entries = tuple((key, random.randbytes(random.choice((0, 5, 3_000, 90_000)))) for key in range(3, 200, 3))
    with closing(a_schema(url)) as store:
        assert asked(store, Append(entries), ALL) == [Appended(), Entries(entries, True)]
        assert asked(store, Read(50, 110, 99)) == [Entries(tuple(one for one in entries if 50 <= one[0] <= 110), True)]
        assert asked(store, Read(50, 110, 3)) == [Entries(tuple(one for one in entries if one[0] >= 50)[:3], False)]


def test_what_was_trimmed_or_dropped_is_deleted(url: PostgresUrl, server: PostgresServer) -> None:
    with closing(a_schema(url)) as store:
        assert asked(store, Append(((1, b"a"), (2, b"b"), (3, b"c"))), Trim(2)) == [Appended(), Stored()]
        assert asked(store, Append(((1, b"a"),)), Put("x", b"y"), area="other") == [Appended(), Stored()]
        assert asked(store, Drop(), area="other") == [Stored()]
        while store.tidy():
            pass
        tables = (
            "SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relname LIKE 'entry%%'"
        )
        kept = sorted(str(name) for (name,) in server.execute(tables, f'"{store.schema}"'))
        assert kept == ["entry_1", "entry_1_pkey"]
        assert server.execute(f'SELECT key FROM "{store.schema}".entry_1') == [(3,)]
        assert asked(store, Extent(), area="other") == [LogExtent(0, 0, 0, 0)]


def test_damage_of_one_log_is_found_and_is_not_anothers(url: PostgresUrl, server: PostgresServer) -> None:
    with closing(a_schema(url)) as store:
        for area in ("a", "b", "c"):
            asked(store, Append(tuple((key, b"%d" % key) for key in range(1, 10))), Put("x", b"1"), area=area)
        schema = f'"{store.schema}"'
    server.execute(f"UPDATE {schema}.entry_1 SET data = set_byte(data, 28, 0) WHERE key = 5")
    server.execute(f"DELETE FROM {schema}.entry_2 WHERE key = 4")
    a, b, c = verify_place(server.url(schema=url.schema))[url.schema_of("north")]
    assert (a.area, a.entries, a.problem) == ("a", 4, "entry 5 has a wrong checksum")
    assert (b.area, b.entries, b.problem) == ("b", 3, "something is missing before entry 5")
    assert c == AreaVerdict("c", 9, 9, 1)
    with closing(a_schema(url)) as store:
        (answer,) = asked(store, ALL, area="a")
        assert isinstance(answer, StorageFailed)
        assert answer.damaged
        assert asked(store, Get("x"), area="c") == [Value(b"1")]
    server.execute(f"DELETE FROM {schema}.area WHERE id = 3")
    with pytest.raises(NotPossibleHere, match="list of areas"):
        a_schema(url)


def test_damage_that_the_server_itself_finds_is_damage_too(url: PostgresUrl, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(area: str) -> str:
        return f"entry_{store._blocks._ids[area]}"

    with closing(a_schema(url)) as store:
        asked(store, Append(((1, b"x"),)), area="a")
        asked(store, Append(((1, b"x"),)), area="b")
        store._execute(
            "CREATE FUNCTION corrupt() RETURNS bytea LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'invalid page' USING ERRCODE = 'XX001'; END $$"
        )
        store._execute(f"ALTER TABLE {broken('a')} RENAME TO hidden")
        store._execute(f"CREATE VIEW {broken('a')} AS SELECT key, corrupt() AS data FROM hidden")
        store._areas.reload()
        group = [Ask(1, "b", Append(((2, b"y"),))), Ask(2, "a", ALL), Ask(3, "b", ALL)]
        right, wrong, also_right = store.carry_out(group)
        assert (right, also_right) == ((1, Appended()), (3, Entries(((1, b"x"), (2, b"y")), True)))
        assert isinstance(wrong[1], StorageFailed)
        assert wrong[1].damaged
        assert "invalid page" in wrong[1].problem


# One broker.


def test_a_second_broker_is_refused_and_a_broker_that_was_replaced_stores_nothing_more(
    url: PostgresUrl, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_schema, "LOCK_WITHIN_MS", 20)
    with closing(a_schema(url)) as first:
        assert asked(first, Append(((1, b"x"),))) == [Appended()]
        with pytest.raises(NotPossibleHere, match="another broker uses it"):
            a_schema(url)
        with pytest.raises(NotPossibleHere, match="another broker uses it"):
            verify_place(server.url(schema=url.schema))
        with closing(PostgresSchema(url, url.schema_of("south"))) as other:  # another broker of the network
            assert asked(other, ALL) == [Entries((), True)]
        end_session(server, first.schema)
        with closing(a_schema(url)) as second:
            assert asked(second, Append(((2, b"y"),))) == [Appended()]
            (answer,) = asked(first, Get("x"))
            assert isinstance(answer, StorageFailed)
            assert "another broker uses it" in answer.problem  # for as long as it does
        first._next_try = 0.0
        for operation in (Append(((3, b"z"),)), ALL):
            (answer,) = asked(first, operation)
            assert isinstance(answer, StorageFailed)
            assert "must be started anew" in answer.problem
        assert first.retry_after is None
    assert verify_place(server.url(schema=url.schema))[url.schema_of("north")] == [AreaVerdict("toy", 2, 2, 0)]


@pytest.mark.parametrize("wrong", ["no server", "no database", "another schema", "no sync", "another format"])
def test_a_place_where_nothing_can_be_stored_is_refused_at_once(
    url: PostgresUrl, server: PostgresServer, wrong: str
) -> None:
    text = server.url(schema=url.schema, password="secret")
    problems = {"no server": "refused", "no database": "does not exist", "no sync": "fsync is off"}
    if wrong == "no server":
        text = text.replace(str(server.port), "1")
    elif wrong == "no database":
        text = text.replace("/postgres?", "/elsewhere?")
    elif wrong == "another schema":
        server.execute(f'CREATE SCHEMA "{url.schema}/north"')
        server.execute(f'CREATE TABLE "{url.schema}/north".letter (id int)')
    elif wrong == "another format":
        a_schema(url).close()
        server.execute(f'UPDATE "{url.schema}/north".setting SET format = 99')
    else:
        server.execute("ALTER SYSTEM SET fsync = off")
        server.execute("SELECT pg_reload_conf()")
    try:
        with pytest.raises(NotPossibleHere, match=problems.get(wrong, "no store")) as caught:
            open_store(text, "north", lambda ticket, result: None)
        assert "secret" not in str(caught.value)
        if wrong == "no sync":
            a_schema(parse_url(text + "&sync=relaxed")).close()
    finally:
        server.execute("ALTER SYSTEM RESET fsync")
        server.execute("SELECT pg_reload_conf()")


# What goes wrong.

PAIR = ("toy", "toy/log")


def changes(number: int) -> list[Operation]:
    return [Append(((number, b"%d" % number),)), Put("x", b"%d" % number), Append(((number + 1, b""),))]


@pytest.mark.parametrize("half", [False, True], ids=["both ends notice", "the server does not notice"])
@pytest.mark.parametrize("direction", ["request", "reply"])
def test_a_connection_cut_at_any_moment_leaves_all_or_nothing_and_the_answer_says_which(
    url: PostgresUrl, server: PostgresServer, direction: Direction, half: bool
) -> None:
    with closing(CuttingProxy(server.port)) as proxy:
        through = parse_url(server.url(proxy.port, schema=url.schema))
        with closing(a_schema(through)) as store:
            asked(store, *changes(1))
            kept, value, outcomes = list(range(1, 3)), 1, []
            for number in count(3, 2):
                proxy.cut(direction, len(outcomes), half=half)
                answers = asked(store, *changes(number))
                cut = proxy.was_cut()
                if answers == [Appended(), Stored(), Appended()]:
                    kept += [number, number + 1]
                    value = number
                    outcomes.append("kept")
                else:
                    assert all(isinstance(answer, StorageFailed) and not answer.damaged for answer in answers)
                    outcomes.append("undone")
                found, held = asked(store, ALL, Get("x"))
                assert isinstance(found, Entries)
                assert [key for key, _ in found.entries] == kept
                assert held == Value(b"%d" % value)
                if not cut:
                    break
    # The first piece, BEGIN, is said again on a new connection; of a commit, only the reply may be missing.
    assert (outcomes[0], outcomes[-1]) == ("kept", "kept")
    assert outcomes.count("undone") >= 4
    assert outcomes.count("kept") == (2 if direction == "request" else 3)


@pytest.mark.parametrize("seed", range(2))
def test_a_server_that_is_killed_at_any_moment_loses_nothing_that_was_answered(
    url: PostgresUrl, server: PostgresServer, seed: int
) -> None:
    random, told = Random(seed), dict[int, StorageResult]()

    async def load() -> None:
        loop = asyncio.get_running_loop()
        key = 0

        def ask() -> None:
            nonlocal key
            key += 1
            store.ask(Ask(key, random.choice(PAIR), Append(((key, bytes(random.choice((10, 3_000)))),))))

        def answered(ticket: int, result: StorageResult) -> None:
            told[ticket] = result
            if going:
                loop.call_later(0.0 if result == Appended() else 0.01, ask)

        def enough(count: int) -> bool:
            return sum(result == Appended() for result in told.values()) >= count

        going = True
        store = PostgresStore(url, "north", answered)
        for _ in range(40):
            ask()
        for number in range(1, 4):
            await until(partial(enough, 100 * number + random.randrange(60)))
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.ready)
        going = False
        await until(lambda: len(told) == key)
        store.close()

    run(load())
    server.ready()
    right = {key for key, result in told.items() if result == Appended()}
    assert all(isinstance(told[key], StorageFailed) and not told[key].damaged for key in told.keys() - right)
    with closing(a_schema(url)) as store:
        found = set[int]()
        for area in PAIR:
            entries = asked(store, ALL, area=area)[0]
            assert isinstance(entries, Entries)
            found |= {key for key, _ in entries.entries}
    assert found == right


KILLED = """
import asyncio, sys
from penstock.kernel.storage import Append, Ask
from penstock.live.store.place import open_store

async def write():
    def answered(ticket, result):
        sys.stdout.write(f"{ticket}\\n")
        sys.stdout.flush()
        ask(ticket + 1)
    def ask(ticket):
        store.ask(Ask(ticket, "toy", Append(((2 * ticket, b"x"), (2 * ticket + 1, b"y")))))
    store = open_store(sys.argv[1], "north", answered)
    ask(1)
    await asyncio.sleep(60)

asyncio.run(write())
"""


def test_a_broker_that_is_killed_finds_what_was_answered_and_its_lock_free(
    url: PostgresUrl, server: PostgresServer
) -> None:
    command = [sys.executable, "-c", KILLED, server.url(schema=url.schema)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        answered = [int(process.stdout.readline()) for _ in range(20)]
        process.send_signal(signal.SIGKILL)
        answered += [int(line) for line in process.stdout.read().split()]
    with closing(a_schema(url)) as store:
        (found,) = asked(store, ALL)
        assert isinstance(found, Entries)
        last = len(found.entries) // 2
        assert [key for key, _ in found.entries] == list(range(2, 2 * last + 2))
        assert len(answered) <= last <= len(answered) + 1


def backend(server: PostgresServer, schema: str) -> int:
    ((pid,),) = server.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", f"penstock {schema}")
    assert isinstance(pid, int)
    return pid


def test_a_full_disk_is_a_failure_that_passes(url: PostgresUrl, server: PostgresServer) -> None:
    """An ordinary user can fill no disk: the backend may write no file beyond a size, larger than the server's own."""
    with closing(a_schema(url)) as store:
        assert asked(store, Append(((1, bytes(1_000)),)), Put("x", b"1")) == [Appended(), Stored()]
        pid = backend(server, store.schema)
        server.limit_files(pid, 1 << 20)
        large = Random(1).randbytes(1_500_000)
        full, small = asked(store, Append(((2, large),)), Append(((3, b"small"),)))
        assert isinstance(full, StorageFailed)
        assert not full.damaged
        assert "could not extend file" in full.problem
        assert small == Appended()  # there is room for it
        server.limit_files(pid, None)
        assert asked(store, Append(((4, large),)), Names()) == [Appended(), NamesFound(("x",))]
        assert asked(store, Read(3, 4, 9)) == [Entries(((3, b"small"), (4, large)), True)]
        assert backend(server, store.schema) == pid  # the connection was never lost


def test_a_disk_that_is_full_for_the_servers_log_stops_the_server_and_loses_nothing(
    url: PostgresUrl, server: PostgresServer
) -> None:
    with closing(a_schema(url)) as store:
        assert asked(store, Append(((1, b"x"),))) == [Appended()]
        server.limit_files(backend(server, store.schema), 8_192)
        for key in count(2):  # until its log is at a place beyond
            (answer,) = asked(store, Append(((key, bytes(20_000)),)))
            if answer != Appended():
                break
        assert isinstance(answer, StorageFailed)
        assert not answer.damaged
        server.ready()
        store._next_try = 0.0
        assert asked(store, Append(((key + 1, b"y"),))) == [Appended()]
        (found,) = asked(store, ALL)
        assert isinstance(found, Entries)
        assert [number for number, _ in found.entries] == [*range(1, key), key + 1]


def test_a_server_that_has_lost_what_was_answered_is_damage_unless_that_was_accepted(
    url: PostgresUrl, server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    relaxed = parse_url(server.url(schema=url.schema, sync="relaxed"))
    with closing(PostgresSchema(relaxed, relaxed.schema_of("south"))) as store:
        asked(store, Append(((1, b"x"),)))
        server.execute(f'UPDATE "{store.schema}".setting SET committed = committed - 1')
        end_session(server, store.schema)
        assert asked(store, Append(((2, b"y"),))) == [Appended()]
        assert "lost 1 commits" in caplog.text
    with closing(a_schema(url)) as store:
        asked(store, Append(((1, b"x"),)))
        server.execute(f'UPDATE "{store.schema}".setting SET committed = committed - 1')
        end_session(server, store.schema)
        (answer,) = asked(store, Append(((2, b"y"),)))
        assert isinstance(answer, StorageFailed)
        assert answer.damaged
        assert "has lost 1 commits that were answered" in answer.problem


def test_a_commit_is_not_answered_before_the_standbys_have_it_also_if_somebody_cancels_the_wait(
    url: PostgresUrl, server: PostgresServer
) -> None:
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

    async def waiting() -> None:
        async with a_store(url) as store:
            assert await store.answered(store.append(b"before")) == Appended()
            try:
                server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
                server.execute("SELECT pg_reload_conf()")
                await until(lambda: server.execute("SHOW synchronous_standby_names") == [("nobody",)])
                ticket = store.ask(store.append(b"after"))
                for _ in range(2):  # the commit, and then the one that was to find out
                    await until(lambda: server.execute(waits) == [(1,)])
                    server.execute(cancel)
                await until(lambda: server.execute(waits) == [(1,)])
                assert len(store.answers) == 1
            finally:
                server.execute("ALTER SYSTEM RESET synchronous_standby_names")
                server.execute("SELECT pg_reload_conf()")
            await until(lambda: len(store.answers) == 2)
            assert store.answers[-1] == (ticket, Appended())

    run(waiting())


# In a broker.


def test_a_stream_goes_on_when_its_server_comes_back_and_when_its_broker_does(
    url: PostgresUrl, server: PostgresServer
) -> None:
    plan, place = BrokerPlan(name="north", listen=Address("127.0.0.1", 0)), server.url(schema=url.schema)

    async def taken(network: penstock.Network, count: int) -> list[object]:
        found: list[object] = []
        async with network.stream("orders").subscribe(durable=f"first-{count}", start="earliest") as messages:
            while len(found) < count:
                found += [message.attributes["n"] for message in await messages.take(count)]
        return found

    async def publishing() -> None:
        broker = BrokerServer(plan, data=place)
        await broker.start()
        async with penstock.connect(f"penstock://{broker.address}") as network:
            await network.add_stream("orders", at="north")
            orders = network.stream("orders")
            await orders.publish({"n": 0})
            await asyncio.to_thread(server.kill)
            publishing = [asyncio.create_task(orders.publish({"n": n})) for n in range(1, 5)]
            await asyncio.to_thread(server.ready)
            await asyncio.gather(*publishing)
            assert sorted(await taken(network, 5)) == list(range(5))  # type: ignore[type-var]
        await broker.stop()
        broker = BrokerServer(plan, data=place)
        await broker.start()
        async with penstock.connect(f"penstock://{broker.address}") as network:
            while not await network.streams():
                pass
            await network.stream("orders").publish({"n": 5})
            assert (await taken(network, 6))[-1] == 5
        await broker.stop()

    run(publishing())
    (verdicts,) = verify_place(place).values()
    assert {verdict.area: verdict.entries for verdict in verdicts}["streams/orders/0"] == 6
