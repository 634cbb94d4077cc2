"""What an earlier try of a batch has stored already, read back from the log itself.

Publication ids are known at a pubend for a bounded time and number. So a task that may not be the first to try its
batch reads what the stream has got since the batch began, and leaves out the rows that are there. It looks again before
each of Spark's Arrow batches: what the earlier try had under way may still come in.

Where the batch began the stream keeps itself (`streams.writer_marks`). If retention has taken something behind that,
nobody can know what was stored, and the task fails before it writes anything.

State: the ids of this task's rows that were found, and the tick up to which each pubend was looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.pipeline.source.connection import StreamLink
from penstock.pipeline.source.offsets import Next
from penstock.streams.log_codec import as_array


class _Identified(msgspec.Struct, array_like=True, gc=False):
    """The beginning of an entry of the log (`log_codec.LogEntry`); the rest is passed over."""

    version: int
    publication_id: str


class StoredBefore:
    """The ids that begin with `prefix`, behind where the batch began."""

    def __init__(self, link: StreamLink, began: Mapping[int, Next], prefix: str, *, may_store_twice: bool) -> None:
        self._link = link
        self._at = dict(began)
        self._prefix = prefix
        self._may_store_twice = may_store_twice
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(list[_Identified])
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, publication_id: str) -> bool:
        return publication_id in self._ids

    def look(self) -> None:
        """Read what has come since the last time; raises PenstockError if something is kept no longer."""
        for number, extent in self._link.survey().items():
            at = self._at.get(number)
            if at is None or at.epoch != extent.epoch:
                raise PenstockError(f"{self._link.stream}/{number} was removed and made anew while a batch was written")
            self._kept(number, extent.gone)
            if extent.last < at.tick:
                continue
            pubend, span = f"{self._link.stream}/{number}", (at.tick, extent.last)
            for found in self._link.log.slices(pubend, epoch=at.epoch, first=span[0], last=span[1]):
                self._kept(number, found.gone)
                entries = self._decoder.decode(as_array(len(found.ticks) // 8, found.entries))
                self._ids.update(one.publication_id for one in entries if one.publication_id.startswith(self._prefix))
                self._at[number] = Next(at.epoch, found.upto + 1)

    def _kept(self, number: int, gone: int) -> None:
        at = self._at[number].tick
        if gone >= at and not self._may_store_twice:
            raise PenstockError(
                f"{self._link.stream}/{number} keeps nothing up to tick {gone}, and this batch, which was tried before,"
                f" may have stored rows from tick {at} on: nobody can know which. To store those again, say"
                ' .option("mayStoreTwice", "true")'
            )
