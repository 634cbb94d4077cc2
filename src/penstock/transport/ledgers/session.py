"""What a subscriber knows of one publisher in one of its lives: numbers, order, and what is missed.

A number is *missed* when a record or a ledger says that we want it and it has not come; it is *doubtful* when a ledger
cannot tell, or the ledger that told of it was lost itself. A missed one is declared lost some time after it should
have come (`lateness`, or twice the reach), and asked for; a doubtful one is asked for with our filters.

    missed or doubtful, waiting   its time has come            declared lost (missed); asked for
    asked for                     the message comes            settled
    asked for                     RTO x 1.5^i passes           asked for again, up to ATTEMPTS_MAX times
    asked for                     the reply says gone, or      reported lost, by number
                                  after the last attempt
    any                           its broker tells that it     withheld: asked for when nothing was withheld for a
                                  was withheld from us         while; in the end counted as withheld, not as lost

State: see the fields. Timers: ORDER, for the queue; ASK, for the first time in the agenda. Bounds: `sessions_max`
sessions; `requests_pending_max` missed numbers in all of them.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.lateness import Lateness
from penstock.transport.ledgers.number_window import NumberWindow
from penstock.transport.ledgers.ordered_queue import OrderedQueue
from penstock.transport.ledgers.reach import Reach
from penstock.transport.ledgers.round_trip import ReplyTimeout
from penstock.transport.ledgers.sketch import Sketch
from penstock.transport.ledgers.unbelieved import Unbelieved
from penstock.transport.ordering.header_sanity import ReferenceHeader
from penstock.transport.ordering.latch import Latch, make_latch
from penstock.transport.receiver.rate_controller import RateController
from penstock.transport.records import Ordered
from penstock.transport.subscriptions import HeldDelivery

SILENT_MAX = 180.0  # seconds in which a publisher that lives sends something: ledgers come every minute at least
LEDGER_OVERDUE = 12.0  # seconds in which a ledger comes, if none is lost
OVERTAKEN = 3  # later messages that have come, after which congestion control takes one for lost, as TCP does


class Missed:
    """A number that we miss, or may miss."""

    __slots__ = (
        "asked_at",
        "asked_last",
        "at",
        "attempts",
        "came_at",
        "checked",
        "counted",
        "detected_at",
        "number",
        "overtaken",
        "sketch",
        "sure",
        "withheld",
    )

    def __init__(self, number: int, came_at: float, sketch: Sketch | None, *, sure: bool, at: float) -> None:
        self.number = number
        self.came_at = came_at  # when it should have come
        self.sketch = sketch
        self.sure = sure
        self.at = at  # when something is to be done
        self.attempts = 0
        self.checked = -1  # how many subscriptions had been closed when somebody last looked who wants it
        self.detected_at: float | None = None
        self.asked_at = self.asked_last = 0.0  # the first time, and the last
        self.overtaken = 1  # messages after it that have come; a record is on one
        self.counted = False  # congestion control knows of it
        self.withheld = False  # a full link, or our own slow reading, kept it from us: it is not lost


class LedgerSession:
    """One publisher's life, seen from one subscriber."""

    def __init__(
        self,
        publisher: str,
        incarnation: int,
        config: TransportConfig,
        base: int,
        trips: ReplyTimeout,
        lateness: Lateness,
        *,
        first: bool = True,
    ) -> None:
        self.publisher = publisher
        self.incarnation = incarnation
        self.window = NumberWindow(base, first=first)
        self.first = base  # the first number that is looked after
        self.before = base - 1  # numbers before it of which nothing is known
        self.order: OrderedQueue[HeldDelivery] = OrderedQueue(config.queue_max)
        self.reach = Reach()
        self._config = config
        self.latch = self._make_latch()
        self.trip = ReplyTimeout(trips)
        self.lateness = lateness
        self.reference: ReferenceHeader | None = None
        self.unbelieved = Unbelieved(config)
        self.told_last_number = 0  # by ledgers
        self.reference_told = 0  # the number of the reference, if a ledger made it: its departure is the ledger's
        self.missed: dict[int, Missed] = {}
        self._agenda: list[tuple[float, int]] = []
        self._suspects: list[Missed] = []  # that congestion control may soon know of
        self.count_ahead: int | None = None  # by how much the counts of messages' identities are ahead of their numbers
        self.thinned_at = -inf  # when we were last told that something was withheld from us
        self.next_word = 0.0  # seconds after that until there may be more word
        self.withheld: dict[int, None] = {}  # numbers that were, the last ones
        self.waiting = 0  # of the missed ones, withheld
        self.group = 0  # how many ask for the same message, as the publisher says
        self.received_at = 0.0
        self.marked = (0, 0.0)  # a number that was the highest then, and unknown ones below have stayed so
        self.finished = False  # its publisher has said that nothing follows
        self.outlived = False  # a later life of its publisher has begun
        self.placed_at = 0.0  # when it was last put at the end of all sessions
        self.rate_controller: RateController | None = None
        self.order_armed: float | None = None
        self.ask_armed: float | None = None
        self.duplicates = 0
        self.reported = (0, 0, 0, 0.0)  # what the last record of its order counted
        self.delivered = self.late = self.held = 0
        self.held_seconds = 0.0

    def broken_off(self, now: float) -> bool:
        """Whether its publisher is gone without a last word: nobody knows what it sent after the last that came."""
        return not self.finished and (self.outlived or now - self.received_at > SILENT_MAX)

    def begin_anew(self, number: int, departure: float, jump_max: int, now: float) -> int | None:
        """Believe the numbers that were refused. Returns how many of which nothing is known are forgotten with that;
        None if they go on with what is known, and only what came ahead of them was wrong."""
        window, row = self.window, self.unbelieved.row
        before = window.before
        forgotten = None
        if number < window.base and before is not None and before.base <= number <= before.top + jump_max:
            self._came_apart()
            self.window = before
        elif number < window.base or number > window.top + jump_max:
            forgotten = window.forgotten
            self.window = NumberWindow(min([number, *row]))
        elif number <= window.top:
            self._came_apart()
            window.cut(max(number, self.told_last_number))
        for one in sorted(row):
            if one <= number:
                self.window.receive(one)
        self.order.highest = number
        self.reference = ReferenceHeader(number, now, departure)
        self.unbelieved.clear()
        self.reach, self.latch = Reach(), self._make_latch()
        return forgotten

    def _came_apart(self) -> None:
        """The message that leapt may come a second time."""
        if self.unbelieved.leap is not None:
            number, _, leapt = self.unbelieved.leap
            self.unbelieved.delivered(number, leapt)

    def _make_latch(self) -> Latch | None:
        return make_latch(self._config, self._config.hops or 2) if self._config.violation_probability else None

    def another(self, number: int, departure: float) -> bool:
        """Whether a number that has come was on another message than this one, as far as we remember."""
        reference, leap = self.reference, self.unbelieved.leap
        if leap is not None and leap[0] == number:
            return leap[1] != departure
        known = reference is not None and reference.sequence == number != self.reference_told
        return known and reference is not None and reference.departure != departure

    def told_last(self, number: int, now: float) -> None:
        """A reply says that there are numbers up to this one. If nothing else comes, no ledger will tell of them."""
        self.window.extend(number)
        if now - self.received_at > LEDGER_OVERDUE:
            self.marked = (number, -inf)

    def untold(self, now: float) -> bool:
        """Whether a ledger is overdue: of some numbers nothing has been known for so long. To be asked now and then."""
        if not self.window.unknown_up_to(self.marked[0]):
            self.marked = (self.window.top, now)
        return now - self.marked[1] > LEDGER_OVERDUE

    def observe(self, difference: float) -> None:
        """A delay difference was measured."""
        self.reach.observe(difference)
        if self.latch is not None:
            self.latch.observe(difference)

    def hold_until(self, interval: float, now: float) -> float:
        """How long messages that came now wait for one that left `interval` before them."""
        return now + (self.reach if self.latch is None else self.latch).wait(interval)

    def lost_at(self, came_at: float) -> float:
        """When a message is lost that should have come at this time."""
        return came_at + max(self.lateness.wait, 2.0 * self.reach.seconds)

    def miss(self, missed: Missed) -> None:
        """One more."""
        self.missed[missed.number] = missed
        self.window.settle(missed.number)
        heappush(self._agenda, (missed.at, missed.number))

    def overtaken(self, number: int, found: list[Missed]) -> list[Sketch]:
        """A message came, and its record showed these: what congestion control takes for lost now.

        It does not wait as long as who asks for messages. A full queue makes delays differ, and the reach long, though
        it reorders nothing.
        """
        suspects = [one for one in self._suspects if not one.counted and self.missed.get(one.number) is one]
        for one in suspects:
            one.overtaken += number > one.number
        self._suspects = [one for one in suspects if one.overtaken < OVERTAKEN] + found
        return counted([one for one in suspects if one.overtaken >= OVERTAKEN])

    def again(self, missed: Missed, at: float) -> None:
        """Look at this one again then."""
        missed.at = at
        heappush(self._agenda, (at, missed.number))

    def due(self, now: float) -> list[Missed]:
        """The missed numbers whose time has come."""
        found = []
        agenda = self._agenda
        while agenda and agenda[0][0] <= now:
            at, number = heappop(agenda)
            missed = self.missed.get(number)
            if missed is not None and missed.at == at:
                found.append(missed)
        return found

    def next_due(self) -> float | None:
        """When the next one's time comes."""
        agenda = self._agenda
        while agenda:
            at, number = agenda[0]
            missed = self.missed.get(number)
            if missed is not None and missed.at == at:
                return at
            heappop(agenda)
        return None

    def missed_between(self, first: int, last: int) -> list[int]:
        """The missed numbers in a range that somebody named, however long it is."""
        if last - first > len(self.missed):
            return [number for number in self.missed if first <= number <= last]
        return [number for number in range(first, last + 1) if number in self.missed]

    def order_report(self) -> list[Ordered]:
        """How its order fared since the last such record, if anything had to wait or was late."""
        counts = (self.delivered, self.late, self.held, self.held_seconds)
        delivered, late, held, seconds = (new - old for new, old in zip(counts, self.reported, strict=True))
        if not late and not held:
            return []
        self.reported = counts
        return [Ordered(self.publisher, int(delivered), int(late), int(held), seconds, seconds)]


def counted(lost: list[Missed]) -> list[Sketch]:
    """What congestion control is told of these, if it does not know yet."""
    sketches = [one.sketch for one in lost if not one.counted and one.sketch is not None]
    for one in lost:
        one.counted = True
    return sketches
