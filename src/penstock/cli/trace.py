"""`penstock trace`: let the brokers and clients of a running network send their records to the stream `_trace`, or not.

Like the commands about streams, these are for whoever can reach a broker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.clients import CONNECT_WITHIN, AsJson, Url, run_client
from penstock.cli.report import several

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    help="Switch on and off that a running network records what happens in it.",
    epilog="Example: penstock trace on --for 600",
    no_args_is_help=True,
)

At = Annotated[
    list[str] | None,
    typer.Option("--at", metavar="BROKER", help="Where records are kept, if nowhere yet; at the broker of the URL."),
]
Sample = Annotated[
    int, typer.Option(metavar="N", help="Record one in N messages; all of them if not given.", min=1, max=1_000_000)
]


@app.command("on")
def on_command(
    seconds: Annotated[int, typer.Option("--for", metavar="SECONDS", help="How long.", min=1, max=604_800)] = 3_600,
    sample: Sample = 1,
    at: At = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Let all brokers and clients send their records to the stream `_trace`, for so long.

    The stream keeps them for ten minutes and up to 64 MiB, for `penstock pipeline watch` or any reader of streams.

    Example: penstock trace on --for 600 --sample 10
    """
    _tell(_ask(url, seconds, one_in=sample, at=at or ()), as_json)


@app.command("off")
def off_command(url: Url = None, as_json: AsJson = False) -> None:
    """End it at once, whoever watches.

    Example: penstock trace off
    """
    _tell(_ask(url, 0), as_json)


@app.command("show")
def show_command(url: Url = None, as_json: AsJson = False) -> None:
    """Say whether the network records, since when and for how long.

    Example: penstock trace show
    """
    _tell(_ask(url, None), as_json)


def _ask(url: str | None, seconds: int | None, *, one_in: int = 0, at: Sequence[str] = ()) -> dict[str, Any]:
    from penstock.live.client.network import connect

    async def ask() -> dict[str, Any]:
        async with connect(url, connect_within=CONNECT_WITHIN) as network:
            return await network.trace(seconds, one_in=one_in, at=at)

    return run_client(ask())


def _tell(state: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(state))
    elif not state["on"]:
        typer.echo("tracing is off")
    else:
        messages = "all messages" if state["one_in"] == 1 else f"one in {state['one_in']:,} messages"
        left = several(round(state["seconds_left"]), "second")
        typer.echo(f"tracing is on for {left} more, of {messages}; see it with: penstock pipeline watch URL")
