"""A durable reader at its edge: one cursor for each pubend of its stream, and how far each has come.

A cursor walks over what this broker knows of a pubend (`known`). What matches is delivered, what does not is passed
over; where nothing is known it stands still until that has been asked for. It walks only as long as the application has
credit, so a slow application falls behind and nobody waits for it.

Four ticks of a cursor, each at most the one before:
    position   it has walked up to here
    told       the client has been sent everything up to here; a delivery begins where the one before ended, so the
               client notices if one is missing
    done       the application has acknowledged everything that was sent up to here
    stored     the pubend has that on disk
Silence needs no acknowledgement: if all that was sent is acknowledged, `done` follows the position. A gap does.

State: four ticks and a session for each pubend. Bounds: `readers_max` readers of a broker, PUBENDS_MAX cursors each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

from penstock.content.predicate import Filter, Predicate
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.streams.known import Known, KnownSpan
from penstock.streams.packets import Item, Position, Share, StreamDelivery, Tick

DELIVERY_BYTES = 64 << 10  # of one delivery, or one message
DELIVERY_ITEMS = 512
FLIGHT_MESSAGES = 2_048  # that may be on their way to the client, besides one delivery
FLIGHT_BYTES = 512 << 10


class CursorState(Enum):
    """How far a cursor has got with its pubend."""

    ASKED = "asked"  # we have asked the pubend to register it, and have no answer
    ACTIVE = "active"


class Cursor:
    """One reader's place in one pubend."""

    __slots__ = (
        *("confirmed", "done", "epoch", "floor", "last_item", "position", "presented", "problem", "progress_sent"),
        *("pubend", "reached", "request", "session", "since", "state", "stored", "told", "walked"),
    )

    def __init__(self, pubend: str, since: int, presented: Tick) -> None:
        self.pubend = pubend
        self.epoch = 0
        self.session = 0
        self.state = CursorState.ASKED
        self.since = since  # silence that was filtered under an older version of our interest is none for us
        self.presented = presented  # the position that the client keeps; -1: none
        self.walked = False  # whether it has ever been active
        self.problem = "no answer yet"
        self.request = 0  # that the pubend has not answered; 0: none
        self.begin(0)

    def begin(self, tick: Tick) -> None:
        """Everything up to this tick is behind us."""
        self.reached = tick  # the highest that was ever told
        self.floor = tick  # it does not walk again over what is before this
        self.position = self.told = self.done = self.stored = self.progress_sent = self.confirmed = tick
        self.last_item: Tick = tick

    def progress(self) -> Tick:
        """Up to where the pubend need not keep anything for this reader."""
        return self.position if self.done >= self.last_item else self.done


class Reader:
    """One durable subscription of one client."""

    def __init__(
        self,
        link: Link,
        number: int,
        *,
        stream: str,
        name: str,
        where: str,
        predicate: Predicate,
        filters: dict[bytes, Filter],
        start: str,
        takeover: bool,
        identity: str,  # of whoever reads
    ) -> None:
        self.link = link
        self.number = number
        self.stream = stream
        self.name = name
        self.where = where
        self.predicate = predicate
        self._wants_all = any(not selected.constraints for selected in predicate.filters)
        self.filters = filters
        self.start = start
        self.takeover = takeover
        self.share: Share | None = None  # as one member among several, which does not walk
        self.rewind = False  # the client's positions count even if the name is further
        self.identity = identity
        self.request = 0  # of the client, while it waits for an answer; 0: it does not
        self.asked_at = 0.0
        self.credit = 0  # messages that may have been sent in all
        self.sent = 0
        self._flight: deque[tuple[int, int]] = deque()  # deliveries that may not have come: messages up to then, bytes
        self._flight_bytes = 0
        self.cursors: dict[str, Cursor] = {}

    def may_send(self) -> bool:
        """Whether the application has room for more, and the way to it too."""
        flying = self.sent - (self._flight[0][0] if self._flight else self.sent)
        return self.sent < self.credit and flying < FLIGHT_MESSAGES and self._flight_bytes < FLIGHT_BYTES

    def received(self, messages: int) -> None:
        """So many have come, of all that were sent."""
        while self._flight and self._flight[0][0] <= messages:
            self._flight_bytes -= self._flight.popleft()[1]

    def restart(self, sent: int) -> None:
        """So many were sent and count; nothing else is on its way."""
        self.sent = sent
        self._flight.clear()
        self._flight_bytes = 0

    def in_force(self) -> bool:
        """Whether all pubends know of it."""
        return all(cursor.walked for cursor in self.cursors.values())

    def resumes(self) -> bool:
        """Whether the client was in force before, and knows where it stands in every pubend."""
        return not self.rewind and all(cursor.presented >= 0 for cursor in self.cursors.values())

    def serves(self, cursor: Cursor) -> bool:
        """Whether deliveries may begin: the client knows where it stands."""
        return cursor.walked and self.request == 0

    def positions(self) -> tuple[Position, ...]:
        """Where each cursor begins, for the answer."""
        return tuple(
            (cursor.pubend, cursor.epoch, cursor.told if cursor.walked else cursor.presented)
            for cursor in self.cursors.values()
        )

    def advance(self, cursor: Cursor, known: Known) -> list[Effect]:
        """Walk as far as what is known and the credit allow."""
        if not self.serves(cursor):
            return []
        effects: list[Effect] = []
        if cursor.position < known.gone and self.may_send():
            effects.append(self._delivery(cursor, known.gone, (), gap=True))
        while self.may_send():
            span = next_span(known, cursor.position, cursor.since)
            if span is None:
                break
            effects += self.walk(cursor, span.last, self._matching(span.items))
        return effects

    def feed(self, cursor: Cursor, span: KnownSpan) -> tuple[list[Effect], KnownSpan]:
        """Walk over this as far as the credit allows; what is left is returned."""
        effects: list[Effect] = []
        items = span.items
        while self.may_send() and self.serves(cursor) and cursor.position < span.last:
            count = fitting(items, DELIVERY_BYTES, DELIVERY_ITEMS)
            part, rest = self._matching(items[:count]), items[count:]
            upto = items[count - 1][0] if rest else span.last
            effects += self.walk(cursor, upto, part)
            if cursor.position < upto:  # the credit has ended within
                break
            items = rest
        left = [item for item in items if item[0] > cursor.position]
        return effects, KnownSpan(cursor.position + 1, span.last, left)

    def _matching(self, items: list[Item]) -> list[Item]:
        if self._wants_all:
            return items
        matches = self.predicate.matches
        return [item for item in items if matches(item[1].attributes)]

    def walk(self, cursor: Cursor, upto: Tick, items: list[Item]) -> list[Effect]:
        """Deliver these, which are all that it wants up to this tick; fewer if the credit does not reach."""
        room = self.credit - self.sent
        if len(items) > room:
            del items[room:]
            upto = items[-1][0]
        cursor.position = upto
        return [self._delivery(cursor, upto, tuple(items))] if items else []

    def heartbeat(self, cursor: Cursor) -> list[Effect]:
        """Tell the client how far we have come, so that it notices what it has not got."""
        return [self._delivery(cursor, cursor.position, ())] if self.serves(cursor) else []

    def back_to(self, cursor: Cursor, tick: Tick) -> None:
        """The client has not got what was sent after this tick."""
        if tick < cursor.told:
            cursor.position, cursor.told = max(tick, cursor.floor), tick
            cursor.last_item = min(cursor.last_item, max(tick, cursor.done))

    def _delivery(self, cursor: Cursor, upto: Tick, items: tuple[Item, ...], *, gap: bool = False) -> Effect:
        after = cursor.told
        cursor.told = cursor.position = upto
        self.sent += len(items)
        if gap:  # the client must have heard of it before the name is behind it
            cursor.last_item = upto
        if items:
            cursor.last_item = items[-1][0]
            size_bytes = sum(message.size_bytes for _, message in items)
            self._flight.append((self.sent, size_bytes))
            self._flight_bytes += size_bytes
        cursor.reached = max(cursor.reached, upto)
        packet = StreamDelivery(self.number, cursor.pubend, cursor.epoch, after, upto, items, gap)
        return Send((self.link,), packet, Lane.STREAM)


def fitting(items: Sequence[Item], bytes_max: int, items_max: int) -> int:
    """How many of these have so many bytes and are so many; at least one, if there are any."""
    for count, (_, message) in enumerate(items[:items_max]):
        bytes_max -= message.size_bytes
        if bytes_max < 0 and count:
            return count
    return min(len(items), items_max)


def next_span(known: Known, position: Tick, since: int) -> KnownSpan | None:
    """What follows a position, as much as fits one delivery; None if nothing is known of the next tick."""
    return known.contiguous(position, since, bytes_max=DELIVERY_BYTES, items_max=DELIVERY_ITEMS)
