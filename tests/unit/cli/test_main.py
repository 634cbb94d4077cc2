"""The command line as a whole: its version, and what it says of wrong words."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app

TOWN = Path(__file__).parents[3] / "networks" / "town.toml"
PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_that_of_the_project() -> None:
    assert penstock.__version__ == PROJECT["version"]
    assert "__version__" in dir(penstock)
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"penstock {PROJECT['version']}\n")


def test_what_it_is_is_said_in_one_sentence_everywhere() -> None:
    sentence = PROJECT["description"]
    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert f"**{sentence}.**" in readme
    assert f"{sentence}." in CliRunner().invoke(app, ["--help"]).output


def test_sources_that_nobody_installed_have_a_version_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert penstock.__version__ == "0+unknown"


def test_without_a_command_all_are_listed() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert " report " in shown.output
    assert "--version" in shown.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lab", "run", "all", "--scale", "papr"], "choose one of 'paper', 'smoke' (did you mean 'paper'?)"),
        (["workload", "make", "x", "--set", "zip=1"], "(did you mean 'zipf'?)"),
        (["broker", "nroth", "--network", str(TOWN)], "(did you mean 'north'?)"),
    ],
)
def test_a_wrong_choice_lists_the_choices(arguments: list[str], words: str) -> None:
    found = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert found.exit_code != 0
    said = found.output + str(found.exception)
    assert words in said
    assert "choose one of" in said
