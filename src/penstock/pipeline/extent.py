"""How far a run can be believed: where it is cut off, which records are lost, and what cannot be judged for that.

A complete run is read whole. One that is not (it was killed, or is still going) is read up to the earliest mark of its
writers (`trace_marks`): before that time nothing is missing, so a delivery has its publication and its subscription.
A run without marks, which an older version left, says nothing about itself; of such a run nothing is certain.

    what is missing                       what is not judged for that
    everything after the cut              publications shortly before it are not due: they may be under way
    a part of `delivered`                 publications of that time, and shortly before it, are not due
    a part of `subscribed`                nothing is due from its time on; deliveries are not held against subscriptions
    a part of `unsubscribed`              nothing is due from its time on
    a part of `published`                 deliveries are not held against publications
    any other                             nothing: the tables have fewer rows, and a check says so

"Shortly" is the run's own `drain`, the time that a complete run gives its last messages to arrive, and at least
`UNDER_WAY`. The time of a part that is lost is that between its neighbours, the parts of its kind and writer before
and after it. A writer that was killed while the run went on may have lost anything after its mark, also of a kind that
it had put nothing on disk of; only the process of a broker never had a client's records.

Records that should be there are counted in `run.json`, or for a run that is not complete in the marks. If there are
fewer, that is a failed check, and the kind counts as lost as a whole. If all are there, a mark that cannot be read does
not matter.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf, nextafter
from pathlib import Path
from typing import NamedTuple

from penstock.kernel.trace_marks import DamagedMark, Mark

UNDER_WAY = 2.0  # seconds that a message may take, where the scenario does not say: the default of `drain`

INCOMPLETE = "incomplete run"
LEFT_OUT = "a part file was left out"
CUT_OFF = "a process was killed"
DAMAGED_MARK = "a mark cannot be read"
MISSING = "records are missing"
TOO_MANY = "there are too many records"

_NO_PUBLICATION = "a delivery without a publication"
_NO_SUBSCRIPTION = "a delivery for a subscription never made"
_EARLY = "delivered before the subscription was made"
UNWANTED = "a delivery that nobody had asked for"
_OF_CLIENTS = {"published", "delivered", "subscribed", "unsubscribed"}  # all that is judged by
_NOT_JUDGED_WITHOUT = {"published": {_NO_PUBLICATION, UNWANTED}, "subscribed": {_NO_SUBSCRIPTION, _EARLY, UNWANTED}}


class CheckFinding(NamedTuple):
    """What a check has found in a run."""

    run: str
    check: str
    times: int
    example: str


@dataclass(frozen=True)
class Part:
    """A part file: its rows, or what is wrong with it."""

    path: Path
    kind: str
    rows: int = 0
    problem: str | None = None

    @property
    def writer(self) -> str:
        """Who wrote it: part-<writer>-00000.parquet."""
        found = re.fullmatch(r"part-(?:(.*)-)?\d+\.parquet", self.path.name)
        return (found[1] or "") if found else self.path.name


class LostRecords(NamedTuple):
    """Records of a kind that are not there: those of some time."""

    kind: str
    begin: float
    end: float


def reached(marks: Sequence[Mark], *, complete: bool) -> float:
    """The time before which no record of a run is missing; inf for one that is complete."""
    if complete:
        return inf
    if any(not mark.closed for mark in marks):
        return min(mark.reached for mark in marks)
    ends = [mark.until for mark in marks if mark.until is not None]  # all have ended before the run did
    return nextafter(max(ends), inf) if ends else -inf


def miscounted(
    parts: Iterable[Part], marks: Iterable[Mark], records: dict[str, int] | None, *, complete: bool
) -> list[tuple[str, int, int]]:
    """The kinds of which there are not as many records as there should be: how many those are, and how many there are.

    `records` are those that `run.json` counts. A writer that was killed, or still writes, may have put more on disk
    than it has said. Of a kind with a part that is left out nobody knows how many there are.
    """
    parts, marks = list(parts), list(marks)
    expected = (records or {}) if complete else sum((Counter(mark.rows) for mark in marks), Counter())
    exact = complete and records is not None and all(mark.closed for mark in marks)
    there: Counter[str] = Counter()
    for part in parts:
        there[part.kind] += part.rows
    kinds = set(expected) | (set(there) if exact else set())
    kinds -= {part.kind for part in parts if part.problem is not None}
    pairs = [(kind, expected.get(kind, 0), there[kind]) for kind in sorted(kinds)]
    return [(kind, said, has) for kind, said, has in pairs if has < said or (exact and has > said)]


def marks_that_matter(
    parts: Iterable[Part],
    marks: Sequence[Mark],
    records: dict[str, int] | None,
    *,
    complete: bool,
    cut_off: Collection[str] = (),
) -> tuple[Mark, ...]:
    """Without the damaged ones where nothing is missed. `cut_off` are the writers that `run.json` says were killed."""
    good = tuple(mark for mark in marks if not isinstance(mark, DamagedMark) or mark.writer in cut_off)
    fits = complete and records is not None and not miscounted(parts, good, records, complete=True)
    return good if fits else tuple(marks)


def lost_records(
    parts: Sequence[Part],
    marks: Sequence[Mark],
    records: dict[str, int] | None,
    *,
    complete: bool,
    brokers: Collection[str] = (),
) -> list[LostRecords]:
    """What is not there of a run, as far as it is read. `brokers` are the names of those of the scenario."""
    lost = []
    for own in _by_writer(parts).values():
        for place, part in enumerate(own):
            if part.problem is not None:
                before = [good for good in own[:place] if good.problem is None and good.rows]
                after = [good for good in own[place:] if good.problem is None and good.rows]
                begin = _times(before[-1].path)[1] if before else -inf
                lost.append(LostRecords(part.kind, begin, _times(after[0].path)[0] if after else inf))
    wrong = miscounted(parts, marks, records, complete=complete)
    lost += [LostRecords(kind, -inf, inf) for kind, said, has in wrong if has < said]
    if complete:
        for mark in marks:
            if not mark.closed:
                of_broker = re.sub(r"-\d+$", "", mark.writer) in brokers  # each life of it has a number of its own
                kinds = set(mark.rows) | (set() if of_broker else _OF_CLIENTS)
                lost += [LostRecords(kind, mark.reached, inf) for kind in sorted(kinds)]
    return lost


def unjudged_stretches(until: float, lost: Iterable[LostRecords], under_way: float) -> tuple[tuple[float, float], ...]:
    """The times in which nothing that was published is due."""
    found = {(until - under_way, inf)} if until < inf else set()
    for kind, begin, end in lost:
        if kind == "delivered":
            found.add((begin - under_way, end))
        elif kind in ("subscribed", "unsubscribed"):
            found.add((begin, inf))
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(found):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return tuple(merged)


def unjudged_checks(lost: Iterable[LostRecords]) -> set[str]:
    """The checks that would find fault with what is only lost."""
    return {check for one in lost for check in _NOT_JUDGED_WITHOUT.get(one.kind, ())}


def find_losses(
    run: str, parts: Sequence[Part], marks: Sequence[Mark], records: dict[str, int] | None, *, complete: bool
) -> list[CheckFinding]:
    """What the checks say about records that are not there."""
    bad = [part for part in parts if part.problem is not None]
    found = [CheckFinding(run, LEFT_OUT, 1, f"{part.kind}/{part.path.name}, {part.problem}") for part in bad]
    for mark in marks:
        if complete and not mark.closed:
            whose = mark.writer or "the run"
            if isinstance(mark, DamagedMark):
                example = f"nobody knows how far the records of {whose} go"
                found.append(CheckFinding(run, DAMAGED_MARK, 1, example))
            else:
                example = f"the records of {whose} end at {seconds(mark.until)}"
                found.append(CheckFinding(run, CUT_OFF, 1, example))
    who = "run.json says" if complete else "the marks say"
    wrong = miscounted(parts, marks, records, complete=complete)
    for check, some in (
        (MISSING, [one for one in wrong if one[2] < one[1]]),
        (TOO_MANY, [one for one in wrong if one[2] > one[1]]),
    ):
        if some:
            texts = [f"{said:,} {kind}, the trace has {has:,}" for kind, said, has in some]
            times = sum(abs(said - has) for _, said, has in some)
            found.append(CheckFinding(run, check, times, f"{who} {'; '.join(texts)}"))
    return found


def seconds(time: float | None) -> str:
    """A time of a run, for people."""
    return f"{max(0.0, time or 0.0):,.1f} s"


def _by_writer(parts: Iterable[Part]) -> dict[tuple[str, str], list[Part]]:
    """The parts of each kind and writer, in order."""
    found: defaultdict[tuple[str, str], list[Part]] = defaultdict(list)
    for part in sorted(parts, key=lambda part: part.path):
        found[part.kind, part.writer].append(part)
    return found


def _times(path: Path) -> tuple[float, float]:
    """The times of the first and the last record of a good part file."""
    import pyarrow.compute as pc
    from pyarrow import parquet

    found = pc.min_max(parquet.read_table(path, columns=["time"]).column("time"))
    return found["min"].as_py(), found["max"].as_py()
