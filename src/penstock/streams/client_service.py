"""Streams in a client's node: the application's verbs, and what the home broker answers.

Four parts stand behind it: what is published (`client_publishing`), the durable subscriptions (`durable_reader`, one
machine for each), slices of the log (`client_reads`) and commands (`client_commands`). All go on by themselves when the
connection is lost and another broker is found: nothing here belongs to a connection but what is under way on it.

Besides the verbs that all services share there are those of a reader: `taken` and `acknowledge` (`settle`, if the name
is shared), `present` before it
subscribes, `positions` whenever it wants to keep them; and `command`.

Bounds: READERS_MAX subscriptions, of which at most ENDED_MAX that a broker has ended stay for their report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.content.message import DEFAULT_LIMITS, Message
from penstock.errors import InvalidOption, InvalidPredicate
from penstock.kernel.link import Link
from penstock.kernel.machine import Accepted, Done, Effect, Refused
from penstock.kernel.packet import Packet
from penstock.kernel.service import Context
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import Key
from penstock.kernel.trace import InputRefused
from penstock.streams.client_commands import StreamCommands
from penstock.streams.client_publishing import PublisherReport, StreamPublisher
from penstock.streams.client_reads import StreamReads
from penstock.streams.config import StreamPublicationOptions, StreamsClientConfig, StreamSubscriptionOptions
from penstock.streams.durable_options import DurableRequest, check_positions, durable_request
from penstock.streams.durable_reader import DurableReader, DurableReport
from penstock.streams.packets import (
    TO_CLIENT,
    Acknowledged,
    DurableAnswer,
    DurableEnded,
    Handout,
    LogSlice,
    Position,
    ShareDelivery,
    ShareSettled,
    ShareVerdict,
    StreamDelivery,
    StreamPublished,
    StreamReport,
    StreamStored,
    StreamWaits,
    Tick,
)
from penstock.streams.shared_reader import SharedReader
from penstock.streams.timers import StreamTimer

READERS_MAX = 1_000
ENDED_MAX = 100
PRESENTED_MAX = 1_000  # numbers under which somebody is about to subscribe

ToReader = StreamDelivery | DurableAnswer | Acknowledged | DurableEnded | ShareDelivery | ShareSettled


class StreamClient:
    """The machine of streams in a client's node."""

    packet_kinds: tuple[type[Packet], ...] = TO_CLIENT
    limits = DEFAULT_LIMITS

    def __init__(self, context: Context) -> None:
        self._who = (context.name, context.incarnation)
        self._config = context.settings(StreamsClientConfig)
        self._timers = context.timers
        self._traced = context.traced
        self._publisher = StreamPublisher(
            context.name, self._config, context.timers, context.lane, traced=context.traced
        )
        self._commands = StreamCommands(context.timers, self._config.command_within)
        self._reads = StreamReads(context.timers, self._config)
        self._home: Link | None = None
        self._readers: dict[int, DurableReader] = {}
        self._presented: dict[int, tuple[Position, ...]] = {}

    # What the application publishes.

    def claims_publication(self) -> bool:
        """Only what names a stream."""
        return False

    def may_wait(self) -> bool:
        """Every message waits until it is on disk."""
        return True

    def publish(
        self,
        messages: Sequence[Message],
        options: Any,
        *,
        tickets: Sequence[Ticket],
        now: float,
        began: Sequence[float] = (),
    ) -> list[Effect]:
        """Let these be stored; a ticket is answered with `Reported` (stream, pubend, tick, publication_id) when it is.

        `Refused`: it is not stored and never will be. `Unknown`: nobody knows.
        """
        if type(options) is not StreamPublicationOptions:  # but those of all services
            named = {"stream": options.stream, "key": options.key, "publication_id": options.publication_id}
            options = StreamPublicationOptions(**named)
        return self._publisher.publish(messages, options, tickets=tickets, now=now, began=began)

    def publishing(self, stream: str, *, now: float) -> PublisherReport:
        """How publishing to this stream fares: what waits, since when, and who slows it down."""
        return self._publisher.report(stream, now=now)

    def withdraw(self, ticket: Ticket, *, now: float) -> list[Effect]:
        """Nobody waits for this message any more: it is tried no longer, and may be stored or not."""
        return self._publisher.withdraw(ticket, now=now)

    # Durable subscriptions.

    def claims_subscription(self) -> bool:
        """Only what names a stream."""
        return False

    def present(self, number: int, positions: Sequence[Position]) -> None:
        """The subscription of this number, which is about to be made, goes on from these."""
        if len(self._presented) < PRESENTED_MAX:
            self._presented[number] = tuple(positions)

    def subscribe(self, number: int, where: str, options: Any, *, ticket: Ticket, now: float) -> list[Effect]:
        """Read a stream under a durable name; the ticket is answered when that is in force, however long it takes."""
        presented = self._presented.pop(number, ())
        try:
            request = durable_request(number, where, _subscription_options(options), *self._who)
            check_positions(presented, request.stream)
        except (InvalidOption, InvalidPredicate) as error:
            return [Done(ticket, Refused(str(error)))]
        problem = self._taken_already(request)
        if problem:
            return [Done(ticket, Refused(problem))]
        made = DurableReader if request.share is None else SharedReader
        reader = made(request, presented, ticket, self._config, self._timers, traced=self._traced)
        self._readers[number] = reader
        return [] if self._home is None else reader.connected(self._home, now=now)

    def _taken_already(self, request: DurableRequest) -> str:
        reader = self._readers.get(request.number)
        if reader is not None and not reader.ended:
            return f"subscription {request.number} exists; choose another number"
        if len(self._readers) >= READERS_MAX:
            return f"{READERS_MAX} durable subscriptions of one client is the limit; close some"
        for number, other in self._readers.items():
            same = (other.request.stream, other.request.durable) == (request.stream, request.durable)
            if same and not other.ended and not request.takeover and request.share is None:
                remedy = "choose another name, or take over with takeover=True"
                return f"subscription {number} of this client reads '{request.stream}' as '{request.durable}'; {remedy}"
        return ""

    def unsubscribe(self, number: int, *, ticket: Ticket, now: float) -> list[Effect]:
        """Read it no longer; the name and its position stay at the pubends."""
        reader = self._readers.pop(number, None)
        if reader is None:
            return [Done(ticket, Refused(f"there is no durable subscription {number}"))]
        return [*reader.leave(), Done(ticket, Accepted())]

    def taken(self, number: int, count: int, *, now: float) -> list[Effect]:
        """The application has taken so many messages of this subscription, in the order in which they came."""
        reader = self._readers.get(number)
        return [] if reader is None else reader.taken(count, now=now)

    def acknowledge(self, number: int, pubend: str, tick: Tick, *, ticket: Ticket, now: float) -> list[Effect]:
        """The application is done with everything of this pubend up to this tick.

        The ticket is answered when the pubend has that on disk; 0: nobody waits.
        """
        reader = self._readers.get(number)
        if reader is None:
            return [Done(ticket, Refused(f"there is no durable subscription {number}"))] if ticket else []
        return reader.acknowledge(pubend, tick, ticket=ticket, now=now)

    def settle(
        self, number: int, pubend: str, handout: Handout, verdict: ShareVerdict, *, ticket: Ticket, now: float
    ) -> list[Effect]:
        """The application is done with one message of a shared name, or rejects it; answered when that is on disk."""
        reader = self._readers.get(number)
        if not isinstance(reader, SharedReader):
            problem = f"there is no shared subscription {number}"
            return [Done(ticket, Refused(problem))] if ticket else []
        return reader.settle(pubend, handout, verdict, ticket=ticket, now=now)

    def positions(self, number: int) -> tuple[Position, ...]:
        """What an application may keep that is done with all messages it has taken."""
        reader = self._readers.get(number)
        return () if reader is None else reader.positions()

    def report(self, number: int) -> DurableReport | None:
        """How this subscription fares; None if it is none of ours."""
        reader = self._readers.get(number)
        return None if reader is None else reader.report()

    def delivered(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[Effect]:
        """Streams come in packets of their own: no best-effort delivery is for a subscription of ours."""
        return []

    def refused(self, number: int, *, now: float) -> list[Effect]:
        """Likewise: nothing of ours is subscribed to by best effort."""
        return []

    # Slices of the log, and commands.

    def read(
        self, pubend: str, epoch: int, first: Tick, last: Tick, where: str, *, ticket: Ticket, now: float
    ) -> list[Effect]:
        """Ask for what matches in a range of ticks; the ticket is answered with the first slice of it."""
        return self._reads.read(pubend, epoch, first, last, where, ticket=ticket, now=now)

    def command(
        self, verb: str, stream: str, arguments: Mapping[str, Any], *, ticket: Ticket, now: float
    ) -> list[Effect]:
        """Ask for one of `client_commands.VERBS`; the ticket is answered with `Reported`, or Refused."""
        return self._commands.command(verb, stream, arguments, ticket=ticket, now=now)

    # The network and time.

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if up:
            self._home = link
            self._commands.connected(link)
            effects = [effect for reader in self._readers.values() for effect in reader.connected(link, now=now)]
            return effects + self._publisher.connected(link, now=now) + self._reads.connected(link)
        if link != self._home:
            return []
        self._home = None
        for reader in self._readers.values():
            reader.disconnected()
        self._publisher.disconnected()
        self._reads.disconnected()
        return self._commands.disconnected()

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        return [effect for packet in packets if sender == self._home for effect in self._received(packet, now)]

    def _received(self, packet: Packet, now: float) -> list[Effect]:
        if isinstance(packet, StreamPublished):
            return self._publisher.answered(packet, now=now)
        if isinstance(packet, StreamStored):
            return self._publisher.stored(packet, now=now)
        if isinstance(packet, StreamWaits):
            return self._publisher.waits(packet, now=now)
        if isinstance(packet, StreamReport):
            return self._commands.answered(packet)
        if isinstance(packet, LogSlice):
            return self._reads.answered(packet)
        assert isinstance(packet, ToReader)
        reader = self._readers.get(packet.subscription)
        if reader is None or reader.ended:  # it was on the way when we left
            return []
        if isinstance(packet, StreamDelivery):
            return reader.delivered(packet, now=now)
        if isinstance(packet, Acknowledged):
            return reader.acknowledged(packet, now=now)
        if isinstance(packet, ShareDelivery | ShareSettled):
            return self._shared(packet, reader, now)
        effects = reader.end(packet.problem) if isinstance(packet, DurableEnded) else reader.answered(packet, now=now)
        self._keep_few(packet.subscription)
        return effects

    def _shared(self, packet: ShareDelivery | ShareSettled, reader: DurableReader, now: float) -> list[Effect]:
        if not isinstance(reader, SharedReader):
            return [InputRefused("broker", f"a handout for '{reader.request.durable}', which is not shared")]
        if isinstance(packet, ShareDelivery):
            return reader.handed_out(packet, now=now)
        return reader.settled(packet, now=now)

    def _keep_few(self, number: int) -> None:
        """One that was refused is forgotten; of those that a broker has ended, the latest stay for their report."""
        reader = self._readers[number]
        if reader.ended and not reader.began:
            del self._readers[number]
        ended = [number for number, reader in self._readers.items() if reader.ended]
        if len(ended) > ENDED_MAX:
            del self._readers[ended[0]]

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        if timer == StreamTimer.CLIENT_RETRY:
            return self._publisher.expired(now=now)
        number = int(key[0])
        if timer == StreamTimer.CLIENT_COMMAND:
            return self._commands.expired(number)
        if timer == StreamTimer.CLIENT_READ:
            return self._reads.expired(number, now=now)
        reader = self._readers[number]
        if timer == StreamTimer.CLIENT_SUBSCRIBE:
            return reader.subscribe_due(now=now)
        if timer == StreamTimer.CLIENT_ACKNOWLEDGE:
            return reader.acknowledge_due(now=now)
        assert timer == StreamTimer.CLIENT_RESUME
        return reader.resume_due(str(key[1]), now=now)


def _subscription_options(options: Any) -> StreamSubscriptionOptions:
    """Ours, out of the options of all services."""
    names = StreamSubscriptionOptions.__struct_fields__
    return StreamSubscriptionOptions(**{name: getattr(options, name) for name in names})
