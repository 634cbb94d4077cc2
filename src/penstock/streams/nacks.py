"""Which unknown ticks to ask for now (001 section 2; erratum on retries: max(2 round trips, 200 ms), doubled).

State: the ranges that are waited for, in order, each with the number of times it was asked for and the time when it is
asked for next. `due` is given all ranges that are unknown now, and keeps the times of those it has met before, tick by
tick: a range that shrank or was cut keeps its time in each part.

    seen first                asked for after nack_delay: packets that overtake each other close gaps by themselves
    asked for, no answer      again after max(2 round trips, nack_retry_min), doubled each time up to nack_retry_max
    a part was answered       the rest of the answer may be on its way: what is left above that part waits as if it had
                              just been asked for once
    the answer was cut        there is more than one answer holds: what is left is asked for at once (`again`)
    unknown no longer         forgotten

The round trip is that of answers to ranges that were asked for once (otherwise nobody knows which request was
answered), smoothed by 1/8. What is left of a range when a part was answered gives no sample. When one that was asked
for several times is answered, the patience that it had in the end is kept for new ranges until there is a sample again
(Karn's rule): where answers take long, everything would otherwise be asked for several times, for ever.

Bounds: at most `outstanding_max` ranges are waited for; when so many were asked for, a new one waits until one of them
is answered. Those asked for come first, then the lowest. At most RANGES_MAX are due at once. Timers: none; whoever
owns it calls `due` at `next_at`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.streams.config import StreamsConfig
from penstock.streams.packets import RANGES_MAX, Range, Tick

SMOOTHING = 1 / 8


@dataclass(slots=True)
class _Waiting:
    """A range that is waited for."""

    first: Tick
    last: Tick
    due_at: float
    times: int = 0  # how often it was asked for
    asked_at: float | None = None  # None: never
    measures: bool = True  # an answer to it is a sample of the round trip


class NackSchedule:
    """When to ask for what is unknown, of one pubend at one broker."""

    __slots__ = ("_config", "_kept_patience", "_sample", "_waiting", "round_trip")

    def __init__(self, config: StreamsConfig) -> None:
        self.round_trip: float | None = None
        self._config = config
        self._kept_patience = 0.0
        self._sample: float | None = None
        self._waiting: list[_Waiting] = []

    def __len__(self) -> int:
        """How many ranges are waited for."""
        return len(self._waiting)

    def next_at(self) -> float | None:
        """When `due` should be called again; None if nothing is waited for."""
        return min((one.due_at for one in self._waiting), default=None)

    def due(self, wanted: Sequence[Range], now: float) -> list[Range]:
        """The ranges to be asked for now. `wanted`: all that are unknown, in order, without overlap."""
        if not wanted:
            self._waiting.clear()
            return []
        self._waiting = self._limited(self._matched(wanted, now))
        asked = [one for one in self._waiting if one.due_at <= now][:RANGES_MAX]
        for one in asked:
            one.measures = one.measures and one.times == 0
            one.times += 1
            one.asked_at = now
            one.due_at = now + self._patience(one.times)
        ranges: list[Range] = []
        for one in asked:
            if ranges and ranges[-1][1] == one.first - 1:
                ranges[-1] = (ranges[-1][0], one.last)
            else:
                ranges.append((one.first, one.last))
        return ranges

    def answered(self, first: Tick, last: Tick, now: float) -> bool:
        """Knowledge of these ticks came, and it counts for whoever wanted it; says whether it was asked for."""
        left: list[_Waiting] = []
        sampled = asked = False
        for one in self._waiting:
            if one.last < first or one.first > last:
                left.append(one)
                continue
            asked = asked or one.asked_at is not None
            if one.measures and one.asked_at is not None and not sampled:
                self._measure(now - one.asked_at)
                sampled = True
            elif one.times > 1:
                self._kept_patience = max(self._kept_patience, self._patience(one.times))
            if one.first < first:
                left.append(replace(one, last=first - 1, measures=False))
            if one.last > last:
                left.append(self._rest(one, last + 1, now))
        self._waiting = left
        return asked

    def again(self, first: Tick) -> None:
        """An answer was cut before this tick: what was asked for together with it, from there on, is due at once."""
        cut = [one for one in self._waiting if one.last >= first and one.asked_at is not None]
        for one in cut:
            if one.asked_at is not None and one.asked_at == cut[0].asked_at:
                one.due_at, one.times, one.measures = one.asked_at, 0, False

    def _rest(self, one: _Waiting, first: Tick, now: float) -> _Waiting:
        """What is left above an answered part."""
        if one.times == 0:
            return replace(one, first=first)
        return replace(one, first=first, due_at=now + self._patience(1), times=1, measures=False)

    def take_sample(self) -> float | None:
        """The last sample of the round trip, once."""
        sample, self._sample = self._sample, None
        return sample

    def _measure(self, sample: float) -> None:
        self._sample = sample
        self._kept_patience = 0.0
        if self.round_trip is None:
            self.round_trip = sample
        else:
            self.round_trip += SMOOTHING * (sample - self.round_trip)

    def _patience(self, times: int) -> float:
        """How long to wait for an answer to the request number `times`."""
        shortest = max(2 * (self.round_trip or 0.0), self._config.nack_retry_min, self._kept_patience)
        doubled: float = shortest * 2 ** min(times - 1, 30)
        return min(doubled, max(shortest, self._config.nack_retry_max))

    def _matched(self, wanted: Sequence[Range], now: float) -> list[_Waiting]:
        """The wanted ranges, cut where they were waited for differently, with what is known of each part."""
        matched: list[_Waiting] = []
        old = iter(self._waiting)
        one = next(old, None)
        for first, last in wanted:
            at = first
            while at <= last:
                while one is not None and one.last < at:
                    one = next(old, None)
                if one is None or one.first > last:
                    self._append(matched, _Waiting(at, last, now + self._config.nack_delay), now)
                    break
                if at < one.first:
                    self._append(matched, _Waiting(at, one.first - 1, now + self._config.nack_delay), now)
                end = min(one.last, last)
                part = _Waiting(max(at, one.first), end, one.due_at, one.times, one.asked_at, one.measures)
                self._append(matched, part, now)
                at = end + 1
        return matched

    @staticmethod
    def _append(matched: list[_Waiting], one: _Waiting, now: float) -> None:
        """One more, joined to the one before it if they touch and will be asked for together."""
        if matched and matched[-1].last == one.first - 1 and _alike(matched[-1], one, now):
            matched[-1].last = one.last
            matched[-1].measures = matched[-1].measures and one.measures
        else:
            matched.append(one)

    def _limited(self, waiting: list[_Waiting]) -> list[_Waiting]:
        room = self._config.outstanding_max
        if len(waiting) <= room:
            return waiting
        chosen = [place for place, one in enumerate(waiting) if one.asked_at is not None][:room]
        chosen += [place for place, one in enumerate(waiting) if one.asked_at is None][: room - len(chosen)]
        return [waiting[place] for place in sorted(chosen)]


def _alike(one: _Waiting, other: _Waiting, now: float) -> bool:
    if one.times != other.times or (one.asked_at is None) != (other.asked_at is None):
        return False
    overdue = one.due_at <= now and other.due_at <= now
    return overdue or (one.due_at == other.due_at and one.asked_at == other.asked_at)
