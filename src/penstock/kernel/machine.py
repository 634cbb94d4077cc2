"""What a machine is: input and time go in, a list of effects comes out, nothing else happens.

Every protocol part of Penstock is a pure state machine. A *host* (the simulator, an asyncio broker, or a test) gives
it one input at a time, applies the returned effects in order, asks for the next deadline and arms one timer. So the
same code runs in virtual and in real time, a run replays from its seed, and a unit test is one equality.

The rules of the game:
- `now` is the node's own clock, in seconds; the host converts. A machine never asks for the time.
- Whatever a machine wants done it returns. It keeps no reference to its host.
- A *link* is a small integer that the host chose for one neighbour of this node; it names nothing elsewhere.
- A *ticket* is a small integer that the caller of an application verb chose. Each ticket is answered by one `Done`.
- A crash throws the machine away. What must survive is asked for with `Ask` and comes back through `completed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import msgspec
from msgspec import Struct

from penstock.content.message import Message
from penstock.kernel.trace import Record

Link = int
Ticket = int
SERVICE_SUBSCRIPTIONS = 1 << 30  # a client's subscriptions from this number on belong to its services
_encode = msgspec.msgpack.Encoder().encode


class Packet(Struct, frozen=True, array_like=True, tag=True):
    """What crosses a link. The kinds are in `overlay.packets`; services add their own."""

    def size_bytes(self) -> int:
        """How long it is on the wire; kinds that travel often know it without encoding themselves."""
        return len(_encode(self))

    def carried(self) -> Message | None:
        """The message in it, if there is one: who is told of its loss needs to know."""
        return None

    def meant_for(self) -> int:
        """How many nodes miss it if it is lost here."""
        return 1


class Lane(IntEnum):
    """Who a packet travels for. Control goes first, the others share the link by weight."""

    CONTROL = 0
    STREAM = 1
    PRICED = 2
    TRANSPORT = 3
    BEST_EFFORT = 4


class Send(Struct, frozen=True, gc=False):
    """Put one packet on one or several links."""

    to: tuple[Link, ...]
    packet: Packet
    lane: Lane


class Deliver(Struct, frozen=True, gc=False):
    """Hand a message to the application, for one of its subscriptions."""

    subscription: int
    message: Message


class Accepted(Struct, frozen=True):
    """The verb was carried out: a subscription is in force, or a message has left."""


class Refused(Struct, frozen=True):
    """The verb changed nothing; `problem` says what is wrong and how to mend it."""

    problem: str


class Withheld(Refused, frozen=True):
    """The message was not sent, so as not to overload somebody; `problem` says whom."""


Outcome = Accepted | Refused | Withheld


class Done(Struct, frozen=True):
    """Answers an application verb, exactly once."""

    ticket: Ticket
    outcome: Outcome


class Append(Struct, frozen=True):
    """Write entries at the end of the node's log; answered with the position of the first, once all are on disk."""

    entries: tuple[bytes, ...]


class Read(Struct, frozen=True):
    """Read up to `count` entries from position `start`; answered with a tuple of bytes."""

    start: int
    count: int


class Trim(Struct, frozen=True):
    """Forget all entries before position `start`; answered with None."""

    start: int


class Ask(Struct, frozen=True):
    """A request to storage. The host answers once through `completed`; after a crash it never does."""

    ticket: Ticket
    operation: Append | Read | Trim


class Hold(Struct, frozen=True):
    """Stop reading from this link until it is released."""

    source: Link


class Release(Struct, frozen=True):
    """Read from this link again."""

    source: Link


Effect = Send | Deliver | Done | Ask | Hold | Release | Record
StorageResult = int | tuple[bytes, ...] | None


class Machine(Protocol):
    """What a host drives. Application verbs have the same shape: `publish(message, *, ticket, now) -> effects`."""

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        """A batch has come in over one link."""

    def link_ready(self, link: Link, *, room_bytes: int, now: float) -> list[Effect]:
        """The link can take `room_bytes` more (never called for datagram links, which always take everything)."""

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        """The link came up or went down."""

    def completed(self, ticket: Ticket, result: StorageResult, *, now: float) -> list[Effect]:
        """Storage has answered."""

    def wake(self, *, now: float) -> list[Effect]:
        """A deadline has passed."""

    def deadline(self) -> float | None:
        """When to wake it next."""
