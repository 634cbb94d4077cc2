"""What a client's subscriptions say of sketches: one predicate for all of them, and one for each.

A subscription wants nothing that was published before it was made. So each has the time of its making, and what is
older than the newest subscription is asked of each by itself. That is rare, and everything else goes by the predicate
for all.

No messages, no timers.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from penstock.content.predicate import Predicate
from penstock.transport.ledgers.messages import FILTER_BYTES_MAX, FILTERS_MAX, NAMES_ASKED_MAX
from penstock.transport.ledgers.sketch import Columns, Sketch
from penstock.transport.ledgers.sketch_predicate import NO, SketchForm, SketchPredicate, names_in, text_columns


class _Wanted(NamedTuple):
    predicate: Predicate
    sketches: SketchPredicate
    since: float
    recover: bool


class SketchedInterest:
    """All subscriptions of a client that asked for order or recovery."""

    def __init__(self) -> None:
        self._wanted: dict[int, _Wanted] = {}
        self.closed = 0  # how often subscriptions were closed
        self._sum_up()

    def add(self, number: int, predicate: Predicate, *, since: float, recover: bool) -> None:
        """A subscription was made."""
        self._wanted[number] = _Wanted(predicate, SketchPredicate(predicate.filters), since, recover)
        self._sum_up()

    def keep(self, numbers: set[int]) -> None:
        """Only these are left."""
        self._wanted = {number: one for number, one in self._wanted.items() if number in numbers}
        self.closed += 1
        self._sum_up()

    def _sum_up(self) -> None:
        wanted = self._wanted.values()
        every = [selected for one in wanted for selected in one.predicate.filters]
        self._all = SketchPredicate(every)
        self.doubted = frozenset(text_columns(every))  # columns of which a record may say too little
        recovered = [one for one in wanted if one.recover]
        self.earliest = min([one.since for one in wanted], default=inf)
        self.newest = max([one.since for one in wanted], default=-inf)
        self.recover_any = bool(recovered)
        selected = [selected for one in recovered for selected in one.predicate.filters]
        self.texts = tuple(text_columns(selected)[:NAMES_ASKED_MAX])
        self.columns = tuple(names_in(selected)[:NAMES_ASKED_MAX])
        filters = tuple(dict.fromkeys(one.predicate.text for one in recovered))
        fits = len(filters) <= FILTERS_MAX and sum(map(len, filters)) <= FILTER_BYTES_MAX
        self.filters = filters if fits else ()  # for fills; without them numbers are asked for and looked at here

    def form(self, columns: Columns, bits: int, complete: bool) -> SketchForm:
        """The predicate of all, for sketches with these columns."""
        return self._all.form(columns, bits, complete=complete)

    def verdict(self, sketch: Sketch, came_at: float) -> int:
        """What those say that were there when it would have come."""
        verdicts = [_verdict(one, sketch) for one in self._wanted.values() if one.since <= came_at]
        return max(verdicts, default=NO)

    def who(self, sketch: Sketch | None, came_at: float, *, recover: bool) -> tuple[int, ...]:
        """The subscriptions that may want it back; without a sketch, all."""
        return tuple(
            [
                number
                for number, one in self._wanted.items()
                if one.since <= came_at and one.recover >= recover and (sketch is None or _verdict(one, sketch) > NO)
            ]
        )

    def wanting(self, numbers: list[int], came_at: float) -> list[int]:
        """Of these subscriptions, those that were there when it would have come."""
        return [number for number in numbers if number in self._wanted and self._wanted[number].since <= came_at]


def _verdict(one: _Wanted, sketch: Sketch) -> int:
    return one.sketches.form(sketch.columns, sketch.bits, complete=sketch.complete).verdict(sketch.codes)
