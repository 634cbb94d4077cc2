"""Running a coroutine to its end, on uvloop where it is installed; signals for an orderly end; failed accepts."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.live.quiet_log import QuietLog, left_out_text

SIGNALS = (signal.SIGTERM, signal.SIGINT)
T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run to the end; uvloop (pip install 'penstock[fast]') makes sockets about a fifth faster."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(_deaf_at_the_end(main))
    result: T = uvloop.run(_deaf_at_the_end(main))
    return result


async def _deaf_at_the_end(main: Coroutine[Any, Any, T]) -> T:
    """A signal that comes while the loop closes would write to a pipe that is closed: a traceback, and nothing more."""
    try:
        return await main
    finally:
        in_main = threading.current_thread() is threading.main_thread()  # no other has any, and uvloop says so loudly
        for number in SIGNALS if in_main else ():
            asyncio.get_running_loop().remove_signal_handler(number)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    return stop


def warn_of_failed_accepts(log: logging.Logger, name: str) -> None:
    """Warn of connections that cannot be accepted: once, then at growing intervals. The loop tries again by itself.

    Without this the loop writes an error with a traceback every second, for as long as file descriptors are short.
    """
    quiet = QuietLog()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "accept" not in str(context.get("message", "")):
            loop.default_exception_handler(context)
            return
        left_out = quiet.allows("accept", loop.time())
        if left_out is not None:
            problem, more = context.get("exception", "no reason given"), left_out_text(left_out)
            log.warning("%s: cannot accept a connection: %s; raise the limit (ulimit -n)%s", name, problem, more)

    asyncio.get_running_loop().set_exception_handler(handle)
