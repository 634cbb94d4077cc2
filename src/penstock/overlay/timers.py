"""The timers of forwarding, in clients and in brokers; those of routing stand beside it.

A timer that exists more than once has a key; it stands behind the name here.
"""

from __future__ import annotations

from enum import IntEnum


class ForwardingTimer(IntEnum):
    """When forwarding wakes up by itself."""

    SUBSCRIBE_AGAIN = 0  # (subscription), in a client: a broker has refused what a service listens to
    VERBS = 1  # in a broker: the next of its clients' verbs has its turn


class RoutingTimer(IntEnum):
    """The timers of routing."""

    HELLO = 0  # send Hellos, look for dead neighbours
    ANNOUNCE = 1  # flood what changed here
    READY = 2  # a client has waited long enough for all brokers
    NEWS = 3  # the next of others' changes of interest has its turn
