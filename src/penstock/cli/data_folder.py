"""Where brokers store their streams: in a folder, or at a PostgreSQL server.

What is said on the command line counts, then what the network file says. If nobody says anything and there are streams,
they are stored beside whoever starts the brokers, in a folder of the network's name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.live.store.place import Place
    from penstock.scenario.spec import Scenario

DEFAULT_FOLDER = Path("penstock-data")

DataFolder = Annotated[
    Path | None,
    typer.Option(help="Where streams are stored; penstock-data/NAME by default, if the file declares any."),
]
StoreUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Store at a PostgreSQL server instead: postgresql://user@host/database."),
]


def one_place(data: Path | None, store: str | None) -> Place | None:
    """Which of the two was given."""
    if data is not None and store is not None:
        raise typer.BadParameter("a folder and a server; name one of them", param_hint="--data and --store")
    if data is not None and str(data).startswith(("postgresql:", "postgres:")):
        raise typer.BadParameter(f"{data} is no folder; a server is named with --store", param_hint="--data")
    return store if store is not None else data


def data_place(scenario: Scenario, data: Path | None, store: str | None) -> Place | None:
    """The place that was given; for a network that declares streams there is always one, and it is said which."""
    given = one_place(data, store)
    if given is not None:
        return given
    if scenario.store:
        return scenario.store
    if not scenario.stream:
        return None
    folder = DEFAULT_FOLDER / re.sub(r"[^\w.-]", "-", scenario.name)
    typer.echo(f"streams are stored in {folder}; --data names another folder", err=True)
    return folder
