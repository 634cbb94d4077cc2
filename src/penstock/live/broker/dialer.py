"""Keeps a connection to one neighbour: dial, hold, and dial again with backoff when it is lost.

So a network heals by itself. The backoff starts small again after a connection whose handshake was answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from penstock.live.wire.addresses import Address
from penstock.live.wire.backoff import Backoff
from penstock.live.wire.connection import Connection, dial

log = logging.getLogger("penstock.broker")


class Dialer:
    """Dials one neighbour at one address, for ever."""

    def __init__(
        self, names: tuple[str, str], address: Address, connect: Callable[[], Connection], within: float, random: Random
    ) -> None:
        self._names = names  # ours, and the neighbour's
        self._address = address
        self._connect = connect  # makes a connection with a new handshake
        self._within = within
        self._backoff = Backoff(random)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            connection = self._connect()
            try:
                await dial(connection, self._address, self._within)
            except (OSError, TimeoutError) as error:
                log.debug("%s: cannot reach %s at %s: %s", *self._names, self._address, error)
            else:
                await asyncio.shield(connection.closed)
                if connection.peer is not None:
                    self._backoff.reset()
            await asyncio.sleep(self._backoff.wait())
