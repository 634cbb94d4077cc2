"""Puts one publisher's messages back in order, as far as waiting is worth it, and finds out which are lost.

A gap in the numbers may be a message on its way, a lost one, or one that nobody meant for us. The record in the header
shows which of the missing ones we want; the latch says how long to wait for them (002 sections 3.2.6, 3.3 and 3.4).

State. Base: the message of the highest number so far, with its times. A window of numbers: what was received, what is
missing and unknown, what is missing and wanted. A queue in the order of numbers, each entry perhaps with a *watch*: the
numbers it waits for and until when. A heap of all watches. An entry leaves at the head of the queue, when its watch is
over or all it waits for has come; a later one never pushes out an earlier one (erratum O7). At the end of its watch,
what a message's record was the first to reveal and is still missing is declared lost, once, even while others wait
ahead.

Timers: none of its own; whoever hosts it asks `deadline` and calls `expired`. Bounds: `window` numbers are remembered;
beyond `queue_max` entries the head goes out early, beyond as many watches the first ends early (both counted).

Departures from Algorithm 3.1 and completions of it:
- A late message waits for what the messages after it still wait for below it, and as long (step 4 of the spec).
- The gap counts as covered when the record reaches its first number (erratum O6); base moves with every message of a
  higher number, the first is taken as it comes, and a wait is never negative (erratum O8). The i-th entry is m_{n-i}.
- A gap that the record does not cover is waited for as well when the record names others in it; as long as for those.
  Released as soon as the named ones are here, a record of two would leave up to twice as many violations.
- Numbers before the first message are nobody's loss: we were not there.
- A record may cover older gaps that no record covered before: those of a late message, a longer one, a heartbeat. The
  paper forgets them. Here such a message is watched for, as long as its own interval asks (most often not at all, and
  then it is lost at once), and no entry is held for it if it lies below base.
- A message that need not be in order (`hold=False`) is released at once; its place in the queue stays while its watch
  lasts, so that ordered ones after it wait as they would have. So does that of a heartbeat. Repairs fill waits, and
  touch neither base nor delay samples; a repair is never dropped for being late.
- A header that cannot be is refused and changes nothing; `header_sanity` says when the order begins anew instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from typing import Generic, TypeVar

from penstock.content.bloom import positions
from penstock.transport.config import TransportConfig
from penstock.transport.ordering.header_sanity import BACKWARDS_MAX, BELIEVED_AFTER, ReferenceHeader, RefusedHeaders
from penstock.transport.ordering.latch import Latch
from penstock.transport.ordering.sequence_window import SequenceWindow
from penstock.transport.wire.header import Header

Item = TypeVar("Item")
REPAIRED_AHEAD = 64  # numbers beyond the newest that others may repair: one that we lost and have not missed yet


class Verdict(Enum):
    """What became of an input."""

    NEW = "new"
    DUPLICATE = "duplicate"  # or so old that nobody knows
    REFUSED = "refused"


@dataclass(slots=True)
class Released(Generic[Item]):
    """An item that goes up to the application."""

    item: Item
    sequence: int
    late: bool  # one of a higher number went before
    assigned: float  # the latch, in seconds
    held: float  # how long it really was here


@dataclass(slots=True, frozen=True)
class Lost:
    """A message that we wanted and that did not come."""

    sequence: int
    encoding: int
    departure: float
    revealed_by: int  # the number of the message (or heartbeat) whose record revealed it


@dataclass(slots=True)
class OrderingStep(Generic[Item]):
    """What came of one input."""

    verdict: Verdict
    problem: str = ""
    released: list[Released[Item]] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    late_dropped: int = 0


class _Gap:
    """Numbers that something waits for, and until when."""

    __slots__ = ("anchor", "deadline", "held", "reveals", "waits")

    def __init__(self, anchor: int, waits: int, reveals: list[Lost], deadline: float) -> None:
        self.anchor = anchor
        self.waits = waits  # bit i stands for anchor - i
        self.reveals = reveals  # declared lost at the deadline if they are still missing then
        self.deadline = deadline
        self.held = False  # it was over, and goes on for the sake of a repair


class _Entry(Generic[Item]):
    """A place in the queue; without an item it only keeps those behind it waiting."""

    __slots__ = ("arrived_at", "assigned", "item", "place", "sequence", "watch")

    def __init__(self, place: int, sequence: int, item: tuple[Item] | None, watch: _Gap | None, now: float) -> None:
        self.place = place
        self.sequence = sequence
        self.item = item
        self.watch = watch
        self.arrived_at = now
        self.assigned = 0.0


class ReorderBuffer(Generic[Item]):
    """The order of one publisher's messages at one subscriber."""

    def __init__(self, config: TransportConfig, latch: Latch) -> None:
        self._config = config
        self._latch = latch
        self._window = SequenceWindow(config.window)
        self._base: ReferenceHeader | None = None
        self._queue: list[_Entry[Item]] = []
        self._watches: list[tuple[float, int, _Gap]] = []
        self._watch_count = 0
        self._highest = -1  # number released to those who want order
        self._highest_of_all = -1
        self._refusals = RefusedHeaders(config)
        self._first = 0
        self._published_before = 0  # until the last time we began anew
        self.received = 0  # originals, each once
        self.repairs = 0
        self.delivered = 0
        self.late = 0  # delivered after one of a higher number
        self.late_dropped = 0
        self.duplicates = 0
        self.too_old = 0  # came when their numbers had long been forgotten; left out
        self.refused = 0
        self.restarts = 0
        self.gaps = 0  # messages before which something may have been missing
        self.overtaking_sum = 0.0  # over the gaps: how likely the missing one was still on its way, 1 - F(interval)
        self.chance_sum = 0.0  # the same when the latch has expired: at most P_t where there is one
        self.latched = 0  # messages that got a latch above 0
        self.assigned_seconds = 0.0
        self.held_seconds = 0.0
        self.unnecessary_seconds = 0.0  # held by those that went out because their latch expired
        self.losses = 0
        self.early = 0  # left early because too many waited

    @property
    def base(self) -> int | None:
        """The highest number received as an original."""
        return self._base.sequence if self._base is not None else None

    @property
    def published_seen(self) -> int:
        """How many messages the publisher sent from the first that we got to the last that we know of."""
        since = self._window.top - self._first + 1 if self._base is not None else 0
        return self._published_before + since

    @property
    def newest(self) -> int:
        """The highest number that has come."""
        return -1 if self._base is None else self._base.sequence

    @property
    def unrevealed(self) -> int:
        """Numbers of which nothing was ever known."""
        return self._window.unrevealed

    @property
    def queued(self) -> int:
        """How many wait, places that are only kept among them."""
        return len(self._queue)

    def has(self, sequence: int) -> bool:
        """Received, or too old to know."""
        return self._window.has(sequence)

    def arrived(
        self, header: Header, relevant: Callable[[int], bool], item: Item, *, hold: bool, now: float
    ) -> OrderingStep[Item]:
        """An original message is here."""
        window, base, sequence = self._window, self._base, header.sequence
        problem = base.problem(header, now, self._config) if base is not None else ""
        if problem or window.too_old(sequence):
            return self._implausible(header, relevant, item, hold, now, problem)
        if sequence <= window.top and window.has(sequence):
            self.duplicates += 1
            return OrderingStep(Verdict.DUPLICATE)
        self._refusals.clear()
        self.received += 1
        window.receive(sequence)
        watch = None
        if base is None:
            self._first = sequence
            self._base = ReferenceHeader(sequence, now, header.departure)
        else:
            self._latch.observe((now - base.arrival) - (header.departure - base.departure))
            if window.unknown or window.wanted:  # otherwise nothing is missing
                watch = self._watch_for(header, relevant, base.sequence, now)
            if sequence > base.sequence:
                base.sequence, base.arrival, base.departure = sequence, now, header.departure
        return self._placed(sequence, item, watch, hold, now, self._config.late == "drop")

    def repaired(
        self, sequence: int, item: Item, *, hold: bool, now: float, first_hand: bool = False
    ) -> OrderingStep[Item]:
        """Somebody sent a message again; `first_hand`: its publisher did, unasked."""
        window = self._window
        ahead = self._config.window if first_hand else REPAIRED_AHEAD
        if sequence <= 0 or (window.top >= 0 and sequence > window.top + ahead):
            self.refused += 1
            return OrderingStep(Verdict.REFUSED, f"a repair of message {sequence} after {window.top}")
        if window.has(sequence):
            self.duplicates += 1
            return OrderingStep(Verdict.DUPLICATE)
        self.repairs += 1
        window.receive(sequence)
        return self._placed(sequence, item, None, hold, now, False)

    def noticed(self, header: Header, relevant: Callable[[int], bool], *, now: float) -> OrderingStep[Item]:
        """A heartbeat: its record covers the messages before `header.sequence`."""
        base = self._base
        if base is None:
            return OrderingStep(Verdict.NEW)  # before the first message there is nothing to miss
        problem = base.problem(header, now, self._config)
        if problem:
            self.refused += 1
            return OrderingStep(Verdict.REFUSED, problem)
        self._window.extend(header.sequence - 1)
        step: OrderingStep[Item] = OrderingStep(Verdict.NEW)
        reveals = self._examine(header, relevant) if self._window.unknown else []
        if reveals:
            above = _bits_of([lost for lost in reveals if lost.sequence > base.sequence], header.sequence)
            wait = self._latch.wait(header.departure - reveals[0].departure)
            watch = self._watch(header.sequence, above, reveals, wait, now)
            if above:
                self._insert(_Entry(2 * header.sequence - 1, header.sequence, None, watch, now), now)
        self._advance(step, now)
        return step

    def dismiss(self, sequence: int) -> None:
        """Nobody asks for this one (any more): no use in holding others for its repair."""
        self._window.despair(sequence)

    def expired(self, *, now: float) -> OrderingStep[Item]:
        """The deadline has come."""
        step: OrderingStep[Item] = OrderingStep(Verdict.NEW)
        self._advance(step, now)
        return step

    def deadline(self) -> float | None:
        """When to call `expired`; None while nothing waits."""
        watches = self._watches
        while watches:
            deadline, _, watch = watches[0]
            if deadline == watch.deadline and (self._missing(watch) or self._lost(watch)):
                return deadline
            heappop(watches)
        return None

    def close(self, *, now: float) -> OrderingStep[Item]:
        """The session ends: all that waits goes out in order, and nothing more is declared lost."""
        step: OrderingStep[Item] = OrderingStep(Verdict.NEW)
        self._watches.clear()
        for entry in self._queue:
            self._release_entry(step, entry, now)
        self._queue.clear()
        return step

    # --- What a record covers

    def _watch_for(self, header: Header, relevant: Callable[[int], bool], base: int, now: float) -> _Gap | None:
        """What a message waits for; None: for nothing."""
        window, sequence = self._window, header.sequence
        reveals = self._examine(header, relevant)
        gap = window.between(base, sequence)
        named = window.seen_from(window.wanted, sequence) & gap & _covered(header)
        unrevealed = window.seen_from(window.unknown, sequence) & gap
        if named:
            newest = (named & -named).bit_length() - 1
            return self._watch(sequence, named | unrevealed, reveals, self._wait(header.ages[newest - 1]), now)
        if reveals:  # all below base: watched for, but nobody is held
            self._watch(sequence, 0, reveals, self._latch.wait(header.departure - reveals[0].departure), now)
        if not unrevealed:
            return None
        # The record does not cover the gap, or there is none: take the nearest unknown one for wanted, and for as young
        # as its neighbour. Nothing is declared lost for it.
        wait = self._wait(header.ages[max(1, header.record_size) - 1] if header.ages else 0.0)
        return self._watch(sequence, unrevealed, [], wait, now) if wait > 0.0 else None

    def _examine(self, header: Header, relevant: Callable[[int], bool]) -> list[Lost]:
        """Read the record as far as no other covered the same: what we want and do not have, newest first."""
        window, sequence = self._window, header.sequence
        unread = window.seen_from(window.unknown, sequence) & _covered(header)
        if not unread:
            return []
        entries, ages = header.entries(), header.ages
        reveals: list[Lost] = []
        for back in positions(unread):
            encoding = entries[back - 1]
            if relevant(encoding):
                reveals.append(Lost(sequence - back, encoding, header.departure - ages[back - 1], sequence))
        window.unknown &= ~window.seen_from_top(unread, sequence)
        window.wanted |= window.seen_from_top(_bits_of(reveals, sequence), sequence)
        return reveals

    def _wait(self, interval: float) -> float:
        self.gaps += 1
        wait = self._latch.wait(interval)
        self.overtaking_sum += self._latch.chance(interval)
        self.chance_sum += self._latch.chance(interval + wait)
        return wait

    # --- Watches

    def _watch(self, anchor: int, waits: int, reveals: list[Lost], wait: float, now: float) -> _Gap:
        watch = _Gap(anchor, waits, reveals, now + wait)
        self._push(watch)
        return watch

    def _push(self, watch: _Gap) -> None:
        self._watch_count += 1
        heappush(self._watches, (watch.deadline, self._watch_count, watch))

    def _missing(self, watch: _Gap) -> int:
        """What a watch still waits for."""
        window = self._window
        return watch.waits & ~window.seen_from(window.received | window.hopeless, watch.anchor)

    def _lost(self, watch: _Gap) -> list[Lost]:
        return [lost for lost in watch.reveals if not self._window.has(lost.sequence)]

    def _end_watches(self, step: OrderingStep[Item], now: float) -> None:
        """Declare lost what watches that are over were first to reveal."""
        watches, window = self._watches, self._window
        fresh = 0
        while watches and (watches[0][0] <= now or len(watches) > self._config.queue_max):
            deadline, _, watch = heappop(watches)
            if deadline != watch.deadline:
                continue
            self.early += deadline > now
            lost = self._lost(watch)
            fresh |= window.seen_from_top(_bits_of(lost, watch.anchor), watch.anchor)
            step.lost += lost
            self.losses += len(lost)
            watch.reveals = []
            watch.deadline = min(now, deadline)
            if self._config.late == "hold" and not watch.held and deadline <= now:
                self._hold_for_repair(watch, fresh, now)
        window.wanted &= ~fresh

    def _hold_for_repair(self, watch: _Gap, declared: int, now: float) -> None:
        """Go on waiting for what was declared lost this very moment."""
        if self._missing(watch) & self._window.seen_from(declared, watch.anchor):
            watch.held = True
            watch.deadline = now + self._config.hold_max
            self._push(watch)

    # --- The queue

    def _advance(self, step: OrderingStep[Item], now: float) -> None:
        """Release the head as long as it waits for nothing, or too many wait behind it."""
        self._end_watches(step, now)
        queue, done = self._queue, 0
        for entry in queue:
            watch = entry.watch
            if watch is not None and watch.deadline > now and self._missing(watch):
                if len(queue) - done <= self._config.queue_max:
                    break
                self.early += 1
            self._release_entry(step, entry, now)
            done += 1
        if done:
            del queue[:done]

    def _placed(
        self, sequence: int, item: Item, watch: _Gap | None, hold: bool, now: float, drop: bool
    ) -> OrderingStep[Item]:
        """Find the place of a message that was just received, and see who may go."""
        step: OrderingStep[Item] = OrderingStep(Verdict.NEW, "", [], [], 0)
        if not hold:
            self._release(step, item, sequence, sequence < self._highest_of_all, 0.0, 0.0)
            if watch is not None:
                self._insert(_Entry(2 * sequence, sequence, None, watch, now), now)
        elif sequence < self._highest:
            if drop:
                self.late_dropped += 1
                step.late_dropped += 1
            else:
                self._release(step, item, sequence, True, 0.0, 0.0)
        elif watch is not None or self._queue:
            self._insert(_Entry(2 * sequence, sequence, (item,), watch, now), now)
        else:
            self._highest = sequence
            self._release(step, item, sequence, False, 0.0, 0.0)
        if self._watches or self._queue:
            self._advance(step, now)
        return step

    def _insert(self, entry: _Entry[Item], now: float) -> None:
        queue = self._queue
        if queue and entry.place < queue[-1].place:
            at = bisect_left(queue, entry.place, key=_place_of)
            self._inherit(entry, queue[at].watch)
            queue.insert(at, entry)
        else:
            queue.append(entry)
        if entry.item is not None and entry.watch is not None and entry.watch.deadline > now:
            entry.assigned = entry.watch.deadline - now
            self.latched += 1
            self.assigned_seconds += entry.assigned

    def _inherit(self, entry: _Entry[Item], following: _Gap | None) -> None:
        """A late message waits for what the one after it still waits for below it, and as long (step 4)."""
        below = self._missing(following) >> (following.anchor - entry.sequence) & ~1 if following is not None else 0
        if following is None or not below:
            return
        if entry.watch is None:
            entry.watch = _Gap(entry.sequence, below, [], following.deadline)
        else:
            entry.watch.waits |= below
            entry.watch.deadline = max(entry.watch.deadline, following.deadline)
        self._push(entry.watch)

    def _release_entry(self, step: OrderingStep[Item], entry: _Entry[Item], now: float) -> None:
        if entry.item is None:
            return
        held = max(0.0, now - entry.arrived_at)
        watch = entry.watch
        if watch is not None and watch.deadline <= now and self._missing(watch):
            self.unnecessary_seconds += held
        self.held_seconds += held
        self._highest = entry.sequence
        self._release(step, entry.item[0], entry.sequence, False, entry.assigned, held)

    def _release(
        self, step: OrderingStep[Item], item: Item, sequence: int, late: bool, assigned: float, held: float
    ) -> None:
        self.delivered += 1
        self.late += late
        if sequence > self._highest_of_all:
            self._highest_of_all = sequence
        step.released.append(Released(item, sequence, late, assigned, held))

    # --- Headers that cannot be

    def _implausible(
        self, header: Header, relevant: Callable[[int], bool], item: Item, hold: bool, now: float, problem: str
    ) -> OrderingStep[Item]:
        """Refuse it, unless so many before it agree with it that our reference must be wrong."""
        base = self._base
        known = base is not None and self.received > BELIEVED_AFTER  # too many to have been forged
        if not problem and known and base is not None and header.departure < base.departure - BACKWARDS_MAX:
            self.too_old += 1  # delayed somewhere for long: it proves nothing about the publisher's numbers or clock
            return OrderingStep(Verdict.DUPLICATE)
        if self._refusals.believe(header, now):
            step = self.close(now=now)
            self._begin_anew(header, now)
            step.released += self.arrived(header, relevant, item, hold=hold, now=now).released
            return step
        if not problem:
            self.duplicates += 1
            return OrderingStep(Verdict.DUPLICATE)
        self.refused += 1
        return OrderingStep(Verdict.REFUSED, problem)

    def _begin_anew(self, header: Header, now: float) -> None:
        """If only the times were wrong (a clock was set), what was received stays received."""
        self.restarts += 1
        if self._base is not None and 0 < header.sequence - self._base.sequence < self._config.window:
            self._base = ReferenceHeader(self._base.sequence, now, header.departure)
            return
        self._published_before = self.published_seen
        self._window = SequenceWindow(self._config.window)
        self._base = None
        self._highest = self._highest_of_all = -1


def _place_of(entry: _Entry[Item]) -> int:
    return entry.place


def _covered(header: Header) -> int:
    """The messages that a record covers: bit i for the i-th before the one that carries it."""
    return (1 << (header.record_size + 1)) - 2


def _bits_of(reveals: list[Lost], sequence: int) -> int:
    bits = 0
    for lost in reveals:
        bits |= 1 << (sequence - lost.sequence)
    return bits
