"""The receiving end: finds the numbers that did not come, asks for them, and recognises doubles.

A number above the next expected one leaves a gap. What is in it may only be late, so we wait a little: at least
`late_min`, and a quarter longer than originals have lately been overtaken. Then the gap is asked for (`LinkNack`); once
more if no answer came in the time that answers take (a smoothed mean and four mean deviations, as TCP's timer); then it
is given up, and left to the ends. What comes is handed on at once, in whatever order: order is the ends' business.

Whatever comes a second time is a double and is dropped. What was given up and comes all the same is handed on; so a
number that is neither missing nor given up, and below the expected one, has been here before. What is sent again and
was asked for before our first number is taken for a double too: a former life of this broker asked for it.

State: the missing numbers with their deadlines, and those given up, `missing_max` of each; beyond it the oldest are
given up, or forgotten. Timer: the first deadline.
"""

from __future__ import annotations

from itertools import islice

from penstock.kernel.answer_time import AnswerTime
from penstock.overlay.repair.config import RepairConfig
from penstock.overlay.repair.controls import RANGES_MAX, LinkNack, Range, nack_of
from penstock.overlay.repair.queue_delay import QueueDelay

NACKS_MAX = 4  # at one time; the rest follows at once
LATER = 1.25  # times the lateness seen
LATE_DECAY = 0.98  # with each loss that was none of lateness
TOGETHER = 0.001  # seconds: what is due within this is asked for in one go
TOO_SOON = 1.5  # times longer from then on
BEFORE = 256  # numbers before the first one that may still come
BEFORE_US = -1.0
NEVER = float("inf")


class _Missing:
    __slots__ = ("asked_at", "due", "noticed_at", "tries")

    def __init__(self, now: float, due: float) -> None:
        self.noticed_at = now
        self.asked_at = 0.0  # for the last time
        self.due = due
        self.tries = 0


class GapDetector:
    """What has come on one link, and what has not."""

    def __init__(self, config: RepairConfig, first: int | None = 0) -> None:
        self.expected = first  # None: whatever comes first begins
        self.repaired = 0  # came because we asked
        self.given_up = 0  # never came, or too late to be asked for again
        self.doubles = 0
        self.due = NEVER
        self._config = config
        self._missing: dict[int, _Missing] = {}  # increasing
        self._given_up: dict[int, float] = {}  # when each was last asked for; 0: never
        self._late = config.late_min
        self._answers = AnswerTime()
        self._delay = QueueDelay()

    def arrived(self, number: int, now: float, *, stamp: int, repeated: bool) -> bool:
        """A datagram has come; whether for the first time."""
        if repeated and (self.expected is None or self._given_up.get(number) == BEFORE_US):
            return False  # a former life of ours asked for it, and may have had it
        if self.expected is None:
            self._begin(number)
        assert self.expected is not None
        self._delay.arrived(stamp, now)
        if number == self.expected:
            self.expected = number + 1
            return True
        if number > self.expected:
            self._pass_over(number, now)
            self._delay.lost()
            self.expected = number + 1
            return True
        missing = self._missing.pop(number, None)
        if missing is not None:
            self._found(missing, now, repeated)
            return True
        asked_at = self._given_up.pop(number, None)
        if asked_at is not None:
            self.given_up -= asked_at > BEFORE_US
            if repeated:
                self.repaired += 1
                self._answered(now - asked_at)
            return True
        self.doubles += 1
        if repeated:  # two answers: we had asked again too soon
            self._answers.stretch(TOO_SOON)
        return False

    def told(self, last: int, now: float) -> None:
        """The last number that was sent so far."""
        if self.expected is None:
            self._begin(last + 1)
        elif last >= self.expected:
            self._pass_over(last + 1, now)
            self.expected = last + 1

    def requests(self, now: float) -> list[LinkNack]:
        """What is to be asked for now; what was asked for often enough is given up."""
        if now < self.due:
            return []
        config = self._config
        wanted: list[int] = []
        due, soon = NEVER, now + TOGETHER
        for number, missing in list(self._missing.items()):
            forgotten = now - missing.noticed_at > config.keep_for  # by the sender
            if missing.due <= soon and (forgotten or missing.tries >= config.tries):
                self._give_up(number)
                continue
            if missing.due <= soon and len(wanted) < NACKS_MAX * RANGES_MAX:
                missing.tries += 1
                missing.asked_at = now
                missing.due = now + self._answer_within() * min(missing.tries, 2)
                wanted.append(number)
            due = min(due, missing.due)
        self.due = due
        ranges = _ranges(wanted)
        congested = self._delay.congested
        return [nack_of(ranges[at : at + RANGES_MAX], congested) for at in range(0, len(ranges), RANGES_MAX)]

    @property
    def congested(self) -> bool:
        """Whether losses go with long waits on the way."""
        return self._delay.congested

    def missing(self) -> int:
        """How many numbers are awaited."""
        return len(self._missing)

    def _begin(self, number: int) -> None:
        """We know nothing of what came before: some that others have overtaken may still come."""
        self.expected = number
        self._given_up = dict.fromkeys(range(max(0, number - BEFORE), number), BEFORE_US)

    def _pass_over(self, number: int, now: float) -> None:
        """All from the expected one up to this one are missing."""
        assert self.expected is not None
        first, bound = self.expected, self._config.missing_max
        self.given_up += max(0, number - first - bound)
        due = now + self._late
        for one in range(max(first, number - bound), number):
            self._missing[one] = _Missing(now, due)
        self.due = min(self.due, due)
        for one in list(islice(self._missing, max(0, len(self._missing) - bound))):
            self._give_up(one)

    def _found(self, missing: _Missing, now: float, repeated: bool) -> None:
        """A missing one has come: late, or repaired."""
        config = self._config
        if not repeated:
            self._late = min(max(self._late, LATER * (now - missing.noticed_at)), config.late_max)
            return
        self.repaired += 1
        self._late = max(config.late_min, LATE_DECAY * self._late)
        self._answered(now - missing.asked_at)

    def _answered(self, seconds: float) -> None:
        """An answer came so long after the last request. If it answers the one before, another follows: a double."""
        self._answers.measured(min(seconds, self._config.keep_for))

    def _answer_within(self) -> float:
        config = self._config
        mean = self._answers.mean
        if mean is None:
            return config.answer_within
        within = max(self._answers.within(0.0), 1.25 * mean)
        return min(max(within, config.answer_within_min), config.answer_within_max)

    def _give_up(self, number: int) -> None:
        self._given_up[number] = self._missing.pop(number).asked_at
        self.given_up += 1
        if len(self._given_up) > self._config.missing_max:
            del self._given_up[next(iter(self._given_up))]


def _ranges(numbers: list[int]) -> list[Range]:
    """Increasing numbers as ranges."""
    found: list[Range] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
