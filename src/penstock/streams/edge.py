"""The edge: durable subscriptions of this broker's clients, served from what the broker knows of their pubends.

A subscription's way: `subscribe` puts its filter into our interest, so that upstream hears of it, and asks every pubend
of the stream to register the reader. The answers name the ticks from which it is in force; when all have come the
client is answered. From then on `advance` delivers, and `wanted` says which ticks the cursors stand before that nobody
has told us of.

A pubend that was started again knows no sessions: it says so, and the reader is registered anew, where it stands. A
pubend that cannot be reached is asked again every refresh interval. A client that was in force before and knows its
place everywhere is answered at once, and served from each pubend as soon as that has registered it.

Timers: REFRESH (the broker's machine calls `refresh`), PROGRESS for each pubend.
State: a reader for each durable subscription. Bounds: `readers_max`; over it a subscription is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.content.language.parser import parse_predicate
from penstock.errors import InvalidPredicate
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused
from penstock.streams.config import StreamsConfig
from penstock.streams.home_broker import HomeBroker
from penstock.streams.interest import OURSELVES, filters_of
from penstock.streams.packets import (
    DURABLE_NAME_BYTES_MAX,
    NAMES_MAX,
    Acknowledge,
    Acknowledged,
    DurableAnswer,
    DurableEnded,
    DurableSubscribe,
    Progress,
    ProgressStored,
    Register,
    Registered,
    Renew,
    Resume,
    SessionEnded,
    Take,
    Tick,
    Unregister,
    name_problem,
    pubend_name,
)
from penstock.streams.reader import Cursor, CursorState, Reader
from penstock.streams.reader_group import ReaderGroup
from penstock.streams.relay import TICKS_PER_SECOND, Relay
from penstock.streams.ticks import TickRanges
from penstock.streams.timers import StreamTimer

PROGRESS_DELAY = 0.01  # seconds for which acknowledgements are gathered
ANSWER_WITHIN = 3.0  # seconds after which a client is told what it waits for
CREDIT_MAX = 100_000  # messages that a client may have sent to it before it takes one
WANTED_MAX = 64  # ranges of one cursor
AHEAD_MAX = 1_000  # messages that are read from a log of our own before a reader gets to them, about


class Edge:
    """All durable readers of one broker."""

    def __init__(self, broker: HomeBroker, config: StreamsConfig, timers: ServiceTimers) -> None:
        self._broker = broker
        self._config = config
        self._timers = timers
        self._readers: dict[tuple[Link, int], Reader] = {}
        self._by_pubend: dict[str, ReaderGroup] = {}
        self._asked: dict[int, tuple[Reader, Cursor]] = {}  # request -> whose registration it is
        self.sessions: dict[tuple[str, int], tuple[Reader, Cursor]] = {}  # pubend and session -> whose it is

    def __len__(self) -> int:
        return len(self._readers)

    def readers(self) -> Iterator[Reader]:
        """All of them."""
        yield from self._readers.values()

    def reads(self, pubend: str) -> bool:
        """Whether anybody here reads this pubend."""
        return bool(self._by_pubend.get(pubend))

    def behind(self, link: Link, number: int) -> list[Relay]:
        """Where this subscription has not come as far as we have heard of: it may wait for something."""
        reader = self._readers.get((link, number))
        cursors = reader.cursors.values() if reader is not None and reader.share is None else ()
        found = [(cursor, self._broker.relay(cursor.pubend)) for cursor in cursors if cursor.walked]
        return [relay for cursor, relay in found if relay is not None and cursor.position < relay.newest]

    def asked_by(self, request: int) -> tuple[Link, int] | None:
        """The subscription that waits for the answer to this request."""
        reader, _ = self._asked.get(request, (None, None))
        return (reader.link, reader.number) if reader is not None else None

    # What clients say.

    def subscribe(self, packet: DurableSubscribe, link: Link, client: str, *, now: float) -> list[Effect]:
        """Serve a durable subscription; again for one that we have is to begin again where the client stands."""
        known = self._readers.get((link, packet.subscription))
        asked = (packet.stream, packet.name, packet.where, packet.share)
        if known is not None and (known.stream, known.name, known.where, known.share) != asked:
            return self._refusal(packet, link, f"subscription {packet.subscription} exists and is another")
        count, problem, again = self._broker.pubends(packet.stream)
        problem = problem or name_problem(packet.name, "the durable name", DURABLE_NAME_BYTES_MAX)
        if problem:
            return self._refusal(packet, link, problem, again=again)
        positions = {pubend: (epoch, tick) for pubend, epoch, tick in packet.positions}
        reader = known
        if reader is None:
            if len(self._readers) >= self._config.readers_max:
                limit = f"this broker serves {len(self._readers)} durable subscriptions; the limit is readers_max"
                return self._refusal(packet, link, limit, again=True)
            try:
                predicate = parse_predicate(packet.where)
            except InvalidPredicate as error:
                return self._refusal(packet, link, str(error))
            reader = Reader(
                link,
                packet.subscription,
                stream=packet.stream,
                name=packet.name,
                where=packet.where,
                predicate=predicate,
                filters=filters_of([predicate]),
                start=packet.start,
                takeover=packet.takeover,
                identity=f"{client}/{packet.incarnation}/{packet.subscription}",
            )
            self._readers[link, packet.subscription] = reader
        reader.request, reader.asked_at, reader.rewind = packet.request, now, packet.rewind
        reader.credit, reader.share = min(packet.credit, CREDIT_MAX), packet.share
        reader.restart(0)
        effects: list[Effect] = []
        for number in range(count):
            pubend = pubend_name(packet.stream, number)
            effects += self._begin(reader, pubend, positions.get(pubend), now)
        for cursor in reader.cursors.values():  # when all are there: a pubend of our own answers at once
            if cursor.state is CursorState.ASKED and self._readers.get((link, packet.subscription)) is reader:
                effects += self._register(reader, cursor, now)
        if self._readers.get((link, packet.subscription)) is not reader:
            return effects
        return effects + self._answered(reader) + self._advance_all(reader)

    def _begin(self, reader: Reader, pubend: str, position: tuple[int, Tick] | None, now: float) -> list[Effect]:
        """Let the reader have a cursor in this pubend, or take it back to where the client stands."""
        cursor = reader.cursors.get(pubend)
        effects: list[Effect] = []
        if cursor is None:
            relay = self._broker.relay(pubend)
            if (
                relay is None or reader.share is not None
            ):  # it will be known one day; until then there is nothing to filter
                cursor = Cursor(pubend, 0, -1)
            else:
                self._group(pubend).add(reader)
                effects += self._interest(relay, now)
                cursor = Cursor(pubend, relay.interest.version, -1)
            reader.cursors[pubend] = cursor
        if position is not None:
            if position != (cursor.epoch, cursor.presented):  # what was asked before is another question
                self._asked.pop(cursor.request, None)
                cursor.request = 0
            cursor.presented, cursor.epoch = position[1], position[0]
            if cursor.walked:
                reader.back_to(cursor, position[1])
        elif cursor.walked:  # it has not heard our answer, nor anything that we sent
            reader.back_to(cursor, cursor.floor)
        return effects

    def take(self, packet: Take, link: Link) -> list[Effect]:
        """The application has room for more."""
        reader = self._readers.get((link, packet.subscription))
        if reader is None:
            return []
        reader.received(packet.messages_received)
        reader.credit = max(reader.credit, min(packet.messages_in_all, reader.sent + CREDIT_MAX))
        return self._advance_all(reader)

    def resume(self, packet: Resume, link: Link) -> list[Effect]:
        """The client has missed something that we sent."""
        reader, cursor = self.cursor(link, packet.subscription, packet.pubend)
        if reader is None or cursor is None or packet.epoch != cursor.epoch:
            return []
        reader.restart(packet.messages_received)  # more than we count if an earlier one took for lost what came later
        reader.back_to(cursor, packet.tick)
        return self._advance_all(reader)

    def acknowledge(self, packet: Acknowledge, link: Link, *, now: float) -> list[Effect]:
        """The application is done with everything up to a tick."""
        reader, cursor = self.cursor(link, packet.subscription, packet.pubend)
        if reader is None or cursor is None or not cursor.walked:
            return []
        if packet.epoch != cursor.epoch or packet.tick > cursor.reached:
            problem = f"it acknowledges tick {packet.tick} of {packet.pubend}, which it was not sent"
            return [InputRefused(reader.identity, problem)]
        if packet.tick <= cursor.confirmed:
            return self._confirmed(reader, cursor)
        cursor.done = max(cursor.done, packet.tick)
        if cursor.done > cursor.progress_sent:
            self._timers.set(StreamTimer.PROGRESS, now + PROGRESS_DELAY, cursor.pubend)
        return []

    def leave(self, link: Link, number: int, *, now: float) -> list[Effect]:
        """The client reads no longer; the name stays."""
        reader = self._readers.get((link, number))
        return [] if reader is None else self._drop(reader, now)

    def link_down(self, link: Link, *, now: float) -> list[Effect]:
        """A client is gone, and its readers with it; members of shared names may come back."""
        gone = [reader for (of, _), reader in self._readers.items() if of == link]
        return [effect for reader in gone for effect in self._drop(reader, now, told=reader.share is None)]

    # What pubends say.

    def registered(self, packet: Registered, *, now: float) -> list[Effect]:
        """The answer to a Register."""
        reader, cursor = self._asked.pop(packet.request, (None, None))
        if reader is None or cursor is None or cursor.request != packet.request:
            return []
        cursor.request = 0
        if packet.problem:
            cursor.problem = packet.problem
            return [] if packet.again else self._end(reader, packet.problem, now)
        if cursor.walked and cursor.epoch != packet.epoch:
            return self._end(reader, f"the stream '{reader.stream}' was removed and made again", now)
        cursor.session, cursor.epoch = packet.session, packet.epoch
        cursor.state, cursor.problem = CursorState.ACTIVE, ""
        self.sessions[packet.pubend, packet.session] = (reader, cursor)
        if not cursor.walked:
            cursor.walked = True
            cursor.begin(packet.gone_from - 1 if packet.gone_from else packet.position)
            if 0 <= cursor.presented < cursor.told and not reader.rewind:  # somebody else has read on under this name
                cursor.told = cursor.presented
            cursor.done = cursor.stored = cursor.progress_sent = cursor.confirmed = min(packet.done, cursor.position)
        elif packet.done > cursor.position:  # somebody else has read under this name meanwhile
            cursor.position = packet.done
        relay = self._broker.relay(packet.pubend)
        if relay is not None and packet.gone_from:
            relay.gone(packet.position)
        return self._answered(reader) + self._advance_all(reader)

    def session_ended(self, packet: SessionEnded, *, now: float) -> list[Effect]:
        """The pubend knows no such session."""
        reader, cursor = self.sessions.get((packet.pubend, packet.session), (None, None))
        if reader is None or cursor is None or reader.name != packet.name:
            return []
        if packet.problem:
            return self._end(reader, packet.problem, now)
        self.sessions.pop((packet.pubend, packet.session))
        cursor.session, cursor.state = 0, CursorState.ASKED
        return self._register(reader, cursor, now)

    def stored(self, packet: ProgressStored, *, now: float) -> list[Effect]:
        """Acknowledgements are on disk."""
        effects: list[Effect] = []
        for pubend, session, tick in packet.done:
            reader, cursor = self.sessions.get((pubend, session), (None, None))
            if reader is not None and cursor is not None and tick > cursor.stored:
                cursor.stored = min(tick, cursor.position)
                effects += self._confirmed(reader, cursor)
        return effects

    def _confirmed(self, reader: Reader, cursor: Cursor) -> list[Effect]:
        cursor.confirmed = max(cursor.confirmed, cursor.stored)
        packet = Acknowledged(reader.number, cursor.pubend, cursor.epoch, cursor.confirmed)
        return [Send((reader.link,), packet, Lane.CONTROL)]

    def pubend_replaced(self, pubend: str, *, now: float) -> list[Effect]:
        """A pubend of this name is another one now: what was read of the old one has no sequel."""
        members = [one for one in self._readers.values() if one.share is not None and pubend in one.cursors]
        return [
            effect
            for reader in (*self._by_pubend.get(pubend, ()), *members)
            for effect in self._end(reader, f"the stream '{reader.stream}' was removed", now)
        ]

    # Knowledge and time.

    def group_of(self, relay: Relay) -> ReaderGroup | None:
        """Those of one pubend; None if there are none."""
        return self._by_pubend.get(relay.pubend)

    def advance(self, relay: Relay) -> list[Effect]:
        """More is known of a pubend."""
        readers = self._by_pubend.get(relay.pubend)
        return [] if readers is None else readers.advance(relay.known)

    def wanted(self, relay: Relay) -> TickRanges:
        """The unknown ticks that cursors stand before, within their NACK windows."""
        wanted = TickRanges()
        adapted = self._config.edge_control and not relay.at_source
        whole = int(self._config.nack_window * TICKS_PER_SECOND)
        readers = self._by_pubend.get(relay.pubend)
        places = {} if readers is None else readers.before(relay.newest)
        if readers and relay.horizon:
            places[relay.horizon, 0] = None
        known = relay.known
        ahead = known.fits() // max(1, len(places))
        if relay.at_source:
            ahead = min(ahead, AHEAD_MAX)
        for position, since in places:
            last = min(relay.newest, relay.window.upto(position) if adapted else position + whole)
            unknown = known.unknown(position + 1, last, since, WANTED_MAX) if position < last else []
            for count, (first, upto) in enumerate(unknown):
                if count and count + known.between(position, first) > ahead:
                    break  # it is asked for when it is nearer: in the cache it would drive out what comes before it
                wanted.add(first, upto)
        return wanted

    def progress(self, pubend: str, *, again: bool = False, now: float) -> list[Effect]:
        """Tell the pubend what readers have acknowledged; again: also what was told, and how far the silence goes."""
        host = self._broker.host(pubend)
        done: dict[tuple[int, bool], list[tuple[str, int, Tick]]] = {}
        for reader in self._by_pubend.get(pubend, ()):
            cursor = reader.cursors[pubend]
            tick = cursor.progress()
            if cursor.session and tick > cursor.stored and (again or cursor.done > cursor.progress_sent):
                cursor.progress_sent = tick
                silent = cursor.done <= cursor.stored
                done.setdefault((cursor.epoch, silent), []).append((reader.name, cursor.session, tick))
        if host is None:
            return []
        return [
            effect
            for (epoch, silent), entries in done.items()
            for at in range(0, len(entries), NAMES_MAX)
            for effect in self._broker.send_to(
                host, Progress(pubend, epoch, tuple(entries[at : at + NAMES_MAX]), silent), now=now
            )
        ]

    def refresh(self, *, now: float) -> list[Effect]:
        """Ask again for what was not answered; keep sessions alive; tell clients and pubends how far we have come."""
        effects: list[Effect] = []
        sessions: dict[str, list[tuple[str, int]]] = {}
        for reader in list(self._readers.values()):
            for cursor in reader.cursors.values():
                if cursor.state is CursorState.ASKED:
                    effects += self._register(reader, cursor, now)
                else:
                    sessions.setdefault(cursor.pubend, []).append((reader.name, cursor.session))
                    effects += reader.heartbeat(cursor)
            if self._readers.get((reader.link, reader.number)) is reader:
                effects += self._still_waiting(reader, now)
        for pubend, entries in sessions.items():
            host = self._broker.host(pubend)
            if host is not None:
                for at in range(0, len(entries), NAMES_MAX):
                    renewal = Renew(pubend, tuple(entries[at : at + NAMES_MAX]))
                    effects += self._broker.send_to(host, renewal, now=now)
                effects += self.progress(pubend, again=True, now=now)
        return effects

    # Parts.

    def _interest(self, relay: Relay, now: float) -> list[Effect]:
        """What our readers together want of a pubend."""
        readers = self._by_pubend.get(relay.pubend)
        if readers:
            relay.read_here()
            relay.interest.set(OURSELVES, {k: v for reader in readers for k, v in reader.filters.items()})
        else:
            relay.has_readers = False
            relay.interest.remove(OURSELVES)
            self._by_pubend.pop(relay.pubend, None)
        return self._broker.interest_changed(relay, now=now)

    def _register(self, reader: Reader, cursor: Cursor, now: float) -> list[Effect]:
        """Ask the pubend to let the reader begin; a cursor that has walked stays where it is.

        A question that was not answered is asked again under its number: the answer may take longer than our patience.
        A pubend of our own answers at once, and a refusal ends the reader: then there is nothing more to ask for.
        """
        if self._readers.get((reader.link, reader.number)) is not reader:
            return []
        relay = self._broker.relay(cursor.pubend)
        host = self._broker.host(cursor.pubend)
        if relay is None or host is None:
            cursor.problem = self._broker.unreachable(cursor.pubend)
            return []
        effects: list[Effect] = []
        if reader.share is None and reader not in self._group(cursor.pubend):
            self._group(cursor.pubend).add(reader)
            effects += self._interest(relay, now)
            cursor.since = relay.interest.version
        cursor.request = cursor.request or self._broker.next_request()
        cursor.problem = self._broker.unreachable(cursor.pubend)
        self._asked[cursor.request] = (reader, cursor)
        packet = Register(
            cursor.request,
            cursor.pubend,
            reader.name,
            reader.where,
            reader.start,
            cursor.epoch,
            -1 if cursor.walked else cursor.presented,
            reader.identity,
            reader.takeover and not cursor.walked,
            reader.rewind and not cursor.walked,
            reader.share,
            max(1, reader.credit // len(reader.cursors)),
        )
        return effects + self._broker.send_to(host, packet, now=now)

    def _answered(self, reader: Reader) -> list[Effect]:
        """Answer the client, if it waits and all pubends have registered it."""
        if not reader.request or not (reader.in_force() or reader.resumes()):
            return []
        request, reader.request = reader.request, 0
        packet = DurableAnswer(request, reader.number, reader.positions())
        return [Send((reader.link,), packet, Lane.CONTROL)]

    def _still_waiting(self, reader: Reader, now: float) -> list[Effect]:
        if not reader.request or 0.0 <= now - reader.asked_at < ANSWER_WITHIN:
            return []
        request, reader.asked_at = reader.request, now
        problems = [cursor.problem for cursor in reader.cursors.values() if not cursor.walked]
        packet = DurableAnswer(request, reader.number, (), "; ".join(problems[:3]), True)
        return [Send((reader.link,), packet, Lane.CONTROL)]

    def _advance_all(self, reader: Reader) -> list[Effect]:
        effects: list[Effect] = []
        for cursor in reader.cursors.values():
            walks = reader.share is None and reader.serves(cursor)
            relay = self._broker.relay(cursor.pubend) if walks else None
            if relay is not None:
                effects += reader.advance(cursor, relay.known)
        return effects

    def _end(self, reader: Reader, problem: str, now: float) -> list[Effect]:
        """Serve it no longer, and say why."""
        if reader.request:
            packet = DurableAnswer(reader.request, reader.number, (), problem)
            told: Effect = Send((reader.link,), packet, Lane.CONTROL)
        else:
            told = Send((reader.link,), DurableEnded(reader.number, problem), Lane.CONTROL)
        return [told, *self._drop(reader, now)]

    def _drop(self, reader: Reader, now: float, *, told: bool = True) -> list[Effect]:
        """Forget it first: a pubend of our own answers at once."""
        del self._readers[reader.link, reader.number]
        effects: list[Effect] = []
        for cursor in reader.cursors.values():
            self._asked.pop(cursor.request, None)
            self.sessions.pop((cursor.pubend, cursor.session), None)
            group = self._by_pubend.get(cursor.pubend)
            if group is not None and reader in group:
                group.remove(reader)
                relay = self._broker.relay(cursor.pubend)
                if relay is not None:
                    effects += self._interest(relay, now)
        for cursor in reader.cursors.values():
            host = self._broker.host(cursor.pubend)
            if cursor.session and host is not None and told:
                done = ((reader.name, cursor.session, cursor.progress()),)
                if reader.share is None:
                    effects += self._broker.send_to(host, Progress(cursor.pubend, cursor.epoch, done), now=now)
                effects += self._broker.send_to(host, Unregister(cursor.pubend, reader.name, cursor.session), now=now)
        return effects

    def _group(self, pubend: str) -> ReaderGroup:
        group = self._by_pubend.get(pubend)
        if group is None:
            group = self._by_pubend[pubend] = ReaderGroup(pubend)
        return group

    def cursor(self, link: Link, number: int, pubend: str) -> tuple[Reader | None, Cursor | None]:
        """A subscription's place in a pubend."""
        reader = self._readers.get((link, number))
        return reader, reader.cursors.get(pubend) if reader is not None else None

    def _refusal(self, packet: DurableSubscribe, link: Link, problem: str, *, again: bool = False) -> list[Effect]:
        answer = DurableAnswer(packet.request, packet.subscription, (), problem, again)
        return [Send((link,), answer, Lane.CONTROL)]
