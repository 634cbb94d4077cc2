"""The timers of the transport, all of them."""

from __future__ import annotations

from enum import IntEnum


class TransportTimer(IntEnum):
    """A timer that exists more than once has a key; it stands behind the name here."""

    ORDER = 0  # (publisher, incarnation): a message has waited for a missing one long enough
    REQUEST = 1  # (publisher, incarnation, sequence): ask for a lost message, first or again
    REPAIR = 2  # (publisher, incarnation, sequence): send a repair, unless somebody else has
    HEARTBEAT = 3  # send the publication record without a message
    RATE_LIMITER = 4  # a pending message finds tokens
    PROACTIVE_REPAIR = 5  # send a second copy of what was published
    FEEDBACK = 6  # (publisher, incarnation): send feedback about its flows
    TICK = 7  # once per interval: caches, sessions that have ended, distances, records
    LEDGER = 8  # see whether a ledger is due
    ASK = 9  # (publisher, incarnation): ask for what is missed, first or again
    ANSWER = 10  # answer the requests that came lately, together
    SLOW_START = 11  # a message that came too fast may leave
