"""What a node knows of a link before the first packet: who is at the other end, and where its queue stands.

A *link* is a small integer that the host chose for one neighbour of a node; it names nothing elsewhere. What lies below
it (a simulated pipe, a TCP connection, UDP) is the host's business. The kind says who queues and who drops.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from penstock.kernel.packet import Packet

Link = int


class LinkKind(Enum):
    """Who keeps the queue of a link."""

    DATAGRAM = "datagram"  # the pipe: it queues and drops
    SHAPED = "shaped"  # this node: a packet leaves when the one before it is on the wire
    RELIABLE = "reliable"  # this node: a packet leaves when the connection has room; nothing is lost below


class LinkLoad(NamedTuple):
    """How busy a link is, counted since it exists. What nobody can tell is 0."""

    offered_bytes: int = 0  # given to it, with what found no room
    left_bytes: int = 0  # on the wire, or taken by the kernel
    waiting_bytes: int = 0  # not yet
    busy_seconds: float = 0.0  # in which it had something to send
    foreign_bytes: int = 0  # of what was offered, by others than this node


@dataclass(frozen=True)
class LinkInfo:
    """One link, as the host describes it."""

    peer: str
    kind: LinkKind = LinkKind.RELIABLE
    cost: int = 1
    queue_packets: int = 1_000  # how many may wait here in each lane, where the queue stands here
    broker: int | None = None  # the id that a broker at the other end must have; None: a client, or not known
    unknown: frozenset[type[Packet]] = frozenset()  # kinds that the peer cannot read: none of these is sent to it
