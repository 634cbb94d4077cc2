"""A bound on what all connections of a broker hold of frames that are not finished.

One connection holds at most one frame. Many together could still fill the memory, so there is a total; when it is
exceeded, the connection whose frame was begun first is closed with a reason: an honest one ends its frames in no time,
however long they are. Neighbours of the plan are few and have a table each. (A frame that is never finished also has a
deadline: `ConnectionConfig.frame_within`.)

State: a number for each connection that holds a part of a frame. Bound: `bytes_max` and one chunk of a socket.
"""

from __future__ import annotations

from typing import Protocol

UNFINISHED_BYTES_MAX = 64 << 20


class FrameHolder(Protocol):
    """A connection, as this table knows it."""

    def close(self, problem: str = "", *, violation: bool = False) -> None: ...


class UnfinishedFrames:
    """How much each connection holds, and all together."""

    def __init__(self, bytes_max: int = UNFINISHED_BYTES_MAX) -> None:
        self.bytes_in_all = 0
        self._bytes_max = bytes_max
        self._held: dict[FrameHolder, int] = {}  # the longest held come first

    def holds(self, connection: FrameHolder, held_bytes: int) -> None:
        """A connection holds so much of an unfinished frame now; 0: nothing any more."""
        self.bytes_in_all += held_bytes - self._held.get(connection, 0)
        if held_bytes:
            self._held[connection] = held_bytes
        else:
            self._held.pop(connection, None)
        while self.bytes_in_all > self._bytes_max:
            oldest = next(iter(self._held))
            self.bytes_in_all -= self._held.pop(oldest)
            limit = f"all connections together may hold {self._bytes_max}"
            oldest.close(f"too many bytes of unfinished frames: {limit}, and this one was begun first", violation=True)
