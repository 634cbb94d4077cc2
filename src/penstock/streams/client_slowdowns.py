"""What a client knows of pubends that slow it down: the last notice of each (StreamWaits), while it is fresh.

A notice names publications that wait, and says when the next one comes. One that is overdue by as long again tells
nothing any more: the pubend is free again, or nobody can reach it.

State: a notice for each pubend. Bound: SLOWDOWNS_MAX; the one heard of longest ago goes first.
"""

from __future__ import annotations

from msgspec import Struct

from penstock.kernel.machine import Effect
from penstock.streams.packets import WaitNotice, stream_of
from penstock.streams.publish_limit import PublishLimit
from penstock.streams.records import PublisherSlowed

SLOWDOWNS_MAX = 256


class StreamSlowdown(Struct, frozen=True):
    """A pubend takes no more than `rate` messages per second, of all publishers together; `publish` waits."""

    pubend: str
    rate: float
    since: float  # when it was limited, by our clock
    edge: str  # the broker that cannot keep up; empty: nobody knows which
    recovering: bool  # it is catching up with what it has missed, and not fast enough
    pace: float  # of that broker: seconds of the stream per second
    reason: str  # the same in words


class Slowdowns:
    """The pubends that slow one client down."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[StreamSlowdown, float]] = {}  # and until when it holds

    def hear(self, notice: WaitNotice, *, now: float) -> list[Effect]:
        """A notice has come; says so if it tells anything new."""
        before = self._heard.pop(notice.pubend, None)
        if len(self._heard) >= SLOWDOWNS_MAX:
            del self._heard[next(iter(self._heard))]
        since, why = now - notice.limited_for, (notice.edge, notice.recovering, notice.pace)
        reason = PublishLimit(notice.rate, since, *why, now).reason
        found = StreamSlowdown(notice.pubend, notice.rate, since, *why, reason)
        self._heard[notice.pubend] = (found, now + 2 * notice.again_in)
        known = before is not None and now < before[1] and before[0].edge == notice.edge
        return [] if known else [PublisherSlowed(notice.pubend, notice.rate, notice.limited_for, *why)]

    def of(self, stream: str, *, now: float) -> tuple[StreamSlowdown, ...]:
        """Those of this stream that hold now."""
        if not self._heard:
            return ()
        found = (heard for heard, until in self._heard.values() if now < until)
        return tuple(one for one in found if stream_of(one.pubend) == stream)
