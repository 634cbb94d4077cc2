"""The URL of a PostgreSQL server as a place to store: libpq's own, and two parameters of ours.

    postgresql://user@host:5432/database?schema=town&sync=relaxed

Each broker has a schema of its own, `SCHEMA/BROKER`; `schema` is `penstock` if nothing is said. With `sync=relaxed`
commits are not waited for: a crash of the server may take the last ones with it. Everything else is passed on: several
hosts, `sslmode`, `passfile` and so on. A password is better kept in `~/.pgpass` or PGPASSWORD; it is never shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from penstock.errors import NotPossibleHere, choose_one
from penstock.live.store.transactions import Sync

SCHEMES = ("postgresql", "postgres")
SCHEMA = "penstock"
NAME_BYTES_MAX = 63  # of PostgreSQL
_HASH_BYTES = 6
_SYNCS = ("full", "relaxed")


@dataclass(frozen=True)
class PostgresUrl:
    """What it says."""

    connection: str  # for libpq
    schema: str
    sync: Sync
    shown: str  # without secrets

    def schema_of(self, broker: str) -> str:
        """The name of a broker's schema; a long one is cut, and made different from others by a hash."""
        name = f"{self.schema}/{broker}"
        if len(name.encode()) <= NAME_BYTES_MAX:
            return name
        end = "~" + blake2b(name.encode(), digest_size=_HASH_BYTES).hexdigest()
        return name.encode()[: NAME_BYTES_MAX - len(end)].decode(errors="ignore") + end


def is_url(text: str) -> bool:
    """Whether this is a URL, of whatever kind."""
    return "://" in text


def parse_url(text: str) -> PostgresUrl:
    """Raises NotPossibleHere if it is no such URL."""
    split = urlsplit(text)
    if split.scheme not in SCHEMES:
        problem = f"a store cannot be at {split.scheme or 'something'}://"
        raise NotPossibleHere(problem, "name postgresql://user@host/database, or a folder with --data")
    given = parse_qsl(split.query, keep_blank_values=True)
    ours = {name: value for name, value in given if name in ("schema", "sync")}
    sync = ours.get("sync", "full")
    if sync not in _SYNCS:
        raise NotPossibleHere(f"sync={sync} in the URL of the store", choose_one(sync, _SYNCS))
    query = urlencode([(name, value) for name, value in given if name not in ours])
    user, at, host = split.netloc.rpartition("@")
    return PostgresUrl(
        connection=text.partition("?")[0] + (f"?{query}" if query else ""),
        schema=ours.get("schema") or SCHEMA,
        sync=cast("Sync", sync),
        shown=f"{split.scheme}://{user.partition(':')[0]}{at}{host}{split.path}",
    )
