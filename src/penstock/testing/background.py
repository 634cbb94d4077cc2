"""An embedded network in a thread of its own, for tests and scripts without `async`.

    with penstock.testing.embedded_network_blocking() as brokers:
        with penstock.connect_blocking(brokers.url) as network:
            ...

The same brokers as `embedded_network` makes; they have a thread and an event loop to themselves, so any code of the
process may connect to them, with `async` or without, from any loop. Leaving it fails loudly if a broker left anything
behind, or if anything went wrong in it on the way that nobody caught.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from penstock.errors import PenstockError
from penstock.live.loop_thread import LoopThread
from penstock.testing.embedded import EmbeddedNetwork, embedded_network
from penstock.testing.shape import NAMES, Shape


def embedded_network_blocking(brokers: Shape = NAMES, **settings: Any) -> BlockingEmbeddedNetwork:
    """Brokers in a thread of their own, to be opened with `with`; the arguments are those of `embedded_network`."""
    return BlockingEmbeddedNetwork(embedded_network(brokers, **settings))


class BlockingEmbeddedNetwork:
    """Brokers in a thread. Made by `embedded_network_blocking`; a context manager."""

    def __init__(self, network: EmbeddedNetwork) -> None:
        self._network = network
        self._thread: LoopThread | None = None
        self._problems: list[str] = []

    def __enter__(self) -> BlockingEmbeddedNetwork:
        return self.open()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        thread = self._opened()
        if not thread.running:
            return  # it was closed before
        try:
            thread.do(self._close(error_type, error, traceback))
        finally:
            thread.end()
        if self._problems:
            problem = f"in the thread of the embedded network: {'; '.join(self._problems)}"
            if error is None:
                raise AssertionError(problem)
            error.add_note(problem)

    def open(self) -> BlockingEmbeddedNetwork:
        """Start the brokers; returns when they agree on the map."""
        if self._thread is not None:
            raise PenstockError("this embedded network was opened before; make another one")
        self._thread = LoopThread("penstock brokers")
        self._thread.loop.set_exception_handler(self._note)
        try:
            self._thread.do(self._network.__aenter__())
        except BaseException:
            self._thread.end()
            raise
        return self

    @property
    def names(self) -> list[str]:
        """Of the brokers."""
        return self._network.names

    @property
    def url(self) -> str:
        """Of the first broker."""
        return self._network.url

    @property
    def urls(self) -> dict[str, str]:
        """Of every broker, by name."""
        return self._network.urls

    def url_of(self, *names: str) -> str:
        """One URL for several brokers, which a client tries in turn."""
        return self._network.url_of(*names)

    def stop(self, name: str) -> None:
        """Stop a broker in good order; returns when the others know that it is gone."""
        self._opened().do(self._network.stop(name))

    def crash(self, name: str) -> None:
        """End a broker without a word."""
        self._opened().do(self._network.crash(name))

    def start(self, name: str) -> None:
        """Start a broker again that was stopped, at the same address; returns when all agree on the map."""
        self._opened().do(self._network.start(name))

    @property
    def lost_on_links(self) -> dict[tuple[str, str], int]:
        """(sender, receiver) -> messages that the links between brokers have lost so far, on purpose."""
        return self._network.lost_on_links

    async def _close(self, *error: Any) -> None:
        await self._network.__aexit__(*error)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        self._problems += [f"a task is left: {task}" for task in left]

    def _opened(self) -> LoopThread:
        if self._thread is None:
            raise PenstockError("the embedded network is not open; use 'with'")
        return self._thread

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody caught."""
        self._problems.append(f"{context.get('message')}: {context.get('exception')!r}")
        loop.default_exception_handler(context)
