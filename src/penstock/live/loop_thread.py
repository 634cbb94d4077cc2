"""An event loop in a thread of its own, for callers that have none.

Scripts, notebooks and tests without `async` hand coroutines to it and wait for what comes of them; meanwhile the loop
goes on by itself, so connections are served while the caller does something else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from penstock.errors import PenstockError

T = TypeVar("T")


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
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in the script must not leave the work behind
            raise

    def end(self) -> None:
        """Stop the loop and close it; whatever is still to be done is not done."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
