"""How far a query is: for each pubend of a stream the next tick to be read, and the epoch that the tick is of.

Offsets stand in Spark's checkpoint, and are all that a reader in any process needs: the stream, pubend by pubend.

Spark keeps where a batch ends, and takes the end of the one before for its beginning. Where the first batch begins it
does not keep: if that is tried again after a crash, it asks for the initial offset anew, which may be another by then.
So an initial offset is marked, and the end of the batch that follows it says where that batch began. The end of a batch
also says in how many partitions it is cut, so that it is cut in the same way when it is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import PenstockError


class DataLoss(PenstockError):
    """Messages that should have been read are kept no longer."""


@dataclass(frozen=True)
class Next:
    """Where one pubend is read on."""

    epoch: int
    tick: int
    ahead: bool = False  # it was placed by a time that was still to come; otherwise it is never beyond the end


Offsets = dict[int, Next]  # pubend -> where it is read on


INITIAL, BEGAN, PARTITIONS = "initial", "began", "partitions"


def to_json(
    stream: str, offsets: Offsets, *, initial: bool = False, began: Offsets | None = None, partitions: int = 1
) -> dict[str, Any]:
    """As Spark keeps it; the same offsets are always the same text."""
    found: dict[str, Any] = {"stream": stream, "pubends": _places(offsets)}
    if initial:
        found[INITIAL] = True
    if began is not None:
        found[BEGAN] = _places(began)
    if partitions > 1:
        found[PARTITIONS] = partitions
    return found


def _places(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {
        str(number): {"epoch": at.epoch, "next": at.tick} | ({"ahead": True} if at.ahead else {})
        for number, at in sorted(offsets.items())
    }


def from_json(stream: str, found: Mapping[str, Any], places: str = "pubends") -> Offsets:
    """What a checkpoint says; raises PenstockError if it is of something else."""
    if found.get("stream") != stream:
        other = f"the stream '{found['stream']}'" if "stream" in found else "another source"
        raise PenstockError(f"the checkpoint is of {other}, not of '{stream}'; give this query a checkpoint of its own")
    try:
        return {
            int(number): Next(int(place["epoch"]), int(place["next"]), place.get("ahead") is True)
            for number, place in found[places].items()
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PenstockError(f"the checkpoint has offsets that cannot be read: {dict(found)}") from None


def batch_start(stream: str, start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """Where a batch begins: at its start, or, if that is an initial offset, where it began when it was first tried."""
    tried_before = INITIAL in start and BEGAN in end
    return from_json(stream, end, BEGAN) if tried_before else from_json(stream, start)


def partitions_min(end: Mapping[str, Any]) -> int:
    """In how many partitions, at least, the batch with this end was read first, and is read again."""
    found = end.get(PARTITIONS, 1)
    return found if type(found) is int and found > 0 else 1


@dataclass(frozen=True)
class PubendExtent:
    """What one pubend has, as a survey says it."""

    epoch: int
    gone: int  # the tick of the last message that is kept no longer
    last: int  # the tick of the last message
    entries: int  # in the part that was surveyed
    bytes: int
    marks: tuple[int, ...]

    @property
    def end(self) -> int:
        """The first tick behind everything that is there."""
        return self.last + 1


def kept_from(at: Next, extent: PubendExtent) -> Next:
    """Where a query goes on that stands at a loss."""
    beyond = at.epoch == extent.epoch and at.tick > extent.end
    return Next(extent.epoch, extent.end if beyond else extent.gone + 1)


def loss(stream: str, number: int, at: Next, extent: PubendExtent) -> str:
    """What a query that stands here has lost for good; empty: nothing. Silence between ticks is no loss."""
    if at.epoch != extent.epoch:
        return f"{stream}/{number} was removed and made anew since the query read it"
    if at.tick <= extent.gone:
        return f"{stream}/{number} keeps nothing up to tick {extent.gone}, and the query had read up to {at.tick - 1}"
    if at.tick > extent.end and not at.ahead:
        known = f"the query knows of ticks up to {at.tick - 1}"
        return f"{stream}/{number} ends at tick {extent.last}, and {known}: the stream is not the one that it read"
    return ""
