"""Reading a range of a pubend's log: the question and the answer, from the client to the pubend and back.

The same two packets travel between a client and its home broker, and between brokers in `Routed`; each hop has numbers
of its own for requests.
"""

from __future__ import annotations

from typing import Self

from penstock.content.message import MessageLimits
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet, require
from penstock.streams.packets.common import TICK_MAX, WHERE_BYTES_MAX, Tick, about_pubend

SLICE_BYTES_MAX = 1 << 20  # of entries in one answer, and one entry more
SLICE_ENTRIES_MAX = 10_000


class ReadLog(Packet, frozen=True):
    """What matches from tick `first` to `last`, as far as one answer reaches. Nothing is registered, nothing kept."""

    sent_by = (CLIENT,)

    request: int
    pubend: str
    epoch: int  # the ticks are of this one
    first: Tick
    last: Tick
    where: str
    bytes_max: int = SLICE_BYTES_MAX  # of entries that are looked at; never less than one entry

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.where) <= WHERE_BYTES_MAX, "a predicate that is too long")
        require(self.first <= self.last <= TICK_MAX, f"ticks from {self.first} to {self.last}")
        return about_pubend(self, self.pubend)


class LogSlice(Packet, frozen=True, gc=False):
    """All that matches up to tick `upto`; or a problem, which may pass if it is tried `again`.

    `ticks` has eight bytes for each message, the lowest first; `entries` the messages as they stand in the log, one
    behind the other (`log_codec.LogEntry`). Nothing up to `gone` is kept: if that is not below the first tick that was
    asked for, something was there and is not told.
    """

    sent_by = (BROKER,)

    request: int
    pubend: str
    upto: Tick = 0
    gone: Tick = 0
    ticks: bytes = b""
    entries: bytes = b""
    problem: str = ""
    again: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        require(len(self.ticks) % 8 == 0 and len(self.ticks) <= 8 * SLICE_ENTRIES_MAX, "the ticks of a slice")
        require(self.upto <= TICK_MAX and self.gone <= TICK_MAX, "a tick")
        return about_pubend(self, self.pubend)

    def size_bytes(self) -> int:
        return 60 + len(self.pubend) + len(self.ticks) + len(self.entries) + len(self.problem)

    def travels_in(self) -> Lane:
        return Lane.STREAM
