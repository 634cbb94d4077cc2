"""What the broker network writes into a trace, beside the records that all nodes share."""

from __future__ import annotations

from penstock.kernel.trace import Record


class NeighbourChanged(Record, frozen=True):
    """A broker began or ceased to count another as its neighbour."""

    neighbour: int
    up: bool
    cause: str


class ServiceSubscriptionRefused(Record, frozen=True):
    """A broker has refused what a service of a client needs for itself; the client asks again."""

    where: str
    problem: str
    again_in: float  # seconds


class LostOnLink(Record, frozen=True):
    """The wire to `peer` has lost a message of a link that repairs itself. `Dropped` follows if no copy comes."""

    peer: str
    publisher: str
    incarnation: int
    count: int
