"""`penstock broker`: one broker in this process, alone or as one of a network file."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.clients import AsJson
from penstock.cli.data_folder import DataFolder, StoreUrl, data_place, one_place

if TYPE_CHECKING:
    from penstock.live.broker.plan import BrokerPlan
    from penstock.live.store.place import Place


def broker_command(
    name: Annotated[str, typer.Argument(help="The broker's name in the network file.")] = "broker",
    network: Annotated[Path | None, typer.Option(help="A network file; without it the broker is alone.")] = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where to listen; on loopback unless you say otherwise.")
    ] = None,
    base_port: Annotated[int, typer.Option(help="Ports of the file's brokers are counted from here.")] = 7420,
    trace: Annotated[Path | None, typer.Option(help="Write this broker's part of a trace into this folder.")] = None,
    data: DataFolder = None,
    store: StoreUrl = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say who comes and goes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run one broker until Ctrl-C or SIGTERM, which let its queues drain first.

    Example: penstock broker north --network networks/town.toml
    """
    from penstock.live.event_loop import run
    from penstock.live.process_name import call_process

    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s")
    plan, place = _plan(name, network, listen, base_port, data, store)
    call_process(f"penstock {name}")
    run(_serve(plan, trace, place, as_json))


def _plan(
    name: str, network: Path | None, listen: str | None, base_port: int, data: Path | None, store: str | None
) -> tuple[BrokerPlan, Place | None]:
    """What the broker must know, and where it stores its streams."""
    from penstock.live.broker.plan import BrokerPlan, assign_addresses, plan_for
    from penstock.live.wire.addresses import Address, parse_address
    from penstock.scenario.reader import read_scenario

    chosen = parse_address(listen) if listen is not None else None
    if network is None:
        return BrokerPlan(name=name, listen=chosen or Address("127.0.0.1", base_port)), one_place(data, store)
    scenario = read_scenario(network)
    addresses = assign_addresses(scenario, base_port=base_port)
    if chosen is not None:
        addresses[name] = chosen
    return plan_for(scenario, name, addresses), data_place(scenario, data, store)


async def _serve(plan: BrokerPlan, folder: Path | None, data: Place | None, as_json: bool) -> None:
    from penstock.live.broker.server import BrokerServer
    from penstock.live.event_loop import stop_on_signals, warn_of_failed_accepts
    from penstock.live.trace import open_trace

    stop = stop_on_signals()
    warn_of_failed_accepts(logging.getLogger("penstock.broker"), plan.name)
    trace = open_trace(folder, plan.name, began=time.time()) if folder is not None else None
    server = BrokerServer(plan, trace=trace, data=data)
    await server.start()
    if as_json:
        typer.echo(json.dumps({"broker": plan.name, "url": f"penstock://{server.address}"}))
    typer.echo(f"broker {plan.name} listens at penstock://{server.address}; Ctrl-C stops it", err=True)
    await stop.wait()
    await server.stop()
