"""`penstock pipeline watch`: the pipeline's tables of a network that runs, anew every few seconds."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.clients import INTERRUPTED, AsJson
from penstock.cli.progress import progress_bar
from penstock.cli.report import Display, plain, several, table
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from penstock.pipeline.watch.query import TraceWatch

LAST_RECORDS = 2.5  # seconds: nodes send theirs every second, and Spark takes them every second


def watch_command(
    url: Annotated[str, typer.Argument(help="A broker, such as penstock://127.0.0.1:7420, or several.")],
    out: Annotated[
        Path | None, typer.Option(help="Where records and tables go; one that exists is gone on with.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Between two updates.", min=1.0)] = 5.0,
    lasts: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="End by itself after so long.", min=1.0)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Take what `_trace` has, and end; switches nothing on.")] = False,
    sample: Annotated[
        int | None, typer.Option(metavar="N", help="Record one in N messages; as it is if not given.", min=1)
    ] = None,
    keep: Annotated[
        float, typer.Option(metavar="SECONDS", help="Measure the last so many seconds; 0: all there is.", min=0.0)
    ] = 600.0,
    at: Annotated[
        list[str] | None,
        typer.Option("--at", metavar="BROKER", help="Where records are kept, if nowhere yet."),
    ] = None,
    master: Annotated[str | None, typer.Option(help="Where Spark works; this machine if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure a network while it runs: rates, delays, losses, order and flows, as tables of Spark.

    All brokers and clients send their records to the stream `_trace` for as long as somebody watches, and a minute
    longer. The tables are those of `penstock pipeline run`, under OUT/metrics as Parquet, and shown here.

    Example: penstock pipeline watch penstock://127.0.0.1:7420 --for 60
    """
    from penstock.kernel.trace import TRACE_STREAM
    from penstock.live.client.blocking import connect_blocking
    from penstock.pipeline.session import spark_session
    from penstock.pipeline.watch.query import Lease, watching

    lease = Lease(url, one_in=sample or 0, at=at or ())
    if once:
        with connect_blocking(url) as network:  # before Spark starts
            state = network.trace()
            if not any(stream["stream"] == TRACE_STREAM for stream in network.streams()):
                raise PenstockError("the network has recorded nothing; begin with: penstock trace on")
    else:
        state = lease.open()
    folder = out or Path("runs") / "watch" / time.strftime("%Y%m%d-%H%M%S")
    began = state["since"] or time.time()
    try:
        with progress_bar("starting Spark"):
            spark = spark_session(master, fast=True)
        typer.echo(f"records and tables go to {folder}", err=True)
        with (
            ctrl_c() as asked,
            watching(spark, url, folder, began=began, keep=keep or inf, once=once) as watch,
        ):
            _show(watch, every, inf if lasts is None else lasts, asked, as_json, once=once)
        if asked.is_set():
            raise typer.Exit(INTERRUPTED)
    finally:
        lease.close()


@contextmanager
def ctrl_c() -> Iterator[threading.Event]:
    """Ctrl-C asks to end when Spark is asked nothing; its own handler would break into a question. Twice: at once."""
    asked, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _show(watch: TraceWatch, every: float, lasts: float, asked: threading.Event, as_json: bool, *, once: bool) -> None:
    from rich.console import Console

    from penstock.pipeline.watch.view import view

    end = time.monotonic() + lasts
    shown: dict[str, Any] | None = None
    with Display(Console(), redraws=not (as_json or once), draw=drawn) as display:
        while True:
            watch.check()
            if watch.folder.state.batch >= 0:  # nothing has come yet
                found = view(watch.folder, watch.measure())
                if as_json:
                    typer.echo(json.dumps(found))
                elif found != shown:  # what has not changed is not said again
                    display.show(found)
                shown = found
            elif once:
                typer.echo("the stream `_trace` has no records", err=True)
            left = end - time.monotonic()
            if once or left <= 0 or asked.is_set():
                return
            if not watch.wait(min(every, left), asked):
                watch.check()
                return
            if asked.is_set() or time.monotonic() >= end:
                watch.wait(LAST_RECORDS, threading.Event())  # what was recorded until now is on its way


def drawn(found: dict[str, Any]) -> Group:
    """One update, for people."""
    from rich.console import Group
    from rich.text import Text

    nodes = f"{several(found['brokers'], 'broker')} and {several(found['clients'], 'client')}"
    head = (
        f"[bold]{found['until']:,.0f} s[/] of {nodes}: {found['published_per_s']:,.0f}/s published,"
        f" {found['delivered_per_s']:,.0f}/s delivered; p50 {_ms(found['delay_p50'])}, p99 {_ms(found['delay_p99'])};"
        f" {found['missed']:,} of {found['due']:,} missed; {found['fifo_violations']:,} late;"
        f" {found['dropped']:,} dropped"
    )
    parts: list[RenderableType] = [Text.from_markup(head)]
    parts += [Text.from_markup(f"[yellow]{note}[/]") for note in notes(found)]
    delays = table("slowest", "publisher", "client", "deliveries", "p50", "p99", "largest")
    for row in found["delays"]:
        times = (_ms(row["p50"]), _ms(row["p99"]), _ms(row["maximum"]))
        delays.add_row(plain(row["publisher"]), plain(row["client"]), f"{row['deliveries']:,}", *times)
    losses = table("missed", "publisher", "client", "due", "missed")
    for row in found["losses"]:
        if row["missed"]:
            losses.add_row(plain(row["publisher"]), plain(row["client"]), f"{row['due']:,}", f"{row['missed']:,}")
    drops = table("dropped", "at", "to", "place", "cause", "packets")
    for row in found["drops"]:
        where = (row["node"], row["peer"], row["place"], row["cause"])
        drops.add_row(*map(plain, where), f"{row['packets']:,}")
    order = table("out of order", "publisher", "client", "received", "late")
    for row in found["order"]:
        if row["violations"]:
            late = (f"{row['received']:,}", f"{row['violations']:,}")
            order.add_row(plain(row["publisher"]), plain(row["client"]), *late)
    flows = table("who slows whom", "publisher", "flow", "takes at most", "because of", "withheld")
    for row in found["flows"]:
        who = (plain(row["publisher"]), plain(row["flow"]), f"{row['quota']:,.0f}/s", plain(row["limiting_receiver"]))
        flows.add_row(*who, f"{row['withheld']:,}")
    streams = table("streams", "pubend", "durable", "stored", "delivered", "missed", "waiting")
    for row in found["streams"]:
        counts = (f"{row[name]:,}" for name in ("stored", "delivered", "missed", "waiting"))
        streams.add_row(plain(row["pubend"]), plain(row["durable"]), *counts)
    parts += [rows for rows in (delays, losses, drops, order, flows, streams) if rows.row_count]
    return Group(*parts)


def notes(found: dict[str, Any]) -> list[str]:
    """What a reader of the numbers must know."""
    said = []
    if found["one_in"] > 1:
        said.append(f"one in {found['one_in']:,} messages is recorded; the two rates count all of them")
    if found["left_out"]:
        who = ", ".join(f"{plain(node)} {count:,}" for node, count in found["left_out_by"].items())
        said.append(
            f"{found['left_out']:,} records were left out, because there were too many ({who}): what was published then"
            " is not judged; record fewer with --sample"
        )
    if found["lost_batches"]:
        said.append(f"{several(found['lost_batches'], 'message')} with records went before they were read")
    if found["silent"]:
        said.append(f"not heard of any more: {', '.join(map(plain, found['silent']))}")
    if found["refused"]:
        said.append(f"without {several(found['refused'], 'message')} in `_trace` with no records that we can read")
    return said


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.1f} ms"
