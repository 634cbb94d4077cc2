"""`penstock sub`: subscribe from the command line, and print what comes.

One line for each message: its attributes and its body; with `--json` an object with identity, attributes and body
(`body_base64` if it is no text); with `--raw` the body as it is and a line feed.

Exit codes: 0 enough came, 3 nothing or not enough came in time, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.clients import CONNECT_WITHIN, NOTHING_RECEIVED, AsJson, Url, run_client

if TYPE_CHECKING:
    from penstock.content.message import Message


def sub_command(
    where: Annotated[str, typer.Argument(metavar="WHERE", help="What you want, as in SQL's WHERE; TRUE for all.")],
    count: Annotated[int | None, typer.Option(help="End after so many messages.", min=1)] = None,
    wait: Annotated[float | None, typer.Option(help="End when nothing has come for so many seconds.", min=0.0)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Bodies only, each followed by a line feed.")] = False,
    queue: Annotated[int, typer.Option(help="How many messages may wait if printing is slow.", min=1)] = 10_000,
    name: Annotated[str | None, typer.Option(help="This client's name; made up if left out.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Print every message that matches.

    Example: penstock sub "symbol = 'IBM' AND price < 120" --count 10 --wait 5 --json
    """
    if raw and as_json:
        raise typer.BadParameter("--raw and --json are two ways to print; choose one", param_hint="--raw")
    form = _raw if raw else _json if as_json else _text
    received = run_client(_subscribe(where, count, wait, form, queue, name, url))
    if received < (count or (1 if wait is not None else 0)):
        wanted = f"{received} of {count} messages" if count and received else "nothing"
        typer.echo(f"{wanted} received within {wait:g} s", err=True)
        raise typer.Exit(NOTHING_RECEIVED)


async def _subscribe(
    where: str,
    count: int | None,
    wait: float | None,
    form: Callable[[Message], bytes],
    queue: int,
    name: str | None,
    url: str | None,
) -> int:
    from penstock.live.client import connect

    received = 0
    async with (
        connect(url, name=name, connect_within=CONNECT_WITHIN) as network,
        network.subscribe(where, queue_max=queue) as messages,
    ):
        typer.echo(f"subscribed at {network.address}", err=True)
        try:
            while count is None or received < count:
                async with asyncio.timeout(wait):
                    batch = await messages.take(1000 if count is None else count - received)
                received += len(batch)
                sys.stdout.buffer.write(b"".join(map(form, batch)))
                sys.stdout.buffer.flush()
        except TimeoutError:
            pass
        finally:
            report = messages.report()
            missed = report.dropped + report.lost_at_broker
            if missed:
                typer.echo(f"{missed} messages were dropped because printing was too slow", err=True)
    return received


def _text(message: Message) -> bytes:
    from penstock.content.expression import name_text, value_text

    words = [f"{name_text(name)}={value_text(value)}" for name, value in message.attributes.items()]
    body = message.body.decode("utf-8", "replace") if message.body else ""
    shown = "".join(letter if letter.isprintable() else "·" for letter in body)
    return (" ".join(words) + (f"  {shown}" if shown else "") + "\n").encode("utf-8", "replace")


def _json(message: Message) -> bytes:
    identity = message.identity
    found: dict[str, object] = {
        "publisher": identity.publisher,
        "incarnation": identity.incarnation,
        "count": identity.count,
        "attributes": message.attributes,
    }
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode()
    return json.dumps(found, ensure_ascii=False).encode() + b"\n"


def _raw(message: Message) -> bytes:
    return message.body + b"\n"
