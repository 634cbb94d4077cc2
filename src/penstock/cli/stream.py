"""`penstock stream`: make streams, look at them, trim and delete them, and check what is on disk.

Commands go to a running broker, which asks the brokers of the stream's pubends. What deletes anything says what that is
and asks first, or takes `--yes` for the answer. `verify --data` and `--store` read what is stored by themselves, for
brokers that do not run. Exit codes are those of all commands; 1 if `verify` finds damage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.clients import CONNECT_WITHIN, AsJson, Url, run_client
from penstock.cli.data_folder import one_place
from penstock.cli.report import drawn_limits, plain, several, table
from penstock.streams.packets import client_of, stream_of
from penstock.streams.start_times import start_on_wire

if TYPE_CHECKING:
    from penstock.live.client.network import Network
    from penstock.live.store.place import Place

app = typer.Typer(
    help="Streams: messages that are stored, and read exactly once.",
    epilog="Example: penstock stream add orders --at bank",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="STREAM", help="The stream.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before it deletes.")]
WHERE_SHOWN_MAX = 60


@app.command("add")
def add_command(
    stream: Name,
    at: Annotated[list[str], typer.Option("--at", metavar="BROKER", help="A broker that stores it; several share it.")],
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Make a stream, with a pubend at each of these brokers; they must have been started with --data.

    Example: penstock stream add orders --at bank --at market
    """
    found = _asked(url, lambda network: network.add_stream(stream, at=at))
    _tell(found, as_json, f"the stream {stream} is there, with {several(len(at), 'pubend')}")


@app.command("ls")
def ls_command(url: Url = None, as_json: AsJson = False) -> None:
    """List the streams of the network, as a broker knows them.

    Example: penstock stream ls --url 127.0.0.1:7421
    """
    found = _asked(url, lambda network: network.streams())
    if as_json:
        for stream in found:
            typer.echo(json.dumps(stream))
        return
    rows = table("", "stream", "pubends", "at", "declared in the file")
    for stream in found:
        hosts = ", ".join(plain(host) if host else "?" for host in stream["hosts"])
        rows.add_row(plain(stream["stream"]), str(stream["pubends"]), hosts, "yes" if stream["declared"] else "")
    _print(rows if found else "there are no streams; penstock stream add NAME --at BROKER makes one")


@app.command("info")
def info_command(
    stream: Name,
    durable: Annotated[str, typer.Option(help="Only this durable name.")] = "",
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Say what a stream keeps, who reads it, how many messages each reader has before it, and who slows publishers.

    Example: penstock stream info orders --durable billing
    """
    found = _asked(url, lambda network: network.stream(stream).info(durable=durable))
    if as_json:
        typer.echo(json.dumps(found))
        return
    kept = table("pubends", "pubend", "messages", "bytes", "oldest", "newest", "")
    names = table("durable names", "name", "pubend", "lag", "last heard of", "reader", "reads")
    shares = table("shared names", "name", "pubend", "member", "outstanding", "redelivered", "failed", "")
    for pubend in sorted(found["pubends"], key=lambda one: str(one["pubend"])):
        state = plain(pubend["problem"]) or ("[green]ready[/]" if pubend["ready"] else "[yellow]starting[/]")
        sizes = (f"{pubend['entries']:,}", f"{pubend['bytes']:,}")
        kept.add_row(plain(pubend["pubend"]), *sizes, _at(pubend["first"]), _at(pubend["last"]), state)
        for name in pubend["names"]:
            who = (_readers(name), plain(name["where"], WHERE_SHOWN_MAX))
            names.add_row(plain(name["name"]), plain(pubend["pubend"]), _lag(name), _at(name["seen"]), *who)
            for row in _share_rows(name):
                shares.add_row(plain(name["name"]), plain(pubend["pubend"]), *row)
        left_out = pubend["names_in_all"] - len(pubend["names"])
        if left_out > 0 and not durable:
            names.add_row(f"and {left_out} more", plain(pubend["pubend"]))
    _print(kept)
    for slowed in drawn_limits(found["pubends"], time()):
        _print(slowed)
    _print(names if names.row_count else "nobody reads it under a durable name")
    if shares.row_count:
        _print(shares)


@app.command("failed")
def failed_command(
    stream: Name,
    durable: Annotated[str, typer.Option(help="The shared name.")],
    redeliver: Annotated[bool, typer.Option("--redeliver", help="Let them be tried again.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Forget them: they are done with.")] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List the messages that were tried too often under a shared name; or try them again, or forget them.

    Example: penstock stream failed orders --durable billing --redeliver
    """

    async def ask(network: Network) -> Any:
        if drop:
            _check(yes, f"forget all messages of {stream} that failed under {durable}")
        return await network.stream(stream).failed(durable=durable, redeliver=redeliver, drop=drop)

    found = _asked(url, ask)
    if as_json:
        typer.echo(json.dumps(found))
        return
    rows = table("", "pubend", "tick", "stored at", "attempts")
    for pubend in found["pubends"]:
        for one in pubend["failed"]:
            rows.add_row(plain(pubend["pubend"]), str(one["tick"]), _at(one["tick"]), str(one["attempts"]))
    _print(rows if rows.row_count else "nothing has failed under this name")
    for what in ("redelivered", "dropped"):
        if any(what in pubend for pubend in found["pubends"]):
            typer.echo(f"{sum(pubend.get(what, 0) for pubend in found['pubends']):,} {what}")


@app.command("trim")
def trim_command(
    stream: Name,
    upto: Annotated[str, typer.Option(help="Delete all up to this tick, this time, or so long ago, such as 10m.")],
    force: Annotated[bool, typer.Option("--force", help="Also what a durable name has not read.")] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest messages of a stream; with --force also those that a durable name has not read.

    Readers that have missed any get a gap notice.

    Example: penstock stream trim orders --upto 2h
    """

    async def trim(network: Network) -> Any:
        start_on_wire(upto, "upto")
        _check(yes, f"delete all messages of {await _size(network, stream)} up to {upto}")
        return await network.stream(stream).trim(upto=upto, force=force)

    found = _asked(url, trim)
    entries = sum(pubend["entries"] for pubend in found["pubends"])
    _tell(found, as_json, f"{several(entries, 'message')} of {stream} {'is' if entries == 1 else 'are'} deleted")


@app.command("rm")
def rm_command(
    stream: Name,
    durable: Annotated[str, typer.Option(help="Only this durable name, with its position.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Also while somebody reads under the name.")] = False,
    yes: Yes = False,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Delete a stream with all its messages and durable names; or one durable name.

    Example: penstock stream rm orders --durable billing
    """

    async def remove(network: Network) -> Any:
        size = await _size(network, stream)
        _check(yes, f"forget the durable name {durable} of {size}" if durable else f"delete {size}")
        return await network.stream(stream).remove(durable=durable, force=force or not durable)

    found = _asked(url, remove)
    _tell(found, as_json, f"{durable} of {stream} is forgotten" if durable else f"the stream {stream} is deleted")


@app.command("verify")
def verify_command(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="The stream; with --data, all by default.")] = "",
    data: Annotated[
        Path | None, typer.Option(help="Read the files of this folder; their brokers must not run.")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="Read what is stored there, likewise.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Read all that is stored of a stream, and check every entry. Nothing is changed.

    Examples: penstock stream verify orders; penstock stream verify --data penstock-data/town
    """
    place = one_place(data, store)
    if place is None and not stream:
        raise typer.BadParameter("name a stream, or a folder with --data", param_hint="STREAM")
    if place is None:
        found = _asked(url, lambda network: network.stream(stream).verify())["pubends"]
    else:
        found = _verified(place, stream)
    if as_json:
        typer.echo(json.dumps({"pubends": found}))
    else:
        rows = table("", "pubend", "messages", "bytes", "")
        for pubend in found:
            state = f"[red]{plain(pubend['damage'])}[/]" if pubend["damage"] else "[green]whole[/]"
            sizes = (f"{pubend.get('entries', 0):,}", f"{pubend.get('bytes', 0):,}")
            rows.add_row(plain(pubend["pubend"] or pubend["file"]), *sizes, state)
        _print(rows if found else "nothing is stored there")
    if any(pubend["damage"] for pubend in found):
        raise typer.Exit(1)


# Parts.


def _asked(url: str | None, ask: Callable[[Network], Awaitable[Any]]) -> Any:
    """What the network answers."""

    async def answer() -> Any:
        from penstock.live.client.network import connect

        async with connect(url, connect_within=CONNECT_WITHIN) as network:
            return await ask(network)

    return run_client(answer())


async def _size(network: Network, stream: str) -> str:
    """The stream, and how much it is that would be deleted."""
    pubends = (await network.stream(stream).info())["pubends"]
    entries, names = sum(one["entries"] for one in pubends), max((one["names_in_all"] for one in pubends), default=0)
    return f"the stream {stream} ({several(entries, 'message')}, {several(names, 'durable name')})"


def _check(yes: bool, what: str) -> None:
    """Ask before anything is deleted."""
    if yes:
        return
    if not sys.stdin.isatty():
        problem = f"this would {what}; nobody can be asked here; add --yes if you mean it"
        raise typer.BadParameter(problem, param_hint="--yes")
    typer.confirm(f"{what}?", abort=True, err=True)


def _verified(place: Place, stream: str) -> list[dict[str, Any]]:
    """What is in the stores of brokers: an area of the service is a pubend."""
    from penstock.live.store.place import verify_place
    from penstock.streams.service import STREAMS

    found = []
    for file, verdicts in verify_place(place).items():
        for verdict in verdicts:
            service, _, pubend = verdict.area.partition("/")
            ours = service == STREAMS.name and pubend and stream in ("", stream_of(pubend))
            if not ours and not verdict.problem:
                continue  # what is damaged is said, whatever it is
            sizes = {"entries": verdict.entries, "bytes": verdict.bytes}
            found.append({"pubend": pubend or verdict.area, "file": file, **sizes, "damage": verdict.problem})
    return found


def _tell(found: dict[str, Any], as_json: bool, words: str) -> None:
    typer.echo(json.dumps(found) if as_json else words)


def _print(what: Any) -> None:
    from rich.console import Console

    Console().print(what)


def _at(moment: float) -> str:
    """A tick or a time for people."""
    seconds = moment / 1e6 if moment > 1e12 else moment
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S") if seconds else ""


def _readers(name: dict[str, Any]) -> str:
    """Who reads under a durable name."""
    share = name.get("share")
    if share is None:
        return plain(client_of(name["reader"])) or "nobody"
    return f"{share['members_in_all']} members" if share["members_in_all"] else "nobody"


def _share_rows(name: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """A row for each member of a shared name, under one for all of them."""
    share = name.get("share")
    if share is None:
        return []
    words = plain(share["problem"]) or (
        f"failed ones go to {plain(share['failed_stream'])}" * bool(share["failed_stream"])
    )
    failed = f"{share['failed']:,}" + (f", {share['moved']:,} moved" if share["failed_stream"] else "")
    rows = [("all", f"{share['outstanding']:,}", f"{share['redelivered']:,}", failed, words)]
    for member in share["members"]:
        state = "[yellow]stalled[/]" if member["stalled"] else ""
        rows.append((plain(client_of(member["reader"])), f"{member['outstanding']:,}", "", "", state))
    return rows


def _lag(name: dict[str, Any]) -> str:
    if name["lag"] is None:
        return "unknown"
    gap = ", and a gap" if name["has_gap"] else ""
    return f"{name['lag']:,}{'' if name['lag_is_exact'] else ' or more'}{gap}"
