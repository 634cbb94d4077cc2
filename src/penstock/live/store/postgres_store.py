"""The storage of a live node in a schema of a PostgreSQL server."""

from __future__ import annotations

from penstock.live.store.group_commit import Answered, GroupCommit
from penstock.live.store.postgres_schema import PostgresSchema
from penstock.live.store.postgres_url import PostgresUrl


class PostgresStore(GroupCommit):
    """One schema, one connection, one thread."""

    close_within = 10.0  # a server may hang

    def __init__(self, url: PostgresUrl, broker: str, answered: Answered) -> None:
        super().__init__(PostgresSchema(url, url.schema_of(broker)), answered)
