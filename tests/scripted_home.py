"""A client of streams at the hands of a test: the test plays its home broker, its application and its clock."""

from __future__ import annotations

from typing import Any, TypeVar

from penstock import services
from penstock.content.message import Identity, Message, make_message
from penstock.kernel.machine import Deliver, Done, Effect, Outcome, Send
from penstock.kernel.packet import Packet
from penstock.kernel.trace import Record
from penstock.overlay.assembly import Life, NodeConfig, client_node
from penstock.streams.client_service import StreamClient
from penstock.streams.config import StreamPublicationOptions, StreamsClientConfig, StreamSubscriptionOptions
from penstock.streams.message import StreamMessage
from penstock.streams.packets import DurableAnswer, DurableSubscribe, Position, StreamDelivery
from penstock.streams.service import STREAMS

HOME = 3
P = TypeVar("P", bound=Packet)
R = TypeVar("R", bound=Record)


def a_message(count: int = 1, body: bytes = b"", *, publisher: str = "c") -> Message:
    return make_message(Identity(publisher, 1, count), {"n": count}, body)


class ScriptedHome:
    """The machine, what it has sent, and what it has told its application."""

    def __init__(self, *, name: str = "c", **settings: Any) -> None:
        listed = services.services()
        listed = listed if STREAMS in listed else (*listed, STREAMS)
        config = NodeConfig(services={"streams": StreamsClientConfig(**settings)})
        node, _ = client_node(listed, Life(name=name, incarnation=1, seed=1), {}, config)
        self.machine = node.machine(StreamClient)
        self.timers = node.timers
        self.now = 1_000.0
        self.sent: list[Packet] = []
        self.done: dict[int, Outcome] = {}
        self.messages: list[StreamMessage] = []
        self.records: list[Record] = []
        self._ticket = 0

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.to == (HOME,)
                self.sent.append(effect.packet)
            elif isinstance(effect, Deliver):
                assert isinstance(effect.message, StreamMessage)
                self.messages.append(effect.message)
            elif isinstance(effect, Done):
                assert effect.ticket not in self.done, "a ticket is answered once"
                self.done[effect.ticket] = effect.outcome
            else:
                assert isinstance(effect, Record)
                self.records.append(effect)

    # The network and time.

    def up(self) -> None:
        self.apply(self.machine.link_changed(HOME, up=True, now=self.now))

    def down(self) -> None:
        self.apply(self.machine.link_changed(HOME, up=False, now=self.now))

    def wait(self, seconds: float) -> None:
        """Let time pass, and every timer expire in it."""
        end = self.now + seconds
        while (at := self.timers.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            name = self.timers.pop_due(self.now)
            assert name is not None
            assert name[0] == "streams"
            self.apply(self.machine.expired(int(name[1]), name[2:], now=self.now))
        self.now = end

    def say(self, *packets: Packet) -> None:
        self.apply(self.machine.receive(packets, sender=HOME, now=self.now))

    def take_sent(self, kind: type[P]) -> list[P]:
        """The packets of this kind that were sent since the last look."""
        found = [packet for packet in self.sent if isinstance(packet, kind)]
        self.sent = [packet for packet in self.sent if not isinstance(packet, kind)]
        return found

    def recorded(self, kind: type[R]) -> list[R]:
        return [record for record in self.records if isinstance(record, kind)]

    # The application.

    def ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def publish(self, *messages: Message, **options: str) -> list[int]:
        """Publish to 'orders' unless the options say otherwise; returns the tickets."""
        chosen = StreamPublicationOptions(**{"stream": "orders", **options})
        tickets = [self.ticket() for _ in messages]
        self.apply(self.machine.publish(messages, chosen, tickets=tickets, now=self.now))
        return tickets

    def subscribe(self, number: int = 1, where: str = "n > 0", **options: Any) -> int:
        chosen = StreamSubscriptionOptions(**{"stream": "orders", "durable": "billing", **options})
        ticket = self.ticket()
        self.apply(self.machine.subscribe(number, where, chosen, ticket=ticket, now=self.now))
        return ticket

    def acknowledge(self, tick: int, *, pubend: str = "orders/0", number: int = 1) -> int:
        ticket = self.ticket()
        self.apply(self.machine.acknowledge(number, pubend, tick, ticket=ticket, now=self.now))
        return ticket

    def take(self, count: int, *, number: int = 1) -> None:
        self.apply(self.machine.taken(number, count, now=self.now))

    # The home broker.

    def answer(self, *positions: Position) -> DurableSubscribe:
        """Let the subscription that was asked for last be in force."""
        asked = self.take_sent(DurableSubscribe)[-1]
        self.say(DurableAnswer(asked.request, asked.subscription, positions or (("orders/0", 7, 100),)))
        return asked

    def deliver(
        self, after: int, upto: int, *ticks: int, pubend: str = "orders/0", epoch: int = 7, gap: bool = False
    ) -> None:
        items = tuple((tick, a_message(tick, publisher="p")) for tick in ticks)
        self.say(StreamDelivery(1, pubend, epoch, after, upto, items, gap))

    def got(self) -> list[int]:
        """The ticks of what the application got."""
        return [message.tick for message in self.messages]


def in_force(**settings: Any) -> ScriptedHome:
    """A client that reads 'orders' as 'billing' from tick 100 on."""
    home = ScriptedHome(**settings)
    home.up()
    home.subscribe()
    home.answer()
    return home
