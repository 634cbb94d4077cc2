"""`penstock workload`: draw publications and subscriptions by the million, and look at what was drawn."""

from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import PenstockError, choose_one

app = typer.Typer(
    help="Large workloads: drawn on Spark, kept as Parquet.",
    epilog="Example: penstock workload make big --set publications=1000000",
    no_args_is_help=True,
)


@app.command("make")
def make_command(
    folder: Annotated[Path, typer.Argument(help="Where to put it; a workload that is there already is replaced.")],
    settings: Annotated[list[str] | None, typer.Option("--set", help="A field of the specification: zipf=1.2.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master; all cores of this machine by default.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the specification as JSON.")] = False,
) -> None:
    """Draw a workload.

    Example: penstock workload make big --set publications=1000000 --set locality=0.5 --set seed=7
    """
    from penstock.pipeline.session import spark_session
    from penstock.pipeline.workloads import WorkloadSpec, write_workload

    defaults = WorkloadSpec()
    changes: dict[str, int | float] = {}
    for text in settings or []:
        name, _, value = text.partition("=")
        if name not in {field.name for field in fields(defaults)}:
            known = [field.name for field in fields(defaults)]
            raise PenstockError(f"--set {text}: there is no '{name}'; {choose_one(name, known)}")
        try:
            changes[name] = type(getattr(defaults, name))(value)
        except ValueError:
            kind = type(getattr(defaults, name)).__name__
            raise PenstockError(
                f"--set {text}: '{value}' is no {kind}; write {name}={getattr(defaults, name)}"
            ) from None
    try:
        spec = replace(defaults, **changes)  # type: ignore[arg-type]  # each has the type of its default
    except ValueError as error:
        raise PenstockError(str(error)) from None
    write_workload(spark_session(master), spec, folder)
    made = f"{spec.publications} publications and {spec.subscriptions} subscriptions are in {folder}"
    typer.echo(json.dumps(asdict(spec)) if as_json else made)


@app.command("show")
def show_command(
    folder: Annotated[Path, typer.Argument(help="A workload.")],
    first: Annotated[int, typer.Option(help="How many publications.", min=0)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="As it is anyway: one JSON object per line.")] = True,
) -> None:
    """Print the first publications, one JSON object per line.

    Example: penstock workload show big --first 3
    """
    from penstock.pipeline.workloads import read_publications, read_spec

    read_spec(folder)  # says so if it is no workload
    for publication in islice(read_publications(folder), first):
        typer.echo(json.dumps(publication._asdict()))


@app.command("sim")
def sim_command(
    folder: Annotated[Path, typer.Argument(help="A workload.")],
    network: Annotated[Path, typer.Argument(help="A network file; its brokers and links are used, not its clients.")],
    seed: Annotated[int, typer.Option(help="Decides everything random in the network.")] = 7,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on one line instead of tables.")] = False,
) -> None:
    """Let a network in the simulator carry a workload.

    Example: penstock workload sim big networks/town.toml
    """
    from penstock.cli.progress import progress_bar
    from penstock.cli.sim import show, summary
    from penstock.lab.engine.workload import carry

    with progress_bar("simulating") as advance:
        scenario, result = carry(folder, network, seed, progress=advance)
    if as_json:
        typer.echo(json.dumps(summary(result)))
    else:
        show(scenario, result)
