"""A service says all about itself in one declaration; everything else is derived from the list of declarations.

To add a service, write its machine for brokers, for clients, or for both, declare it with `Service`, and add a line to
`penstock.services`. From the declarations come the codec and what each role may send (`packets`), the tables of a trace
(`records`), the tables of a network file (`config`, `client_config`), the arguments of `subscribe` and `publish` and
the options of the command line (`subscription_options`, `publication_options`), the sections of `penstock report` (a
machine's `status`) and the checkers of the storm. `overlay.assembly` makes a node of the machines.

A machine implements what it needs of the capabilities below; a node finds out when it is assembled. In a client each
subscription belongs to one service: the one whose options it sets, else the first in the list that claims it, else best
effort. Deliveries go to the services in the order of the list, to each with the numbers of its own subscriptions.

A machine may use the machines of services that stand before its own in the list (`Context.below`); the ones before know
nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from random import Random
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from penstock.content.bloom import EncodingScheme
from penstock.content.message import Message, MessageLimits
from penstock.kernel.link import Link, LinkInfo, LinkLoad
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS, Effect
from penstock.kernel.packet import BROKER, Lane, Packet
from penstock.kernel.queue import Overflow
from penstock.kernel.randomness import generator
from penstock.kernel.storage import ServiceStorage, StorageResult, Ticket
from penstock.kernel.timers import Key, ServiceTimers
from penstock.kernel.trace import Record, TraceSwitch

T = TypeVar("T")

NUMBERS_PER_SERVICE = 1 << 24  # of a client's subscriptions


class NodeView(Protocol):
    """What a machine may see of the node around it."""

    def status(self) -> dict[str, Any]:
        """What the host and all services of the node say of themselves, as plain data."""

    def take_lost_deliveries(self, link: Link | None = None) -> dict[Link, dict[int, int]]:
        """How many deliveries to each client were dropped here since the last call, by link and subscription.

        Of one link if it is named; else of all but those that take nothing now.
        """

    def lane_packets(self, link: Link, lane: Lane) -> int:
        """How many packets of one lane wait for this link."""

    def has_room(self, link: Link, lane: Lane, size_bytes: int, after_bytes: int = 0, after_packets: int = 0) -> bool:
        """Whether a packet of our own that goes out now, after so much else, would not be dropped."""

    def recall(self, link: Link, lane: Lane) -> list[tuple[Packet, Link]]:
        """Take back what waits for this link in one lane, each packet with the link on whose account it waits."""

    def holds(self, lane: Lane) -> bool:
        """Whether this lane holds its neighbours where others drop."""

    def window(self, lane: Lane) -> int:
        """How many bytes one neighbour may have waiting here, in a lane that holds."""

    def waiting_from(self, source: Link, lane: Lane) -> int:
        """How many bytes wait here on the account of this link, in a lane that holds."""

    def park(self, kind: type[Packet]) -> None:
        """Keep packets of this kind, in lanes that hold, when the link that they wait for goes down."""

    def ask_credit(self, link: Link, lane: Lane) -> list[Effect]:
        """Keep to the neighbour's credit in this lane, from the first packet on, although it would drop."""

    def keeps_credit(self, link: Link, lane: Lane) -> bool:
        """Whether the neighbour keeps to our credit in this lane, so that it can be held."""

    def delivery_lost(self, link: Link, subscription: int) -> None:
        """A delivery to a client was withheld here: the client is told of it with those that were dropped."""

    def watch_crowded(self, call: Callable[[Link], None]) -> None:
        """Call this when a delivery begins to wait in a queue that is crowded."""

    def link_load(self, link: Link) -> LinkLoad:
        """How busy this link is."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a machine is made from."""

    name: str  # of the node
    role: str  # BROKER or CLIENT
    incarnation: int
    number: int  # the broker's id; 0 for clients
    seed: int
    service: str
    lane: Lane  # of the messages that the service carries
    links: Mapping[Link, LinkInfo]
    timers: ServiceTimers
    storage: ServiceStorage
    has_storage: bool  # whether anybody answers what is asked of it; always so unless `storage_optional`
    config: Any  # the service's own settings for this role, of the type that it declares; None: defaults
    scheme: EncodingScheme  # how content becomes bits; the same in the whole network
    machines: Mapping[str, Any]  # those of the services before this one
    rank: int  # of the service in the list
    traced: TraceSwitch | bool  # whether anybody keeps the records
    node: NodeView  # the node that the machine becomes part of
    brokers: Mapping[str, int] | None = None  # the ids of all brokers of the plan, by name; None: there is no plan

    def settings(self, kind: type[T]) -> T:
        """The service's settings, or the defaults of this kind."""
        return kind() if self.config is None else self._typed(kind)

    def _typed(self, kind: type[T]) -> T:
        assert isinstance(self.config, kind), f"the settings of '{self.service}' are no {kind.__name__}"
        return self.config

    def random(self, purpose: str) -> Random:
        """A generator for one purpose; its draws disturb no other part, here or elsewhere."""
        return generator(self.seed, self.name, self.incarnation, self.service, purpose)

    @property
    def first_subscription(self) -> int:
        """In a client, the first of the subscription numbers that belong to this service."""
        return SERVICE_SUBSCRIPTIONS + self.rank * NUMBERS_PER_SERVICE

    def below(self, kind: type[T]) -> T:
        """The machine of this type, of a service that stands before this one in the list."""
        for machine in self.machines.values():
            if isinstance(machine, kind):
                return machine
        raise AssertionError(f"service '{self.service}' needs a {kind.__name__} before it in the list of services")


@dataclass(frozen=True, kw_only=True)
class Service:
    """A declaration. Whatever a service does not have it leaves out."""

    name: str  # in files, reports, timers and random generators; lower case
    packets: tuple[type[Packet], ...] = ()
    records: tuple[type[Record], ...] = ()
    timers: type[IntEnum] | None = None
    lane: Lane = Lane.BEST_EFFORT  # of the messages that it carries
    overflow: Overflow = Overflow.DROP  # what a full queue of that lane does
    broker: Callable[[Context], Any] | None = None
    client: Callable[[Context], Any] | None = None
    config: type[Any] | None = None  # settings of brokers: [services.NAME] in a network file
    client_config: type[Struct] | None = None  # settings of one client: [client.NAME]
    subscription_options: type[Struct] | None = None  # what a subscription may ask for
    publication_options: type[Struct] | None = None  # what a publication may ask for
    stores: tuple[str, ...] = ()  # the roles in which its machine asks storage
    storage_optional: bool = False  # whether it also serves where there is none; see Context.has_storage
    checkers: Mapping[str, Any] = field(default_factory=dict)  # name -> class, see scenario.checkers

    def make(self, role: str) -> Callable[[Context], Any] | None:
        """The maker of its machine for this role."""
        return self.broker if role == BROKER else self.client

    def asked_by(self, options: Any, declared: str) -> list[str]:
        """The options of this service that somebody has set; `declared` names its struct of them."""
        kind: type[Struct] | None = getattr(self, declared)
        fields = () if kind is None or options is None else _defaults(kind)
        return [name for name, default in fields if getattr(options, name) != default]

    def settings_type(self, role: str) -> type[Any] | None:
        """What its settings are made of in this role."""
        return self.config if role == BROKER else self.client_config


@cache  # asked for each publication; to find it out takes a hundred microseconds
def _defaults(options: type[Struct]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in msgspec.structs.fields(options))


# What a machine may be able to do. Each is optional.


def can(machine: Any, capability: Any) -> bool:
    """Whether the machine has all that the capability names."""
    kind: Any = type(machine)
    return not missing(kind, capability)


@cache  # nodes are many, their kinds few
def missing(kind: Any, capability: Any) -> tuple[str, ...]:
    """What of the capability a machine of this kind lacks."""
    names = [*capability.__annotations__, *(name for name in vars(capability) if not name.startswith("_"))]
    return tuple(name for name in names if not hasattr(kind, name))


class TakesPackets(Protocol):
    """Handles the packets of some kinds."""

    packet_kinds: tuple[type[Packet], ...]

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]: ...


class WatchesLinks(Protocol):
    """Wants to know when links come up and go down."""

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]: ...


class WatchesTraffic(Protocol):
    """Wants to know that something came in over a link, whatever it was: for liveness."""

    def link_active(self, link: Link, *, now: float) -> None: ...


class WatchesLosses(Protocol):
    """Wants to know when a link has drained on which deliveries were dropped."""

    def link_drained(self, link: Link, *, now: float) -> list[Effect]: ...


class HasTimers(Protocol):
    """Sets timers of its service's enumeration."""

    def expired(self, timer: int, key: Key, *, now: float) -> list[Effect]: ...


class UsesStorage(Protocol):
    """Asks storage, and gets its answers here."""

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]: ...


class HasStatus(Protocol):
    """Says how it is, for `penstock report`."""

    def status(self) -> Struct: ...


class CarriesPublications(Protocol):
    """A client's machine that sends messages in its own way."""

    limits: MessageLimits  # of the messages that it can carry

    def claims_publication(self) -> bool:
        """Whether it also sends what asks for nothing; whose options are set gets a publication anyway."""

    def may_wait(self) -> bool:
        """Whether a message may have to wait before it leaves, so that somebody should wait with it."""

    def publish(
        self,
        messages: Sequence[Message],
        options: Any,
        *,
        tickets: Sequence[Ticket],
        now: float,
        began: Sequence[float] = (),
    ) -> list[Effect]:
        """Send these. With tickets, one for each message, every one is answered once; without, nobody waits.

        `began` says of each when the application called publish(), if that was before now: for the record alone.
        """


class PassOn(Protocol):
    """Publishes messages as if the carrier that calls it were not there."""

    def __call__(
        self, messages: Sequence[Message], *, tickets: Sequence[Ticket], now: float, began: Sequence[float]
    ) -> list[Effect]: ...


class ClaimsContent(Protocol):
    """A carrier that sends some content in its own way, whoever publishes it, unless options say otherwise."""

    def set_pass_on(self, pass_on: PassOn) -> None:
        """For messages that it claimed, and that turn out not to be its business; called once."""

    def claims_content(self) -> bool:
        """Whether there is any such content now."""

    def claims_message(self, message: Message) -> bool:
        """Whether this message is its business."""


class WithdrawsPublications(Protocol):
    """A carrier whose messages may wait, and need not leave if nobody waits with them any more."""

    def withdraw(self, ticket: Ticket, *, now: float) -> list[Effect]:
        """Let the message with this ticket not leave, and answer the ticket; nothing if none waits under it."""


class HasLastWords(Protocol):
    """A client's machine that has something to send before the client leaves for good."""

    def leaving(self, *, now: float) -> list[Effect]:
        """The application closes its network: the last that is sent. Called again a little later, for copies."""


class ServesSubscriptions(Protocol):
    """A client's machine that serves subscriptions with more than best effort.

    With `lets_thin = True` its subscriptions may be thinned for slow readers, as those that nobody serves.
    It gets messages without the envelope of any service, unless it has `opens_envelopes = True`: then as they came, and
    what services send each other too.
    """

    def claims_subscription(self) -> bool:
        """Whether it also serves subscriptions that ask for nothing; whose options are set gets them anyway."""

    def subscribe(self, number: int, where: str, options: Any, *, ticket: Ticket, now: float) -> list[Effect]:
        """Serve this subscription from now on; the ticket is answered once, now or when it is in force."""

    def unsubscribe(self, number: int, *, ticket: Ticket, now: float) -> list[Effect]:
        """Serve it no longer, and answer the ticket."""

    def delivered(self, numbers: tuple[int, ...], message: Message, *, now: float) -> list[Effect]:
        """A message has come for these subscriptions of its own."""

    def refused(self, number: int, *, now: float) -> list[Effect]:
        """A broker has refused a subscription of the application; it is not in force any more.

        What the service listens to for itself is tried again by the client, until a broker takes it.
        """

    def report(self, number: int) -> Any:
        """How this subscription fares, as a struct or dataclass; None if it is none of its own."""


class WatchesReaders(Protocol):
    """Wants to know how fast the application takes its messages."""

    def read(self, number: int, reading: Reading, *, now: float) -> list[Effect]: ...


class Reading(Struct, frozen=True):
    """What an application has done with one subscription since the last such input."""

    taken: int  # messages that it took
    waiting: int  # messages that wait for it
    queue_max: int
    dropped: tuple[Message, ...] = ()  # messages that it was too slow for
