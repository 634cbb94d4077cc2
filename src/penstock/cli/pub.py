"""`penstock pub`: publish from the command line, once, many times, or a stream of JSON lines.

With `--jsonl` every line of stdin is an object as `penstock sub --json` prints it: "attributes", and "body" (text) or
"body_base64"; what else is in it is ignored. So one network's messages can be fed into another.

With `--transport` messages carry what subscribers need to put them in order and to notice losses. Lost ones are asked
for after the last has left, so the command then stays for `--linger` seconds to send them again. With `--congestion` it
also listens to subscribers that cannot keep up (`penstock sub --congestion`): publishing waits for them. `--report`
says at the end, on stderr, who slowed it down: full links and slow readers for which messages were withheld, and with
`--congestion` subscribers. `--when-full` says what becomes of messages for which a link has no room.

With `--stream` messages are stored in a stream: one counts as published when it is on disk. Several are under way at a
time, and stored in the order in which they were given.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer
from msgspec import Struct, structs

from penstock.cli.clients import CONNECT_WITHIN, AsJson, Url, run_client
from penstock.errors import InvalidMessage
from penstock.kernel.rate_estimator import rate_text

if TYPE_CHECKING:
    from penstock.content.message import Value
    from penstock.live.client.stream import Receipt, Stream
    from penstock.rates.told import WithheldFlow
    from penstock.streams.client_slowdowns import StreamSlowdown
    from penstock.transport.sender.rate_limiter import FlowReport

_ATTRIBUTE = re.compile(r"[A-Za-z_][\w.-]*=.+")

Message = tuple[dict[str, "Value"], bytes]
BURST = 0.7  # seconds after which nothing waits for its share any more
FIRST_WORD = 1.0  # seconds for the first notice of something withheld
UNDER_WAY_MAX = 200  # messages that wait for the disk of a stream


class WhenFull(Enum):
    """As `rates.config.WhenFull`, which is loaded later."""

    thin = "thin"
    wait = "wait"
    drop = "drop"


def pub_command(
    body: Annotated[str | None, typer.Argument(help="The body, as text; '-' takes it from stdin.")] = None,
    attributes: Annotated[
        list[str] | None,
        typer.Option("--attribute", "-a", metavar="NAME=VALUE", help="An attribute; quotes force a string."),
    ] = None,
    count: Annotated[int, typer.Option(help="How many times.", min=1)] = 1,
    rate: Annotated[float | None, typer.Option(help="Messages per second; as fast as it goes by default.")] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Publish every line of stdin, a JSON object each.")] = False,
    transport: Annotated[
        bool, typer.Option("--transport", help="For subscribers that want order and recovery; costs bytes.")
    ] = False,
    congestion: Annotated[
        bool, typer.Option("--congestion", help="Also slow down for subscribers that say they cannot keep up.")
    ] = False,
    when_full: Annotated[
        WhenFull, typer.Option(help="If a link has no room: thin, wait (publishing waits) or drop (nothing waits).")
    ] = WhenFull.thin,
    report: Annotated[bool, typer.Option("--report", help="At the end, who slowed us down, on stderr.")] = False,
    linger: Annotated[
        float, typer.Option(help="With --transport: seconds to stay and answer requests for lost messages.", min=0.0)
    ] = 1.0,
    name: Annotated[str | None, typer.Option(help="This publisher's name; made up if left out.")] = None,
    url: Url = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],  # of services; cli.options makes parameters of them
) -> None:
    """Publish a message.

    Examples: penstock pub -a symbol=IBM -a price=101.5 "the body"

    penstock pub -a symbol=IBM --transport --count 1000 --rate 100

    penstock pub -a symbol=IBM --stream orders --key IBM "buy 100"
    """
    from penstock.cli.filter import read_attributes

    if options.get("stream") and (transport or congestion):
        raise typer.BadParameter("a stream needs no transport; leave it out", param_hint="--stream")
    if options.get("publication_id") and (jsonl or count > 1):
        raise typer.BadParameter("is the id of one message; give it to one", param_hint="--publication-id")

    if rate is not None and not 0.0 < rate <= 1e7:
        raise typer.BadParameter("must be more than 0 and at most 1e7", param_hint="--rate")
    if jsonl and (body is not None or attributes):
        raise typer.BadParameter("takes attributes and bodies from stdin; give neither here", param_hint="--jsonl")
    messages: Iterator[Message]
    if jsonl:
        messages = _lines()
    else:
        if not attributes:
            typer.echo(f"warning: {no_attributes_text(body or '')}", err=True)
        content = sys.stdin.buffer.read() if body == "-" else (body or "").encode()
        messages = iter([(read_attributes(attributes or []), content)] * count)
    settings = _Transport(linger, congestion) if transport or congestion else None
    done = _Done()
    try:
        run_client(_publish(url, name, messages, rate, settings, options, when_full.name, done, report))
    finally:  # whoever has had enough wants to know it too
        if done.published or done.complete:  # or else the error alone says it
            _tell(done, report, as_json)


def no_attributes_text(body: str) -> str:
    """What to say of a message without attributes: subscribers ask for those, and hardly anybody will get it."""
    meant = f"did you mean -a {quote(body)}?" if _ATTRIBUTE.fullmatch(body) else "give some with -a NAME=VALUE"
    return f"no attributes; {meant}"


class _Transport(NamedTuple):
    linger: float  # seconds to stay afterwards
    congestion: bool


@dataclass
class _Done:
    """What has been done so far."""

    broker: str = ""  # at which we were, once we are connected
    published: int = 0
    receipt: Receipt | None = None  # of the last message that was stored in a stream
    flows: list[FlowReport | WithheldFlow] = field(default_factory=list)  # who slows us down
    slowed: Sequence[StreamSlowdown] = ()  # pubends that take our messages slowly
    complete: bool = False  # whether the last word of what was withheld has come


def _tell(done: _Done, report: bool, as_json: bool) -> None:
    if report:
        _report(done, as_json)
    stored = {} if done.receipt is None else asdict(done.receipt)
    if as_json:
        typer.echo(json.dumps({"published": done.published, "broker": done.broker, **stored}))
        return
    where = f", the last in {stored['pubend']} at tick {stored['tick']}" if stored else ""
    typer.echo(f"published {done.published} message{'s' * (done.published != 1)} at {done.broker}{where}", err=True)


def _report(done: _Done, as_json: bool) -> None:
    flows, slowed = done.flows, done.slowed
    if as_json:
        found = {
            "flows": [asdict(flow) for flow in flows if not isinstance(flow, Struct)],
            "withheld": [structs.asdict(flow) for flow in flows if isinstance(flow, Struct)],
            "streams": [structs.asdict(one) for one in slowed],
            "complete": done.complete,
        }
        typer.echo(json.dumps(found), err=True)
        return
    for one in slowed:
        typer.echo(f"{one.pubend} takes {rate_text(one.rate)} messages/s of all publishers: {one.reason}", err=True)
    for flow in flows:
        typer.echo(flow.reason + ("" if done.complete else ", so far"), err=True)
    if not flows and not slowed:
        typer.echo("nobody slows us down", err=True)


async def _publish(
    url: str | None,
    name: str | None,
    messages: Iterator[Message],
    rate: float | None,
    settings: _Transport | None,
    options: dict[str, Any],
    when_full: str,
    done: _Done,
    report: bool,
) -> None:
    """Publish everything; `done` has how many, where, and who slowed us down in the end."""
    import asyncio

    from penstock.live.client.network import connect
    from penstock.rates.config import RatesClientConfig
    from penstock.transport.config import TransportConfig

    transport = None
    if settings is not None:
        transport = TransportConfig(congestion=settings.congestion)
    rates = msgspec.convert({"when_full": when_full}, RatesClientConfig)
    async with connect(url, name=name, transport=transport, rates=rates, connect_within=CONNECT_WITHIN) as network:
        done.broker = str(network.address)
        try:
            if "stream" in options:
                await _store(network.stream(options.pop("stream")), _paced(messages, rate), options, done)
            async for attributes, body in _paced(messages, rate):
                await network.publish(attributes, body, **options)
                done.published += 1
            done.flows = network.flows()
            if settings is not None and settings.linger:
                await asyncio.sleep(settings.linger)
            if report:
                await last_word(lambda: network.withheld)
            done.complete = True
        finally:
            done.broker, done.flows = str(network.address), network.flows() or done.flows


async def last_word(withheld: Callable[[], int]) -> None:
    """Wait for the last notice of what was withheld: the first comes at once, more come every PUBLISHER_EVERY.

    What waits for its share when publishing ends is withheld in the burst that a home lets wait, so news that comes
    after that is the last.
    """
    import asyncio

    from penstock.rates.telling import PUBLISHER_EVERY

    began = time.monotonic()
    known = withheld()
    while (passed := time.monotonic() - began) < (PUBLISHER_EVERY + FIRST_WORD if withheld() else FIRST_WORD):
        await asyncio.sleep(0.05)
        if withheld() != known:
            known = withheld()
            if passed > BURST:
                return


async def _store(stream: Stream, messages: AsyncIterator[Message], options: dict[str, Any], done: _Done) -> None:
    """Let them all be stored; they are sent in order, and what is under way is bounded."""
    import asyncio

    room = asyncio.Semaphore(UNDER_WAY_MAX)

    async def store(attributes: dict[str, Value], body: bytes) -> None:
        try:
            done.receipt = await stream.publish(attributes, body, **options)
            done.published += 1
        finally:
            room.release()

    try:
        async with asyncio.TaskGroup() as group:
            async for attributes, body in messages:
                await room.acquire()
                group.create_task(store(attributes, body))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None  # the others are most likely the same
    finally:
        done.slowed = stream.report().slowed


async def _paced(messages: Iterator[Message], rate: float | None) -> AsyncIterator[Message]:
    """The messages at this rate; one that is late is not waited for, so the rate holds on the whole."""
    import asyncio

    began = time.monotonic()
    for number, message in enumerate(messages):
        if rate is not None:
            wait = began + number / rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
        yield message


def _lines() -> Iterator[Message]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if line.strip():
            yield _read_line(number, line)


def _read_line(number: int, line: bytes) -> Message:
    try:
        found: Any = json.loads(line)
    except ValueError as error:
        raise InvalidMessage(f"line {number} of stdin is not JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("attributes"), dict):
        raise InvalidMessage(f'line {number} of stdin: write {{"attributes": {{"symbol": "IBM"}}, "body": "..."}}')
    text, encoded = found.get("body", ""), found.get("body_base64")
    if not isinstance(text, str) or not isinstance(encoded, str | None):
        raise InvalidMessage(f"line {number} of stdin: a body is text, or base64 under body_base64")
    try:
        body = base64.b64decode(encoded, validate=True) if encoded is not None else text.encode()
    except (binascii.Error, UnicodeEncodeError) as error:
        raise InvalidMessage(f"line {number} of stdin: a body that cannot be read: {error}") from None
    return found["attributes"], body
