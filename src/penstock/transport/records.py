"""What the transport writes into a trace."""

from __future__ import annotations

from penstock.kernel.trace import Record


class LossDetected(Record, frozen=True):
    """A client's transport has found out that a message it wanted did not come. Messages have a number per life."""

    publisher: str
    incarnation: int
    sequence: int


class LossSuspected(Record, frozen=True):
    """It cannot tell whether it wants a message that did not come, and asks for it with its filters."""

    publisher: str
    incarnation: int
    sequence: int


class LossWithheld(Record, frozen=True):
    """It was told that a message it wanted is not lost, but was withheld by a full link or because it reads slowly."""

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


RECORDS: tuple[type[Record], ...] = (
    LossDetected,
    LossSuspected,
    LossWithheld,
    RequestSent,
    RequestReceived,
    RepairSent,
    Recovered,
    GaveUp,
    MessageWithheld,
    FlowLimited,
    Ordered,
)
