"""`penstock`: all commands, and what their exit codes mean.

Exit codes: 0 ok, 1 failure (a check did not hold, a filter did not match), 2 wrong usage or bad input, 3 nothing
received in time, 4 not possible on this machine, 5 no broker can be reached, 130 interrupted.
Every command has `--help` with an example, and `--json`. Colours obey NO_COLOR.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer
from msgspec import Struct

import penstock
from penstock.cli import filter as filter_commands
from penstock.cli import lab as lab_commands
from penstock.cli import pipeline as pipeline_commands
from penstock.cli import stream as stream_commands
from penstock.cli import trace as trace_commands
from penstock.cli import workload as workload_commands
from penstock.cli.bench import bench_command
from penstock.cli.broker import broker_command
from penstock.cli.close_options import CloseCommand
from penstock.cli.demo import demo_command
from penstock.cli.fetch import fetch_command
from penstock.cli.live import live_command
from penstock.cli.options import with_service_options
from penstock.cli.pub import pub_command
from penstock.cli.report import report_command
from penstock.cli.sim import sim_command
from penstock.cli.storm import storm_command
from penstock.cli.sub import sub_command
from penstock.cli.up import up_command
from penstock.errors import NotPossibleHere, PenstockError, SparkUnavailable, Unreachable
from penstock.services import publication_options, subscription_options


def _with_options(command: Callable[..., None], kind: Callable[[], type[Struct]]) -> Callable[..., None]:
    """The command with the options of all services; a service that cannot be loaded is one message, not a traceback."""
    try:
        return with_service_options(command, kind())
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(exit_code(error))


def exit_code(error: PenstockError) -> int:
    """What the shell gets for an error that we know."""
    if isinstance(error, Unreachable):
        return 5
    return 4 if isinstance(error, NotPossibleHere | SparkUnavailable) else 2


app = typer.Typer(
    name="penstock",
    help="Publish/subscribe by content, in a network that shares its links fairly.",
    epilog="Example: penstock demo, or in three terminals: penstock up; penstock sub TRUE; penstock pub -a x=1 hello",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def _whole(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version, and end.")
    ] = False,
) -> None:
    """What can be said before any command."""


app.add_typer(filter_commands.app, name="filter")
app.add_typer(pipeline_commands.app, name="pipeline")
app.add_typer(lab_commands.app, name="lab")
app.add_typer(workload_commands.app, name="workload")
app.add_typer(stream_commands.app, name="stream")
app.add_typer(trace_commands.app, name="trace")
app.command("up")(up_command)
app.command("broker")(broker_command)
app.command("pub", cls=CloseCommand)(_with_options(pub_command, publication_options))
app.command("sub", cls=CloseCommand)(_with_options(sub_command, subscription_options))
app.command("fetch", cls=CloseCommand)(fetch_command)
app.command("report")(report_command)
app.command("bench")(bench_command)
app.command("live")(live_command)
app.command("demo")(demo_command)
app.command("sim")(sim_command)
app.command("storm")(storm_command)


def main() -> None:
    """Run the command line; an error we know is one message, not a traceback."""
    try:
        app()
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(exit_code(error))
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
