"""Which publications a pubend has stored lately, by their ids: a repeat is answered, not stored again.

The ids are on disk as part of the log's entries. In memory there is a table of the newest: kept for a quarter longer
than `ids_window`, since a repeat may be on its way for a while, and at most `ids_max`. What an earlier life has stored
is kept as if it had been stored when this one began: every life begins ahead of its time, by a lease.
`known_from` is the tick from which on the table has the id of every entry in the log; `crowded_out` is the newest one
that had to go before its time. Both are written with each lease and with each trim, and a new life reads the log from
there; so no leap of a clock loses an id. Retention keeps an entry
as long as its id is here, unless `retain`, `retain_bytes` or a command takes it: ids vanish with their entries when the
broker restarts.

A publisher says how long ago it first tried. If the id is not here, and that is longer ago than the table reaches,
nobody can know whether the message was stored, and it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from math import inf

import msgspec
from msgspec import Struct

from penstock.content.message import Message
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import Tick
from penstock.streams.pubend_clock import SECOND

KEPT_SHARE = 1.25  # of the window
_encode = msgspec.msgpack.Encoder(order="sorted").encode


class StoredId(Struct, frozen=True, gc=False):
    """One publication that is on disk."""

    tick: Tick
    digest: bytes
    stored_at: float  # elapsed seconds of this life; negative for what an earlier life stored


def content_digest(message: Message) -> bytes:
    """Tells messages apart under one id: attributes and body, whoever publishes them, from whichever process."""
    text = _encode(message.attributes)
    return blake2b(len(text).to_bytes(8, "big") + text + message.body, digest_size=16).digest()


class PublicationIds:
    """A table in the order of ticks, bounded in time and number."""

    def __init__(self, config: StreamsConfig) -> None:
        self._window = config.ids_window
        self._count_max = config.ids_max
        self._lease = config.lease
        self._stored: dict[str, StoredId] = {}
        self.known_from: Tick = 0
        self.crowded_out: Tick = 0  # 0: none ever was
        self._crowded_at = -inf  # when that was stored, at the latest

    def __len__(self) -> int:
        return len(self._stored)

    def begin(self, known_from: Tick, crowded_out: Tick, gone: Tick, base: Tick) -> None:
        """A new life that begins at tick `base`: `load` follows, with every entry of the log from `known_from` on."""
        self._stored.clear()
        self.known_from = known_from
        self.crowded_out = crowded_out
        self._crowded_at = self._stored_at(crowded_out, base) if crowded_out else -inf
        if known_from <= gone and gone:
            # Entries were taken before their ids might be forgotten. When, no tick can say: each restart leaps ahead.
            self._crowded_at = 0.0

    def load(self, publication_id: str, message: Message, tick: Tick, base: Tick) -> None:
        """An entry of an earlier life."""
        self.add(publication_id, content_digest(message), tick, max(self._stored_at(tick, base), -self._window))

    def find(self, publication_id: str) -> StoredId | None:
        return self._stored.get(publication_id)

    def add(self, publication_id: str, digest: bytes, tick: Tick, elapsed: float) -> None:
        self.add_all(((publication_id, digest, tick),), elapsed)

    def add_all(self, stored: Iterable[tuple[str, bytes, Tick]], elapsed: float) -> None:
        """What was written together: id, digest and tick of each."""
        known = self._stored
        for publication_id, digest, tick in stored:
            if publication_id:
                if publication_id in known:
                    del known[publication_id]
                known[publication_id] = StoredId(tick, digest, elapsed)
        self.forget_old(elapsed)

    def forget_old(self, elapsed: float) -> None:
        """Whatever is beyond the window, or too many."""
        kept_from = elapsed - KEPT_SHARE * self._window
        while self._stored:
            publication_id = next(iter(self._stored))
            oldest = self._stored[publication_id]
            if max(oldest.stored_at, 0.0) >= kept_from:  # how long ago an earlier life was no clock can say for certain
                if len(self._stored) <= self._count_max:
                    return
                self.crowded_out = oldest.tick
                self._crowded_at = max(self._crowded_at, oldest.stored_at)
            del self._stored[publication_id]
            self.known_from = oldest.tick + 1

    def reach_back(self, age: float, elapsed: float) -> bool:
        """Whether an id that is not here, first tried so many seconds ago, is certainly not in the log."""
        return age <= self._window and (age == 0.0 or elapsed - age > self._crowded_at)

    def oldest(self) -> Tick | None:
        """The lowest tick whose id is known; None: there is none."""
        return next((stored.tick for stored in self._stored.values()), None)

    def _stored_at(self, tick: Tick, base: Tick) -> float:
        """When an earlier life stored it, at the latest: the lease that this life begins with was ahead of time."""
        return (tick - base) / SECOND + self._lease
