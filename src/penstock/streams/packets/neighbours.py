"""Between neighbours, hop by hop."""

from __future__ import annotations

from typing import Self

from msgspec.structs import replace

from penstock.content.message import Message, MessageLimits
from penstock.kernel.packet import BROKER, CLIENT_NAME_BYTES_MAX, Lane, Packet, check_integers, increasing, require
from penstock.overlay.packets import BROKER_ID_MAX, BrokerId
from penstock.streams.packets.common import (
    ADVERTISED_MAX,
    FILTER_BYTES_MAX,
    FILTERS_MAX,
    PUBENDS_MAX,
    RANGES_MAX,
    STREAM_NAME_BYTES_MAX,
    TICK_MAX,
    Item,
    Range,
    Tick,
    about_pubend,
    check_pubend,
    checked_items,
    fits,
)


class Advert(Packet, frozen=True):
    """This broker is there, under this name, and hosts these pubends: (stream, number, of how many, epoch)."""

    sent_by = (BROKER,)

    origin: BrokerId
    incarnation: int
    version: int
    name: str
    stores: bool  # whether it can host pubends
    pubends: tuple[tuple[str, int, int, int], ...] = ()

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(self.origin <= BROKER_ID_MAX, f"broker id {self.origin}")
        require(fits(self.name, CLIENT_NAME_BYTES_MAX), "the name of a broker")
        require(len(self.pubends) <= ADVERTISED_MAX, f"{len(self.pubends)} pubends of one broker")
        for stream, number, of, epoch in self.pubends:
            require(fits(stream, STREAM_NAME_BYTES_MAX), "the name of a stream")
            require(0 <= number < of <= PUBENDS_MAX, f"pubend {number} of {of}")
            require(0 < epoch <= TICK_MAX, f"epoch {epoch}")
        return self


class AdvertsWanted(Packet, frozen=True):
    """I am new here: tell me who hosts what."""

    sent_by = (BROKER,)


class Join(Packet, frozen=True):
    """Send me knowledge of this pubend; of data only what these filters select (none at all: everything)."""

    sent_by = (BROKER,)

    pubend: str
    life: int
    version: int
    filters: tuple[bytes, ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        check_pubend(self.pubend)
        require(len(self.filters) <= FILTERS_MAX, f"{len(self.filters)} filters in one Join")
        require(sum(map(len, self.filters)) <= FILTER_BYTES_MAX, "filters that are too long")
        return self


class JoinRefresh(Packet, frozen=True):
    """I still want it, as my Join of this version said."""

    sent_by = (BROKER,)

    pubend: str
    life: int
    version: int

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class JoinWanted(Packet, frozen=True):
    """I do not know your Join: send it."""

    sent_by = (BROKER,)

    pubend: str

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class Leave(Packet, frozen=True):
    """I want no more of it."""

    sent_by = (BROKER,)

    pubend: str

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class Knowledge(Packet, frozen=True, gc=False):
    """What every tick from `first` to `last` is: data if it is listed, otherwise silence.

    Silence may be data that the receiver's filters of this version do not select. `gone` is the newest tick that the
    pubend keeps no longer: whatever was there up to it is final. `cut`: an answer to a Nack ends here, because it would
    have been too long; ask on.
    """

    sent_by = (BROKER,)
    as_datagram = True
    large_by_connection = True

    pubend: str
    epoch: int
    life: int
    version: int
    first: Tick
    last: Tick
    data: tuple[Item, ...] = ()
    gone: Tick = 0
    cut: bool = False

    def checked(self, limits: MessageLimits) -> Self:
        about_pubend(self, self.pubend)
        require(0 < self.first <= self.last <= TICK_MAX, f"ticks from {self.first} to {self.last}")
        data = checked_items(self.data, self.first, self.last, limits)
        if data is self.data:
            return self
        return replace(self, data=data)

    def size_bytes(self) -> int:
        return 50 + len(self.pubend) + sum(10 + message.size_bytes for _, message in self.data)

    def travels_in(self) -> Lane:
        return Lane.STREAM

    def carried(self) -> Message | None:
        return self.data[0][1] if self.data else None


class Nack(Packet, frozen=True):
    """I know nothing of these ticks; my filters are those of this version."""

    sent_by = (BROKER,)
    as_datagram = True

    pubend: str
    life: int
    version: int
    ranges: tuple[Range, ...]

    def checked(self, limits: MessageLimits) -> Self:
        about_pubend(self, self.pubend)
        require(0 < len(self.ranges) <= RANGES_MAX, f"{len(self.ranges)} ranges in one Nack")
        require(all(0 < first <= last <= TICK_MAX for first, last in self.ranges), "a range that ends before it begins")
        require(increasing(tuple(tick for both in self.ranges for tick in dict.fromkeys(both))), "ranges must increase")
        return self


class Dcq(Packet, frozen=True):
    """A pubend asks whether all can keep up with it: downstream congestion query (001 section 3.1)."""

    sent_by = (BROKER,)

    pubend: str
    epoch: int
    sequence: int
    newest: Tick

    def checked(self, limits: MessageLimits) -> Self:
        return about_pubend(self, self.pubend)


class Uca(Packet, frozen=True):
    """Somebody cannot: upstream congestion alert. The lowest pace of those that are not recovering, and of those that
    are, in seconds of ticks per second; None: nobody alerts. With each, the broker that it is of. And the longest
    time that data wait on their way, in seconds, if that was measured."""

    sent_by = (BROKER,)

    pubend: str
    epoch: int
    sequence: int
    keeping_up: float | None
    recovering: float | None
    keeping_up_edge: BrokerId | None = None
    recovering_edge: BrokerId | None = None
    lag: float = 0.0

    def checked(self, limits: MessageLimits) -> Self:
        edges = [edge for edge in (self.keeping_up_edge, self.recovering_edge) if edge is not None]
        require(all(edge <= BROKER_ID_MAX for edge in edges), "a broker id")
        paces = [pace for pace in (self.keeping_up, self.recovering) if pace is not None]
        require(all(0.0 <= pace < 1e9 for pace in paces) and bool(paces), "a pace that cannot be")
        require(0.0 <= self.lag < 1e9, "a lag that cannot be")
        return about_pubend(self, self.pubend)
