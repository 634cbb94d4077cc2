"""The timers of retrieval."""

from __future__ import annotations

from enum import IntEnum


class RetrievalTimer(IntEnum):
    """When a broker or a client wakes up for it."""

    TICK = 0  # broker: interests and neighbours whose time is up, a changed map; while there are any
    PUSH = 1  # broker, (publisher, incarnation, count): a delayed push is due
    RECEIPT = 2  # broker, (neighbour): tell what has come
    RESEND = 3  # broker, (neighbour): what has no receipt
    LIFETIME = 4  # client, (subscription): a lifetime is over
    RETRY = 5  # client, (subscription): the broker has not answered
    ITEMS = 6  # broker, (link of a client): items that wait for room in its queue
    ASK = 7  # broker, (an interest's name): somebody else here asked first, and it may still miss something
