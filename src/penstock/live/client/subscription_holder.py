"""The open subscriptions of one client: between what applications hold and the client's machine.

It subscribes and unsubscribes, hands deliveries to their queues, and ends a subscription that a broker refused after a
reconnection. It tells the machine how the application reads. It can be made before
the client is open, because an application may ask for subscriptions before; `attach` comes with the link.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from penstock.content.message import Message
from penstock.errors import NotConnected
from penstock.kernel.machine import Deliver
from penstock.kernel.reader_queue import reader_drop
from penstock.kernel.service import Reading
from penstock.kernel.trace import InputRefused, Record, Unsubscribed
from penstock.live.client.home_link import HOME, HomeLink
from penstock.live.client.readable import Readable, Sink
from penstock.live.client.subscription import Subscription
from penstock.live.client.tickets import Tickets
from penstock.live.wire.tcp_port import TcpPort
from penstock.overlay.records import ServiceSubscriptionRefused
from penstock.overlay.status import StatusRequester
from penstock.rates.client_service import RatesClient
from penstock.rates.told import WithheldFlow
from penstock.retrieval.records import LifetimeEnded
from penstock.streams.records import DurableBegan, DurableDelayed, DurableStopped, GapNoticed, SharingBegan
from penstock.transport.client_service import TransportClient
from penstock.transport.receiver.feedback_scheduler import ControlReport

log = logging.getLogger("penstock.client")

READY_SPARE = 1.0  # seconds for our broker to say that the time is up

SETTLE_WITHIN = 1.0  # seconds for the last word of the broker about what it dropped


class SubscriptionHolder:
    """What a `Subscription` knows of its client."""

    def __init__(self, name: str, tickets: Tickets) -> None:
        self._name = name
        self._tickets = tickets
        self._link: HomeLink | None = None
        self._open: dict[int, Sink] = {}
        self._next_number = 0
        self._refusal = ""  # the last reason that a broker gave
        self._ended = False
        self._mute: TcpPort | None = None  # over which the broker did not answer the last question
        self._warned = False  # of publishers without the transport

    def attach(self, link: HomeLink) -> None:
        """The client is open, and this is its link."""
        self._link = link

    def next_number(self) -> int:
        """The number of a new subscription."""
        number = self._next_number
        self._next_number += 1
        return number

    # For a subscription.

    @property
    def connected(self) -> bool:
        return self._link is not None and self._link.port is not None

    @property
    def reconnects(self) -> int:
        return self._link.reconnects if self._link is not None else 0

    def lost_at_broker(self, number: int | None = None) -> int:
        """What brokers dropped on the way to us: of one subscription, or of all."""
        if self._link is None:
            return 0
        losses = self._link.node.machine(StatusRequester).losses
        return sum(losses.values()) if number is None else losses.get(number, 0)

    def withheld_by(self, number: int) -> tuple[WithheldFlow, ...]:
        """What full links withheld from our broker, and our broker from this subscription."""
        if self._link is None:
            return ()
        return tuple(self._link.node.machine(RatesClient).wanted.of(number))

    async def settle(self) -> None:
        """At the end of a subscription, or of all: learn what the broker has dropped and not told yet.

        A broker that did not answer in time is not waited for again on the same connection.
        """
        link = self._link
        if link is None or link.port is None or not self._next_number or link.port is self._mute:
            return
        port = link.port
        ticket, answer = self._tickets.take()
        requester = link.node.machine(StatusRequester)
        link.host.apply(link.node.route(requester.ask_losses(HOME, ticket)))
        try:
            if not (await asyncio.wait([answer], timeout=SETTLE_WITHIN))[0]:
                self._mute = port
        finally:
            answer.cancel()
            requester.forget(ticket)
            self._tickets.drop(ticket)

    async def open(self, subscription: Readable, sink: Sink) -> None:
        """Subscribe; returns when all brokers know it, or its time is up. Raises NotConnected, or what was refused."""
        if self._link is None or self._ended:
            raise NotConnected("the network was closed" if self._ended else "open the network before its subscriptions")
        link = self._link
        ticket, answer = self._tickets.take(subscription._refusal)
        number, where, options = subscription.number, subscription.where, subscription.options
        self._open[number] = sink
        link.host.apply(link.verbs.subscribe(number, where, options, ticket=ticket, now=link.host.now()))
        try:
            if isinstance(subscription, Subscription) and subscription.ready_within:
                await self._with_all(subscription, link, answer)
            else:
                await answer
        except BaseException:  # refused, or nobody waits for it any more: then the machine must not hold it either
            self.close(number)
            raise
        finally:
            self._tickets.drop(ticket)

    async def _with_all(self, subscription: Subscription, link: HomeLink, answer: asyncio.Future[Any]) -> None:
        """Wait for the broker's answer, and until all brokers know of it; the question goes along with the first."""
        within = subscription.ready_within
        ticket, ready = self._tickets.take()
        link.host.apply(link.verbs.await_ready(within, ticket=ticket))
        try:
            await answer
            done, _ = await asyncio.wait([ready], timeout=within + READY_SPARE)
            found = ready.result()["unconfirmed"] if done else ("our own broker, which gave no answer",)
        finally:
            ready.cancel()
            link.verbs.forget_ready(ticket)
            self._tickets.drop(ticket)
        subscription.unconfirmed = tuple(found)
        if found:
            text = "%s: %s is not known everywhere: no confirmation from %s within %g s"
            log.warning(text, self._name, subscription.where, ", ".join(found), within)

    def close(self, number: int) -> None:
        """Unsubscribe."""
        if self._open.pop(number, None) is not None:
            link = self._attached()
            link.host.apply(link.verbs.unsubscribe(number, ticket=0, now=link.host.now()))

    def read(self, number: int, reading: Reading) -> None:
        """How the application has taken the messages of a subscription lately: an input of the machine."""
        if self._link is not None and number in self._open:
            link = self._link
            link.host.apply(link.verbs.read(number, reading, now=link.host.now()))

    def reader_dropped(self, message: Message) -> None:
        """The application was too slow for a message."""
        self._attached().host.note(reader_drop(message))

    def control_report(self, number: int) -> ControlReport | None:
        """What congestion control knows of a subscription; None if there is none."""
        if self._link is None:
            return None
        transport = self._link.node.machine(TransportClient).transport
        return transport.control(number) if transport.config.congestion else None

    def service_reports(self, number: int) -> dict[str, Any]:
        """What the services report of a subscription."""
        return self._link.verbs.reports(number) if self._link is not None else {}

    # For the client.

    def deliver(self, effect: Deliver) -> None:
        """A message for a subscription."""
        sink = self._open.get(effect.subscription)
        if sink is not None:
            sink.put(effect.message)

    def recorded(self, record: Record) -> None:
        """A subscription that a broker refuses after a reconnection has ended; what a service needs is tried again."""
        if type(record) is ServiceSubscriptionRefused:
            text = "%s: the broker refuses a subscription that a service needs, %s: %s; trying again in %g s"
            log.warning(text, self._name, record.where, record.problem, record.again_in)
        elif isinstance(record, DurableBegan | SharingBegan | GapNoticed) and record.subscription in self._open:
            self._open[record.subscription].put(record)
        elif type(record) is DurableDelayed:
            log.warning("%s: '%s' cannot be read yet: %s; trying again", self._name, record.stream, record.problem)
        elif type(record) is DurableStopped and record.subscription in self._open:
            self._open.pop(record.subscription).end(record.problem)
        elif type(record) is LifetimeEnded and record.last and record.subscription in self._open:
            self._open.pop(record.subscription).end(record.problem or None)
        elif type(record) is InputRefused:
            self._refusal = record.problem
        elif type(record) is Unsubscribed and record.subscription in self._open:
            self._open.pop(record.subscription).end(self._refusal)

    def warn_of_plain_publishers(self) -> None:
        """Warn once if order or recovery was asked for and somebody's messages have no header to do it with."""
        if self._warned or not any(
            map(self._attached().node.machine(TransportClient).transport.without_header, self._open)
        ):
            return
        self._warned = True
        log.warning(
            "%s: messages of publishers without the transport come as they are, neither in order nor recovered;"
            " publishers turn it on with connect(..., transport=True)",
            self._name,
        )

    def end_all(self) -> None:
        """The client is closed: no subscription gets any more."""
        for sink in self._open.values():
            sink.end(None)
        self._open.clear()
        self._ended = True

    def _attached(self) -> HomeLink:
        assert self._link is not None, "nothing comes before the client is open"
        return self._link
