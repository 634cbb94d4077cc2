"""The command line as a whole: its version, and what it says of wrong words."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli.main import app

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_that_of_the_project() -> None:
    assert penstock.__version__ == PROJECT["version"]
    assert "__version__" in dir(penstock)
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"penstock {PROJECT['version']}\n")


def test_sources_that_nobody_installed_have_a_version_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert penstock.__version__ == "0+unknown"


def test_without_a_command_all_are_listed() -> None:
    shown = CliRunner().invoke(app, ["--help"])
    assert "Content-based publish/subscribe" in shown.output
    assert "--version" in shown.output
