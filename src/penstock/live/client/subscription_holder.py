"""The open subscriptions of one client: between what applications hold and the client's machine.

It subscribes and unsubscribes, hands deliveries to their queues, and ends a subscription that a broker refused after a
reconnection. It tells congestion control what a slow application dropped, and how fast it reads. It can be made before
the client is open, because an application may ask for subscriptions before; `attach` comes with the link.
"""

from __future__ import annotations

import logging

from penstock.content.message import Message
from penstock.kernel.machine import Deliver
from penstock.kernel.trace import InputRefused, Record, Unsubscribed
from penstock.live.broker.status import NoticeService
from penstock.live.client.home_link import HomeLink
from penstock.live.client.subscription import Subscription
from penstock.live.client.tickets import Tickets
from penstock.transport.receiver.feedback_scheduler import ControlReport
from penstock.transport.report import TransportReport

log = logging.getLogger("penstock.client")


class SubscriptionHolder:
    """What a `Subscription` knows of its client."""

    def __init__(self, name: str, tickets: Tickets, notices: NoticeService, *, congestion: bool) -> None:
        self._name = name
        self._tickets = tickets
        self._notices = notices
        self._congestion = congestion
        self._link: HomeLink | None = None
        self._open: dict[int, Subscription] = {}
        self._next_number = 0
        self._refusal = ""  # the last reason that a broker gave
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

    @property
    def lost_at_broker(self) -> int:
        return self._notices.losses

    async def open(self, subscription: Subscription) -> None:
        """Subscribe; returns when a broker has accepted it, raises InvalidPredicate or NotConnected."""
        link = self._attached()
        ticket, answer = self._tickets.take()
        self._open[subscription.number] = subscription
        effects = link.node.subscribe(
            subscription.number,
            subscription.where,
            ticket=ticket,
            now=link.host.now(),
            ordered=subscription.ordered,
            recover=subscription.recover,
            priority=subscription.priority,
        )
        link.host.apply(effects)
        try:
            await answer
        except BaseException:  # refused, or nobody waits for it any more: then the machine must not hold it either
            await self.close(subscription)
            raise
        finally:
            self._tickets.drop(ticket)

    async def close(self, subscription: Subscription) -> None:
        """Unsubscribe."""
        if self._open.pop(subscription.number, None) is not None:
            link = self._attached()
            link.host.apply(link.node.unsubscribe(subscription.number, ticket=0, now=link.host.now()))
            self._tickets.refusal = ""

    def dropped(self, message: Message) -> None:
        """The application was too slow for a message; congestion control takes it for a loss like any other."""
        if self._congestion:
            link = self._attached()
            link.node.transport.dropped_here(message, now=link.host.now())

    def reader_takes(self, number: int, rate: float) -> None:
        """A subscription's application is behind, and this is what it takes; or it keeps up again."""
        link = self._attached()
        link.node.transport.reader_takes(number, rate, now=link.host.now())

    def control_report(self, number: int) -> ControlReport:
        """What congestion control knows of a subscription."""
        return self._link.node.transport.control(number) if self._link is not None else ControlReport()

    def transport_report(self, number: int) -> TransportReport | None:
        """What the transport knows of a subscription; None if it has none."""
        return self._link.node.report(number) if self._link is not None else None

    # For the client.

    def deliver(self, effect: Deliver) -> None:
        """A message for a subscription."""
        subscription = self._open.get(effect.subscription)
        if subscription is not None:
            subscription.put(effect.message)

    def recorded(self, record: Record) -> None:
        """A subscription that a broker refuses after a reconnection has ended."""
        if type(record) is InputRefused:
            self._refusal = record.problem
        elif type(record) is Unsubscribed and record.subscription in self._open:
            self._open.pop(record.subscription).end(self._refusal)

    def warn_of_plain_publishers(self) -> None:
        """Warn once if order or recovery was asked for and somebody's messages have no header to do it with."""
        if self._warned or not any(map(self._attached().node.transport.without_header, self._open)):
            return
        self._warned = True
        log.warning(
            "%s: messages of publishers without the transport come as they are, neither in order nor recovered;"
            " publishers turn it on with connect(..., transport=True)",
            self._name,
        )

    def end_all(self) -> None:
        """The client is closed: no subscription gets any more."""
        for subscription in list(self._open.values()):
            subscription.end(None)
        self._open.clear()

    def _attached(self) -> HomeLink:
        assert self._link is not None, "open the network before its subscriptions"
        return self._link
