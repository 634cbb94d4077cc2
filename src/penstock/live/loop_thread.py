"""An event loop in a thread of its own, for callers that have none.

Scripts, notebooks and tests without `async` hand coroutines to it and wait for what comes of them; meanwhile the loop
goes on by itself, so connections are served while the caller does something else.

Whoever is interrupted while it waits (Ctrl-C) cancels the work and waits until it has cleaned up: sockets are closed by
the work itself, and cannot be once the loop has ended.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.errors import PenstockError

T = TypeVar("T")

CLEAN_UP_WITHIN = 10.0  # seconds for what was cancelled; nothing healthy comes near


class LoopThread:
    """The loop and its thread, running from the beginning until `end`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether we are in that thread."""
        return threading.current_thread() is self._thread

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the thread do it; returns what comes of it."""
        if self.is_current:
            work.close()
            raise PenstockError("the network's own thread would wait for itself; let another one use its verbs")
        if not self.running:
            work.close()
            raise PenstockError("this was closed, and its thread has ended; make another one and open that")
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():  # Ctrl-C in the script must not leave the work behind
                self._wait_for(_ended(work))
            raise

    def end(self) -> None:
        """Cancel whatever is still to be done, let it clean up, and close the loop."""
        try:
            self._wait_for(_all_cancelled())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()

    def _wait_for(self, clean_up: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(clean_up, self.loop).result()


async def _ended(work: Coroutine[Any, Any, Any]) -> None:
    """Return when the task that does this work has ended, or its time is up."""
    await _clean_up(task for task in asyncio.all_tasks() if task.get_coro() is work)


async def _all_cancelled() -> None:
    """Cancel all other tasks of the loop; return when they have ended, or their time is up."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await _clean_up(others)


async def _clean_up(tasks: Iterable[asyncio.Task[Any]]) -> None:
    waited_for = list(tasks)
    if waited_for:
        await asyncio.wait(waited_for, timeout=CLEAN_UP_WITHIN)
