"""`penstock report`: what a broker sees, and who slows whom in the whole network.

The broker says what it knows: its links, queues, drops and clients; which of its links are full, and which full links,
here or elsewhere, and which slow readers kept its clients' messages from whom. Subscribers that slow publishers down by
congestion control it does not know; that is asked of the publishers, wherever they are, and who is slowed down
answers. Names and filters in their answers are others' words, so they are shown without anything that a terminal would
obey.

With `--watch` a terminal shows the last report in the place of the one before; what is piped gets one after the other,
with an empty line between them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.clients import CONNECT_WITHIN, AsJson, Url, run_client
from penstock.kernel.rate_estimator import rate_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, Group, RenderableType
    from rich.table import Table

WIDTH_MAX = 1_000
FLOW_SHOWN_MAX = 40  # characters; --json has all of them
STREAMS, PRICING, RATES, RETRIEVAL = (
    "streams",
    "pricing",
    "rates",
    "retrieval",
)  # services that have tables of their own
REPORTS = "reports"  # of which nothing is said while nobody is silent
BITS_SHOWN_MAX = 20  # of a flow that is known by its bits alone, which nobody reads
RIGHT = (
    "balance",
    "buffer",
    "costs",
    "price",
    "cached",
    "downstream",
    "longest",
    "last alert",
    "lag",
    "messages",
    "names",
    "readers",
    "round trip",
    "pubends",
    "queue",
    "sent",
    "bytes",
    "received",
    "subs",
    "packets",
    "resent",
    "each publisher",
    "publishers",
    "load",
    "capacity",
    "backlog",
    "missing",
    "takes at most",
    "waiting",
    "since",
    *("deliveries", "p50", "p99", "largest", "due", "missed", "late", "withheld", "stored", "delivered"),
)


def report_command(
    url: Url = None,
    watch: Annotated[
        float | None, typer.Option(help="Ask again every so many seconds, and redraw.", metavar="SECONDS", min=0.1)
    ] = None,
    listen: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long to listen for publishers that say who slows them down; 0: do not ask them.",
            min=0.0,
            max=60.0,
        ),
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Ask a broker what it sees, and all publishers who slows them down.

    Publishers that nobody slows down do not answer. An answer may be lost; with --listen 3 there is time for a second.

    Example: penstock report --url penstock://127.0.0.1:7421
    """
    run_client(_report(url, watch, listen, as_json))


async def _report(url: str | None, watch: float | None, listen: float, as_json: bool) -> None:
    import asyncio

    from penstock.live.client.network import connect
    from penstock.transport.config import TransportConfig

    # All that we need of the transport is an inbox.
    transport = TransportConfig(publisher_answers=False, answers=False) if listen else None
    async with connect(url, transport=transport, connect_within=CONNECT_WITHIN) as network:
        with Display(console(), redraws=watch is not None and not as_json) as display:
            while True:
                found = await network.broker_report()
                # We are a client ourselves, and nobody asked about us.
                found["clients"] = [client for client in found["clients"] if client["client"] != network.name]
                found["clients_connected"] -= 1
                found["slowed"] = [asdict(each) for each in await network.slowed(within=listen)] if listen else None
                if as_json:
                    typer.echo(json.dumps(found))
                else:
                    display.show(found)
                if watch is None:
                    return
                await asyncio.sleep(max(0.0, watch - listen))
                await network.wait_connected()


def console() -> Console:
    """Where tables go; what is no terminal has no width, and is read by programs or kept."""
    from rich.console import Console

    shown = Console()
    return shown if shown.is_terminal or "COLUMNS" in os.environ else Console(width=WIDTH_MAX)


def table(title: str, *headings: str) -> Table:
    """An empty table in the way of all commands."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in headings:
        number = heading in RIGHT  # what cannot be shortened; names fold where there is no room
        made.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=number)
    return made


class Display:
    """Where reports go: one after the other, or on a terminal each in the place of the one before."""

    def __init__(
        self, console: Console, *, redraws: bool, draw: Callable[[dict[str, Any]], Group] | None = None
    ) -> None:
        from rich.live import Live

        self._draw = draw or _drawn

        self._console = console
        self._live = Live(console=console, auto_refresh=False) if redraws and console.is_terminal else None
        self._shown = 0

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, found: dict[str, Any]) -> None:
        """One more report."""
        if self._live is not None:
            self._live.update(self._draw(found), refresh=True)
            return
        if self._shown:
            self._console.print()
        self._shown += 1
        self._console.print(self._draw(found))


def _drawn(found: dict[str, Any]) -> Group:
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    parts.append(
        Text.from_markup(
            f"[bold]{plain(found['broker'])}[/] at {plain(str(found['listen']))}, up for {found['uptime']:.0f} s;"
            f" {several(found['brokers_reachable'], 'other broker')} can be reached;"
            f" {several(found['clients_connected'], 'client')}; input refused {several(found['refused'], 'time')}",
        )
    )
    trace = found.get("trace")
    if trace and trace["problem"]:
        parts.append(Text.from_markup(f"[red]its trace has stopped[/]: {plain(trace['problem'])}"))
    if found["links"]:
        links = table("links", "to", "kind", "", "queue", "sent", "bytes", "received", "missing", "resent")
        for link in found["links"]:
            state = "[green]up[/]" if link["up"] else "[red]down[/]"
            missing = str(link["missing_datagrams"] or "")
            repaired = str(link.get("repaired_datagrams") or "")
            links.add_row(plain(link["peer"]), link["kind"], state, *_counts(link), missing, repaired)
        parts.append(links)
    if found["clients"]:
        clients = table("clients", "client", "from", "subs", "queue", "sent", "bytes", "received")
        for client in found["clients"]:
            subscriptions = str(client["subscriptions"])
            clients.add_row(plain(client["client"]), plain(str(client["address"])), subscriptions, *_counts(client))
        parts.append(clients)
    if found["drops"]:
        drops = table("drops", "towards", "place", "cause", "packets")
        for drop in found["drops"]:
            drops.add_row(plain(drop["peer"]), drop["place"], drop["cause"], f"{drop['packets']:,}")
        parts.append(drops)
    else:
        parts.append("nothing was dropped")
    for service, status in found["services"].items():
        if service == STREAMS:
            parts += _drawn_streams(status, found.get("incarnation", 0) / 1000 + found["uptime"])
            continue
        if service == PRICING:
            parts += drawn_prices(status)
            continue
        if service == RATES:
            parts += drawn_rates(status)
            continue
        if service == RETRIEVAL:
            parts += drawn_cache(status)
            continue
        if service == REPORTS and not any(status.values()):
            continue
        words = ", ".join(f"{name.replace('_', ' ')} {plain(json.dumps(value))}" for name, value in status.items())
        parts.append(Text.from_markup(f"{plain(service)}: {words}"))
    rates = found["services"].get(RATES, {})
    if found["slowed"] or (found["slowed"] is not None and not rates.get("withheld") and not rates.get("slow_readers")):
        parts += _drawn_slowed(found["slowed"])
    return Group(*parts)


def _drawn_streams(status: dict[str, Any], now: float) -> list[RenderableType]:
    """What is stored here, what is slowed down, and what passes by; `now` is the broker's."""
    parts: list[RenderableType] = []
    if status["pubends"]:
        rows = table("streams stored here", "pubend", "messages", "bytes", "waiting", "names", "readers", "")
        for pubend in status["pubends"]:
            state = f"[red]{plain(pubend['problem'])}[/]" if pubend["problem"] else ""
            state = state or ("[green]ready[/]" if pubend["ready"] else "[yellow]starting[/]")
            counts = [f"{pubend[name]:,}" for name in ("entries", "log_bytes", "waiting", "names", "readers")]
            rows.add_row(plain(pubend["pubend"]), *counts, state)
        parts.append(rows)
        parts += drawn_limits(status["pubends"], now)
    if status["relays"]:
        rows = table("streams that pass here", "pubend", "downstream", "cached", "bytes", "round trip")
        for relay in status["relays"]:
            counts = [f"{relay[name]:,}" for name in ("downstream", "cached", "cached_bytes")]
            took = relay["round_trip"]
            rows.add_row(plain(relay["pubend"]), *counts, "" if took is None else f"{took * 1000:.1f} ms")
        parts.append(rows)
    if status["readers"]:
        parts.append(f"{several(status['readers'], 'durable subscription')} of its clients")
    return parts


def drawn_rates(status: dict[str, Any]) -> list[RenderableType]:
    """Busy links and what they give each publisher, and whose messages were withheld from whom."""
    parts: list[RenderableType] = []
    if status["links"]:
        rows = table("busy links", "to", "each publisher", "publishers", "load", "capacity", "backlog")
        for neighbour, link in sorted(status["links"].items()):
            load = (link["offered"] + link["other"]) / link["capacity"]
            rates = (f"{link['rate'] / 1e3:,.1f} kB/s", str(link["publishers"]), f"{load:.0%}")
            rows.add_row(plain(neighbour), *rates, f"{link['capacity'] / 1e3:,.1f} kB/s", f"{link['backlog']:.2f} s")
        parts.append(rows)
    if status["withheld"]:
        rows = table("who slows whom: full links", "publisher", "link", "takes at most", "not to", "messages", "since")
        for one in status["withheld"]:
            link = plain(" - ".join(one["link"]))
            rate = f"{one['rate'] / 1e3:,.1f} kB/s" if one["rate"] else "no limit now"
            counts = (f"{one['messages']:,}", f"{one['seconds']:.0f} s")
            rows.add_row(plain(one["publisher"]), link, rate, plain(one["destination"]), *counts)
        parts.append(rows)
    if status["withheld_from_readers"]:
        if status["slow_readers"]:
            rows = table("who slows whom: slow readers", "reader", "subscription", "takes at most", "messages")
            for one in status["slow_readers"]:
                rate = f"{rate_text(one['rate'])}/s" if one["rate"] else "no limit now"
                rows.add_row(plain(one["client"]), str(one["subscription"]), rate, f"{one['messages']:,}")
            parts.append(rows)
        parts.append(f"{status['withheld_from_readers']:,} deliveries were withheld from clients that read slowly")
    return parts


# What of a cache's status is said where it is not 0, in this order.
CACHE_WORDS = {
    "pending": "not sent anywhere yet",
    "overflowing": "left over by those who asked",
    "disseminated": "sent to others",
    "evicted": "evicted",
    "interests": "interests that wait",
    "own_interests": "of them of our clients",
    "refused": "interests refused, no room",
    "unreceipted": "packets without a receipt",
    "resent": "sent again",
}


def drawn_cache(status: dict[str, Any]) -> list[RenderableType]:
    """What is cached for late readers; nothing where nothing was cached and nobody asked."""
    said = [f"{status[name]:,} {words}" for name, words in CACHE_WORDS.items() if status.get(name)]
    said += [f"{value:,} {plain(name)}" for name, value in status.get("counts", {}).items() if value]
    if not said and not status["cached"]:
        return []
    where = "on disk" if status["stored"] else "in memory"
    held, beside = status["cached"] - status["waiting"], status["waiting"]
    head = f"retrieval: cached {held:,} of {status['cache_size']:,} messages, {where}"
    if beside:
        head += f", and {beside:,} more, sorted in when somebody asks"
    return [f"{head}; {', '.join(said)}" if said else head]


def drawn_prices(status: dict[str, Any]) -> list[RenderableType]:
    """What links cost, and whose messages wait for money; nothing where nothing is priced."""
    parts: list[RenderableType] = []
    if status["links"]:
        rows = table("prices of links", "to", "buffer", "price")
        for neighbour, link in status["links"].items():
            rows.add_row(plain(neighbour), f"{link['buffer']:.1f}", f"{link['price']:.2f}")
        parts.append(rows)
    elif not status["waiting"]:
        return []
    if not status["waiting"]:
        return [*parts, "no priced message waits for money"]
    heads = ("client", "to", "waiting", "since", "balance", "price", "dearest link", "costs")
    rows = table("priced messages that wait", *heads)
    for client, flows in status["waiting"].items():
        for flow in flows:
            rows.add_row(plain(client), *_drawn_account(flow))
    parts.append(rows)
    more = status["waiting_in_all"] - len(status["waiting"])
    return [*parts, f"and those of {several(more, 'more client')}"] if more else parts


def _drawn_account(flow: dict[str, Any]) -> list[str]:
    names = flow["receivers"]
    more = flow["receivers_in_all"] - len(names)
    receivers = ", ".join(names) + (f" and {more} more" if more else "")
    blocked, dearest = flow["blocked_for"], flow["dearest_link"]
    return [
        plain(receivers, FLOW_SHOWN_MAX),
        f"{flow['waiting']:,}",
        "" if blocked is None else f"{blocked:.1f} s",
        f"{flow['balance']:.2f}",
        f"{flow['price']:.2f}",
        "" if dearest is None else plain(" - ".join(dearest)),
        "" if dearest is None else f"{flow['dearest_price']:.2f}",
    ]


def drawn_limits(pubends: list[dict[str, Any]], now: float) -> list[RenderableType]:
    """Pubends that congestion control has limited, and why; nothing if there are none."""
    limited = [pubend for pubend in pubends if pubend.get("limit")]
    if not limited:
        return []
    heads = ("pubend", "takes at most", "since", "waiting", "longest", "last alert", "because")
    rows = table("streams whose publishers are slowed down", *heads)
    for pubend in limited:
        limit, oldest = pubend["limit"], pubend["waiting_since"]
        rows.add_row(
            plain(pubend["pubend"]),
            f"{rate_text(limit['rate'])}/s",
            _ago(limit["since"], now),
            f"{pubend['waiting']:,}",
            "" if oldest is None else f"{max(0.0, now - oldest):.1f} s",
            f"{_ago(limit['told_at'], now)} ago",
            plain(limit["reason"]),
        )
    return [rows]


def _ago(moment: float, now: float) -> str:
    return f"{max(0.0, now - moment):.0f} s"


def several(count: int, what: str) -> str:
    """A count with its noun."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _drawn_slowed(slowed: list[dict[str, Any]]) -> list[RenderableType]:
    from rich.text import Text

    if not slowed:
        return ["nobody slows anybody"]
    rows = table("who slows whom: subscribers", "publisher", "flow", "takes at most", "because of", "waiting", "since")
    for each in slowed:
        quota, flow = each["quota"], each["flow"]
        rows.add_row(
            plain(each["publisher"]),
            plain(flow, BITS_SHOWN_MAX if flow.startswith("bits ") else FLOW_SHOWN_MAX),
            f"{rate_text(quota)}/s",
            plain(each["limiting_receiver"]),
            f"{each['queue']:,}",
            f"{each['since']:.0f} s",
        )
    parts: list[RenderableType] = [rows]
    shown = Counter(each["publisher"] for each in slowed)
    for publisher, last in {each["publisher"]: each for each in slowed}.items():
        more, withheld = last["flows_in_all"] - shown[publisher], last["withheld"]
        words = [several(more, "more flow")] * (more > 0)
        words += [f"{several(withheld, 'message')} withheld"] * (withheld > 0)
        if words:
            parts.append(Text.from_markup(f"{plain(publisher)}: {', '.join(words)}"))
    return parts


def plain(text: str, length_max: int = 256) -> str:
    """Others' words, as they may be printed: no markup, no control characters."""
    from rich.markup import escape

    shown = "".join(letter if letter.isprintable() else "·" for letter in text)
    return escape(shown if len(shown) <= length_max else shown[: length_max - 1] + "…")


def _counts(port: dict[str, Any]) -> tuple[str, str, str, str]:
    queue = f"{port['queued']}/{port['queue_max']}"
    return queue, f"{port['sent_packets']:,}", f"{port['sent_bytes']:,}", f"{port['received_packets']:,}"
