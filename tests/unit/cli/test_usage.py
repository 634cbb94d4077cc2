"""What is said of words on the command line that cannot be meant, and of ports that are taken."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import NotPossibleHere


def refused(*words: str) -> str:
    answer = CliRunner().invoke(app, list(words), env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert answer.exit_code == 2, answer.output
    return " ".join(answer.stderr.replace("│", " ").split())


def test_only_close_options_are_suggested() -> None:
    assert "Possible options: --ordered)" in refused("sub", "TRUE", "--ordred")
    assert "Possible options: --attribute)" in refused("pub", "--attrs", "x=1")
    said = refused("sub", "--were", "x = 1")
    assert "the WHERE text stands without an option" in said
    assert "Possible" not in said


def test_what_cannot_go_together_is_said_with_what_each_does() -> None:
    said = refused("sub", "TRUE", "--recover", "--max", "3")
    assert "--max asks caches, --recover asks publishers; choose one" in said


@pytest.mark.parametrize("given", ["many", "0", "-1", "1.5"])
def test_how_many_items_are_fetched_is_a_number_or_all(given: str) -> None:
    assert f"'{given}' is no number from 1 on; write one, leave it out for 10, or say --all" in refused(
        "fetch", "TRUE", "--max", given
    )


def test_a_port_in_use_is_said_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network = '[[broker]]\nname = "a"\n[[broker]]\nname = "b"\n[[stream]]\nname = "s"\nat = ["a"]\n'
    Path("two.toml").write_text(f'name = "two"\n{network}[[link]]\nbetween = ["a", "b"]\n')
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        answer = CliRunner().invoke(app, ["up", "two.toml", "--base-port", str(port)])
        assert isinstance(answer.exception, NotPossibleHere)
        assert "is in use; stop what listens there, or start this one elsewhere with --base-port" in str(
            answer.exception
        )
        second.bind(("127.0.0.1", port + 1))
        second.listen()
        answer = CliRunner().invoke(app, ["up", "two.toml", "--base-port", str(port)])
        assert "this network is up already" in str(answer.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["two.toml"]
