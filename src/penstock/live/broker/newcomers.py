"""A second connection under a neighbour's name: the one that is there stays, as long as it is alive.

Either the neighbour has restarted and its old connection is dead, or somebody else calls under its name. The old one
decides: neighbours say Hello twice a second, so whoever is alive is heard soon. The newcomer waits, unanswered; a byte
on the old connection refuses it, the end of the old connection lets it in, and so do `patience` seconds of silence.

State: one newcomer for each neighbour; further ones are refused at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.kernel.link import Link
from penstock.live.wire.connection import Connection

LOOK_EVERY = 0.1  # seconds between two looks at the old connection


class Newcomers:
    """Those who call under the name of a neighbour that is connected."""

    def __init__(
        self,
        patience: float,
        admit: Callable[[Connection, Link], None],  # the newcomer is the neighbour
        refuse: Callable[[Connection, str], None],
    ) -> None:
        self._patience = patience
        self._admit = admit
        self._refuse = refuse
        self._waiting: dict[Link, tuple[Connection, Connection, float]] = {}  # the newcomer, the old one, since when
        self._loop = asyncio.get_running_loop()

    def wait(self, newcomer: Connection, link: Link, old: Connection) -> None:
        """Somebody calls under the name of the neighbour at this link."""
        if link in self._waiting:
            self._refuse(newcomer, self._alive(newcomer))
            return
        self._waiting[link] = (newcomer, old, self._loop.time())
        self._look(link, newcomer)

    def closed(self, connection: Connection) -> None:
        """A connection has ended: a newcomer waits no more, or has its place."""
        for link, (newcomer, old, _) in list(self._waiting.items()):
            if connection is newcomer or connection is old:
                del self._waiting[link]
                if connection is old and not newcomer.closing:
                    self._admit(newcomer, link)

    def _look(self, link: Link, newcomer: Connection) -> None:
        waiting = self._waiting.get(link)
        if waiting is None or waiting[0] is not newcomer:
            return
        _, old, since = waiting
        if old.received_at > since:
            del self._waiting[link]
            self._refuse(newcomer, self._alive(newcomer))
        elif self._loop.time() - old.received_at > self._patience:
            old.abort("silent, and replaced by a new connection")  # whose end lets the newcomer in
        else:
            self._loop.call_later(LOOK_EVERY, self._look, link, newcomer)

    @staticmethod
    def _alive(newcomer: Connection) -> str:
        name = newcomer.peer.name if newcomer.peer is not None else ""
        return f"the neighbour '{name}' is connected and alive; every broker needs a name of its own"
