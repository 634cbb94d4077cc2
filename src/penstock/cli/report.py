"""`penstock report`: what a broker sees: its links, queues, drops and clients."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from penstock.cli.clients import CONNECT_WITHIN, AsJson, Url, run_client


def report_command(
    url: Url = None,
    watch: Annotated[float | None, typer.Option(help="Ask again every so many seconds.", min=0.1)] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a broker what it sees.

    Example: penstock report --url penstock://127.0.0.1:7421
    """
    run_client(_report(url, watch, as_json))


async def _report(url: str | None, watch: float | None, as_json: bool) -> None:
    import asyncio

    from penstock.live.client import connect

    async with connect(url, connect_within=CONNECT_WITHIN) as network:
        while True:
            found = await network.broker_report()
            # We are a client ourselves, and nobody asked about us.
            found["clients"] = [client for client in found["clients"] if client["client"] != network.name]
            found["clients_connected"] -= 1
            if as_json:
                typer.echo(json.dumps(found))
            else:
                _show(found)
            if watch is None:
                return
            await asyncio.sleep(watch)
            await network.wait_connected()


def _show(found: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    def table(title: str, *headings: str) -> Table:
        made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading in headings:
            right = heading in ("queue", "sent", "bytes", "received", "wishes", "packets", "missing")
            made.add_column(heading, justify="right" if right else "left", overflow="fold")
        return made

    console = Console()
    console.print(
        f"[bold]{found['broker']}[/] at {found['listen']}, up for {found['uptime']:.0f} s;"
        f" {found['brokers_reachable']} other brokers can be reached;"
        f" {found['clients_connected']} clients; input refused {found['refused']} times",
        highlight=False,
    )
    if found["links"]:
        links = table("links", "to", "kind", "", "queue", "sent", "bytes", "received", "missing")
        for link in found["links"]:
            state = "[green]up[/]" if link["up"] else "[red]down[/]"
            links.add_row(link["peer"], link["kind"], state, *_counts(link), str(link["missing_datagrams"] or ""))
        console.print(links)
    if found["clients"]:
        clients = table("clients", "client", "from", "wishes", "queue", "sent", "bytes", "received")
        for client in found["clients"]:
            clients.add_row(client["client"], client["address"], str(client["subscriptions"]), *_counts(client))
        console.print(clients)
    if found["drops"]:
        drops = table("drops", "towards", "place", "cause", "packets")
        for drop in found["drops"]:
            drops.add_row(drop["peer"], drop["place"], drop["cause"], f"{drop['packets']:,}")
        console.print(drops)
    else:
        console.print("nothing was dropped")


def _counts(port: dict[str, Any]) -> tuple[str, str, str, str]:
    queue = f"{port['queued']} of {port['queue_max']}"
    return queue, f"{port['sent_packets']:,}", f"{port['sent_bytes']:,}", f"{port['received_packets']:,}"
