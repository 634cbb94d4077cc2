"""Priced sending at clients: content of a class waits until the home broker has bought its way (003 section 4.2.2).

The broker says which content is priced, and how many messages may be unanswered at once. The others wait here, in
order; `publish()` waits with them. A message counts as published when it leaves for the broker, and is accepted when
the broker has bought it. Until the broker of a new connection has told its classes everything waits here; then what is
not priced goes on as if this service were not there.

When the connection breaks nobody can say whether the unanswered messages were bought: they are answered so. What waits
here goes to the next broker.

State: what waits and what is unanswered. Bounds: `waiting_max`, and the broker's window. Nothing leaves for which the
link's queue has no room: it is tried again with each answer, and some are due then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from penstock.content.language.parser import parse_predicate
from penstock.content.message import DEFAULT_LIMITS, Message, MessageLimits
from penstock.content.predicate import Predicate
from penstock.errors import InvalidPredicate
from penstock.kernel.link import Link
from penstock.kernel.machine import Accepted, Done, Effect, Outcome, Refused, Reported, Send, Unknown
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.service import Context, PassOn
from penstock.kernel.storage import Ticket
from penstock.kernel.trace import InputRefused, dropped_record, published_record
from penstock.pricing.config import PricingClientConfig
from penstock.pricing.packets import (
    Bought,
    ClassesRequest,
    NotBought,
    PricedClasses,
    PricedPublish,
    PriceRequest,
    Prices,
)
from penstock.pricing.status import PriceReport

LOST = (
    "the connection to the broker broke before it said whether the message had left; publish again if twice is no harm"
)
ASKED_MAX = 1_000


class _Waiting:
    __slots__ = ("began", "message", "ticket")

    def __init__(self, message: Message, ticket: Ticket | None, began: float) -> None:
        self.message = message
        self.ticket = ticket
        self.began = began


class PricedClient:
    """The machine of clients."""

    packet_kinds: tuple[type[Packet], ...] = (PricedClasses, Bought, NotBought, Prices)
    limits: MessageLimits = DEFAULT_LIMITS

    def __init__(self, context: Context) -> None:
        self._config = context.settings(PricingClientConfig)
        self._node = context.node
        self._traced = context.traced
        self._home: Link | None = None
        self._classes: list[Predicate] = []
        self._told = False  # whether the broker of this connection has said what is priced
        self._window = 0
        self._waiting: deque[_Waiting] = deque()
        self._unanswered: dict[int, Ticket | None] = {}  # by number
        self._number = 0
        self._asked: dict[Ticket, None] = {}
        self._pass_on: PassOn | None = None

    @property
    def knows_classes(self) -> bool:
        """Whether the broker has said what is priced, since the link came up."""
        return self._told

    # Application verbs.

    def set_pass_on(self, pass_on: PassOn) -> None:
        self._pass_on = pass_on

    def claims_publication(self) -> bool:
        return False

    def claims_content(self) -> bool:
        return bool(self._classes) or (not self._told and self._undecided())  # asked for every message

    def claims_message(self, message: Message) -> bool:
        """Whether it is priced, or may be."""
        return self._undecided() or self._is_priced(message)

    def may_wait(self) -> bool:
        return self.claims_content()

    def _undecided(self) -> bool:
        """Whether nobody knows yet what is priced."""
        return self._home is not None and not self._told and self._config.waits_for_classes

    def _is_priced(self, message: Message) -> bool:
        return any(one.matches(message.attributes) for one in self._classes)

    def publish(
        self,
        messages: Sequence[Message],
        options: object,
        *,
        tickets: Sequence[Ticket],
        now: float,
        began: Sequence[float] = (),
    ) -> list[Effect]:
        effects: list[Effect] = []
        for place, message in enumerate(messages):
            ticket = tickets[place] if tickets else None
            if len(self._waiting) >= self._config.waiting_max:
                effects.append(_dropped(message))
                limit = f"the limit waiting_max is {self._config.waiting_max}"
                effects += _answer(ticket, Refused(f"as many messages wait for their price as may; {limit}"))
            else:
                self._waiting.append(_Waiting(message, ticket, began[place] if began else now))
        return effects + self._send(now)

    def withdraw(self, ticket: Ticket, *, now: float) -> list[Effect]:
        """Nobody waits for this message any more: it does not leave, unless it has left already."""
        for one in self._waiting:
            if one.ticket == ticket:
                self._waiting.remove(one)
                return _answer(ticket, Refused("withdrawn before it was bought"))
        return []

    def ask_prices(self, ticket: Ticket) -> list[Effect]:
        """Answer the ticket with how our accounts stand."""
        if self._home is None or len(self._asked) >= ASKED_MAX:
            return [Done(ticket, Refused("not connected to a broker, or too many questions at once; ask again"))]
        self._asked[ticket] = None
        return [Send((self._home,), PriceRequest(ticket), Lane.CONTROL)]

    def forget(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any more."""
        self._asked.pop(ticket, None)

    # Inputs.

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if up:
            self._home = link
            self._told = False
            return [Send((link,), ClassesRequest(), Lane.CONTROL)]
        if link != self._home:
            return []
        self._home = None
        self._told = False
        self._window = 0
        lost, self._unanswered = self._unanswered, {}
        asked, self._asked = self._asked, {}
        effects = [effect for ticket in lost.values() for effect in _answer(ticket, Unknown(LOST))]
        effects += [Done(ticket, Refused("the connection broke; ask again")) for ticket in asked]
        return effects + self._let_go(now)

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            match packet:
                case Bought():
                    for number in packet.numbers:
                        effects += _answer(self._unanswered.pop(number, None), Accepted())
                case NotBought():
                    effects += _answer(self._unanswered.pop(packet.number, None), Refused(packet.problem))
                case PricedClasses():
                    effects += self._learn(packet, now)
                case Prices(ticket=ticket) if ticket in self._asked:
                    del self._asked[ticket]
                    effects.append(Done(ticket, _read(packet.report)))
        return effects + self._send(now)

    def _learn(self, packet: PricedClasses, now: float) -> list[Effect]:
        effects: list[Effect] = []
        try:
            self._classes = [parse_predicate(text) for text in packet.where]
        except InvalidPredicate as error:  # the broker takes over what we publish plainly
            effects = [InputRefused("the broker", f"a class that is no predicate: {error}")]
        self._told = True
        self._window = packet.window
        return effects + self._let_go(now)

    def _let_go(self, now: float) -> list[Effect]:
        """Of what waits, pass on what is not priced."""
        waiting, self._waiting = self._waiting, deque()
        effects: list[Effect] = []
        for one in waiting:
            if self._is_priced(one.message) or self._pass_on is None:
                self._waiting.append(one)
            else:
                tickets = () if one.ticket is None else (one.ticket,)
                effects += self._pass_on((one.message,), tickets=tickets, now=now, began=(one.began,))
        return effects

    def _send(self, now: float) -> list[Effect]:
        """As many as may be unanswered, and find room."""
        effects: list[Effect] = []
        promised_bytes = promised = 0
        while self._waiting and self._home is not None and len(self._unanswered) < self._window:
            one = self._waiting[0]
            packet = PricedPublish(self._number + 1, one.message)
            size_bytes = packet.size_bytes()
            room = self._node.has_room(self._home, Lane.PRICED, size_bytes, promised_bytes, promised)
            if self._unanswered and not room:
                break
            self._waiting.popleft()
            self._number += 1
            self._unanswered[self._number] = one.ticket
            promised_bytes += size_bytes
            promised += 1
            if self._traced:
                effects.append(published_record(one.message, max(0.0, now - one.began)))
            effects.append(Send((self._home,), packet, Lane.PRICED))
        return effects


def _read(report: bytes) -> Outcome:
    """A broker's words, if they can be read."""
    try:
        return Reported({"flows": msgspec.json.decode(report, type=list[PriceReport])})
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Refused(f"the broker's report cannot be read: {error}")


def _answer(ticket: Ticket | None, outcome: Outcome) -> list[Effect]:
    return [] if ticket is None else [Done(ticket, outcome)]


def _dropped(message: Message) -> Effect:
    return dropped_record("egress", "refused", "", Lane.PRICED, "PricedPublish", message, 1)
