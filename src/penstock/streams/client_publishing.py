"""What a client publishes to streams: every message is tried until it is on disk, refused, or given up.

State: a publication for each message that is not answered, in the order of publish(). Each has a publication_id, its
own or one made of its identity, and is sent again under that id when no answer comes, when the broker says `again`, and
when the connection is back: the pubend stores it once. `age` tells the pubend how long it has been tried, so that a
repeat is not taken for new after its id was forgotten.

A pubend that has a message but may not write it yet says so (StreamWaits): its rate is limited, because a broker cannot
keep up. Then the message is not sent again before the next notice is overdue, and is not given up: `give_up_after`
counts from the last that was heard of it. `report` says what slows us down.

Outcomes: stored (the tick is reported), refused (it is not stored and never will be), or unknown: the time is up, or
the application waits no longer, and an attempt was not answered. An answer with a problem is about one attempt; while
another is open, a refusal is not certain either.

Order: of two messages to one pubend, the one whose publish() had returned before the other was called stands first.
Those that are under way together are sent in order, and stored in order unless one has to be tried again; then a later
one may overtake it. An application that needs more waits for each.

Bounds: of each stream, at most IN_FLIGHT_MAX messages and IN_FLIGHT_BYTES_MAX bytes are at the broker; the others wait
here, also while there is no connection. Of all, at most UNANSWERED_MAX and UNANSWERED_BYTES_MAX; beyond that publish()
is refused at once.

Timer: CLIENT_RETRY, one for all: every publication knows when it is due, and answers come so fast that a timer for each
would cost more than all the rest. It rings at the earliest of those times, or at one that has been settled since; then
at most every RETRY_GRAIN seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from itertools import zip_longest
from math import inf

from msgspec import Struct

from penstock.content.message import Message
from penstock.kernel.link import Link
from penstock.kernel.machine import Done, Effect, Outcome, Refused, Reported, Send, Unknown
from penstock.kernel.packet import Lane
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import InputRefused, TraceSwitch
from penstock.streams.client_slowdowns import Slowdowns, StreamSlowdown
from penstock.streams.config import StreamPublicationOptions, StreamsClientConfig
from penstock.streams.packets import (
    KEY_CHARACTERS_MAX,
    PUBLICATION_ID_BYTES_MAX,
    STREAM_NAME_BYTES_MAX,
    StreamPublish,
    StreamPublished,
    StreamStored,
    StreamWaits,
    Tick,
    name_problem,
    stream_of,
)
from penstock.streams.records import StreamConfirmed, StreamFailed, requested_record
from penstock.streams.timers import StreamTimer

IN_FLIGHT_MAX = 256
IN_FLIGHT_BYTES_MAX = 4 << 20
UNANSWERED_MAX = 10_000
UNANSWERED_BYTES_MAX = 64 << 20
RETRY_GRAIN = 0.01  # seconds: whoever rings looks at all that is not answered


class PublisherReport(Struct, frozen=True, kw_only=True):
    """How publishing to one stream fares."""

    stream: str
    unanswered: int  # messages that were published and are not known to be on disk
    waiting_since: float | None  # when the one of them was published that has waited longest, by our clock
    slowed: tuple[StreamSlowdown, ...]  # pubends that take them slowly, and why


class _Publication:
    """One message that is not answered yet."""

    __slots__ = (
        *("attempts", "began", "deadline", "delay", "due", "first_sent", "in_flight", "key", "message", "number"),
        *("open", "problem", "publication_id", "stream", "ticket", "waits"),
    )

    def __init__(self, number: int, stream: str, key: str, publication_id: str, message: Message) -> None:
        self.number = number
        self.stream = stream
        self.key = key
        self.publication_id = publication_id
        self.message = message
        self.ticket: Ticket = 0
        self.began = self.deadline = self.due = self.first_sent = self.delay = 0.0
        self.attempts = 0
        self.in_flight = False  # it is at the broker; or else it waits for its turn
        self.waits = False  # the pubend has the last attempt, and says that it waits there
        self.open: list[int] = []  # requests that were sent and not answered
        self.problem = ""  # the last that a broker named


class _Flow:
    """The publications to one stream: those at the broker, and those that wait for their turn."""

    __slots__ = ("in_flight", "in_flight_bytes", "waiting")

    def __init__(self) -> None:
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.waiting: deque[_Publication] = deque()


class StreamPublisher:
    """The publishing half of a client."""

    def __init__(
        self, name: str, config: StreamsClientConfig, timers: ServiceTimers, lane: Lane, traced: TraceSwitch | bool
    ) -> None:
        self._name = name
        self._config = config
        self._timers = timers
        self._lane = lane
        self._traced = traced
        self._home: Link | None = None
        self._next = 0  # numbers publications and requests
        self._unanswered: dict[int, _Publication] = {}
        self._unanswered_bytes = 0
        self._requests: dict[int, _Publication] = {}
        self._tickets: dict[Ticket, _Publication] = {}
        self._flows: dict[str, _Flow] = {}
        self._slowdowns = Slowdowns()
        self._rings_at = inf

    # The application.

    def publish(
        self,
        messages: Sequence[Message],
        options: StreamPublicationOptions,
        *,
        tickets: Sequence[Ticket],
        now: float,
        began: Sequence[float],
    ) -> list[Effect]:
        """Let these be stored; every ticket is answered when that is so, or will never be."""
        wrong = _problem(options)
        effects: list[Effect] = []
        for message, ticket, since in zip_longest(messages, tickets, began):
            problem = wrong or self._full(message)
            if not problem:
                self._accept(message, options, ticket or 0, now, now if since is None else since)
                if self._traced:
                    effects.append(requested_record(options.stream, options.key, message))
            elif ticket:
                effects.append(Done(ticket, Refused(problem)))
            else:
                effects.append(InputRefused(self._name, problem))
        return effects + self._fill(options.stream, now)

    def withdraw(self, ticket: Ticket, *, now: float) -> list[Effect]:
        """Nobody waits for it any more: it is tried no longer."""
        publication = self._tickets.get(ticket)
        if publication is None:
            return []
        return self._failed(publication, "the application waits no longer", now)

    def report(self, stream: str, *, now: float) -> PublisherReport:
        """How publishing to this stream fares."""
        began = [one.began for one in self._unanswered.values() if one.stream == stream]
        oldest, slowed = min(began, default=None), self._slowdowns.of(stream, now=now)
        return PublisherReport(stream=stream, unanswered=len(began), waiting_since=oldest, slowed=slowed)

    def _full(self, message: Message) -> str:
        size = self._unanswered_bytes + message.size_bytes
        if len(self._unanswered) < UNANSWERED_MAX and (size <= UNANSWERED_BYTES_MAX or not self._unanswered):
            return ""
        return (
            f"{len(self._unanswered)} messages of {self._unanswered_bytes} bytes are not stored yet; the limits are"
            f" {UNANSWERED_MAX} and {UNANSWERED_BYTES_MAX}: wait for earlier ones, then publish it again"
        )

    def _accept(
        self, message: Message, options: StreamPublicationOptions, ticket: Ticket, now: float, began: float
    ) -> None:
        self._next = number = self._next + 1
        publication = _Publication(number, options.stream, options.key, chosen_id(options, message), message)
        publication.ticket, publication.began = ticket, began
        publication.deadline = now + self._config.give_up_after
        self._due(publication, publication.deadline)
        self._unanswered[number] = publication
        self._unanswered_bytes += message.size_bytes
        if ticket:
            self._tickets[ticket] = publication
        flow = self._flows.get(options.stream)
        if flow is None:
            flow = self._flows[options.stream] = _Flow()
        flow.waiting.append(publication)

    # The connection, and time.

    def connected(self, home: Link, *, now: float) -> list[Effect]:
        """All that is not answered is sent, in order."""
        self._home = home
        return [effect for stream in list(self._flows) for effect in self._fill(stream, now)]

    def disconnected(self) -> None:
        """What was at the broker waits again."""
        self._home = None
        again = [publication for publication in self._unanswered.values() if publication.in_flight]
        for publication in reversed(again):
            publication.in_flight, publication.delay = False, 0.0
            publication.due = publication.deadline
            self._flows[publication.stream].waiting.appendleft(publication)
        for flow in self._flows.values():
            flow.in_flight = flow.in_flight_bytes = 0

    def expired(self, *, now: float) -> list[Effect]:
        """Some may not have been answered in time: try those again, or give up."""
        self._rings_at = inf
        effects: list[Effect] = []
        for publication in [one for one in self._unanswered.values() if one.due <= now]:
            if publication.number in self._unanswered:
                effects += self._overdue(publication, now)
        if self._unanswered:
            earliest = min(publication.due for publication in self._unanswered.values())
            self._ring_at(max(earliest, now + RETRY_GRAIN))
        return effects

    def _due(self, publication: _Publication, at: float) -> None:
        publication.due = at
        if at < self._rings_at:
            self._ring_at(at)

    def _ring_at(self, at: float) -> None:
        self._rings_at = at
        self._timers.set(StreamTimer.CLIENT_RETRY, at)

    def _overdue(self, publication: _Publication, now: float) -> list[Effect]:
        if now < publication.deadline and self._home is not None:
            return [self._send(publication, self._home, now)]
        if now < publication.deadline:  # the connection will bring it up again
            self._due(publication, publication.deadline)
            return []
        waited = f"within {self._config.give_up_after:g} s"
        if not publication.attempts and self._slowdowns.of(publication.stream, now=now):
            self._wait_on(publication, 0.0, now)  # its turn comes when those before it are stored
            return []
        if not publication.attempts and self._home is not None:
            return self._failed(publication, f"those published before it were not stored {waited}", now)
        if not publication.attempts:
            return self._failed(publication, f"there was no connection to send it over {waited}", now)
        last = f"; the last problem was: {publication.problem}" if publication.problem else ""
        return self._failed(publication, f"not confirmed {waited}{last}", now)

    def _fill(self, stream: str, now: float) -> list[Effect]:
        """Send what has its turn."""
        flow = self._flows.get(stream)
        if flow is None:
            return []
        home, waiting = self._home, flow.waiting
        effects: list[Effect] = []
        while waiting and home is not None and flow.in_flight < IN_FLIGHT_MAX:
            publication = waiting[0]
            size = publication.message.size_bytes
            if flow.in_flight and flow.in_flight_bytes + size > IN_FLIGHT_BYTES_MAX:
                break
            waiting.popleft()
            publication.in_flight = True
            flow.in_flight += 1
            flow.in_flight_bytes += size
            effects.append(self._send(publication, home, now))
        if not waiting and not flow.in_flight:
            del self._flows[stream]
        return effects

    def _send(self, publication: _Publication, home: Link, now: float) -> Effect:
        if not publication.attempts:
            publication.first_sent = now
            if self._slowdowns.of(publication.stream, now=now):  # it has waited for its turn, and no answer was due yet
                publication.deadline = now + self._config.give_up_after
        publication.attempts += 1
        publication.waits = False
        publication.delay = min(self._config.retry_max, 2 * publication.delay or self._config.retry_min)
        self._due(publication, min(publication.deadline, now + publication.delay))
        self._next = request = self._next + 1
        self._requests[request] = publication
        publication.open.append(request)
        age = max(0.0, now - publication.first_sent)
        who = (publication.stream, publication.key, publication.publication_id)
        return Send((home,), StreamPublish(request, *who, age, publication.message), self._lane)

    # Answers.

    def answered(self, packet: StreamPublished, *, now: float) -> list[Effect]:
        """One attempt has come to an end."""
        publication = self._requests.get(packet.request)
        if publication is None:
            return []
        if packet.problem:
            del self._requests[packet.request]
            publication.open.remove(packet.request)
            publication.problem = packet.problem
            if not packet.again:
                return self._failed(publication, packet.problem, now, certain=not packet.unknown)
            if publication.waits:  # there was no room for it: try again as if nothing had been heard
                self._due(publication, now + publication.delay)
            return []
        effects = self._confirmed(publication, packet.pubend, packet.tick, now)
        return effects + self._fill(publication.stream, now)

    def stored(self, packet: StreamStored, *, now: float) -> list[Effect]:
        """Several are on disk."""
        effects: list[Effect] = []
        for request, tick in packet.stored:
            publication = self._requests.get(request)
            if publication is not None:
                effects += self._confirmed(publication, packet.pubend, tick, now)
        return effects + self._fill(stream_of(packet.pubend), now)

    def _confirmed(self, publication: _Publication, pubend: str, tick: Tick, now: float) -> list[Effect]:
        if stream_of(pubend) != publication.stream or tick < 1:
            return [InputRefused("broker", f"a publication to '{publication.stream}' stored nowhere")]
        place = {"stream": publication.stream, "pubend": pubend, "tick": tick}
        effects = self._finished(publication, Reported({**place, "publication_id": publication.publication_id}))
        if self._traced:
            who = publication.message.identity
            name = (publication.stream, pubend, tick, who.publisher, who.incarnation, who.count)
            waited = max(0.0, now - publication.began)
            effects.insert(0, StreamConfirmed(*name, waited, publication.attempts))
        return effects

    def waits(self, packet: StreamWaits, *, now: float) -> list[Effect]:
        """A pubend has these and may not write them yet."""
        for request in packet.requests:
            publication = self._requests.get(request)
            if publication is not None:
                publication.waits = True
                publication.first_sent = now  # it is not stored yet: ids need not be remembered from before
                self._wait_on(publication, packet.notice.again_in, now)
        return self._slowdowns.hear(packet.notice, now=now)

    def _wait_on(self, publication: _Publication, again_in: float, now: float) -> None:
        """It is in good hands, and more will be heard in so many seconds."""
        patience = self._config.give_up_after
        publication.deadline = now + again_in + patience
        at = now + again_in + min(again_in, patience / 2) if again_in else publication.deadline
        self._due(publication, at)

    def _failed(self, publication: _Publication, problem: str, now: float, *, certain: bool = True) -> list[Effect]:
        """It is not stored; or, if an attempt may still succeed, nobody knows."""
        unknown = not certain or bool(publication.open)
        if unknown:
            told = (
                f"stream '{publication.stream}': {problem}; it is unknown whether the message was stored: to make sure,"
                f" publish it again with publication_id='{publication.publication_id}'"
            )
        else:
            told = f"stream '{publication.stream}': {problem}; the message was not stored"
        who = publication.message.identity
        name = (publication.stream, who.publisher, who.incarnation, who.count)
        waited = max(0.0, now - publication.began)
        record = StreamFailed(*name, problem, unknown, waited, publication.attempts)
        outcome = Unknown(told) if unknown else Refused(told)
        return [record, *self._finished(publication, outcome), *self._fill(publication.stream, now)]

    def _finished(self, publication: _Publication, outcome: Outcome) -> list[Effect]:
        flow, size = self._flows[publication.stream], publication.message.size_bytes
        del self._unanswered[publication.number]
        self._unanswered_bytes -= size
        for request in publication.open:
            del self._requests[request]
        if publication.in_flight:
            flow.in_flight -= 1
            flow.in_flight_bytes -= size
        else:
            flow.waiting.remove(publication)
        if not publication.ticket:
            return []
        del self._tickets[publication.ticket]
        return [Done(publication.ticket, outcome)]


def chosen_id(options: StreamPublicationOptions, message: Message) -> str:
    """The publication_id under which this message is tried."""
    return options.publication_id or made_id(str(message.identity))


def made_id(identity: str) -> str:
    """The publication_id of a message that was given none: its identity, or a hash if that is too long."""
    name = identity.encode()
    return identity if len(name) <= PUBLICATION_ID_BYTES_MAX else blake2b(name, digest_size=24).hexdigest()


def _problem(options: StreamPublicationOptions) -> str:
    """What is wrong with what a publication asks for; empty if nothing."""
    if not options.stream:
        return "key and publication_id are for streams; say which one, such as stream='orders'"
    if len(options.key) > KEY_CHARACTERS_MAX:
        return f"a key of {len(options.key)} characters; the limit is {KEY_CHARACTERS_MAX}"
    if options.publication_id and len(options.publication_id.encode(errors="replace")) > PUBLICATION_ID_BYTES_MAX:
        length = len(options.publication_id)
        return f"a publication_id of {length} characters; the limit is {PUBLICATION_ID_BYTES_MAX} bytes"
    for what, text in (("the key", options.key), ("the publication_id", options.publication_id)):
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            return f"{what} holds a lone surrogate and has no UTF-8 form; use another text"
    return name_problem(options.stream, "a stream", STREAM_NAME_BYTES_MAX)
