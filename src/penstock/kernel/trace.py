"""Trace records: those that all nodes share, and the digest of a run.

Machines and hosts emit facts; the host stamps each with its time and its node. A service adds kinds of its own
(`kernel.service`); `penstock.services` has the closed list of all. Digest, Parquet files and Spark schemas are made
from it, so a column has one name and one type everywhere: bool, int, float or str.

What happens once per message is a record. What happens on every hop is counted, and comes as one `Counted` per
interval. The digest covers every record in the order of emission; two runs with the same digest did the same things
at the same times.
"""

from __future__ import annotations

import zlib
from collections import Counter
from hashlib import blake2b
from typing import Protocol

import msgspec
from msgspec import Struct

from penstock.content.message import Identity, Message

TRACE_STREAM = "_trace"  # the stream through which records of a running network flow, if that is switched on
TRACE_CLIENT = "_trace-"  # the names of clients that serve it begin so; nothing that names them is recorded


class Record(Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A line of the trace: the base of all kinds."""


class NodeStarted(Record, frozen=True):
    """A broker or client came to life."""

    role: str  # broker or client
    incarnation: int


class NodeStopped(Record, frozen=True):
    """It ended; `cause` is crash, leave or end of the run."""

    cause: str


class Subscribed(Record, frozen=True):
    """A client asked for messages; from now on the truth counts them as due, after a grace period."""

    subscription: int
    where: str


class Unsubscribed(Record, frozen=True):
    """A client no longer wants them."""

    subscription: int


class Published(Record, frozen=True):
    """A message of the application has left. Attributes are a JSON object with sorted names."""

    publisher: str
    incarnation: int
    count: int
    attributes: str
    body_bytes: int
    waited: float = 0.0  # seconds from the application's publish() until now: for room, or for tokens of its flows


class Delivered(Record, frozen=True):
    """A message reached an application, for one of its subscriptions."""

    subscription: int
    publisher: str
    incarnation: int
    count: int


class Dropped(Record, frozen=True):
    """A packet ended here. `destinations` says how many brokers (or clients) it was still meant for."""

    place: str  # egress, pipe, ingress, route, reader
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


class Counted(Record, frozen=True):
    """What happened `value` times since the last record of this name and peer."""

    name: str
    peer: str
    value: int


SHARED_KINDS: tuple[type[Record], ...] = (
    NodeStarted,
    NodeStopped,
    Subscribed,
    Unsubscribed,
    Published,
    Delivered,
    Dropped,
    InputRefused,
    LimitReached,
    Counted,
)


def published_record(message: Message, waited: float = 0.0) -> Published:
    """The record of an application's message that has left, so many seconds after it was published."""
    identity = message.identity
    return Published(
        publisher=identity.publisher,
        incarnation=identity.incarnation,
        count=identity.count,
        attributes=msgspec.json.encode(message.attributes, order="sorted").decode(),
        body_bytes=len(message.body),
        waited=max(0.0, waited),
    )


def dropped_record(
    place: str, cause: str, peer: str, lane: int, kind: str, message: Message | None, destinations: int
) -> Dropped:
    """The record of a packet of this kind that ended here, with the message in it if there is one."""
    if message is None:
        return Dropped(place, cause, peer, lane, kind, "", 0, 0, destinations)
    identity = message.identity
    who = (identity.publisher, identity.incarnation, identity.count)
    return Dropped(place, cause, peer, lane, kind, *who, destinations)


class Trace(Protocol):
    """Where a host writes records."""

    def write(self, time: float, node: str, record: Record) -> None:
        """One fact, stamped. `time` is true time in the simulator and the node's clock live."""


class TraceSwitch:
    """Whether anybody keeps the records of a node: true or false, and another at any time while the node lives.

    What happens once per message costs time to record; machines look here first. Where only one in so many messages is
    recorded, the records of the others are not made, but counted.
    """

    def __init__(self, on: bool) -> None:
        self.on = on
        self.one_in = 1
        self.passed_over: Counter[type[Record]] = Counter()  # until somebody tells how many

    def __bool__(self) -> bool:
        return self.on

    def passes_over(self, kind: type[Record], identity: Identity) -> bool:
        """Whether this message is none of those that are recorded."""
        if self.one_in == 1 or in_sample(identity.publisher, identity.incarnation, identity.count, self.one_in):
            return False
        self.passed_over[kind] += 1
        return True


def in_sample(publisher: str, incarnation: int, count: int, one_in: int) -> bool:
    """Whether a message is one of those that are recorded: the same ones at every node."""
    return zlib.crc32(f"{publisher}/{incarnation}/{count}".encode()) % one_in == 0


def published_records(traced: TraceSwitch | bool, message: Message, waited: float = 0.0) -> tuple[Published, ...]:
    """The record of a message that has left, if anybody wants it."""
    if not traced or (traced is not True and traced.passes_over(Published, message.identity)):
        return ()
    return (published_record(message, waited),)


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
