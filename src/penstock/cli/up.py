"""`penstock up`: all brokers of a network as processes, with one command; Ctrl-C stops them all."""

from __future__ import annotations

import errno
import json
import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.clients import AsJson
from penstock.cli.data_folder import DataFolder, StoreUrl, data_place
from penstock.errors import NotPossibleHere

if TYPE_CHECKING:
    from penstock.kernel.trace import Trace
    from penstock.live.broker.applied import SettingApplied
    from penstock.live.broker.supervisor import Brokers
    from penstock.live.wire.addresses import Address
    from penstock.scenario.runs import RunOutcome
    from penstock.scenario.spec import Scenario


def up_command(
    file: Annotated[Path | None, typer.Argument(help="A network file; without it one broker is started.")] = None,
    base_port: Annotated[int, typer.Option(help="The first port; 0 takes whatever is free.", min=0, max=65_535)] = 7420,
    host: Annotated[
        str,
        typer.Option("--listen", metavar="HOST", help="Where all listen; on loopback by default."),
    ] = "127.0.0.1",
    trace: Annotated[Path | None, typer.Option(help="Write what brokers record into this folder, as a run.")] = None,
    data: DataFolder = None,
    store: StoreUrl = None,
    restart: Annotated[bool, typer.Option(help="Restart a broker that dies.")] = True,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say who comes and goes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a network of broker processes, and keep it running until Ctrl-C.

    A table says which settings of the file apply in real time, and which do not. With --json there is a line for each
    broker, then one for each setting.

    Examples: penstock up; penstock up networks/town.toml; penstock up --data streams
    """
    from penstock.live.broker.applied import settings_applied
    from penstock.live.broker.plan import assign_addresses
    from penstock.live.broker.supervisor import Brokers
    from penstock.live.event_loop import run
    from penstock.scenario.reader import read_scenario
    from penstock.scenario.spec import BrokerSpec, Scenario

    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(message)s")
    alone = Scenario(name="one broker", broker=(BrokerSpec(name="broker"),))
    scenario = alone if file is None else read_scenario(file)
    addresses = assign_addresses(scenario, host=host, base_port=base_port or None)
    check_ports(addresses, scenario)
    applied = settings_applied(scenario)
    place = data_place(scenario, data, store)
    brokers = Brokers(scenario, addresses, trace=trace, data=place, restart=restart, verbose=verbose)
    if trace is None:
        run(_keep_up(brokers, applied, as_json))
    else:
        _keep_up_traced(scenario, brokers, applied, trace, as_json)


def check_ports(addresses: Mapping[str, Address], scenario: Scenario) -> None:
    """Before anything is made or stored: nobody listens yet where the brokers will. Raises NotPossibleHere."""
    taken = {name: address for name, address in addresses.items() if _in_use(address)}
    if not taken:
        return
    name, address = next(iter(taken.items()))
    given = any(broker.listen for broker in scenario.broker if broker.name == name)
    mend = "change `listen` in the file" if given else "start this one elsewhere with --base-port, such as 7520"
    if len(taken) == len(addresses):
        raise NotPossibleHere(f"this network is up already, or another one at {address}", f"stop it, or {mend}")
    raise NotPossibleHere(f"the port of broker '{name}', {address}, is in use", f"stop what listens there, or {mend}")


def _in_use(address: Address) -> bool:
    """Whether somebody listens there; another mistake in the address is said by the broker."""
    if not address.port:
        return False
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((address.host, address.port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _show_applied(applied: list[SettingApplied]) -> None:
    """What of the file is applied, on stderr: stdout is for where the brokers are."""
    if not applied:
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table("setting of the file", "applied", "", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in applied:
        table.add_row(row.setting, "[green]yes[/]" if row.applied else "[yellow]no[/]", row.why)
    Console(stderr=True).print(table)


def _keep_up_traced(
    scenario: Scenario, brokers: Brokers, applied: list[SettingApplied], folder: Path, as_json: bool
) -> None:
    """The same, in the folder of a run."""
    from time import monotonic

    from penstock.live.event_loop import run
    from penstock.scenario.runs import RunOutcome, make_run

    def make(trace: Trace) -> RunOutcome:
        began = monotonic()
        run(_keep_up(brokers, applied, as_json))
        return RunOutcome(digest="", events=0, virtual_seconds=monotonic() - began, summary={"live": True})

    make_run(folder, scenario, 0, make)
    typer.echo(f"the run is in {folder}", err=True)


async def _keep_up(brokers: Brokers, applied: list[SettingApplied], as_json: bool) -> None:
    from penstock.live.event_loop import stop_on_signals

    stop = stop_on_signals()
    async with brokers:
        for name, address in brokers.addresses.items():
            found = {"broker": name, "url": f"penstock://{address}", "pid": brokers.pid(name)}
            typer.echo(json.dumps(found) if as_json else f"{name:16} penstock://{address}")
        if as_json:
            for row in applied:
                typer.echo(json.dumps(row._asdict()))
        else:
            _show_applied(applied)
        typer.echo("the network is up; Ctrl-C stops it", err=True)
        await stop.wait()
        typer.echo("stopping; queues may drain first", err=True)
