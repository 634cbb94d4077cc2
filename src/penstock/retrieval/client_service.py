"""Retrieval at clients: successive lifetimes of a subscription, over whatever home broker there is (004 section 3.2).

A subscription asks its home broker for at most `max` items in each lifetime. When one is over it asks again, and says
that the chain goes on (refreshed), so that it gets nothing twice; nobody keeps a history of what it got. Over a new
connection it asks for what is missing of the present lifetime, and says which home it had last: the new one then knows
that the chain has moved. A chain that never got anything, and whose connection is gone, begins anew.

A one-shot request (lifetime 0) waits `answer_time` for answers and ends, earlier if it has all. Items are handed over
as they come, or all at the end of each lifetime.

A first request that is refused ends the subscription; a later one is tried again, at intervals that grow, and the
report says why.

State: for each subscription its terms, lifetime, counts and last home; items that wait for the end of a lifetime, at
most `held_max`; those that find no room are handed over at once. Timers: LIFETIME, RETRY for each subscription.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.content.message import Message
from penstock.errors import InvalidOption
from penstock.kernel.link import Link
from penstock.kernel.machine import Accepted, Deliver, Done, Effect, Refused, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import Key
from penstock.retrieval.config import RetrievalClientConfig, RetrievalTerms, terms_of
from penstock.retrieval.message import RetrievedMessage, retrieved
from penstock.retrieval.packets import (
    TO_CLIENT,
    HomeLife,
    RetrievedItem,
    RetrieveReply,
    RetrieveRequest,
    RetrieveStop,
)
from penstock.retrieval.records import ItemRetrieved, LifetimeBegan, LifetimeEnded
from penstock.retrieval.status import RetrievalReport
from penstock.retrieval.timers import RetrievalTimer

RETRY_MAX = 60.0  # seconds between two requests that were refused, or not answered


class _Retrieval:
    """One subscription."""

    def __init__(self, number: int, where: str, terms: RetrievalTerms, ticket: Ticket, retry: float) -> None:
        self.number = number
        self.where = where
        self.terms = terms
        self.ticket: Ticket | None = ticket  # until the first answer
        self.lifetime = 1
        self.began: float | None = None  # the lifetime; None: it has not been asked for
        self.ends = 0.0
        self.items = 0  # of this lifetime
        self.items_in_all = 0
        self.held: list[RetrievedMessage] = []
        self.home: HomeLife | None = None
        self.moved_at: float | None = None
        self.moves = 0
        self.asked_here = False  # over the present connection
        self.refreshed = False  # what it is asked for as
        self.retry = retry
        self.items_max = 0  # what "all" asks for, by the broker's word
        self.problem = ""  # why the broker refuses the present lifetime

    @property
    def missing(self) -> int:
        """Items that this lifetime may still bring; 0: all there are."""
        return self.terms.max - self.items if self.terms.max else 0

    @property
    def satisfied(self) -> bool:
        return self.terms.max > 0 and self.items >= self.terms.max


class RetrievalClient:
    """The machine of clients."""

    packet_kinds: tuple[type[Packet], ...] = TO_CLIENT

    def __init__(self, context: Context) -> None:
        self._config = context.settings(RetrievalClientConfig)
        self._timers = context.timers
        self._home: Link | None = None
        self._all: dict[int, _Retrieval] = {}
        self._held = 0

    # Application verbs.

    def claims_subscription(self) -> bool:
        return False

    def subscribe(self, number: int, where: str, options: object, *, ticket: Ticket, now: float) -> list[Effect]:
        """Retrieve from now on; the ticket is answered when a broker has accepted the first request."""
        if number in self._all:
            return [Done(ticket, Refused(f"subscription {number} exists; choose another number"))]
        try:
            terms = terms_of(options)
        except InvalidOption as error:
            return [Done(ticket, Refused(str(error)))]
        one = self._all[number] = _Retrieval(number, where, terms, ticket, self._config.retry)
        return self._ask(one, now)

    def unsubscribe(self, number: int, *, ticket: Ticket, now: float) -> list[Effect]:
        one = self._all.get(number)
        if one is None:
            return [Done(ticket, Refused(f"there is no subscription {number}"))]
        effects = self._let_go(one)
        if one.ticket is not None:
            effects.append(Done(one.ticket, Refused("unsubscribed before the broker had answered")))
        return [*effects, Done(ticket, Accepted())]

    def delivered(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[Effect]:
        return []  # nothing is forwarded to these subscriptions

    def refused(self, number: int, *, now: float) -> list[Effect]:
        return []

    def report(self, number: int) -> RetrievalReport | None:
        one = self._all.get(number)
        if one is None:
            return None
        left = one.ends - one.began if one.began is not None else 0.0
        most = one.terms.max or one.items_max
        return RetrievalReport(one.lifetime, one.items, one.items_in_all, most, left, one.moves, one.problem)

    # Inputs.

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if up:
            self._home = link
            return [effect for one in list(self._all.values()) for effect in self._ask(one, now)]
        if link == self._home:
            self._home = None
            for one in self._all.values():
                one.asked_here = False
                self._timers.cancel(RetrievalTimer.RETRY, one.number)
        return []

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            assert isinstance(packet, RetrieveReply | RetrievedItem)
            one = self._all.get(packet.subscription)
            if one is None:
                continue  # it was let go of
            if isinstance(packet, RetrievedItem):
                effects += self._item(one, packet)
            elif packet.lifetime == one.lifetime:
                effects += self._replied(one, packet, now)
        return effects

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        one = self._all[int(key[0])]
        if timer == RetrievalTimer.RETRY:
            return self._send(one, now)
        if not one.terms.refreshes:
            return self._end(one)
        effects: list[Effect] = [LifetimeEnded(one.number, one.lifetime, one.items, last=False), *self._hand_over(one)]
        one.lifetime += 1
        one.items, one.began = 0, None
        return effects + self._ask(one, now)

    # Lifetimes.

    def _ask(self, one: _Retrieval, now: float) -> list[Effect]:
        """Begin a lifetime, or go on with it over a new connection."""
        if one.began is None:
            if self._home is None and one.lifetime == 1:
                return []  # it begins when there is somebody to ask
            one.began = now
            one.ends = now + (one.terms.lifetime or self._config.answer_time)
            self._timers.set(RetrievalTimer.LIFETIME, one.ends, one.number)
        if self._home is None or one.satisfied or one.ends <= now:
            return []
        one.refreshed = one.items_in_all > 0 or one.asked_here
        one.asked_here = True
        one.retry = self._config.retry
        terms = one.terms
        began = LifetimeBegan(
            one.number,
            one.lifetime,
            one.where,
            terms.max,
            one.ends - now,
            terms.freshness,
            now - one.began,
            one.refreshed,
        )
        return [began, *self._send(one, now)]

    def _send(self, one: _Retrieval, now: float) -> list[Effect]:
        if self._home is None or one.began is None or one.ends <= now:
            return []
        self._timers.set(RetrievalTimer.RETRY, now + one.retry, one.number)
        one.retry = min(2 * one.retry, RETRY_MAX)
        packet = RetrieveRequest(
            subscription=one.number,
            lifetime=one.lifetime,
            where=one.where,
            max=one.missing,
            left=one.ends - now,
            freshness=one.terms.freshness,
            elapsed=max(0.0, now - one.began),
            once=one.terms.lifetime == 0.0,
            refreshed=one.refreshed,
            home=one.home,
            moved=None if one.moved_at is None else now - one.moved_at,
        )
        return [Send((self._home,), packet, Lane.CONTROL)]

    def _replied(self, one: _Retrieval, packet: RetrieveReply, now: float) -> list[Effect]:
        if packet.problem:
            if one.ticket is None:
                one.problem = packet.problem
                return []  # it is tried again
            self._let_go(one)
            return [
                LifetimeEnded(one.number, one.lifetime, 0, last=True, problem=packet.problem),
                Done(one.ticket, Refused(packet.problem)),
            ]
        self._timers.cancel(RetrievalTimer.RETRY, one.number)
        one.problem = ""
        one.items_max = packet.items_max
        if packet.moved and packet.home != one.home:  # else it was asked twice, and answered twice
            one.moved_at = now
            one.moves += 1
        one.home = packet.home
        ticket, one.ticket = one.ticket, None
        return [] if ticket is None else [Done(ticket, Accepted())]

    def _item(self, one: _Retrieval, packet: RetrievedItem) -> list[Effect]:
        identity = packet.message.identity
        who = (identity.publisher, identity.incarnation, identity.count)
        effects: list[Effect] = [ItemRetrieved(one.number, packet.lifetime, *who)]
        one.items_in_all += 1
        one.items += packet.lifetime == one.lifetime
        message = retrieved(packet.message, packet.lifetime)
        if one.terms.at_end and self._held < self._config.held_max:
            self._held += 1
            one.held.append(message)
        else:
            effects.append(Deliver(one.number, message))
        if one.satisfied and not one.terms.refreshes and not (one.terms.at_end and one.terms.lifetime):
            effects += self._end(one)
        return effects

    def _hand_over(self, one: _Retrieval) -> list[Effect]:
        held, one.held = one.held, []
        self._held -= len(held)
        return [Deliver(one.number, message) for message in held]

    def _end(self, one: _Retrieval) -> list[Effect]:
        """It asks for no more."""
        handed_over = self._hand_over(one)
        effects = self._let_go(one)
        if one.ticket is not None:
            effects.append(Done(one.ticket, Refused("no broker answered while it lasted")))
        return [*handed_over, LifetimeEnded(one.number, one.lifetime, one.items, last=True), *effects]

    def _let_go(self, one: _Retrieval) -> list[Effect]:
        del self._all[one.number]
        self._held -= len(one.held)
        self._timers.cancel(RetrievalTimer.LIFETIME, one.number)
        self._timers.cancel(RetrievalTimer.RETRY, one.number)
        if self._home is None:
            return []
        return [Send((self._home,), RetrieveStop(one.number), Lane.CONTROL)]
