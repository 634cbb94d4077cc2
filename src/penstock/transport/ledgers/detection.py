"""Finds out what is missed: from the record on a message, and from ledgers.

A record is read only where it tells of numbers that have not come and are unknown. *Yes* is missed, *no* is settled,
*cannot tell* is left to the ledger, and messages wait a little for it if its texts are worth that (`doubted_texts`). A
ledger settles everything that it tells of; where it cannot tell either, or where the ledger before it never came, the
number is doubtful and will be asked for with our filters.

When a message should have come is told by its departure: as long after as the message or ledger that tells of it. What
should have come before a subscription was made is none of its losses.

State: forms of our predicate for sets of attributes, FORMS_MAX of them. No messages, no timers.
"""

from __future__ import annotations

from penstock.content.message import Attributes
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.doubted_texts import DoubtedTexts
from penstock.transport.ledgers.interest import SketchedInterest
from penstock.transport.ledgers.ledger import LedgerContent
from penstock.transport.ledgers.record import DataHeader
from penstock.transport.ledgers.session import LedgerSession, Missed
from penstock.transport.ledgers.sketch import LEDGER_BITS, RECORD_BITS, Columns, Sketch
from penstock.transport.ledgers.sketch_predicate import NO, YES, SketchForm

FORMS_MAX = 256
DOUBT_MAX = 0.020  # seconds that messages wait for one of which a record cannot tell
BEHIND_MAX = 4_096  # numbers before the first that we hear of which may concern us: as many as a publisher keeps
_Shape = tuple[tuple[str, ...], tuple[type, ...], int]


class Detection:
    """Reads records and ledgers for one client."""

    def __init__(self, config: TransportConfig, interest: SketchedInterest) -> None:
        self._config = config
        self._interest = interest
        self._forms: dict[_Shape, tuple[Columns, SketchForm, tuple[int, ...]]] = {}
        self._texts = DoubtedTexts(())
        self.holds = False  # whether any subscription wants order

    def subscriptions_changed(self, *, ordered: bool) -> None:
        """The predicate is another now."""
        self._forms.clear()
        self._texts = DoubtedTexts(self._interest.doubted)
        self.holds = ordered

    # Where a session begins.

    def first_of_message(self, header: DataHeader, now: float) -> int:
        """The first number that may concern us, when the first message of a publisher has come."""
        number, size = header.sequence, header.record_size
        if not self._interest.recover_any:
            return number - size
        oldest = header.entry(size)[0] if size else header.departure
        return self._first(number - size, oldest + now - header.departure)

    def first_of_ledger(self, content: LedgerContent, now: float) -> int:
        """The same, when a ledger is the first that came; an empty one has the departure of the last message."""
        ledger = content.ledger
        return self._first(ledger.first, ledger.began_at + now - ledger.sent_at)

    def _first(self, number: int, came_at: float) -> int:
        """If this one would have come before any subscription was made, so would those before it."""
        return number if came_at < self._interest.earliest else max(1, number - BEHIND_MAX)

    # Records.

    def read_record(
        self, session: LedgerSession, header: DataHeader, attributes: Attributes, *, now: float
    ) -> list[Missed]:
        """What the record on a message shows to be missed; raises InvalidHeader."""
        number = header.sequence
        unread = session.window.unknown_between(number - header.record_size, number - 1)
        if not unread:
            return []
        columns, form, texts = self._form(header, attributes)
        found = []
        offset = now - header.departure
        for one in reversed(unread):
            departure, codes = header.entry(number - one)
            came_at = departure + offset
            if came_at >= self._interest.newest:
                verdict = form.verdict(codes)
            else:
                verdict = self._interest.verdict(Sketch(columns, RECORD_BITS, False, codes), came_at)
            if verdict == NO:
                session.window.settle(one)
            elif verdict == YES:
                sketch = Sketch(columns, RECORD_BITS, False, codes)
                found.append(self._miss(session, one, came_at, sketch, header.departure - departure, now))
            elif self.holds and one > session.order.highest:  # it may be ours, and only overtaken
                until = min(session.hold_until(header.departure - departure, now), now + DOUBT_MAX)
                if until > now and self._texts.worth_waiting(tuple([codes[at] for at in texts])):
                    session.order.wait_for(one, until)
        return found

    def came_late(self, session: LedgerSession, number: int, attributes: Attributes) -> None:
        """A message came after a later one; perhaps a record could not tell of it."""
        if self.holds and session.window.is_unknown(number):
            self._texts.came(attributes)

    def _form(self, header: DataHeader, attributes: Attributes) -> tuple[Columns, SketchForm, tuple[int, ...]]:
        shape = (tuple(attributes), tuple(map(type, attributes.values())), header.mask)
        known = self._forms.get(shape)
        if known is None:
            columns = header.columns(attributes)
            if len(self._forms) >= FORMS_MAX:
                self._forms.clear()
            form, texts = self._interest.form(columns, RECORD_BITS, False), self._texts.places(columns)
            known = self._forms[shape] = (columns, form, texts)
        return known

    def _miss(
        self, session: LedgerSession, number: int, came_at: float, sketch: Sketch, interval: float, now: float
    ) -> Missed:
        missed = Missed(number, came_at, sketch, sure=True, at=session.lost_at(came_at))
        session.miss(missed)
        if self.holds and number > session.order.highest:
            recovers = self._config.late == "hold" and self._interest.recover_any
            until = now + self._config.hold_max if recovers else session.hold_until(interval, now)
            if until > now:
                session.order.wait_for(number, until)
        return missed

    # Ledgers.

    def read_ledger(self, session: LedgerSession, content: LedgerContent, *, now: float, room: int) -> list[Missed]:
        """What a ledger shows to be missed or doubtful; of the numbers before it no more than `room`, the last."""
        ledger, window = content.ledger, session.window
        window.extend(ledger.last)
        offset = now - ledger.sent_at
        found = []
        if ledger.began_at + offset < self._interest.earliest:
            window.settle_below(ledger.first)
        found += self._doubts(session, ledger.first - 1, ledger.began_at + offset, room)
        places = [number - ledger.first for number in window.unknown_between(ledger.first, ledger.last)]
        for place, verdict in self._verdicts(content, places, offset):
            number, came_at = ledger.first + place, content.departures[place] + offset
            sketch = self._sketch(content, place)
            if verdict == YES:
                found.append(self._miss(session, number, came_at, sketch, now - came_at, now))
            else:
                found.append(self._doubt(session, number, came_at, sketch))
        for place in places:
            window.settle(ledger.first + place)
        return found

    def read_nothing(self, session: LedgerSession, *, now: float, room: int) -> list[Missed]:
        """No ledger has come for so long that those numbers are doubtful of which one should have told."""
        return self._doubts(session, session.marked[0], now, room)

    def _doubts(self, session: LedgerSession, last: int, came_at: float, room: int) -> list[Missed]:
        """All unknown numbers up to this one."""
        window = session.window
        unknown = window.unknown_between(window.base, last)
        if len(unknown) > room:
            window.forgotten += len(unknown) - room
            window.settle_below(unknown[-room] if room else last + 1)
            unknown = unknown[len(unknown) - room :]
        return [self._doubt(session, number, came_at, None) for number in unknown]

    def _verdicts(self, content: LedgerContent, places: list[int], offset: float) -> list[tuple[int, int]]:
        newest = self._interest.newest - offset
        departures = content.departures
        recent = [place for place in places if departures[place] >= newest]
        form = self._interest.form(content.columns, LEDGER_BITS, content.ledger.complete)
        found = form.verdicts(content, recent)
        if len(recent) < len(places):
            for place in places:
                if departures[place] < newest:
                    verdict = self._interest.verdict(self._sketch(content, place), departures[place] + offset)
                    if verdict > NO:
                        found.append((place, verdict))
        return found

    def _sketch(self, content: LedgerContent, place: int) -> Sketch:
        codes = tuple([content[column][place] for column in range(len(content.columns))])
        return Sketch(content.columns, LEDGER_BITS, content.ledger.complete, codes)

    def _doubt(self, session: LedgerSession, number: int, came_at: float, sketch: Sketch | None) -> Missed:
        missed = Missed(number, came_at, sketch, sure=False, at=session.lost_at(came_at))
        session.miss(missed)
        return missed
