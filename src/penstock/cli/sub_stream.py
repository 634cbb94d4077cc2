"""`penstock sub --stream`: read a stream under a durable name, and print each message once.

What was printed is acknowledged, so the next run under the same name goes on behind it; with `--ack manual` nothing is,
and the next run prints the same again. A gap is told on stderr, and reading goes on. With `--share` several runs under
one name get different messages.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.clients import CONNECT_WITHIN
from penstock.errors import StreamError, StreamGap

if TYPE_CHECKING:
    from penstock.content.message import Message
    from penstock.live.client.stream_subscription import ReaderReport, StreamSubscription

ACKNOWLEDGE_WITHIN = 2.0  # seconds


async def read_stream(
    where: str,
    count: int | None,
    wait: float | None,
    form: Callable[[Message], bytes],
    report: bool,
    as_json: bool,
    name: str | None,
    url: str | None,
    options: dict[str, Any],
) -> int:
    """Print what comes until it is enough; returns how many messages that were."""
    from penstock.live.client.network import connect

    start, durable = options.get("start_at") or "latest", options.get("durable", "")
    named = ("ack", "takeover", "share", "ack_within", "attempts_max", "failed")
    asked = {name: options[name] for name in named if name in options}
    async with connect(url, name=name, connect_within=CONNECT_WITHIN) as network:
        stream = network.stream(options["stream"])
        async with stream.subscribe(where, durable=durable, start=start, **asked) as messages:
            typer.echo(f"subscribed to {stream.name} as {durable} at {network.address}", err=True)
            received = 0
            try:
                while count is None or received < count:
                    async with asyncio.timeout(wait):
                        batch = await _next(messages, 1000 if count is None else count - received, as_json)
                    received += len(batch)
                    sys.stdout.buffer.write(b"".join(map(form, batch)))
                    sys.stdout.buffer.flush()
            except TimeoutError:
                pass
            finally:
                if asked.get("ack", "auto") == "auto":
                    await _acknowledge(messages)
            if report:
                _tell(messages.report(), await messages.lag(), as_json)
    return received


async def _acknowledge(messages: StreamSubscription) -> None:
    """All that was printed, also if somebody has had enough."""
    with suppress(TimeoutError, StreamError):
        async with asyncio.timeout(ACKNOWLEDGE_WITHIN):
            await messages.ack()


async def _next(messages: StreamSubscription, count_max: int, as_json: bool) -> list[Any]:
    try:
        return list(await messages.take(count_max))
    except StreamGap as gap:
        found = {"pubend": gap.pubend, "first": gap.first, "last": gap.last}
        typer.echo(json.dumps({"gap": found}) if as_json else f"gap: {gap}", err=True)
        return []


def _tell(report: ReaderReport, lag: int | None, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**asdict(report), "lag": lag}), err=True)
        return
    rows = [
        ("received", f"{report.received:,}"),
        ("gaps", f"{report.gaps:,}"),
        ("messages that match and are not acknowledged", "unknown" if lag is None else f"{lag:,}"),
        ("connections lost and found again", f"{report.reconnects:,}"),
        *((f"position in {pubend}", str(tick)) for pubend, _, tick in report.positions),
    ]
    for words, value in rows:
        typer.echo(f"{words:46}{value:>18}", err=True)
