"""Where brokers store their streams if nobody says: beside whoever starts them, in a folder of the network's name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from penstock.scenario.spec import Scenario

DEFAULT_FOLDER = Path("penstock-data")


def data_folder(scenario: Scenario, given: Path | None) -> Path | None:
    """The folder that was given; for a network that declares streams there is always one, and it is said which."""
    if given is not None or not scenario.stream:
        return given
    folder = DEFAULT_FOLDER / re.sub(r"[^\w.-]", "-", scenario.name)
    typer.echo(f"streams are stored in {folder}; --data names another folder", err=True)
    return folder
