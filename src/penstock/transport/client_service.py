"""The transport as a service of a client: the application's verbs pass through it, its own go to the client below.

The overlay knows nothing of all this: to its brokers, headers are part of a message's body, and requests, repairs,
heartbeats and echoes are messages like any others, in the transport's lane; feedback, requests and questions travel in
the lane for control messages of services. A client without settings of the transport publishes past it; a subscription
without order, recovery and congestion control is served past it. A ledger that is due while there is no network waits
for it, and a little longer, until brokers know again who wants what.

While it publishes, it asks its home broker every USE_ASKED_EVERY seconds which of its attributes nobody's filter names;
not before KNOWN_AFTER seconds after a new connection, for the same reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from penstock.content.envelope import FLAG
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Message
from penstock.errors import InvalidPredicate
from penstock.kernel.link import Link
from penstock.kernel.machine import Deliver, Done, Effect, Refused, Send
from penstock.kernel.number_ranges import read_ranges
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.reader_pace import ReaderPace
from penstock.kernel.service import Context, Reading
from penstock.kernel.storage import Ticket
from penstock.kernel.timers import Key
from penstock.overlay.client import NOT_CONNECTED, Client
from penstock.rates.client_service import RatesClient
from penstock.rates.packets import Note
from penstock.transport.bearer import BearerPublish, BearerSubscribe, BearerUnsubscribe, TransportEffect
from penstock.transport.broker_service import Unused, UnusedRequest
from penstock.transport.config import TransportConfig, TransportOptions
from penstock.transport.report import TransportReport
from penstock.transport.sender.publication_record import LIMITS
from penstock.transport.timers import TransportTimer
from penstock.transport.transport import Transport
from penstock.transport.wire.control_messages import AHEAD_OF_DATA

COUNTS_MAX = 10_000  # messages in one word of what was withheld
KNOWN_AFTER = 3.0  # seconds after a new connection, until brokers know who wants what
USE_ASKED_EVERY = 5.0  # seconds


class TransportClient:
    """The machine of the transport in a client's node."""

    limits = LIMITS
    opens_envelopes = True  # they are its own
    packet_kinds: tuple[type[Packet], ...] = (Unused,)

    def __init__(self, context: Context) -> None:
        self.transport = Transport(
            context.name,
            context.incarnation,
            context.settings(TransportConfig),
            context.timers,
            context.random,
            publishes=context.config is not None,
            first_number=context.first_subscription,
            traced=context.traced,
        )
        config = self.transport.config
        self._waits = config.congestion and config.when_full == "wait"  # asked for every message
        self._client = context.below(Client)
        self._rank = context.rank
        self._lane = context.lane
        self._paces: dict[int, ReaderPace] = {}  # of the readers of our subscriptions
        self._started = False
        self._timers = context.timers
        self._ledger_due = False  # while there is no network
        self._home: Link | None = None
        self._ask_use_at = 0.0
        rates = context.machines.get("rates")
        if isinstance(rates, RatesClient):
            rates.on_withheld = self._withheld

    # What the application publishes.

    def claims_publication(self) -> bool:
        """Whether what the application publishes gets a header."""
        return self.transport.publishes

    def may_wait(self) -> bool:
        """Whether a flow is limited, and the publisher waits for its tokens."""
        return self._waits and self.transport.limited

    def publish(
        self,
        messages: Sequence[Message],
        options: object,
        *,
        tickets: Sequence[Ticket],
        now: float,
        began: Sequence[float] = (),
    ) -> list[Effect]:
        """Send these, now or when their flows have tokens."""
        if not self._client.connected:
            return self._client.publish(messages, tickets=tickets, now=now, lane=self._lane)
        return self.carried_out(self.transport.publish_all(messages, tickets=tickets, now=now, began=began))

    def withdraw(self, ticket: Ticket, *, now: float) -> list[Effect]:
        """A message that waits for tokens does not leave."""
        return self.carried_out(self.transport.withdraw(ticket, now=now))

    def leaving(self, *, now: float) -> list[Effect]:
        """Whoever lost the last messages can know of them, if they are told now."""
        return self.carried_out(self.transport.leaving(now=now)) if self._client.connected else []

    # Subscriptions.

    def claims_subscription(self) -> bool:
        """Whether the client gives feedback about all it gets."""
        return self.transport.config.congestion

    def subscribe(
        self, number: int, where: str, options: TransportOptions | None, *, ticket: Ticket, now: float
    ) -> list[Effect]:
        """Ask the network for it, and serve it."""
        chosen = TransportOptions() if options is None else options
        try:
            predicate = parse_predicate(where)
        except InvalidPredicate as error:
            return [Done(ticket, Refused(str(error)))]
        effects = self._client.subscribe(number, where, ticket=ticket, now=now, owner=self._rank)
        if not any(isinstance(effect, Done) for effect in effects):
            more = self.transport.subscribe(
                number,
                predicate,
                ordered=chosen.ordered,
                recover=chosen.recover,
                priority=chosen.priority,
                now=now,
            )
            effects += self.carried_out(more)
        return effects

    def unsubscribe(self, number: int, *, ticket: Ticket, now: float) -> list[Effect]:
        """Serve it no longer, and ask the network for no more."""
        return self._client.unsubscribe(number, ticket=ticket, now=now) + self._forget(number, now)

    def refused(self, number: int, *, now: float) -> list[Effect]:
        """The broker does not take a subscription, now or after a reconnection."""
        return self._forget(number, now)

    def _forget(self, number: int, now: float) -> list[Effect]:
        self._paces.pop(number, None)
        return self.carried_out(self.transport.unsubscribe(number, now=now))

    def delivered(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[Effect]:
        """A message has come for subscriptions of ours."""
        effects = self.transport.arrived(numbers, message, now=now)
        if len(effects) == 1 and effects[0].__class__ is Deliver:  # by far the most
            return effects  # type: ignore[return-value]  # no verb is among them
        return self.carried_out(effects)

    def report(self, number: int) -> TransportReport | None:
        """How the transport serves this subscription; None if it does not."""
        return self.transport.report(number) if self.transport.serves(number) else None

    def read(self, number: int, reading: Reading, *, now: float) -> list[Effect]:
        """How the application takes its messages: what it cannot keep up with is congestion like any other."""
        if not self.transport.config.congestion or not self.transport.serves(number):
            return []
        for message in reading.dropped:
            self.transport.dropped_here(message, now=now)
        pace = self._paces.setdefault(number, ReaderPace(reading.queue_max))
        pace.taken += reading.taken
        rate = pace.look(reading.waiting, now)
        if rate is not None:
            self.transport.reader_takes(number, rate, now=now)
        return []

    @property
    def lets_thin(self) -> bool:
        """Whether the broker may thin our subscriptions for a slow reader: unless congestion control slows it down."""
        return not self.transport.config.congestion

    def _withheld(self, note: Note, now: float) -> list[Effect]:
        """A full link, or our broker because we read slowly, has withheld something: nobody asks for it for a while."""
        counts = (count for first, last in read_ranges(note.counts) for count in range(first, last + 1))
        some = list(islice(counts, COUNTS_MAX))
        told = (note.publisher, note.life, some)
        return self.carried_out(self.transport.withheld(*told, next_word=note.next_word, now=now))

    # The network and time.

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        """The first time that there is a network, a publisher asks it for what it needs; without one nobody waits."""
        self._home = link if up else None
        self._ask_use_at = now + KNOWN_AFTER
        if not up and not self._client.connected:
            return self.carried_out(self.transport.close(NOT_CONNECTED))
        if up and self._ledger_due:
            self._ledger_due = False
            self._timers.set(TransportTimer.LEDGER, now + KNOWN_AFTER)
        if not up or self._started or not self.transport.publishes:
            return []
        self._started = True
        return self.carried_out(self.transport.start())

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        if timer == TransportTimer.LEDGER and not self._client.connected:
            self._ledger_due = True
            return []
        effects = self.carried_out(self.transport.expired(timer, key, now=now))
        return self._ask_use(now) + effects if timer == TransportTimer.LEDGER else effects

    def _ask_use(self, now: float) -> list[Effect]:
        """Which of our attributes does nobody use?"""
        names = self.transport.scheme.outgoing.attribute_names()
        if self._home is None or not names or not self._ask_use_at <= now:
            return []
        self._ask_use_at = now + USE_ASKED_EVERY
        return [Send((self._home,), UnusedRequest(names), Lane.CONTROL)]

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        """The home broker's answer."""
        for packet in packets:
            assert isinstance(packet, Unused)
            self.transport.scheme.outgoing.unused(packet.names)
        return []

    def carried_out(self, effects: list[TransportEffect]) -> list[Effect]:
        """What the transport wants, with its verbs turned into those of the client below."""
        done: list[Effect] = []
        carry, lane = self._client.carry, self._lane
        for effect in effects:
            if isinstance(effect, BearerPublish):
                message = effect.message
                ahead = message.attributes.get(FLAG) in AHEAD_OF_DATA
                done.append(carry(message, Lane.SERVICE_CONTROL if ahead else lane))
            elif isinstance(effect, BearerSubscribe):
                done += self._client.listen(effect.number, effect.where, self._rank)
            elif isinstance(effect, BearerUnsubscribe):
                done += self._client.ignore(effect.number)
            else:
                done.append(effect)
        return done
