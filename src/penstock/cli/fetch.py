"""`penstock fetch`: ask once for what the network's caches hold, print it, and end.

Exit codes: 0 something came, 3 nothing did, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.clients import CONNECT_WITHIN, NOTHING_RECEIVED, AsJson, Url, run_client
from penstock.cli.sub import form_of
from penstock.retrieval.config import DEFAULT_MAX

if TYPE_CHECKING:
    from penstock.cli.sub import Form


def fetch_command(
    where: Annotated[str, typer.Argument(metavar="WHERE", help="What you want, as in SQL's WHERE; TRUE for all.")],
    max_items: Annotated[str | None, typer.Option("--max", metavar="NUMBER", help="At most so many (10).")] = None,
    all_items: Annotated[bool, typer.Option("--all", help="All there are.")] = False,
    freshness: Annotated[str, typer.Option(help="How old they may be: 30s, 15m, 24h, 7d.")] = "24h",
    within: Annotated[float, typer.Option(help="Seconds to wait for answers.", min=0.05, max=60.0)] = 1.0,
    raw: Annotated[bool, typer.Option("--raw", help="Bodies only, each followed by a line feed.")] = False,
    name: Annotated[str | None, typer.Option(help="This client's name; made up if left out.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print what was published lately and matches.

    Example: penstock fetch "type = 'article' AND topic = 'election'" --max 10 --freshness 24h
    """
    form = form_of(raw=raw, as_json=as_json)
    if all_items and max_items is not None:
        raise typer.BadParameter("--max and --all ask for two things; choose one", param_hint="--all")
    if not freshness.strip(" 0.smhdw"):
        problem = "nothing is that fresh; for what comes later use 'penstock sub'"
        raise typer.BadParameter(problem, param_hint="--freshness")
    if max_items is not None and not (max_items.isdecimal() and int(max_items) >= 1):
        problem = f"'{max_items}' is no number from 1 on; write one, leave it out for {DEFAULT_MAX}, or say --all"
        raise typer.BadParameter(problem, param_hint="--max")
    wanted = None if all_items else int(max_items or DEFAULT_MAX)
    received = run_client(_fetch(where, wanted, freshness, within, form, name, url))
    if not received:
        typer.echo(f"nothing that matches was found within {within:g} s", err=True)
        raise typer.Exit(NOTHING_RECEIVED)


async def _fetch(
    where: str,
    wanted: int | None,
    freshness: str,
    within: float,
    form: Form,
    name: str | None,
    url: str | None,
) -> int:
    from penstock.live.client.network import connect
    from penstock.retrieval.config import RetrievalClientConfig

    received = 0
    config = RetrievalClientConfig(answer_time=within)
    async with connect(url, name=name, retrieval=config, connect_within=CONNECT_WITHIN) as network:
        items = network.retrieve(where, max=wanted or "all", lifetime=0, freshness=freshness)
        async for message in items:
            received += 1
            sys.stdout.buffer.write(form(message))
            sys.stdout.buffer.flush()
    return received
