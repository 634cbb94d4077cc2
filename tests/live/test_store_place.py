"""Which place to store in was meant: a folder or a server, on the command line or in the network file."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from penstock.cli.data_folder import data_place, one_place
from penstock.errors import NotPossibleHere
from penstock.live.store import place
from penstock.live.store.place import open_store, place_of, text_of
from penstock.live.store.postgres_url import parse_url
from penstock.scenario.spec import BrokerSpec, Scenario, StreamSpec

URL = "postgresql://me:secret@db1:5433,db2/streams?sslmode=require&schema=town&sync=relaxed&password=secret"


def test_a_url_is_libpqs_but_for_two_parameters_and_shows_no_secret() -> None:
    url = parse_url(URL)
    assert url.connection == "postgresql://me:secret@db1:5433,db2/streams?sslmode=require&password=secret"
    assert (url.schema, url.sync) == ("town", "relaxed")
    assert url.shown == "postgresql://me@db1:5433,db2/streams"
    plain = parse_url("postgres:///streams")
    assert (plain.connection, plain.schema, plain.sync) == ("postgres:///streams", "penstock", "full")


@pytest.mark.parametrize(
    ("wrong", "advice"), [("mysql://me:secret@db/x", "postgresql://"), ("postgresql://db/x?sync=ful", "'full'")]
)
def test_a_url_that_makes_no_sense_is_refused_with_advice(wrong: str, advice: str) -> None:
    with pytest.raises(NotPossibleHere, match=advice) as caught:
        open_store(wrong, "north", lambda ticket, result: None)
    assert "secret" not in str(caught.value)


def test_each_broker_has_a_schema_whose_name_is_short_enough() -> None:
    url = parse_url(URL)
    assert url.schema_of("north") == "town/north"
    names = [url.schema_of("ü" * 40 + end) for end in "ab"]
    assert len(set(names)) == 2
    assert all(name.startswith("town/ü") and len(name.encode()) <= 63 for name in names)


def test_without_the_library_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "find_spec", lambda name: None)
    with pytest.raises(NotPossibleHere, match=r"penstock\[postgres\]"):
        open_store(URL, "north", lambda ticket, result: None)


def test_what_is_said_counts_then_the_file_then_a_folder_of_the_networks_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers = (BrokerSpec(name="north"),)
    quiet = Scenario(name="town", broker=brokers)
    streams = Scenario(name="my town", broker=brokers, stream=(StreamSpec(name="orders", at=("north",)),))
    server = Scenario(name="town", broker=brokers, store=URL)
    assert data_place(quiet, None, None) is None
    assert data_place(streams, None, None) == Path("penstock-data/my-town")
    assert "penstock-data/my-town" in capsys.readouterr().err
    assert data_place(server, None, None) == URL
    assert data_place(server, tmp_path, None) == tmp_path
    assert data_place(streams, None, URL) == URL
    assert capsys.readouterr().err == ""
    with pytest.raises(typer.BadParameter, match="name one of them"):
        one_place(tmp_path, URL)
    with pytest.raises(typer.BadParameter, match="--store"):
        one_place(Path(URL), None)


def test_a_place_survives_the_way_to_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of(text_of(Path("data"))) == tmp_path / "data"
    assert place_of(text_of(URL)) == URL
