"""What the commands that use a running network have in common: where it is, and how they end."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

import typer

T = TypeVar("T")

INTERRUPTED = 130
NOTHING_RECEIVED = 3
CONNECT_WITHIN = 2.0  # seconds; somebody waits at the terminal

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="PENSTOCK_URL",
        metavar="URL",
        help="A broker, such as 127.0.0.1:7420, or several to be tried in turn: penstock://10.0.0.1:7420,10.0.0.2:7420.",
        show_default="penstock://127.0.0.1:7420",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def run_client(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's work to its end; Ctrl-C and SIGTERM end it cleanly, with exit code 130."""
    from penstock.live.event_loop import run

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        return run(_until_terminated(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit(INTERRUPTED) from None


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    """SIGTERM cancels it, as Ctrl-C does: reports are said all the same."""
    task = asyncio.current_task()
    if task is not None and threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work
