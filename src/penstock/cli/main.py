"""`penstock`: all commands, and what their exit codes mean.

Exit codes: 0 ok, 1 failure (a check did not hold, a filter did not match), 2 wrong usage or bad input, 130 interrupted.
Every command has `--help` with an example, and `--json`. Colours obey NO_COLOR.
"""

from __future__ import annotations

import sys

import typer

from penstock.cli import filter as filter_commands
from penstock.cli.sim import sim_command
from penstock.cli.storm import storm_command
from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    help="Content-based publish/subscribe that keeps its flow under control.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(filter_commands.app, name="filter")
app.command("sim")(sim_command)
app.command("storm")(storm_command)


def main() -> None:
    """Run the command line; an error we know is one message, not a traceback."""
    try:
        app()
    except PenstockError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
        sys.exit(1)


if __name__ == "__main__":
    main()
