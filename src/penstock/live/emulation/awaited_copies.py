"""Datagrams that an emulated link has lost, and of which another copy may still get through.

A link that repairs itself sends a lost datagram again under its number. So the loss is told when no copy has passed
after the time for which its sender keeps it, and all that is awaited when the link ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.live.wire.udp import CONTROL_BIT, HEAD_BYTES, unstamped
from penstock.overlay.repair.config import RepairConfig

SETTLED_AFTER = RepairConfig().settled_after

Key = tuple[bytes, int]  # the token and the number


class AwaitedCopies:
    """The losses of one direction; `lost` is told those that were not made good."""

    def __init__(self, lost: Callable[[str, bytes], None]) -> None:
        self._lost = lost
        self._awaited: dict[Key, tuple[str, bytes, asyncio.TimerHandle]] = {}

    def dropped(self, cause: str, data: bytes) -> None:
        """A datagram did not get through."""
        field = int.from_bytes(data[8:HEAD_BYTES], "big")
        if field & CONTROL_BIT:
            self._lost(cause, data)
            return
        number, _, repeated = unstamped(field)
        if not repeated:
            key = (data[:8], number)
            timer = asyncio.get_running_loop().call_later(SETTLED_AFTER, self._settle, key)
            self._awaited[key] = (cause, data, timer)

    def passed(self, data: bytes) -> None:
        """A datagram got through."""
        if self._awaited:
            found = self._awaited.pop((data[:8], unstamped(int.from_bytes(data[8:HEAD_BYTES], "big"))[0]), None)
            if found is not None:
                found[2].cancel()

    def close(self) -> None:
        """No more copies will come."""
        for key in list(self._awaited):
            self._settle(key)

    def _settle(self, key: Key) -> None:
        cause, data, timer = self._awaited.pop(key)
        timer.cancel()
        self._lost(cause, data)
