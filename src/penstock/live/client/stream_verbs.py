"""What the objects of streams ask of their client: the way from `Stream` and `StreamSubscription` to the machine.

Every question takes a ticket and waits for its answer. For messages and acknowledgements the machine itself asks again
when an answer does not come, also over a new connection; so they need no connection at the moment of the call. Commands
do.

Messages that are published in one turn of the event loop are handed to the machine together, and leave together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from penstock.content.message import Attributes, Identity, Message, make_message
from penstock.errors import NotConnected, OutcomeUnknown, PenstockError, StreamError, StreamRefused, UnknownStream
from penstock.kernel.machine import Effect, Refused, Unknown
from penstock.live.client.home_link import HomeLink
from penstock.live.client.subscription_holder import SubscriptionHolder
from penstock.live.client.tickets import Tickets
from penstock.streams.client_publishing import PublisherReport, chosen_id
from penstock.streams.client_service import StreamClient
from penstock.streams.config import StreamPublicationOptions
from penstock.streams.message import StreamSlice
from penstock.streams.packets import Handout, Position, ShareVerdict, Tick

OUTBOX_MAX = 32  # messages that leave together: the broker stores the first while we publish the next
NO_STREAM = "there is no stream"  # in the words of whoever knows none of this name

_Outgoing = tuple[StreamPublicationOptions, Message, int, float]  # and its ticket, and when publish() was called


def stream_error(refused: Refused) -> PenstockError:
    """What to raise for a refusal; the words come from a broker."""
    if isinstance(refused, Unknown):
        return StreamError(refused.problem)
    return UnknownStream(refused.problem) if NO_STREAM in refused.problem else StreamRefused(refused.problem)


def _publication_error(options: StreamPublicationOptions, message: Message) -> Callable[[Refused], PenstockError]:
    """What to raise if this message is not stored."""

    def error_of(refused: Refused) -> PenstockError:
        if not isinstance(refused, Unknown):
            return stream_error(refused)
        return OutcomeUnknown(chosen_id(options, message), refused.problem)

    return error_of


class StreamVerbs:
    """The streams' side of one client."""

    def __init__(self, tickets: Tickets, holder: SubscriptionHolder, next_identity: Callable[[], Identity]) -> None:
        self.holder = holder
        self._tickets = tickets
        self._next_identity = next_identity
        self._link: HomeLink | None = None
        self._machine: StreamClient  # from `attach` on
        self._outbox: list[_Outgoing] = []  # published in this turn of the loop
        self._closed = False

    def attach(self, link: HomeLink) -> None:
        """The client is open, and this is its link."""
        self._link = link
        self._machine = link.node.machine(StreamClient)

    def close(self) -> None:
        """The client is closed."""
        self._publish_all()
        self._closed = True

    # Questions that are answered.

    async def publish(
        self, attributes: Attributes, body: bytes, options: StreamPublicationOptions
    ) -> tuple[dict[str, Any], Identity]:
        """Store a message; returns its place with its publication_id, and its identity."""
        link = self._open_link()
        message = make_message(self._next_identity(), attributes, body, limits=StreamClient.limits)
        ticket, answer = self._tickets.take(_publication_error(options, message))
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._publish_all)
        self._outbox.append((options, message, ticket, link.host.now()))
        if len(self._outbox) >= OUTBOX_MAX:
            self._publish_all()
        try:
            place: dict[str, Any] = await answer
            return place, message.identity
        except asyncio.CancelledError:
            self._publish_all()
            self._apply(link, self._machine.withdraw(ticket, now=link.host.now()))
            raise
        except NotConnected as error:
            publication_id = chosen_id(options, message)
            problem = f"{error}; it is unknown whether the message with publication_id='{publication_id}' was stored"
            raise OutcomeUnknown(publication_id, problem) from None
        finally:
            self._tickets.drop(ticket)

    async def publish_many(
        self, publications: Sequence[tuple[Attributes, bytes, StreamPublicationOptions]]
    ) -> list[dict[str, Any]]:
        """Store these, sent together; returns the place of each when all are on disk. Raises for the first that is not.

        No more than UNANSWERED_MAX at once: all of them wait for an answer together.
        """
        link = self._open_link()
        now = link.host.now()
        self._publish_all()
        waiting: list[tuple[int, asyncio.Future[Any]]] = []
        try:
            for attributes, body, options in publications:
                message = make_message(self._next_identity(), attributes, body, limits=StreamClient.limits)
                ticket, answer = self._tickets.take(_publication_error(options, message))
                waiting.append((ticket, answer))
                self._apply(link, self._machine.publish((message,), options, tickets=(ticket,), now=now, began=(now,)))
            link.host.flush()
            return [await answer for _, answer in waiting]
        finally:
            for ticket, answer in waiting:
                self._tickets.drop(ticket)
                if not answer.done():
                    self._apply(link, self._machine.withdraw(ticket, now=link.host.now()))
                elif not answer.cancelled():
                    answer.exception()  # nobody else will look at it

    def _publish_all(self) -> None:
        """What was published in this turn leaves; those that ask for the same go to the machine as one."""
        outbox, self._outbox = self._outbox, []
        link = self._link
        if not outbox or link is None:
            return
        effects: list[Effect] = []
        now = link.host.now()
        for options, group in groupby(outbox, itemgetter(0)):
            _, messages, tickets, began = zip(*group, strict=True)
            effects += self._machine.publish(messages, options, tickets=tickets, now=now, began=began)
        self._apply(link, effects)
        link.host.flush()

    async def command(self, verb: str, stream: str, **arguments: Any) -> dict[str, Any]:
        """Ask the brokers of a stream for something; raises StreamRefused."""
        found: dict[str, Any] = await self._answered(
            lambda machine, ticket, now: machine.command(verb, stream, arguments, ticket=ticket, now=now)
        )
        return found

    async def read_slice(self, pubend: str, epoch: int, first: Tick, last: Tick, where: str) -> StreamSlice:
        """A slice of a pubend's log; raises StreamRefused."""
        found: dict[str, StreamSlice] = await self._answered(
            lambda machine, ticket, now: machine.read(pubend, epoch, first, last, where, ticket=ticket, now=now)
        )
        return found["slice"]

    async def acknowledge(self, number: int, done: Mapping[str, Tick]) -> None:
        """The application is done with everything up to these ticks; returns when that is on disk."""
        work = [self._acknowledged(number, pubend, tick) for pubend, tick in done.items()]
        await asyncio.gather(*work)

    async def settle(self, number: int, places: Sequence[tuple[str, Handout]], verdict: ShareVerdict) -> None:
        """What became of these messages of a shared name; returns when that is on disk."""
        await asyncio.gather(*(self._settled(number, pubend, handout, verdict) for pubend, handout in places))

    async def _settled(self, number: int, pubend: str, handout: Handout, verdict: ShareVerdict) -> None:
        await self._answered(
            lambda machine, ticket, now: machine.settle(number, pubend, handout, verdict, ticket=ticket, now=now)
        )

    async def _acknowledged(self, number: int, pubend: str, tick: Tick) -> None:
        await self._answered(
            lambda machine, ticket, now: machine.acknowledge(number, pubend, tick, ticket=ticket, now=now)
        )

    async def _answered(self, ask: Callable[[StreamClient, int, float], list[Effect]]) -> Any:
        link = self._open_link()
        ticket, answer = self._tickets.take(stream_error)
        try:
            self._apply(link, ask(self._machine, ticket, link.host.now()))
            return await answer
        finally:
            self._tickets.drop(ticket)

    # What nobody waits for.

    def read(self, number: int, taken: int, done: Mapping[str, Tick]) -> None:
        """The application has taken so many more, and is done with everything up to these ticks."""
        link = self._link
        if link is None or self._closed:
            return
        machine, now = self._machine, link.host.now()
        effects = machine.taken(number, taken, now=now) if taken else []
        for pubend, tick in done.items():
            effects += machine.acknowledge(number, pubend, tick, ticket=0, now=now)
        self._apply(link, effects)

    def settle_soon(self, number: int, places: Sequence[tuple[str, Handout]], verdict: ShareVerdict) -> None:
        """What became of these messages of a shared name."""
        link = self._link
        if link is not None and not self._closed:
            machine, now = self._machine, link.host.now()
            for pubend, handout in places:
                self._apply(link, machine.settle(number, pubend, handout, verdict, ticket=0, now=now))

    def positions(self, number: int) -> tuple[Position, ...]:
        """Up to where messages have come, whether they were taken or not."""
        return () if self._link is None else self._machine.positions(number)

    def publishing(self, stream: str) -> PublisherReport:
        """How publishing to this stream fares."""
        link = self._open_link()
        return self._machine.publishing(stream, now=link.host.now())

    def present(self, number: int, positions: Sequence[Position]) -> None:
        """What the application has kept of an earlier subscription; before it subscribes."""
        self._open_link()
        self._machine.present(number, tuple(positions))

    def _apply(self, link: HomeLink, effects: list[Effect]) -> None:
        link.host.apply(link.node.route(effects))

    def _open_link(self) -> HomeLink:
        if self._link is None or self._closed:
            raise NotConnected("the network was closed" if self._closed else "open the network first")
        return self._link
