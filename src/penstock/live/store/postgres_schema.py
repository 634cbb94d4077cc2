"""A schema of a PostgreSQL server as a store: one broker's, as long as it holds the schema's lock.

A group is committed with `synchronous_commit` on, and answered only then. With `sync="relaxed"` it is off: a crash of
the server may take the last commits with it, though nothing is left half.

One broker. The lock is an advisory one, held by the session: a second broker is refused. A session may end without the
broker's knowledge, and another broker may come; so each opening writes a random `owner` into the table `setting`, and
a broker that comes back and finds another owner stores nothing any more.

Lost connections. What was asked fails, and so does all that is asked until there is a connection again; that is tried
with growing waits. A session of ours that the server still has is ended first: it holds the lock, and its last
transaction is decided when it ends. Each transaction that changes something writes its number into `setting`. So if the
connection was lost during a commit, the number tells whether it was kept; those who asked are answered then, before
anybody else.
Coming back makes a commit of its own: what it finds is on the disk, and at the server's synchronous standbys, too.

If the number is lower than what was answered, the server has lost commits (it was replaced by an older copy, or does
not sync): this is damage, and nothing is changed any more. A server that says that it never syncs is refused.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from random import Random
from time import monotonic
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus

from penstock.errors import NotPossibleHere
from penstock.kernel.areas import Areas, AreaVerdict
from penstock.kernel.log_entry import Damaged
from penstock.kernel.storage import Ask, StorageFailed
from penstock.live.store.postgres_blocks import DAMAGE, TABLES, PostgresBlocks
from penstock.live.store.postgres_url import PostgresUrl
from penstock.live.store.transactions import CommitUnknown, Transactions, only_reads
from penstock.live.wire.backoff import Backoff

LOCK_WITHIN_MS = 1_000  # for a session before us to end
STATEMENTS_KEPT = 500
FORMAT = 1
CONNECTION: dict[str, str | int] = {  # unless the URL says something else
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "target_session_attrs": "read-write",
}

# No limits but ours; and the session of a broker whose machine is gone ends in seconds, so that another can come.
_SETTINGS = """
SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 10000
"""
_RELATIONS = """
SELECT schema IS NULL, array(SELECT relname::text FROM pg_class WHERE relnamespace = schema)
FROM (SELECT to_regnamespace(%s)::oid AS schema) AS here
"""

log = logging.getLogger(__name__)


class _StoreLost(Exception):
    """This broker may not use the store any more."""

    def __init__(self, problem: str, *, damaged: bool) -> None:
        self.failure = StorageFailed(problem, damaged=damaged)
        super().__init__(problem)


class PostgresSchema(Transactions):
    """A store that does what it is asked at once. Raises NotPossibleHere if the schema cannot be had.

    Who only looks (`claims=False`) creates nothing, and leaves the owner as it is.
    """

    _damage = DAMAGE
    _blocks: PostgresBlocks

    def __init__(self, url: PostgresUrl, schema: str, *, claims: bool = True) -> None:
        self.schema = schema
        super().__init__(f"{url.shown} {self.schema}")
        self._url = url
        self._claims = claims
        self._owner = os.urandom(16)
        self._opened = False
        self._lost: StorageFailed | None = None
        self._problem = ""  # why there is no connection
        self._backoff = Backoff(Random(int.from_bytes(self._owner, "big")))
        self._next_try = 0.0
        self._session: tuple[Any, ...] = ()  # pid and beginning of our last one
        self._committed = 0  # the number of the last commit that we know of
        self._found = 0  # the number that we found when we came back
        self._warned = False
        self._blocks = PostgresBlocks()
        self._areas = Areas(self._blocks)
        try:
            self._connect()
        except (psycopg.Error, OSError, Damaged, _StoreLost) as error:
            remedy = "look at the server, or name another place with --store"
            raise NotPossibleHere(f"cannot store in {self._shown}: {_line(error)}", remedy) from None

    def close(self) -> None:
        """End the session; the lock is free then."""
        self._disconnect("closed")

    def verify(self) -> list[AreaVerdict]:
        """Read everything."""
        return [self._areas.verify(area) for area in sorted(self._blocks.areas())]

    # Opening.

    def _connect(self) -> None:
        """Open a session, and get hold of the schema, for the first time or again."""
        connection = _session(self._url, f"penstock {self.schema}")
        self._blocks.connection = connection
        try:
            self._set_up(connection)
            self._lock(connection)
            self._create_once(connection)
            self._claim(connection)
            self._areas.reload()
            self._blocks.reload()
            if not self._opened:
                self._find_trimmed()
        except BaseException as error:
            self._disconnect(_line(error))
            raise
        self._opened = True

    def _set_up(self, connection: psycopg.Connection[Any]) -> None:
        connection.prepared_max = STATEMENTS_KEPT
        connection.add_notice_handler(self._noticed)
        path = sql.SQL("SET search_path TO {}").format(sql.Identifier(self.schema))
        synchronous = "off" if self._url.sync == "relaxed" else "on"
        connection.execute(f"SET synchronous_commit = {synchronous}".encode())
        connection.execute(_SETTINGS)
        connection.execute(path)
        [(syncs,)] = connection.execute("SHOW fsync")
        if syncs == "off" and self._url.sync != "relaxed":
            raise OSError("the server syncs nothing (fsync is off); if that is wanted, say sync=relaxed in the URL")

    def _lock(self, connection: psycopg.Connection[Any]) -> None:
        """Get the lock of the schema, from a session of our own if the server still has it."""
        if self._session:
            text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
            connection.execute(text, self._session)
        key = int.from_bytes(blake2b(self.schema.encode(), digest_size=8).digest(), "big", signed=True)
        connection.execute(f"SET lock_timeout = {LOCK_WITHIN_MS}".encode())
        try:
            connection.execute("SELECT pg_advisory_lock(%s)", (key,))
        except errors.LockNotAvailable:
            raise OSError("another broker uses it") from None
        connection.execute("SET lock_timeout = 0")
        text = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        self._session = connection.execute(text).fetchone() or ()

    def _create_once(self, connection: psycopg.Connection[Any]) -> None:
        name = sql.Identifier(self.schema)
        [(is_missing, found)] = connection.execute(_RELATIONS, (name.as_string(connection),))
        if "setting" in found:
            return
        if found:
            raise Damaged("the schema is no store of Penstock")
        if self._opened or not self._claims:
            raise Damaged("there is no store in this schema")
        with connection.transaction():
            if is_missing:
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(name))
            connection.execute(TABLES)
            connection.execute("INSERT INTO setting VALUES (%s, '', '', 0)", (FORMAT,))

    def _claim(self, connection: psycopg.Connection[Any]) -> None:
        """Nobody else had it since we had; what was answered is there."""
        self._warned = False
        with connection.transaction():
            rows = connection.execute("SELECT format, owner, committed FROM setting FOR UPDATE").fetchall()
            if len(rows) != 1 or rows[0][0] != FORMAT:
                raise Damaged("it is no store of this version of Penstock")
            _, owner, found = rows[0]
            if self._opened and bytes(owner) != self._owner:
                raise _StoreLost("another broker has used it since; this one must be started anew", damaged=False)
            if self._opened and found < self._committed:
                self._gone_back(self._committed - found)
            if self._claims:
                connection.execute("UPDATE setting SET owner = %s", (self._owner,))
        self._check_warned()
        self._found = found
        if self._doubt is None or not self._opened:
            self._committed = found

    def _gone_back(self, lost: int) -> None:
        problem = f"the server has lost {lost} commits that were answered"
        if self._url.sync != "relaxed":
            raise _StoreLost(problem, damaged=True)
        log.warning("%s: %s", self._shown, problem)

    # Changing, as Transactions wants it.

    @property
    def retry_after(self) -> float | None:
        if self._blocks.connection is not None or self._lost is not None:
            return None
        return max(0.0, self._next_try - monotonic())

    def _begin(self, group: Sequence[Ask]) -> None:
        try:
            self._execute("BEGIN")
        except psycopg.Error as error:  # a connection that was lost while nobody used it
            self._disconnect(_line(error))
            if not self._mend():
                raise
            self._execute("BEGIN")

    def _commit(self, group: Sequence[Ask]) -> None:
        if self._status() is TransactionStatus.INERROR and len(group) == 1:  # it met damage, and says so
            self._execute("ROLLBACK")
        elif only_reads(group):
            self._execute("COMMIT")
        else:
            self._commit_change()

    def _commit_change(self) -> None:
        number = self._committed + 1
        self._execute("UPDATE setting SET committed = %s", number)
        self._warned = False
        try:
            done = self._execute("COMMIT")
        except Exception as error:
            if _undone(error) and self._status() is TransactionStatus.IDLE:
                raise
            self._disconnect(_line(error))
            raise CommitUnknown(_line(error)) from None
        if done != "COMMIT":
            raise OSError("the server has undone the transaction")
        try:
            self._check_warned()
        except OSError as error:
            self._disconnect(str(error))
            raise CommitUnknown(error) from None
        self._committed = number

    def _check_warned(self) -> None:
        if self._warned:
            raise OSError("the server does not know whether its standbys have the commit")

    def _undo(self) -> None:
        if self._blocks.connection is not None:
            try:
                if self._status() is not TransactionStatus.IDLE:
                    self._execute("ROLLBACK")
                self._blocks.reload()
            except Damaged:
                pass
            except psycopg.Error as error:
                self._disconnect(_line(error))
        self._areas.reload()

    def _mend(self) -> bool:
        """Whether there is a connection; it is tried, if it is time."""
        if self._blocks.connection is not None:
            return True
        if self._lost is not None or monotonic() < self._next_try:
            return False
        try:
            self._connect()
        except _StoreLost as error:
            self._lost = StorageFailed(f"{self._shown}: {error}", damaged=error.failure.damaged)
            log.error("%s", self._lost.problem)
        except (psycopg.Error, OSError, Damaged):
            self._next_try = monotonic() + self._backoff.wait()
        else:
            log.info("%s: connected again", self._shown)
            self._backoff.reset()
            return True
        return False

    def _was_kept(self) -> bool:
        kept = self._found > self._committed
        self._committed = self._found
        return kept

    def _trouble(self) -> StorageFailed:
        return self._lost or StorageFailed(f"{self._shown}: {self._problem}")

    def _stops_all(self, error: Exception) -> bool:
        return self._blocks.connection is None

    # Between groups.

    def tidy(self) -> bool:
        """Delete one slice of what was trimmed or dropped; whether there is more."""
        if self._blocks.connection is None or self._doubt is not None or not self._blocks.unclean:
            return False
        try:
            self._execute("BEGIN")
            self._blocks.clean()
            self._execute("COMMIT")
        except psycopg.Error:
            self._undo()
            if self._blocks.connection is not None:
                self._blocks.skip()
        return self._blocks.connection is not None and self._blocks.unclean

    # The connection.

    def _execute(self, text: str, *values: Any) -> str:
        """What the server calls that which it has done."""
        if self._blocks.connection is None:
            raise psycopg.OperationalError(self._problem)
        return self._blocks.connection.execute(text.encode(), values).statusmessage or ""

    def _status(self) -> TransactionStatus:
        connection = self._blocks.connection
        return connection.info.transaction_status if connection is not None else TransactionStatus.UNKNOWN

    def _noticed(self, notice: errors.Diagnostic) -> None:
        self._warned |= notice.severity_nonlocalized == "WARNING"

    def _disconnect(self, problem: str) -> None:
        connection, self._blocks.connection = self._blocks.connection, None
        self._problem = problem
        if connection is not None:
            self._next_try = 0.0
            with suppress(psycopg.Error, OSError):
                connection.close()


def schemas_in(url: PostgresUrl) -> list[str]:
    """The schemas of brokers that have stored there."""
    text = "SELECT nspname::text FROM pg_namespace WHERE starts_with(nspname::text, %s) ORDER BY nspname"
    try:
        with _session(url, "penstock") as connection:
            return [name for (name,) in connection.execute(text, (url.schema_of(""),))]
    except psycopg.Error as error:
        raise NotPossibleHere(f"cannot read {url.shown}: {_line(error)}", "look at the server") from None


def verify_schema(url: PostgresUrl, schema: str) -> list[AreaVerdict]:
    """Read the store of a broker that does not run from end to end. Nothing is changed."""
    with closing(PostgresSchema(url, schema, claims=False)) as store:
        return store.verify()


def _session(url: PostgresUrl, name: str) -> psycopg.Connection[Any]:
    settings = {**CONNECTION, "application_name": name, **conninfo_to_dict(url.connection)}
    return psycopg.connect(**settings, autocommit=True)  # type: ignore[arg-type]


def _undone(error: Exception) -> bool:
    """Whether the server says that it has not committed, and lives."""
    return isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized == "ERROR"


def _line(error: BaseException) -> str:
    """What an error says, on one line."""
    return " ".join(str(error).split())
