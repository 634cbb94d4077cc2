"""What a machine is: input and time go in, a list of effects comes out, nothing else happens.

Every protocol part of Penstock is a pure state machine. A *host* (the simulator, an asyncio broker, or a test) gives
it one input at a time, applies the returned effects in order, asks for the next deadline and arms one timer. So the
same code runs in virtual and in real time, a run replays from its seed, and a unit test is one equality.

The rules of the game:
- `now` is the node's own clock, in seconds; the host converts. A machine never asks for the time.
- Whatever a machine wants done it returns. It keeps no reference to its host.
- A *ticket* is a small integer that the caller of an application verb chose. Each ticket is answered by one `Done`.
- A crash throws the machine away. What must survive is asked for with `Ask` and comes back through `completed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from penstock.content.message import Message
from penstock.kernel.link import Link
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.storage import Ask, StorageResult, Ticket
from penstock.kernel.trace import Record

SERVICE_SUBSCRIPTIONS = 1 << 30  # a client's subscriptions from this number on belong to its services


class Send(Struct, frozen=True, gc=False):
    """Put one packet on one or several links."""

    to: tuple[Link, ...]
    packet: Packet
    lane: Lane


class SendFor(Struct, frozen=True, gc=False):
    """Put one packet on one link, on whose account it has waited here so far (see `overlay.egress`)."""

    to: Link
    packet: Packet
    lane: Lane
    source: Link


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


class Unknown(Refused, frozen=True):
    """Nobody can say whether the verb was carried out; `problem` says why, and how to find out."""


class Reported(Struct, frozen=True):
    """The answer to a question, as plain data."""

    report: dict[str, Any]


Outcome = Accepted | Refused | Withheld | Unknown | Reported


class Done(Struct, frozen=True):
    """Answers an application verb, exactly once."""

    ticket: Ticket
    outcome: Outcome


class Hold(Struct, frozen=True):
    """Let nothing more come in over this link in this lane; control and all other lanes go on. The node sees to it."""

    source: Link
    lane: Lane


class Release(Struct, frozen=True):
    """Let it come again."""

    source: Link
    lane: Lane


Effect = Send | SendFor | Deliver | Done | Ask | Hold | Release | Record


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
