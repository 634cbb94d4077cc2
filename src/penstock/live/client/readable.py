"""What every subscription does for those who read it: it opens, wakes whoever waits, ends, and is let go.

`async with` opens it and closes it. Whoever reads one that is not open opens it with that; it is then closed by
`close`, with the network, or when nobody holds it any more: so ends `async for ... in network.subscribe(...)`.

Several may read at once; they wait for one future. A reader who works long on each message and never waits must not
keep the connection from being read, so it gives the event loop a turn now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple, Protocol
from weakref import WeakMethod, finalize

from penstock.errors import PenstockError
from penstock.kernel.machine import Refused

_WAITED_FOR: dict[object, Readable] = {}  # so that nothing that is waited for can vanish

TURN_EVERY = 0.01  # seconds without a turn of the event loop, after which a busy reader gives it one


class Sink(NamedTuple):
    """Where the client puts what comes for a subscription."""

    put: Callable[[Any], None]
    end: Callable[[str | None], None]  # no more will come; with a problem, the reader gets that


class Opens(Protocol):
    """What a reader needs of the client that it is part of."""

    async def open(self, subscription: Readable, sink: Sink) -> None: ...

    def close(self, number: int) -> None: ...


class Readable:
    """The part of a subscription that readers wait for. Subclasses have a queue, `_put` and `_end`."""

    def __init__(self, opens: Opens, number: int, where: str, options: Any) -> None:
        self.where = where
        self.number = number
        self.options = options  # what it asks of services
        self._opens = opens
        self._waiter: asyncio.Future[None] | None = None
        self._closed = self._opened = False
        self._opening: asyncio.Task[None] | None = None  # by somebody who read before it was open
        self._error: PenstockError | None = None
        self._turn_at = 0.0  # when the event loop last had its turn

    def _refusal(self, refused: Refused) -> PenstockError:
        """What to raise if a broker does not accept it."""
        raise NotImplementedError

    def _put(self, item: Any) -> None:
        """Something has come."""
        raise NotImplementedError

    def _end(self, problem: str | None) -> None:
        """No more will come; with a problem, the reader gets it once the queue is empty."""
        self._closed = True
        if problem is not None:
            self._error = self._refusal(Refused(problem))
        self._wake()

    async def _breathe(self) -> None:
        """Give the event loop its turn, if it had none for long."""
        now = monotonic()
        if now - self._turn_at > TURN_EVERY:
            if self._turn_at:
                await asyncio.sleep(0)
            self._turn_at = monotonic()

    async def _more(self) -> bool:
        """Return when it is worth another look at the queue; False: no more will come."""
        if self._error is not None:
            raise self._error
        if self._closed:
            return False
        await (self._wait() if self._opened else self._open_by_reading())
        return True

    async def _wait(self) -> None:
        if self._waiter is None or self._waiter.done():
            self._waiter = asyncio.get_running_loop().create_future()
        reader = object()
        _WAITED_FOR[reader] = self  # a task that waits here may be known to nobody else
        try:
            # Shielded, because several readers may wait for one future and one of them may be cancelled.
            await asyncio.shield(self._waiter)
        finally:
            del _WAITED_FOR[reader]
        self._turn_at = monotonic()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # How it opens.

    async def _open(self, sink: Sink) -> None:
        if self._opened or self._closed:
            found = "opened before" if self._opened else "closed"
            raise PenstockError(f"this subscription was {found}; make another one with subscribe()")
        self._opened = True
        try:
            await self._opens.open(self, sink)
        except BaseException:
            self._opened = False
            self._wake()  # whoever reads finds out for themselves
            raise

    async def _open_by_reading(self) -> None:
        """The first who reads opens it, and whoever reads meanwhile waits too; to give up reading does not undo it."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open_for_readers())
            self._opening.add_done_callback(self._opening_ended)
        try:
            await asyncio.shield(self._opening)
        except PenstockError:
            if not self._closed:  # else it ends as it does for all who read
                raise

    async def _open_for_readers(self) -> None:
        """Nobody has promised to close it, so it is closed when nobody holds it any more."""
        put, end = WeakMethod(self._put), WeakMethod(self._end)
        await self._open(Sink(lambda item: _call(put, item), lambda problem: _call(end, problem)))
        finalize(self, _let_go, asyncio.get_running_loop(), self._opens, self.number).atexit = False

    def _opening_ended(self, opening: asyncio.Task[None]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # whoever waited has it; perhaps nobody did


def _call(method: WeakMethod[Any], argument: Any) -> None:
    """Call it if there is anybody left."""
    found = method()
    if found is not None:
        found(argument)


def _let_go(loop: asyncio.AbstractEventLoop, opens: Opens, number: int) -> None:
    """Nobody can read it any more. The last who could may have been another thread than the network's."""
    with suppress(RuntimeError):  # the loop has ended, and with it the network
        loop.call_soon_threadsafe(opens.close, number)
