"""`penstock sub`: subscribe from the command line, and print what comes.

One line for each message: its attributes and its body; with `--json` an object with identity, attributes and body
(`body_base64` if it is no text); with `--raw` the body as it is and a line feed.

With `--ordered` and `--recover` the transport puts messages in order and asks for lost ones again, for publishers that
use it (`penstock pub --transport`). With `--congestion` publishers that listen to it (`penstock pub --congestion`) slow
down when we cannot keep up. `--report` tells at the end how that went, on stderr: a small table, or with
`--json` one object on one line, the last one.

With `--max`, `--lifetime` or `--freshness` it retrieves: at most so many items in each lifetime, cached or new, none
twice. `penstock fetch` asks once.

With `--stream` and `--durable` it reads a stream, exactly once and in order (`sub_stream`).

Exit codes: 0 enough came, 3 nothing or not enough came in time, 130 interrupted.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.clients import CONNECT_WITHIN, NOTHING_RECEIVED, AsJson, Url, run_client
from penstock.kernel.rate_estimator import rate_text

if TYPE_CHECKING:
    from penstock.content.message import Message
    from penstock.live.client.subscription import Report, Subscription
    from penstock.rates.told import WithheldFlow

    Form = Callable[[Message], bytes]

LOOK_EVERY = 0.5  # seconds


def sub_command(
    where: Annotated[str, typer.Argument(metavar="WHERE", help="What you want, as in SQL's WHERE; TRUE for all.")],
    count: Annotated[int | None, typer.Option(help="End after so many messages.", min=1)] = None,
    wait: Annotated[float | None, typer.Option(help="End when nothing has come for so many seconds.", min=0.0)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Bodies only, each followed by a line feed.")] = False,
    report: Annotated[
        bool, typer.Option("--report", help="At the end, how it went: losses, order and delays, on stderr.")
    ] = False,
    congestion: Annotated[
        bool, typer.Option("--congestion", help="Tell publishers when we cannot keep up; those with --congestion obey.")
    ] = False,
    queue: Annotated[int, typer.Option(help="How many messages may wait if printing is slow.", min=1)] = 10_000,
    name: Annotated[str | None, typer.Option(help="This client's name; made up if left out.")] = None,
    no_ready: Annotated[
        bool, typer.Option("--no-ready", help="Do not wait until all brokers know of the subscription.")
    ] = False,
    ready_within: Annotated[float, typer.Option(help="Seconds to wait for them at most.", min=0.001, max=30.0)] = 5.0,
    url: Url = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],  # of services; cli.options makes parameters of them
) -> None:
    """Print every message that matches.

    Examples: penstock sub "symbol = 'IBM' AND price < 120" --count 10 --wait 5 --json

    penstock sub "symbol = 'IBM'" --ordered --recover --report

    penstock sub "symbol = 'IBM'" --stream orders --durable billing --start 10m

    penstock sub "type = 'article'" --max 10 --lifetime 24h
    """
    from penstock.content.language.parser import parse_predicate

    form = form_of(raw=raw, as_json=as_json)
    parse_predicate(where)  # a mistake in it is said before a broker is looked for
    if options.get("stream"):
        from penstock.cli.sub_stream import read_stream

        if congestion:
            raise typer.BadParameter("a stream needs none: who is slow falls behind", param_hint="--congestion")
        received = run_client(read_stream(where, count, wait, form, report, as_json, name, url, options))
        _check_enough(received, count, wait)
        return
    tell = None if not report else _report_json if as_json else _report_table
    request = {"where": where, "queue_max": queue, "ready": not no_ready, "ready_within": ready_within, **options}
    received = run_client(_subscribe(request, count, wait, form, tell, name, url, congestion))
    _check_enough(received, count, wait)


def _check_enough(received: int, count: int | None, wait: float | None) -> None:
    if received < (count or (1 if wait is not None else 0)):
        wanted = f"{received} of {count} messages" if count and received else "nothing"
        typer.echo(f"{wanted} received within {wait:g} s", err=True)
        raise typer.Exit(NOTHING_RECEIVED)


async def _subscribe(
    request: dict[str, Any],
    count: int | None,
    wait: float | None,
    form: Callable[[Message], bytes],
    tell: Callable[[Report, int], None] | None,
    name: str | None,
    url: str | None,
    congestion: bool,
) -> int:
    from penstock.live.client.network import connect
    from penstock.transport.config import TransportConfig

    received, fastest = 0, Fastest()
    transport = TransportConfig(congestion=True) if congestion else None
    async with (
        connect(url, name=name, transport=transport, connect_within=CONNECT_WITHIN) as network,
        network.subscribe(**request) as messages,
    ):
        typer.echo(f"subscribed at {network.address}", err=True)
        if messages.unconfirmed:
            missing = ", ".join(messages.unconfirmed)
            typer.echo(f"not known everywhere yet: no confirmation from {missing}", err=True)
        watch = asyncio.create_task(_tell_withheld(messages))
        try:
            while count is None or received < count:
                async with asyncio.timeout(wait):
                    batch = await messages.take(1000 if count is None else count - received)
                if not batch:
                    break  # it has ended: what was asked for has come
                received += len(batch)
                fastest.add(len(batch), time.monotonic())
                sys.stdout.buffer.write(b"".join(map(form, batch)))
                sys.stdout.buffer.flush()
        except TimeoutError:
            pass
        finally:
            watch.cancel()
            await messages.close()  # what the broker has dropped is known afterwards
            report = messages.report()
            missed = missed_text(report)
            if missed:
                typer.echo(missed, err=True)
            if tell is not None:
                tell(report, fastest.count)
    return received


async def _tell_withheld(messages: Subscription) -> None:
    """Say on stderr, once for each link, that it withholds messages from us, as the publisher is told."""
    said = set[tuple[str, ...]]()
    while True:
        await asyncio.sleep(LOOK_EVERY)
        for flow in messages.report().withheld_by:
            if flow.link not in said:
                said.add(flow.link)
                typer.echo(withheld_notice(flow), err=True)


def withheld_notice(flow: WithheldFlow) -> str:
    """What `_tell_withheld` says."""
    if flow.slow_reader:
        return "messages are withheld from us: we read slowly"
    return f"messages may be withheld from us: the link {' - '.join(flow.link)} is full"


class Fastest:
    """How many messages came in the best second: no rate above that has been measured."""

    def __init__(self) -> None:
        self.count = 0
        self._second, self._in_second = 0, 0

    def add(self, count: int, now: float) -> None:
        """So many came now."""
        if int(now) != self._second:
            self._second, self._in_second = int(now), 0
        self._in_second += count
        self.count = max(self.count, self._in_second)


def missed_text(report: Report) -> str:
    """What did not get through for our slowness, and where it was dropped; empty if nothing was."""
    places = [
        f"{count:,} {place}"
        for count, place in ((report.dropped, "here"), (report.lost_at_broker, "at the broker"))
        if count
    ]
    return f"messages dropped because this subscriber was too slow: {' and '.join(places)}" if places else ""


def form_of(*, raw: bool, as_json: bool) -> Form:
    """How messages are printed."""
    if raw and as_json:
        raise typer.BadParameter("--raw and --json are two ways to print; choose one", param_hint="--raw")
    return _raw if raw else _json if as_json else _text


def _text(message: Message) -> bytes:
    from penstock.content.language.expression import name_text, value_text

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
        **place(message),
    }
    try:
        found["body"] = message.body.decode()
    except UnicodeDecodeError:
        found["body_base64"] = base64.b64encode(message.body).decode()
    return json.dumps(found, ensure_ascii=False).encode() + b"\n"


def place(message: Message) -> dict[str, object]:
    """Where in a stream the message stands, if it is of one."""
    from penstock.streams.message import StreamMessage

    if not isinstance(message, StreamMessage):
        return {}
    place = {"stream": message.stream, "pubend": message.pubend, "epoch": message.epoch, "tick": message.tick}
    return {**place, "attempt": message.attempt} if message.attempt > 1 else place


def _raw(message: Message) -> bytes:
    return message.body + b"\n"


# What each number of a report is, for people.
_WORDS = {
    "received": "received",
    "dropped": "dropped here, because printing was slow",
    "lost_at_broker": "dropped at the broker, because we were slow",
    "reconnects": "connections lost and found again",
}
_WORDS_OF_THE_TRANSPORT = {
    "publishers": "publishers with the transport",
    "without_header": "messages of publishers without it",
    "lost": "losses noticed",
    "recovered": "of those recovered",
    "pending": "asked for now, wanted or in doubt",
    "known_lost": "of those given up",
    "not_asked": "of those never asked for",
    "unrevealed": "publications that no record covered",
    "broken_off": "publishers that ended without a last word",
    "late": "delivered after a later one",
    "duplicates": "copies left out",
    "refused": "headers that made no sense",
}


def _report_table(report: Report, fastest: int) -> None:
    for words, value in report_rows(report, fastest):
        typer.echo(f"{words:44}{value:>12}", err=True)


def report_rows(report: Report, fastest: int) -> list[tuple[str, str]]:
    """A report for people. What the way takes is a formula's; it is shown if so much came in the best second."""
    careful = report.ordered or report.recover
    rows = [(words, f"{getattr(report, name):,}") for name, words in _WORDS.items()]
    if careful:
        rows += [(words, f"{getattr(report, name):,}") for name, words in _WORDS_OF_THE_TRANSPORT.items()]
        rows += [
            ("chance that a loss is noticed", _share(report.detection_probability)),
            ("chance of disorder at a gap, after waiting", _share(report.disorder_probability)),
            ("wait for others, assigned on average", f"{report.delay_assigned * 1000:.2f} ms"),
            ("wait for others, really", f"{report.delay_held * 1000:.2f} ms"),
        ]
    if report.round_trip is not None:
        rows += [
            ("times that publishers were sent our rate", f"{report.feedbacks:,}"),
            ("loss event rate, on the worst way", _share(report.loss_event_rate)),
            ("round trip on that way", f"{report.round_trip * 1000:.2f} ms"),
        ]
        if report.allowed_rate is not None and report.allowed_rate <= fastest:
            rows.append(("messages that it and we can take", f"{rate_text(report.allowed_rate)}/s"))
    rows += [(withheld_words(flow), f"{flow.messages:,}") for flow in report.withheld_by]
    for service, found in report.services.items():
        rows += [(f"{service}: {name}", str(value)) for name, value in found.items()]
    return rows


def withheld_words(flow: WithheldFlow) -> str:
    """Whom something was withheld from. Of a broker it is known how many messages, and not which of its clients'."""
    if flow.slow_reader:
        return "of those withheld in time, told so far"
    return f"withheld from {flow.to} by the link {' - '.join(flow.link)}, told so far"


def _share(probability: float | None) -> str:
    return "unknown" if probability is None else f"{probability:.2%}"


def report_data(report: Report) -> dict[str, Any]:
    """As plain data, for --json."""
    from msgspec import structs

    return {**asdict(report), "withheld_by": [structs.asdict(flow) for flow in report.withheld_by]}


def _report_json(report: Report, fastest: int) -> None:
    typer.echo(json.dumps({**report_data(report), "fastest_second": fastest}), err=True)
