"""Keeps a connection to one neighbour: dial, hold, and dial again with backoff when it is lost.

So a network heals by itself. The backoff starts small again after a connection whose handshake was answered. If a
neighbour cannot be had for `WARN_AFTER`, its address may be wrong: a warning, once and then at growing intervals.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from penstock.live.quiet_log import QuietLog, left_out_text
from penstock.live.wire.addresses import Address
from penstock.live.wire.backoff import Backoff
from penstock.live.wire.connection import Connection, dial

log = logging.getLogger("penstock.broker")

WARN_AFTER = 5.0  # seconds; neighbours that start together find each other sooner


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
        self._quiet = QuietLog()
        self._failing_since: float | None = None

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            connection = self._connect()
            try:
                await dial(connection, self._address, self._within)
            except (OSError, TimeoutError) as error:
                self.failed(str(error) or "no answer in time", asyncio.get_running_loop().time())
            else:
                problem = await asyncio.shield(connection.closed)
                if connection.peer is not None and not connection.violation:
                    self._backoff.reset()
                    self._failing_since = None
                else:  # it wants nothing of us, or it is somebody else
                    self.failed(problem, asyncio.get_running_loop().time())
            await asyncio.sleep(self._backoff.wait())

    def failed(self, problem: str, now: float) -> None:
        """The neighbour could not be had; warn of it, but not every time."""
        if self._failing_since is None:
            self._failing_since = now
            self._quiet.forget("dial")
        if now - self._failing_since < WARN_AFTER:
            return
        left_out = self._quiet.allows("dial", now)
        if left_out is not None:
            log.warning(
                "%s: cannot reach neighbour %s at %s: %s; still trying%s",
                *self._names,
                self._address,
                problem,
                left_out_text(left_out),
            )
