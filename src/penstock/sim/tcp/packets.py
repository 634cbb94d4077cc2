"""Packets of TCP, and how they find their way through pipes that they share with messages.

A `TcpPacket` is a segment or an acknowledgement and finds its own way: a path is a row of pipes, and a packet that
comes out of one goes into the next. Whoever shares a pipe with TCP wraps the pipe's two callbacks with `beside`; there,
packets of TCP are known from all else by their type. The pipe must be one that loses (of a datagram link, or below a
tcp link): a reliable one never drops, and TCP would fill it up to the receiver's window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from penstock.sim.engine import Engine

Give = Callable[[Any, int], None]  # a pipe's `send`: what goes in, and its size in bytes
Arrive = Callable[[Any], None]  # a pipe's two callbacks
Lost = Callable[[Any, str], None]


class Path:
    """The pipes from one end to the other, and who takes the packets there."""

    take: Callable[[int], None]  # set when the flow is put together: each end needs its path first

    def __init__(self, gives: Sequence[Give], size_bytes: int) -> None:
        assert gives, "a path has at least one pipe"
        self.gives = tuple(gives)
        self.size_of: Callable[[int], int] = lambda number: size_bytes
        self.sent_packets = 0
        self.lost_packets = 0

    def send(self, number: int) -> None:
        """Put a packet with this number into the first pipe."""
        self.sent_packets += 1
        size_bytes = self.size_of(number)
        self.gives[0](TcpPacket(self, number, size_bytes), size_bytes)


class TcpPacket:
    """A segment, or an acknowledgement of all segments below its number; which one, its path knows."""

    __slots__ = ("_hop", "number", "path", "size_bytes")

    def __init__(self, path: Path, number: int, size_bytes: int) -> None:
        self.path = path
        self.number = number
        self.size_bytes = size_bytes
        self._hop = 0

    def arrived(self) -> None:
        """It came out of a pipe: on into the next, or to whom it is for."""
        path = self.path
        self._hop += 1
        if self._hop < len(path.gives):
            path.gives[self._hop](self, self.size_bytes)
        else:
            path.take(self.number)


def beside(arrive: Arrive, lost: Lost) -> tuple[Arrive, Lost]:
    """A pipe's callbacks where TCP shares the pipe: its packets go their way, all else goes to these two."""

    def arrive_either(item: Any) -> None:
        if type(item) is TcpPacket:
            item.arrived()
        else:
            arrive(item)

    def lost_either(item: Any, cause: str) -> None:
        if type(item) is TcpPacket:
            item.path.lost_packets += 1
        else:
            lost(item, cause)

    return arrive_either, lost_either


class ProcessingDelay:
    """A host that takes a random little time per packet, and keeps their order."""

    def __init__(self, engine: Engine, random: Random, seconds_max: float, give: Give) -> None:
        self._engine = engine
        self._random = random
        self._seconds_max = seconds_max
        self._give = give
        self._last = 0.0  # when the latest packet leaves

    def send(self, item: Any, size_bytes: int) -> None:
        """Hand the packet on a little later."""
        self._last = max(self._last, self._engine.now + self._seconds_max * self._random.random())
        self._engine.at(self._last, lambda packet: self._give(*packet), (item, size_bytes))
