"""A service that lives in the tests alone: the proof that one is a folder and a line.

Brokers count the packets that come from each neighbour, keep the total on disk, and report both; clients can ask for
the counts; a subscription may have its deliveries tallied. So it has packets, records, a timer in each role, a stored
value, settings of brokers and of clients, options, a status, a report and a checker, and nothing in src knows of it.
It is added to the list by `penstock.services.install(COUNTING)`, or by PENSTOCK_SERVICES=toy_service:COUNTING.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated

from msgspec import Meta, Struct

from penstock.content.message import DEFAULT_LIMITS, Message
from penstock.kernel.link import Link
from penstock.kernel.machine import Deliver, Effect, Send
from penstock.kernel.packet import BROKER, CLIENT, Lane, Packet
from penstock.kernel.service import Context, Service
from penstock.kernel.storage import Get, Put, StorageResult, Ticket, Value
from penstock.kernel.timers import Key
from penstock.kernel.trace import Record
from penstock.overlay.client import Client
from penstock.scenario.checker import Checker


class CountRequest(Packet, frozen=True):
    """How much has come from whom?"""

    sent_by = (CLIENT,)

    ticket: int


class Counts(Packet, frozen=True):
    """Packets in all, also in earlier lives, and in this life from each neighbour."""

    sent_by = (BROKER,)

    ticket: int
    total: int
    neighbours: tuple[tuple[str, int], ...]


class NeighbourCounted(Record, frozen=True):
    """A broker's count of one neighbour."""

    neighbour: str
    packets: int


class CountsReceived(Record, frozen=True):
    """A client heard how much its broker has counted."""

    total: int


class CountingTimer(IntEnum):
    """The timers of the toy."""

    COUNT = 0  # a broker writes its records and its total
    ASK = 1  # a client asks its broker


class CountingConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a broker: [services.counting]."""

    every: float = 1.0  # seconds

    def __post_init__(self) -> None:
        if not self.every > 0.0:
            raise ValueError("every must be above 0")


class CountingClientConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a client: [client.counting]."""

    ask_every: float = 1.0


class CountingOptions(Struct, frozen=True, kw_only=True):
    """What a subscription may ask for."""

    tally: Annotated[bool, Meta(description="Count what is delivered.")] = False


class CountingPublicationOptions(Struct, frozen=True, kw_only=True):
    """What a publication may ask for."""

    noted: Annotated[bool, Meta(description="Count this publication.")] = False


class CountingStatus(Struct, frozen=True):
    """A broker's part of a report."""

    total: int
    neighbours: dict[str, int]


class TallyReport(Struct, frozen=True):
    """A subscription's part of a report."""

    tallied: int


class CountingBroker:
    """Counts what comes in."""

    packet_kinds: tuple[type[Packet], ...] = (CountRequest,)

    def __init__(self, context: Context) -> None:
        self._links = context.links
        self._timers = context.timers
        self._storage = context.storage
        self._config = context.settings(CountingConfig)
        self._before: int | None = None  # what earlier lives counted, once the disk has answered
        self._asked: Ticket | None = None
        self._counts: dict[str, int] = {}

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        neighbours = tuple(sorted(self._counts.items()))
        return [
            Send((sender,), Counts(packet.ticket, self._total(), neighbours), Lane.CONTROL)
            for packet in packets
            if isinstance(packet, CountRequest)
        ]

    def link_active(self, link: Link, *, now: float) -> None:
        peer = self._links[link].peer
        self._counts[peer] = self._counts.get(peer, 0) + 1

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        if not up or self._asked is not None:
            return []
        self._timers.set(CountingTimer.COUNT, now + self._config.every)
        question = self._storage.ask(Get("total"))
        self._asked = question.ticket
        return [question]

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        assert timer == CountingTimer.COUNT
        self._timers.set(CountingTimer.COUNT, now + self._config.every)
        records = [NeighbourCounted(peer, count) for peer, count in sorted(self._counts.items())]
        return [*records, self._storage.ask(Put("total", str(self._total()).encode()))]

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        if ticket == self._asked and isinstance(result, Value):
            self._before = int(result.value or b"0")
        return []

    def status(self) -> CountingStatus:
        return CountingStatus(self._total(), dict(sorted(self._counts.items())))

    def _total(self) -> int:
        return (self._before or 0) + sum(self._counts.values())


class CountingClient:
    """Asks its broker now and then, and tallies deliveries and publications for those who want that."""

    packet_kinds: tuple[type[Packet], ...] = (Counts,)
    limits = DEFAULT_LIMITS

    def __init__(self, context: Context) -> None:
        self._client = context.below(Client)
        self._rank = context.rank
        self._timers = context.timers
        self._config: CountingClientConfig | None = context.config
        self._home: Link | None = None
        self._tallies: dict[int, int] = {}
        self.noted = 0

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        return [CountsReceived(packet.total) for packet in packets if isinstance(packet, Counts)]

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        self._home = link if up else None
        if up and self._config is not None:
            self._timers.set(CountingTimer.ASK, now + self._config.ask_every)
        return []

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]:
        assert self._config is not None
        if self._home is None:
            return []
        self._timers.set(CountingTimer.ASK, now + self._config.ask_every)
        return [Send((self._home,), CountRequest(1), Lane.CONTROL)]

    def claims_publication(self) -> bool:
        return False

    def may_wait(self) -> bool:
        return False

    def publish(
        self,
        messages: Sequence[Message],
        options: CountingPublicationOptions | None,
        *,
        tickets: Sequence[Ticket],
        now: float,
        began: Sequence[float] = (),
    ) -> list[Effect]:
        self.noted += len(messages)
        return self._client.publish(messages, tickets=tickets, now=now, began=began)

    def claims_subscription(self) -> bool:
        return False

    def subscribe(
        self, number: int, where: str, options: CountingOptions | None, *, ticket: Ticket, now: float
    ) -> list[Effect]:
        self._tallies[number] = 0
        return self._client.subscribe(number, where, ticket=ticket, now=now, owner=self._rank)

    def unsubscribe(self, number: int, *, ticket: Ticket, now: float) -> list[Effect]:
        self._tallies.pop(number, None)
        return self._client.unsubscribe(number, ticket=ticket, now=now)

    def refused(self, number: int, *, now: float) -> list[Effect]:
        self._tallies.pop(number, None)
        return []

    def delivered(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[Effect]:
        for number in numbers:
            self._tallies[number] += 1
        return [Deliver(number, message) for number in numbers]

    def report(self, number: int) -> TallyReport | None:
        return TallyReport(self._tallies[number]) if number in self._tallies else None


class SomethingCame(Checker):
    """A checker that a service brings along: somebody got something."""

    count = 0

    def delivered(self, time: float, client: str, subscription: int, message: Message) -> None:
        self.count += 1

    def finish(self) -> None:
        if not self.count:
            self.problem("nobody got anything")


COUNTING = Service(
    name="counting",
    packets=(CountRequest, Counts),
    records=(NeighbourCounted, CountsReceived),
    timers=CountingTimer,
    broker=CountingBroker,
    client=CountingClient,
    config=CountingConfig,
    client_config=CountingClientConfig,
    subscription_options=CountingOptions,
    publication_options=CountingPublicationOptions,
    stores=(BROKER,),
    checkers={"something-came": SomethingCame},
)
