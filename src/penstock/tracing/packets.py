"""The packets of tracing."""

from __future__ import annotations

from typing import Self

from penstock.content.message import MessageLimits
from penstock.kernel.packet import BROKER, CLIENT, Packet, check_integers, require

SECONDS_MAX = 7 * 86_400  # of one order; whoever wants more says it again
ONE_IN_MAX = 1_000_000


class TraceOrder(Packet, frozen=True):
    """Trace for so many more seconds; the order with the highest number counts, and 0 seconds end it."""

    sent_by = (BROKER,)

    number: int  # grows with every order: milliseconds since 1970, or one more than the last
    since: int  # milliseconds since 1970 at which tracing began
    milliseconds: int  # that are left
    one_in: int  # records of one in so many messages

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(self.milliseconds <= SECONDS_MAX * 1_000, "tracing is ordered for too long")
        require(0 < self.one_in <= ONE_IN_MAX, "one in no number of messages")
        return self


class TraceRequest(Packet, frozen=True):
    """Let all nodes trace for so long; without `change`, only say whether they do."""

    sent_by = (CLIENT,)

    ticket: int
    change: bool
    seconds: int  # at least, from now on; 0: end it
    one_in: int  # 0: as it is

    def checked(self, limits: MessageLimits) -> Self:
        check_integers(self)
        require(self.seconds <= SECONDS_MAX, f"tracing is asked for {self.seconds} s; {SECONDS_MAX} is the most")
        require(self.one_in <= ONE_IN_MAX, "one in no number of messages")
        return self


class TraceState(Packet, frozen=True):
    """The answer: whether this broker traces, since when, for how long still, and of how many messages."""

    sent_by = (BROKER,)

    ticket: int
    since: int  # milliseconds since 1970
    milliseconds: int  # that are left; 0: it does not trace
    one_in: int
