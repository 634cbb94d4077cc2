"""A publisher's side: numbers and headers, the ring of what it sent, and when to send which ledger.

A message gets its number when it leaves, from 1 on in each life of the publisher. A ledger tells of all that none told
of before: after UNTOLD_MAX messages or UNTOLD_FOR seconds, sooner while many are asked for, and before any of them
leaves the ring; and after a silence of a few mean gaps. While the silence lasts others follow, each after up to twice
the time, less where ledgers are lost, up to SILENCE_MAX; most of them are empty. So the loss of a last message is
noticed within a second or so, and an idle publisher costs next to nothing. While ledgers are being lost, each tells
again of what the last ones told. Whoever leaves sees to it that the last number was told TOLD_TIMES, the last time in a
ledger that says that nothing follows.

State: the ring; what was told; the times that ledgers go by; names of columns whose texts somebody asked for.
Messages: `ledger`. Timer: LEDGER, which is looked at when it expires, not moved by each message. Bounds:
`published_kept` messages and `kept_bytes_max` bytes in the ring; NAMES_ASKED_MAX columns with texts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from penstock.content.envelope import wrap
from penstock.content.message import Message
from penstock.kernel.rate_estimator import RateEstimator
from penstock.kernel.timers import ServiceTimers
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.column_use import ColumnUse
from penstock.transport.ledgers.ledger import MESSAGES_MAX, make_ledger
from penstock.transport.ledgers.messages import NAMES_ASKED_MAX, ledger_message
from penstock.transport.ledgers.record import SketchRecord
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import ControlIdentities
from penstock.transport.wire.flow_fields import Control

UNTOLD_MAX, UNTOLD_FOR = MESSAGES_MAX, 10.0
UNTOLD_MAX_ASKED, UNTOLD_FOR_ASKED, UNTOLD_FOR_URGENT = 128, 4.0, 0.75  # while many are lost; while it is urgent
MANY_RATE, URGENT_RATE = 0.5, 2.0  # lost messages in a second that are many, and that are urgent
LOST_WINDOW = 10.0  # seconds over which they are counted
SILENCE_GAPS, SILENCE_FIRST_MIN, SILENCE_FIRST_MAX, SILENCE_MAX = 4.0, 0.75, 3.0, 60.0
GAP_WEIGHT = 0.1  # of the newest gap in the mean
SPANS_FIRST, SPANS_MAX = 3, 8  # spans between ledgers that one tells of; one less if nobody asks for fills
SPANS_MIN_URGENT = 3  # the least while it is urgent
FILLS_PER_SPAN = 4  # requests for fills after one ledger that cost as much as one span more for all
TOLD_TIMES = 3  # the last number of a life: one of these may be lost, or two
TEXTS_FOR = 600.0  # seconds that a column's texts stay in ledgers after somebody asked for them
RATE_WINDOW = 2.0  # seconds over which the rate in the header is measured


class PublishedRing:
    """The last messages of a publisher, by number."""

    def __init__(self, kept: int, bytes_max: int) -> None:
        self._kept = kept
        self._bytes_max = bytes_max
        self.kept_bytes = 0  # of all that was ever kept
        self._gone_bytes = 0  # and is no longer
        self.oldest = 1  # number of the first that is still here
        self._messages: dict[int, tuple[Message, float]] = {}

    def keep(self, number: int, message: Message, departure: float) -> None:
        """One more, of the next number; the oldest goes."""
        messages = self._messages
        messages[number] = (message, departure)
        self.kept_bytes = kept_bytes = self.kept_bytes + message.size_bytes
        while len(messages) > self._kept or (kept_bytes - self._gone_bytes > self._bytes_max and len(messages) > 1):
            self._gone_bytes += messages.pop(self.oldest)[0].size_bytes
            self.oldest += 1

    @property
    def full(self) -> bool:
        """Whether the next message may push the oldest out."""
        kept_bytes = self.kept_bytes - self._gone_bytes
        return len(self._messages) >= self._kept or kept_bytes > self._bytes_max - self._bytes_max // 4

    def all_left_before(self, time: float) -> bool:
        """Whether those that are gone left before this time: the oldest that is still here did."""
        oldest = self._messages.get(self.oldest)
        return oldest is not None and oldest[1] < time

    def from_to(self, first: int, last: int) -> list[tuple[Message, float]]:
        """Those of these numbers, which are all here."""
        return list(map(self._messages.__getitem__, range(first, last + 1)))

    def get(self, number: int) -> tuple[Message, float] | None:
        """The message of this number and its departure, if it is still here."""
        return self._messages.get(number)


class LedgerPublisher:
    """Numbers what a client publishes, and tells of it."""

    def __init__(
        self, name: str, incarnation: int, config: TransportConfig, timers: ServiceTimers, identities: ControlIdentities
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.ring = PublishedRing(config.published_kept, config.kept_bytes_max)
        self.admit: Callable[[Message, float], bool] = _always  # whether a repair of this message may leave now
        self.group = 0  # how many asked for one message lately
        self._config = config
        self._timers = timers
        self._identities = identities
        self.columns = ColumnUse()
        self._records = SketchRecord(self.columns)
        self._rate = RateEstimator(RATE_WINDOW) if config.congestion else None
        self._told = 0  # the last number in a ledger
        self._told_from = 1  # the first number of the last ledger that was not empty
        self._told_times = 0  # how many ledgers had that last number
        self._final = False  # it was told that this life ends
        self._ends: deque[int] = deque([0] * SPANS_MAX, maxlen=SPANS_MAX)  # the last numbers of the last ledgers
        self._spans = SPANS_FIRST  # how many of them one ledger tells of
        self._untold_max = UNTOLD_MAX  # messages after which a ledger is due
        self._fills = 0  # requests for fills since the last ledger
        self._lost = RateEstimator(LOST_WINDOW)  # messages that were asked for
        self._untold_since = 0.0
        self._left_at = -inf  # the last message
        self._departure = -inf  # the same, by a clock that never goes back
        self._mean_gap = SILENCE_FIRST_MAX / SILENCE_GAPS
        self._beat_at, self._beat_after = inf, 0.0  # the next ledger of a silence, and from it to the one after
        self._beats = 0  # ledgers since the first of this silence
        self._armed_for = inf
        self._texts: dict[str, float] = {}  # columns, and when their texts were asked for

    @property
    def number(self) -> int:
        """Of the last message that left."""
        return self._records.number

    def encoding(self, message: Message) -> int:
        """The bits by which the message is compared with flows."""
        return self._config.encoding.encode_message(message.attributes) if self._config.congestion else 0

    def admit_by(self, admit: Callable[[Message, float], bool]) -> None:
        """From now on this says whether a repair of a message may leave."""
        self.admit = admit

    def leave(self, message: Message, *, now: float, control: Control | None, limited: bool) -> list[TransportEffect]:
        """The message leaves with its number and header, and a ledger if one is due; raises InvalidMessage."""
        records = self._records
        departure = self._departure
        if now > departure:
            departure = now
        if self._rate is not None:
            control = (control or Control(0.0))._replace(rate=self._rate.rate(now))
            self._rate.add(now)
        wrapped = wrap(message, records.header(message.attributes, departure, control))
        number = records.left(message.attributes, departure)
        self._departure = departure
        self.ring.keep(number, message, departure)
        gap = now - self._left_at
        if 0.0 <= gap < SILENCE_FIRST_MAX:
            self._mean_gap += GAP_WEIGHT * (gap - self._mean_gap)
        self._left_at = now
        self._beat_at = inf
        untold = number - self._told
        if untold == 1:
            self._untold_since = now
        if self._armed_for - now > SILENCE_FIRST_MIN:
            self._arm(now + SILENCE_FIRST_MIN)
        # What leaves the ring untold cannot be told any more.
        if untold >= self._untold_max or (self.ring.oldest > self._told and self.ring.full):
            return [BearerPublish(wrapped), *self._tell(now)]
        return [BearerPublish(wrapped)]

    def asked(self, texts: tuple[str, ...], now: float, *, fills: bool, lost: int) -> None:
        """Somebody asked for something, `lost` numbers that nobody else asked for lately: for a while more is told.

        So are the texts of these columns. Who asks for fills has missed ledgers. If many do, the next tells of one span
        more, so that one may be lost.
        """
        self._lost.add(now, lost)
        if self._many(now):
            self._untold_max = UNTOLD_MAX_ASKED
        self._fills += fills
        for name in texts:
            if name in self._texts or len(self._texts) < NAMES_ASKED_MAX:
                self._texts[name] = now

    def attribute_names(self) -> tuple[str, ...]:
        """Those of our messages."""
        return self.columns.names

    def unused(self, names: tuple[str, ...]) -> None:
        """Records and ledgers need not tell of these."""
        self.columns.told(names)

    def leaving(self, *, now: float) -> list[TransportEffect]:
        """This life ends: the last ledger, and copies of it when this is called again."""
        if not self.number or (self._final and self._told_times >= TOLD_TIMES):
            return []
        self._final = True
        return self._tell(now)

    def expired(self, *, now: float) -> list[TransportEffect]:
        """Look whether a ledger is due."""
        self._armed_for = inf
        quiet = min(max(SILENCE_GAPS * self._mean_gap, SILENCE_FIRST_MIN), SILENCE_FIRST_MAX)
        if self._beat_at == inf:
            due = self._left_at + quiet
            if self.number > self._told:
                due = min(due, self._untold_since + self._untold_for(now))
        else:
            due = self._beat_at
        if now < due <= now + SILENCE_MAX:
            self._arm(due)
            return []
        self._beats = 0 if self._beat_at == inf else self._beats + 1
        effects = self._tell(now)
        if now - self._left_at >= quiet:
            grows = 1.0 + min(1.0, 2.0 / self._spans**2)  # more spans: ledgers are being lost
            self._beat_after = min(grows * (quiet if self._beat_at == inf else self._beat_after), SILENCE_MAX)
            self._beat_at = now + self._beat_after
        self._arm(self._beat_at if self._beat_at < inf else now + min(SILENCE_FIRST_MIN, self._untold_for(now)))
        return effects

    def _untold_for(self, now: float) -> float:
        if self._urgent(now):
            return UNTOLD_FOR_URGENT
        return UNTOLD_FOR_ASKED if self._many(now) else UNTOLD_FOR

    def _urgent(self, now: float) -> bool:
        return self._lost.rate(now) >= URGENT_RATE

    def _many(self, now: float) -> bool:
        return self._lost.rate(now) >= MANY_RATE

    def _tell(self, now: float) -> list[TransportEffect]:
        """A ledger of what none told of; an empty one if there is nothing."""
        first = self._told + 1
        self._lost.add(now, 0)  # from the first ledger on it is known how long nobody asked
        self._untold_max = UNTOLD_MAX_ASKED if self._many(now) else UNTOLD_MAX
        if self.number > self._told:
            self._ends.append(self._told)
            if self._fills > FILLS_PER_SPAN:
                self._spans = min(self._spans + 1, SPANS_MAX)
            elif not self._fills:
                self._spans = max(1, self._spans - 1)
            if self._urgent(now):
                self._spans = max(self._spans, SPANS_MIN_URGENT)
            self._fills = 0
            first = self._ends[-self._spans] + 1
            self._told_times = 0
        elif self._final:
            first = self._told_from
        elif self._beats < self._spans and self._spans > 1:
            first = self._ends[1 - self._spans] + 1
        # What was too large for the ring is told of nowhere; who misses it is told when asking.
        messages = self.ring.from_to(max(first, self.number - MESSAGES_MAX + 1, self.ring.oldest), self.number)
        self._told = self.number
        self._told_times += 1
        if messages:
            self._told_from = self.number - len(messages) + 1
        self.columns.forget(now)
        self._texts = {name: at for name, at in self._texts.items() if now - at < TEXTS_FOR}
        ledger = make_ledger(
            self.incarnation,
            self.number - len(messages) + 1,
            messages,
            texts=self._texts,
            last=self.number,
            sent_at=max(now, self._departure),
            left_at=self._departure,
            alike=self.number - len(messages) >= self._records.alike_from - 1,
            group=self.group,
            final=self._final,
            used=self.columns.used,
        )
        self.group //= 2
        return [BearerPublish(ledger_message(self._identities, ledger))]

    def _arm(self, at: float) -> None:
        self._armed_for = at
        self._timers.set(TransportTimer.LEDGER, at)


def _always(message: Message, now: float) -> bool:
    return True
