"""The closed list of trace records, and the digest of a run.

Machines and hosts emit facts; the host stamps each with its time and its node. Digest, Parquet files and Spark
schemas are all made from this one list, so a column has one name and one type everywhere: bool, int, float or str.

What happens once per message is a record. What happens on every hop is counted, and comes as one `Counted` per
interval. The digest covers every record in the order of emission; two runs with the same digest did the same things
at the same times.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

import msgspec
from msgspec import Struct


class Record(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A line of the trace: the base of all kinds."""


class NodeStarted(Record, frozen=True):
    """A broker or client came to life."""

    role: str  # broker or client
    incarnation: int


class NodeStopped(Record, frozen=True):
    """It ended; `cause` is crash, leave or end of the run."""

    cause: str


class NeighbourChanged(Record, frozen=True):
    """A broker began or ceased to count another as its neighbour."""

    neighbour: int
    up: bool
    cause: str


class Subscribed(Record, frozen=True):
    """A client asked for messages; from now on the truth counts them as due, after a grace period."""

    subscription: int
    where: str


class Unsubscribed(Record, frozen=True):
    """A client no longer wants them."""

    subscription: int


class Published(Record, frozen=True):
    """An application handed over a message. Attributes are a JSON object with sorted names."""

    publisher: str
    incarnation: int
    count: int
    attributes: str
    body_bytes: int


class Delivered(Record, frozen=True):
    """A message reached an application, for one of its subscriptions."""

    subscription: int
    publisher: str
    incarnation: int
    count: int


class Dropped(Record, frozen=True):
    """A packet ended here. `destinations` says how many brokers (or clients) it was still meant for."""

    place: str  # egress, pipe, ingress, route
    cause: str
    peer: str  # the other end of the link, empty where there is none
    lane: int
    kind: str  # of packet
    publisher: str  # the three of a message's identity; empty and 0 for packets that carry none
    incarnation: int
    count: int
    destinations: int


class InputRefused(Record, frozen=True):
    """Something from outside was bad and changed nothing."""

    sender: str
    problem: str


class LimitReached(Record, frozen=True):
    """A table is full; what did not fit was left out."""

    table: str
    limit: int


class LossDetected(Record, frozen=True):
    """A client's transport has found out that a message it wanted did not come. Messages have a number per life."""

    publisher: str
    incarnation: int
    sequence: int


class RequestSent(Record, frozen=True):
    """It asked for the message, for the `attempt`-th time."""

    publisher: str
    incarnation: int
    sequence: int
    attempt: int


class RequestReceived(Record, frozen=True):
    """A client that answers requests received one; `hit` says whether it has the message."""

    publisher: str
    incarnation: int
    sequence: int
    requester: str
    hit: bool


class RepairSent(Record, frozen=True):
    """It sent the message again."""

    publisher: str
    incarnation: int
    sequence: int
    requester: str


class Recovered(Record, frozen=True):
    """A lost message has come after all, as a repair."""

    publisher: str
    incarnation: int
    sequence: int
    count: int
    detected: float  # seconds since its loss was detected
    requested: float  # seconds since our own first request for it; -1 if it came without one
    attempts: int  # requests of our own


class GaveUp(Record, frozen=True):
    """Nobody answered so many requests; the message stays lost."""

    publisher: str
    incarnation: int
    sequence: int
    attempts: int


class MessageWithheld(Record, frozen=True):
    """A message did not leave its publisher, because a flow it belongs to had no tokens and its queue was full."""

    publisher: str
    incarnation: int
    count: int
    limiting_receiver: str


class FlowLimited(Record, frozen=True):
    """A publisher began to follow a subscriber's word for a flow, or follows another quota now."""

    flow: str
    limiting_receiver: str
    quota: float  # messages/s; 0: the flow is free again


class Ordered(Record, frozen=True):
    """How the order of one publisher's messages fared at a client since the last such record."""

    publisher: str
    delivered: int
    late: int  # came after a later one had been handed over
    latched: int  # had to wait
    assigned: float  # seconds of waiting that were assigned to them, together
    held: float  # seconds that they really waited


class Counted(Record, frozen=True):
    """What happened `value` times since the last record of this name and peer."""

    name: str
    peer: str
    value: int


KINDS: tuple[type[Record], ...] = (
    NodeStarted,
    NodeStopped,
    NeighbourChanged,
    Subscribed,
    Unsubscribed,
    Published,
    Delivered,
    Dropped,
    InputRefused,
    LimitReached,
    LossDetected,
    RequestSent,
    RequestReceived,
    RepairSent,
    Recovered,
    GaveUp,
    MessageWithheld,
    FlowLimited,
    Ordered,
    Counted,
)


class Trace(Protocol):
    """Where a host writes records."""

    def write(self, time: float, node: str, record: Record) -> None:
        """One fact, stamped. `time` is true time in the simulator and the node's clock live."""


class Digest:
    """A trace that keeps nothing but a hash of everything written to it."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16, person=b"penstock-run")
        self._encode = msgspec.msgpack.Encoder().encode
        self._waiting: list[tuple[float, str, Record]] = []

    def write(self, time: float, node: str, record: Record) -> None:
        self._waiting.append((time, node, record))
        if len(self._waiting) >= 1024:
            self._flush()

    def hexdigest(self) -> str:
        """The digest of all records so far."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(b"".join(map(self._encode, self._waiting)))
        self._waiting.clear()
