"""Of shared names: messages to one member, and what becomes of them.

From a pubend to a member's home broker and on to the client: `SharedHandout`, `ShareDelivery`. The way back:
`ShareSettle`, `Verdicts`; and, when that is on disk, `VerdictsStored`, `ShareSettled`. A handout is named by its tick
and its attempt. A gap is confirmed like a message: its tick is the last that is gone, and its attempt is 0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

from msgspec import Struct

from penstock.content.message import Message, MessageLimits
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet, check_integers, measured, require
from penstock.streams.packets.common import (
    DURABLE_NAME_BYTES_MAX,
    STREAM_NAME_BYTES_MAX,
    TICK_MAX,
    Range,
    Tick,
    about_pubend,
    fits,
)

ACK_WITHIN_MAX = 86_400.0  # seconds
ATTEMPTS_MAX = 1_000
SHARED_ITEMS_MAX = 256  # messages, or verdicts, of one packet


class ShareVerdict(IntEnum):
    """What a member says of a message that was handed to it."""

    RECEIVED = 0  # its client has it
    TAKEN = 1  # the application has it
    DONE = 2  # the application is done with it
    REJECTED = 3  # the application says no: it was tried, and is to be tried again
    RETURNED = 4  # the application has not seen it: it was not tried


SETTLING = (ShareVerdict.DONE, ShareVerdict.REJECTED, ShareVerdict.RETURNED)

Handout = tuple[Tick, int]  # and the attempt
SharedItem = tuple[Tick, int, Message]
VerdictItem = tuple[Tick, int, int]


class Share(Struct, frozen=True, array_like=True):
    """How a name is shared; 0 or empty: as the name has it, or the default of a new name."""

    ack_within: float = 0.0  # seconds
    attempts_max: int = 0
    failed: str = ""  # the stream for what was tried that often

    def check(self) -> None:
        """Raises InvalidPacket."""
        require(0.0 <= self.ack_within <= ACK_WITHIN_MAX, f"ack_within {self.ack_within}")
        require(0 <= self.attempts_max <= ATTEMPTS_MAX, f"attempts_max {self.attempts_max}")
        require(not self.failed or fits(self.failed, STREAM_NAME_BYTES_MAX), "the name of a stream")


def _checked_items(items: tuple[SharedItem, ...], limits: MessageLimits) -> tuple[SharedItem, ...]:
    require(len(items) <= SHARED_ITEMS_MAX, f"{len(items)} messages in one packet")
    for tick, attempt, _ in items:
        require(0 < tick <= TICK_MAX and 0 < attempt <= ATTEMPTS_MAX, "a tick or an attempt")
    found = tuple((tick, attempt, measured(message, limits)) for tick, attempt, message in items)
    same = all(one[2] is other[2] for one, other in zip(found, items, strict=True))
    return items if same else found


def _check_handouts(handouts: tuple[Handout, ...]) -> None:
    require(len(handouts) <= SHARED_ITEMS_MAX, f"{len(handouts)} handouts in one packet")
    for tick, attempt in handouts:
        require(0 < tick <= TICK_MAX and 0 <= attempt <= ATTEMPTS_MAX, "a tick or an attempt")


def _check_verdicts(verdicts: tuple[VerdictItem, ...]) -> None:
    _check_handouts(tuple((tick, attempt) for tick, attempt, _ in verdicts))
    require(all(0 <= verdict <= max(ShareVerdict) for _, _, verdict in verdicts), "a verdict")


def _check_gap(gap: Range | None) -> None:
    require(gap is None or 0 < gap[0] <= gap[1] <= TICK_MAX, "the ticks of a gap")


def _items_bytes(items: tuple[SharedItem, ...]) -> int:
    return sum(12 + message.size_bytes for _, _, message in items)


class SharedHandout(Packet, frozen=True, gc=False):
    """These are for the member of this session, and nobody else; `gap`: nobody keeps these ticks any more."""

    pubend: str
    epoch: int
    name: str
    session: int
    items: tuple[SharedItem, ...]
    gap: Range | None = None

    def checked(self, limits: MessageLimits) -> Self:
        about_pubend(self, self.pubend)
        require(fits(self.name, DURABLE_NAME_BYTES_MAX), "a durable name")
        _check_gap(self.gap)
        items = _checked_items(self.items, limits)
        if items is self.items:
            return self
        return type(self)(self.pubend, self.epoch, self.name, self.session, items, self.gap)

    def size_bytes(self) -> int:
        return 60 + len(self.pubend) + len(self.name) + _items_bytes(self.items)

    def travels_in(self) -> Lane:
        return Lane.STREAM

    def carried(self) -> Message | None:
        return self.items[0][2] if self.items else None


class Verdicts(Packet, frozen=True):
    """What the member of this session says."""

    pubend: str
    epoch: int
    name: str
    session: int
    verdicts: tuple[VerdictItem, ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(fits(self.name, DURABLE_NAME_BYTES_MAX), "a durable name")
        _check_verdicts(self.verdicts)
        return about_pubend(self, self.pubend)


class VerdictsStored(Packet, frozen=True):
    """What the member said of these is on disk."""

    pubend: str
    epoch: int
    name: str
    session: int
    handouts: tuple[Handout, ...]

    def checked(self, limits: MessageLimits) -> Self:
        require(fits(self.name, DURABLE_NAME_BYTES_MAX), "a durable name")
        _check_handouts(self.handouts)
        return about_pubend(self, self.pubend)


class ShareDelivery(Packet, frozen=True, gc=False):
    """The same for a member's client."""

    sent_by = (BROKER,)

    subscription: int
    pubend: str
    epoch: int
    items: tuple[SharedItem, ...]
    gap: Range | None = None

    def checked(self, limits: MessageLimits) -> Self:
        about_pubend(self, self.pubend)
        _check_gap(self.gap)
        items = _checked_items(self.items, limits)
        if items is self.items:
            return self
        return type(self)(self.subscription, self.pubend, self.epoch, items, self.gap)

    def size_bytes(self) -> int:
        return 50 + len(self.pubend) + _items_bytes(self.items)

    def travels_in(self) -> Lane:
        return Lane.STREAM

    def carried(self) -> Message | None:
        return self.items[0][2] if self.items else None


class ShareSettle(Packet, frozen=True):
    """What becomes of messages that were handed to this member."""

    sent_by = (CLIENT,)

    subscription: int
    pubend: str
    epoch: int
    verdicts: tuple[VerdictItem, ...]

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        _check_verdicts(self.verdicts)
        return about_pubend(self, self.pubend)


class ShareSettled(Packet, frozen=True):
    """That is on disk."""

    sent_by = (BROKER,)

    subscription: int
    pubend: str
    epoch: int
    handouts: tuple[Handout, ...]

    def checked(self, limits: MessageLimits) -> Self:
        _check_handouts(self.handouts)
        return about_pubend(self, self.pubend)
