"""Where brokers store: a folder with a SQLite file for each, or a PostgreSQL server with a schema for each."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from penstock.errors import NotPossibleHere
from penstock.kernel.areas import AreaVerdict
from penstock.live.store.group_commit import Answered, GroupCommit
from penstock.live.store.postgres_url import is_url, parse_url
from penstock.live.store.sqlite_store import SqliteStore
from penstock.live.store.verify import verify_file

SUFFIX = ".sqlite"

Place = Path | str  # a folder, or a URL


def place_of(text: str) -> Place:
    """What somebody wrote."""
    return text if is_url(text) else Path(text)


def text_of(place: Place) -> str:
    """The same in writing, for another process: wherever that runs, it is the same place."""
    return place if isinstance(place, str) else str(place.resolve())


def open_store(place: Place, broker: str, answered: Answered) -> GroupCommit:
    """The store of this broker; raises NotPossibleHere if it cannot be had."""
    if isinstance(place, Path):
        return SqliteStore(place / f"{broker}{SUFFIX}", answered)
    url = parse_url(place)
    _need_library()
    from penstock.live.store.postgres_store import PostgresStore

    return PostgresStore(url, broker, answered)


def verify_place(place: Place) -> dict[str, list[AreaVerdict]]:
    """What is found in the store of each broker, by where that is."""
    if isinstance(place, Path):
        stores = {str(file): verify_file(file) for file in sorted(place.glob(f"*{SUFFIX}"))}
        problem, remedy = f"there are no files of brokers in {place}", "name the folder of --data"
    else:
        url = parse_url(place)
        _need_library()
        from penstock.live.store.postgres_schema import schemas_in, verify_schema

        stores = {schema: verify_schema(url, schema) for schema in schemas_in(url)}
        problem = f"no broker has stored in {url.shown} under the schema {url.schema}"
        remedy = "name the URL of --store"
    if not stores:
        raise NotPossibleHere(problem, remedy)
    return stores


def _need_library() -> None:
    if find_spec("psycopg") is None:
        raise NotPossibleHere(
            "PostgreSQL needs the library psycopg", "install it with: pip install 'penstock[postgres]'"
        )
