"""Every packet of the broker network.

Between brokers:
    Hello        every interval on every link: I am alive, and this is a digest of all I know
    LinkState    who an origin's neighbours are; flooded
    Interest     which encodings an origin's clients want, as a change since version `base`; flooded
    Summary      all versions that the sender knows; sent when digests differ, answered with whatever is newer
    Publication  a message, and the brokers that this copy is still meant for

Between a client and its home broker:
    Attach, Subscribe, Unsubscribe, Publish   from the client
    Answer, Delivery                          from the broker
    StatusRequest                             from the client: what do you see?
    Status, Losses                            from a live broker: what it sees; what of the client's it dropped

Brokers have small integer ids. A broker's incarnation grows with every restart and beats any version of an older
life. Encodings travel as bytes.
"""

from __future__ import annotations

from penstock.content.message import Message
from penstock.kernel.machine import Packet

BrokerId = int


class Hello(Packet, frozen=True):
    """A sign of life. `scheme` names the Bloom encoding: brokers that encode differently cannot be neighbours."""

    broker: BrokerId
    incarnation: int
    scheme: str
    digest: int


class LinkState(Packet, frozen=True):
    """All neighbours of `origin` with the cost to each, as of `version`."""

    origin: BrokerId
    incarnation: int
    version: int
    neighbours: tuple[tuple[BrokerId, int], ...]


class Interest(Packet, frozen=True):
    """Takes what `origin` wants from version `base` to `version`; from base 0, the empty set, it is a snapshot.

    A snapshot may come in several parts; a change always fits one.
    """

    origin: BrokerId
    incarnation: int
    base: int
    version: int
    added: tuple[bytes, ...]
    removed: tuple[bytes, ...] = ()
    part: int = 0
    parts: int = 1


class Summary(Packet, frozen=True):
    """(origin, incarnation, version of its links, version of its interest) for every origin the sender can reach."""

    known: tuple[tuple[BrokerId, int, int, int], ...]


class Publication(Packet, frozen=True, gc=False):
    """One copy of a message on its way to the brokers in `destinations` (increasing)."""

    destinations: tuple[BrokerId, ...]
    hops_left: int
    message: Message

    def size_bytes(self) -> int:
        return 20 + 3 * len(self.destinations) + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message

    def meant_for(self) -> int:
        return len(self.destinations)


class Attach(Packet, frozen=True):
    """The first word of a client on a new link."""

    client: str
    incarnation: int


class Subscribe(Packet, frozen=True):
    """Send me what matches `where`, under this number of mine."""

    ticket: int
    subscription: int
    where: str


class Unsubscribe(Packet, frozen=True):
    """Send me no more for this number."""

    ticket: int
    subscription: int


class Answer(Packet, frozen=True):
    """The ticket's verb was carried out, or refused with a reason."""

    ticket: int
    problem: str = ""  # empty: carried out


class Publish(Packet, frozen=True, gc=False):
    """A client's message, at the start of its way."""

    message: Message

    def size_bytes(self) -> int:
        return 12 + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message


class Delivery(Packet, frozen=True, gc=False):
    """A message at the end of its way, with all the client's subscriptions that it matches."""

    subscriptions: tuple[int, ...]
    message: Message

    def size_bytes(self) -> int:
        return 12 + 5 * len(self.subscriptions) + self.message.size_bytes

    def carried(self) -> Message | None:
        return self.message


class StatusRequest(Packet, frozen=True):
    """What do you see? Answered by live brokers only."""

    ticket: int


class Status(Packet, frozen=True):
    """What a live broker sees: its links, queues, drops and clients, as a JSON object."""

    ticket: int
    report: bytes


class Losses(Packet, frozen=True):
    """So many deliveries to this client were dropped on their last link since the broker last said so."""

    deliveries: int


AnyPacket = (
    Hello
    | LinkState
    | Interest
    | Summary
    | Publication
    | Attach
    | Subscribe
    | Unsubscribe
    | Answer
    | Publish
    | Delivery
    | StatusRequest
    | Status
    | Losses
)
