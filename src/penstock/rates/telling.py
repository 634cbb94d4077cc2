"""Who is told of what was withheld: the publisher, whose home knows; and readers, whose broker is told by that home.

Follow what a home has withheld:
1. `withheld`: its client is told, by link and broker (`WithheldNotice`): at once, and then every
   PUBLISHER_EVERY.
2. The brokers that did not get it are told too (`WithheldFrom`, from neighbour to neighbour): every second if the
   messages have headers of the transport, and then by their counts, so that nobody asks for them over the very link
   that is full; else after a moment, and then every FAR_EVERY.
3. `told`: such a broker tells its clients that subscribe to something. Which of their subscriptions wanted a message
   nobody knows there; who recovers finds out by its publisher's ledgers.

And what a broker has withheld from a client of its own that reads slowly, or whose link is slow:
4. `from_readers`: the client is told, and word goes against the way of the data, as that of a full link does
   (`ReadersWithheld`), to the homes of all who sent to this broker lately; `readers` tells the publishers there.

Word for a broker, or a client, crosses the very link that is full. So of what may be sent over such a link, no more
than WORD_SHARE is word: where that is little, word waits, and says how long the next one will (`Note.next_word`), so
that nobody takes silence for room. What has waited is told at once when the link limits nobody any more.

Nothing is told when nothing is withheld. What is said of another broker is believed from the neighbour on the way there
alone.

State: what brokers have not been told yet, and until when the last word over a link takes its share of it. Bounds:
DESTINATIONS_MAX brokers and PUBLISHERS_MAX publishers, the keys of the books for each, COUNTS_KEPT messages of a key,
the latest; NOTES_MAX in one packet; a client is told of the ones with most messages, and how many the others had;
NOTICES_RATE packets a second to readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec

from penstock.kernel.link import Link
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Effect, Send
from penstock.kernel.number_ranges import RANGES_MAX, ranges_of, written
from penstock.kernel.packet import Lane
from penstock.kernel.token_bucket import TokenBucket
from penstock.kernel.trace import LimitReached
from penstock.overlay.broker import Broker
from penstock.overlay.egress import OURSELVES
from penstock.overlay.packets import BrokerId
from penstock.overlay.routing import Routing
from penstock.overlay.spanning_tree import Hop
from penstock.rates.packets import (
    NOTES_MAX,
    Note,
    ReadersWithheld,
    WithheldFrom,
    WithheldNotice,
)
from penstock.rates.rate_table import RateTable
from penstock.rates.upstream import Upstream
from penstock.rates.withheld import WithheldCount, WithheldKey

PUBLISHER_EVERY = 5.0  # seconds
FAR_EVERY = 10.0
TELL_AGAIN = 1.0  # seconds: word comes so often where there is room for it
SEVERAL = ""  # publishers together
DESTINATIONS_MAX = PUBLISHERS_MAX = 4_096
WORD_SHARE = 0.02  # of a publisher's share of a full link
NEXT_WORD_MAX = 3_600.0  # seconds that are said
COUNTS_KEPT = 4_096
NOTICES_RATE = 1_000.0
PASSED_RATE = 1_000.0  # of others' packets


Of = TypeVar("Of", BrokerId, str)


class ReaderWithheld(NamedTuple):
    """What was withheld from one slow client of ours, of one publisher."""

    link: Link
    subscription: int
    client: str
    publisher: str
    rate: float  # messages per second that it takes; of a slow link, bytes per second of each publisher
    messages: WithheldCount
    by_link: bool = False  # whether its link is slow, and not itself
    capacity: float = 0.0  # bytes per second of its link, if that is slow


class Telling:
    """One broker's part in it."""

    def __init__(
        self, routing: Routing, broker: Broker, rates: RateTable, upstream: Upstream, name: Callable[[BrokerId], str]
    ) -> None:
        self._routing = routing
        self._broker = broker
        self._rates = rates
        self._upstream = upstream
        self._name = name
        self._unnoticed: dict[str, dict[WithheldKey, WithheldCount]] = {}  # by publisher
        self._noticed_at: dict[str, float] = {}
        self._untold: dict[BrokerId, dict[WithheldKey, WithheldCount]] = {}
        self._told_at: dict[BrokerId, float] = {}
        self._paid_until: dict[Hop, tuple[float, float]] = {}  # since when, and until when
        self._clients_paid: dict[Link, tuple[float, float]] = {}  # the same of links to clients
        self._notices = TokenBucket(NOTICES_RATE, NOTICES_RATE, 0.0)
        self._passed = TokenBucket(PASSED_RATE, PASSED_RATE, 0.0)

    def __bool__(self) -> bool:
        return bool(self._untold or self._unnoticed)

    # What our own clients' messages met with.

    def withheld(self, taken: Mapping[WithheldKey, WithheldCount], now: float) -> list[Effect]:
        """This was withheld since the last time: tell whose it was, and those that are due to be told."""
        for key, count in taken.items():
            self._keep(key, count)
        return self._notice_publishers(now) + self._tell_brokers(now)

    def _notice_publishers(self, now: float) -> list[Effect]:
        """Tell those of our clients who were not told lately."""
        self._noticed_at = _lately(self._noticed_at, PUBLISHER_EVERY, now)
        notes: list[Note] = []
        for publisher in [name for name in self._unnoticed if name not in self._noticed_at]:
            self._noticed_at[publisher] = now
            notes += [_brief(self._note(key, one, now)) for key, one in self._unnoticed.pop(publisher).items()]
        return self._tell_publishers(notes)

    def _keep(self, key: WithheldKey, count: WithheldCount) -> None:
        _add(self._unnoticed, key.publisher, key, count, PUBLISHERS_MAX)
        if not count.counts:  # who is behind the link needs to know how many, not whose
            key = key._replace(publisher=SEVERAL)
        _add(self._untold, key.destination, key, count, DESTINATIONS_MAX)

    def _tell_brokers(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        self._told_at = _lately(self._told_at, FAR_EVERY, now)
        for destination in list(self._untold):
            urgent = any(count.counts for count in self._untold[destination].values())
            if (destination in self._told_at and not urgent) or not self._has_room(destination, now):
                continue
            untold = self._untold.pop(destination)
            self._told_at[destination] = now
            link = self._routing.exits().get(destination)
            if link is not None:
                packets = self._words(destination, untold, 0.0, now)
                wait = self._pay(untold, sum(packet.size_bytes() for packet in packets), now)
                packets = self._words(destination, untold, wait, now) if wait else packets
                effects += [Send((link,), packet, Lane.CONTROL) for packet in packets]
        return effects

    def _words(
        self, destination: BrokerId, untold: Mapping[WithheldKey, WithheldCount], wait: float, now: float
    ) -> list[WithheldFrom]:
        notes = [msgspec.structs.replace(self._note(key, one, now), next_word=wait) for key, one in untold.items()]
        return [WithheldFrom(destination, self._routing.broker, some) for some in _parts(notes)]

    def _has_room(self, destination: BrokerId, now: float) -> bool:
        """Whether the links that withheld something from this broker have room for word of it."""
        for key in self._untold[destination]:
            since, until = self._paid_until.get(key.hop, (now, now))
            if since <= now < until and key.hop in self._rates:
                return False
        return True

    def _pay(self, untold: Mapping[WithheldKey, WithheldCount], size_bytes: int, now: float) -> float:
        """Word of so many bytes takes its share of these links for a while; the longest such time, as it is said."""
        self._paid_until = {hop: paid for hop, paid in self._paid_until.items() if paid[0] <= now < paid[1]}
        publishers: dict[Hop, int] = {}
        for key in untold:
            publishers[key.hop] = publishers.get(key.hop, 0) + 1
        longest = 0.0
        for hop, count in publishers.items():
            rate = self._rates.rate(hop)
            if rate is not None:
                seconds = size_bytes / (WORD_SHARE * rate * count)
                self._paid_until[hop] = (now, now + seconds)
                longest = max(longest, seconds)
        return min(NEXT_WORD_MAX, longest) if longest > TELL_AGAIN else 0.0

    def _note(self, key: WithheldKey, count: WithheldCount, now: float) -> Note:
        link = (self._name(key.hop[0]), self._name(key.hop[1]))
        return _note(key.publisher, link, self._rates.rate(key.hop) or 0.0, self._name(key.destination), count, now)

    # What was withheld from our own clients, or passes us.

    def told(self, packet: WithheldFrom, sender: Link, now: float) -> list[Effect]:
        """A home has withheld something from us, or from somebody behind us."""
        if self._routing.exits().get(packet.home) != sender or not self._passed.take(now):
            return []
        if packet.destination != self._routing.broker:
            onward = self._routing.exits().get(packet.destination, sender)
            return [Send((onward,), packet, Lane.CONTROL)] if onward != sender else []
        return self._tell_readers(list(packet.notes), now)

    def _tell_readers(self, notes: list[Note], now: float) -> list[Effect]:
        effects: list[Effect] = []
        brief = [_brief(note) for note in notes]
        for link, client in self._broker.clients():
            if not client.keys:
                continue
            if not self._notices.take(now):
                return [*effects, LimitReached("clients told of what was withheld", int(NOTICES_RATE))]
            recovers = any(number >= SERVICE_SUBSCRIPTIONS for number in client.keys)
            effects += _notices(link, "reader", notes if recovers else brief)
        return effects

    # Slow readers.

    def from_readers(self, taken: Iterable[ReaderWithheld], now: float) -> list[Effect]:
        """This was withheld from slow readers of ours: tell them, and whose it was, here and elsewhere."""
        effects: list[Effect] = []
        notes: list[Note] = []
        told: dict[Link, list[Note]] = {}
        capacity: dict[Link, float] = {}
        for one in taken:
            link = (self._name(self._routing.broker), one.client)
            note = _note(one.publisher, link, one.rate, one.client, one.messages, now)
            note = msgspec.structs.replace(note, subscription=one.subscription, slow_reader=not one.by_link)
            told.setdefault(one.link, []).append(note)
            capacity[one.link] = one.capacity
            notes.append(_brief(note))
        for to, about in told.items():
            effects += self._tell_client(to, about, capacity[to], now)
        neighbours = tuple(dict.fromkeys(self._routing.exits().values()))
        for some in _parts(notes):
            packet = ReadersWithheld(self._routing.broker, self._routing.incarnation, some)
            effects += self._tell_publishers(some)
            if neighbours:
                effects.append(Send(neighbours, packet, Lane.CONTROL))
        return effects

    def may_tell(self, client: Link, now: float) -> bool:
        """Whether the link to this client has room for word of what was withheld from it."""
        since, until = self._clients_paid.get(client, (now, now))
        return not since <= now < until

    def _tell_client(self, client: Link, notes: list[Note], capacity: float, now: float) -> list[Effect]:
        """All of it, and then nothing for as long as that takes its share of a slow link."""
        self._clients_paid = {link: paid for link, paid in self._clients_paid.items() if paid[0] <= now < paid[1]}
        packets = [WithheldNotice("reader", some) for some in _parts(notes)]
        seconds = sum(packet.size_bytes() for packet in packets) / (WORD_SHARE * capacity) if capacity else 0.0
        if seconds > TELL_AGAIN:
            self._clients_paid[client] = (now, now + seconds)
            wait = min(NEXT_WORD_MAX, seconds)
            notes = [msgspec.structs.replace(note, next_word=wait) for note in notes]
            packets = [WithheldNotice("reader", some) for some in _parts(notes)]
        return [Send((client,), packet, Lane.CONTROL) for packet in packets]

    def readers(self, packet: ReadersWithheld, sender: Link, now: float) -> list[Effect]:
        """A broker has withheld something from its slow readers: tell those whose it was, and those behind us."""
        known = self._routing.origins.get(packet.broker)
        if known is None or known.incarnation != packet.life or self._routing.exits().get(packet.broker) != sender:
            return []
        if not self._passed.take(now):
            return []
        feeding = self._upstream.feeding(lambda broker: broker == packet.broker, now)
        onward = tuple(link for link in feeding if link != sender and self._routing.is_neighbour(link))
        effects: list[Effect] = [Send(onward, packet, Lane.CONTROL)] if onward else []
        return effects + (self._tell_publishers(packet.notes) if OURSELVES in feeding else [])

    def _tell_publishers(self, notes: Iterable[Note]) -> list[Effect]:
        """Tell those whose messages they were, if they are clients of ours."""
        by_name: dict[str, list[Note]] = {}
        for note in notes:
            by_name.setdefault(note.publisher, []).append(note)
        links = [(link, client.name) for link, client in self._broker.clients() if client.name in by_name]
        return [effect for link, name in links for effect in _notices(link, "publisher", by_name[name])]


def _note(publisher: str, link: tuple[str, str], rate: float, to: str, count: WithheldCount, now: float) -> Note:
    sizes = (count.messages, count.size_bytes, max(0.0, now - count.since))
    counts = written(ranges_of(sorted(count.counts))[:RANGES_MAX])
    return Note(publisher, link, rate, to, *sizes, count.life, counts)


def _add(
    books: dict[Of, dict[WithheldKey, WithheldCount]], whose: Of, key: WithheldKey, count: WithheldCount, most: int
) -> None:
    """One count more, unless there are as many as may be."""
    kept = books.get(whose)
    if kept is None:
        if len(books) >= most:
            return
        kept = books[whose] = {}
    known = kept.get(key)
    if known is None:
        known = kept[key] = WithheldCount(count.since)
    known.join(count)
    del known.counts[:-COUNTS_KEPT]


def _lately(times: dict[Of, float], seconds: float, now: float) -> dict[Of, float]:
    return {one: at for one, at in times.items() if 0.0 <= now - at < seconds}


def _brief(note: Note) -> Note:
    """For whom it is enough to know how many they were."""
    return msgspec.structs.replace(note, counts=()) if note.counts else note


def _notices(link: Link, role: Literal["publisher", "reader"], notes: list[Note]) -> list[Effect]:
    shown = sorted(notes, key=lambda note: (-note.messages, note.link, note.to))
    rest = sum(note.messages for note in shown[NOTES_MAX:])
    return [Send((link,), WithheldNotice(role, tuple(shown[:NOTES_MAX]), rest), Lane.CONTROL)] if notes else []


def _parts(notes: list[Note]) -> list[tuple[Note, ...]]:
    return [tuple(notes[start : start + NOTES_MAX]) for start in range(0, len(notes), NOTES_MAX)]
