"""What streams write into a trace.

A publisher's client writes StreamRequested once for each message, and one of StreamConfirmed and StreamFailed. A
broker that hosts the pubend writes PubendCommitted for what is on disk. A reader's client writes DurableBegan for each
pubend when its subscription is in force (DurableDelayed while that has to wait for somebody), StreamDelivered for each
message, GapNoticed for what retention took from it, and DurableStopped when a broker serves it no longer. The client
of a member of a shared name writes SharingBegan and SharedDelivered instead: what one member gets is no whole.
"""

from __future__ import annotations

import msgspec

from penstock.content.message import Message
from penstock.kernel.trace import Record
from penstock.streams.packets import Tick


class StreamRequested(Record, frozen=True):
    """An application wants a message stored. Attributes are a JSON object with sorted names."""

    stream: str
    key: str
    publisher: str
    incarnation: int
    count: int
    attributes: str
    body_bytes: int


class StreamConfirmed(Record, frozen=True):
    """Its client was told that it is on disk."""

    stream: str
    pubend: str
    tick: int
    publisher: str
    incarnation: int
    count: int
    waited: float  # seconds since the application's publish()
    attempts: int


class StreamFailed(Record, frozen=True):
    """The application was told that it is not stored; or, if `unknown`, that nobody knows."""

    stream: str
    publisher: str
    incarnation: int
    count: int
    problem: str
    unknown: bool
    waited: float
    attempts: int


class PubendCommitted(Record, frozen=True):
    """A pubend has a message on disk, once for each."""

    pubend: str
    epoch: int
    tick: int
    publisher: str
    incarnation: int
    count: int


class PubendStopped(Record, frozen=True):
    """A pubend serves nobody any more, for this reason; its data stay where they are."""

    pubend: str
    problem: str


class DurableBegan(Record, frozen=True):
    """A durable subscription is in force for every tick of this pubend after `tick`."""

    subscription: int
    stream: str
    durable: str
    pubend: str
    epoch: int
    tick: int
    where: str


class DurableDelayed(Record, frozen=True):
    """A durable subscription cannot be in force now, for this reason; its client tries on."""

    subscription: int
    stream: str
    durable: str
    problem: str


class DurableStopped(Record, frozen=True):
    """A durable subscription that was in force is served no longer."""

    subscription: int
    stream: str
    durable: str
    problem: str


class StreamDelivered(Record, frozen=True):
    """A message of a stream reached an application, for one of its durable subscriptions."""

    subscription: int
    pubend: str
    epoch: int
    tick: int
    publisher: str
    incarnation: int
    count: int


class SharingBegan(Record, frozen=True):
    """A subscription is a member of a shared name, which was done with everything up to `tick` of this pubend."""

    subscription: int
    stream: str
    durable: str
    pubend: str
    epoch: int
    tick: int
    where: str


class SharedDelivered(Record, frozen=True):
    """A message of a stream reached a member of a shared name, in this attempt."""

    subscription: int
    pubend: str
    epoch: int
    tick: int
    attempt: int
    publisher: str
    incarnation: int
    count: int


class GapNoticed(Record, frozen=True):
    """Nobody keeps these ticks any more, both included; whatever was there the subscription has missed."""

    subscription: int
    stream: str
    pubend: str
    first: int
    last: int


class AlertReceived(Record, frozen=True):
    """An alert reached a pubend: the lowest pace of edges, in seconds of ticks per second; -1: none of the class."""

    pubend: str
    sequence: int
    keeping_up: float
    recovering: float


class PublishRateChanged(Record, frozen=True):
    """A pubend takes so many publications per second from now on; -1: as many as come."""

    pubend: str
    rate: float
    cause: str


class PublisherSlowed(Record, frozen=True):
    """A client was told that a pubend has been limited for so long, and that its messages wait."""

    pubend: str
    rate: float
    limited_for: float  # seconds
    edge: str  # the broker that cannot keep up
    recovering: bool
    pace: float  # seconds of ticks per second


class HorizonMeasured(Record, frozen=True):
    """How far an edge knows a pubend without a gap, and how fast that grows, in seconds of ticks per second."""

    pubend: str
    horizon: int
    newest: int
    pace: float
    recovering: bool
    nack_window: int  # ticks


RECORDS: tuple[type[Record], ...] = (
    StreamRequested,
    StreamConfirmed,
    StreamFailed,
    PubendCommitted,
    PubendStopped,
    DurableBegan,
    DurableDelayed,
    DurableStopped,
    StreamDelivered,
    SharingBegan,
    SharedDelivered,
    GapNoticed,
    AlertReceived,
    PublishRateChanged,
    PublisherSlowed,
    HorizonMeasured,
)


def requested_record(stream: str, key: str, message: Message) -> StreamRequested:
    """The record of a message that an application wants stored."""
    identity = message.identity
    attributes = msgspec.json.encode(message.attributes, order="sorted").decode()
    who = (identity.publisher, identity.incarnation, identity.count)
    return StreamRequested(stream, key, *who, attributes, len(message.body))


def committed_record(pubend: str, epoch: int, tick: Tick, message: Message) -> PubendCommitted:
    """The record of a message that is on disk."""
    identity = message.identity
    return PubendCommitted(pubend, epoch, tick, identity.publisher, identity.incarnation, identity.count)
