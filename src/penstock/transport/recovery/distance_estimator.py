"""How far away other clients are: one-way trip times, measured by echo (002 section 4.2; outside: SRM).

The suppression timers of requests and repairs are in proportion to distances, so that the nearest sends first and the
others receive it in time. The clocks of two clients have nothing to do with each other, so a distance is half of a
round trip on the asker's own clock, smoothed (nine parts old, one part new).

State: `_known`, a smoothed round trip per node, and `_asked`, when the last two echo requests left of which none has
been answered yet (on a way of more than ECHO_LOST_AFTER the reply to the first comes after the second). They are two
tables so that names nobody answers to, which a forger can invent, never push out what is known. Messages: an
EchoRequest to the other's inbox, an EchoReply to ours. No timers: who needs a distance calls `ask`, and that sends an
echo request only if the estimate is old and none is under way.

Forgery. An EchoReply counts only if it names a node that was asked and the very time of that request, so who has not
seen the request cannot answer it. Who can read the other's inbox can; the network below has no secrets. A round trip
that cannot be (the clock was set back, or it took over a minute) is refused with a record and the estimate stays.

Bounds: `distances_max` of each table; the least recently used goes, with a record.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.agreement import settings_told
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.wire.control_messages import (
    ControlIdentities,
    EchoReply,
    EchoRequest,
    echo_reply_message,
    echo_request_message,
)

SMOOTHING = 0.1  # the weight of a new round trip
ECHO_LOST_AFTER = 2.0  # then another one may be sent
ROUND_TRIP_MAX = 60.0  # nothing that takes longer is a distance
DISTANCE_MIN = 1e-4  # a suppression timer of 0 would let everybody send at once
NAME_LENGTH_MAX = 256  # characters; nobody's name is longer


class _Known:
    """A smoothed round trip, and when the last one came in."""

    __slots__ = ("measured_at", "round_trip")

    def __init__(self, round_trip: float, now: float) -> None:
        self.round_trip = round_trip
        self.measured_at = now


class DistanceEstimator:
    """The distances of one client to others."""

    def __init__(self, name: str, config: TransportConfig, identities: ControlIdentities) -> None:
        self._name = name
        self._config = config
        self._settings = settings_told(config)
        self._identities = identities
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asked: OrderedDict[str, tuple[float, ...]] = OrderedDict()  # when the last two echoes left, newest first

    def __len__(self) -> int:
        return len(self._known)

    def to(self, node: str) -> float:
        """Seconds to this node, one way: measured, or a first guess. Never 0."""
        if node == self._name:
            return DISTANCE_MIN
        found = self._known.get(node)
        if found is None:
            return max(DISTANCE_MIN, self._config.distance_first)
        self._known.move_to_end(node)
        return max(DISTANCE_MIN, found.round_trip / 2.0)

    def known(self, node: str) -> bool:
        """Whether it was measured."""
        return node in self._known

    def round_trip(self, node: str) -> float | None:
        """Seconds there and back, if measured."""
        found = self._known.get(node)
        return found.round_trip if found is not None else None

    def ask(self, node: str, now: float) -> list[TransportEffect]:
        """Send an echo request, if the estimate is old (or missing) and none is under way."""
        interval = self._config.echo_interval
        if not interval or node == self._name or not plausible_name(node):
            return []
        found = self._known.get(node)
        # A clock that was set back makes times of the future; they mean nothing, so it is asked again.
        if found is not None and 0.0 <= now - found.measured_at < interval:
            return []
        before = self._asked.get(node, ())
        if before and 0.0 <= now - before[0] < ECHO_LOST_AFTER:
            return []
        self._asked[node] = (now, *before[:1])
        self._asked.move_to_end(node)
        return [
            BearerPublish(echo_request_message(self._identities, node, EchoRequest(self._name, now, self._settings))),
            *self._bounded(self._asked, "echoes"),
        ]

    def echo_request_received(self, echo: EchoRequest, now: float) -> list[TransportEffect]:
        """Somebody measures the round trip to us."""
        if echo.sender == self._name:
            return []
        if not plausible_name(echo.sender):
            return [InputRefused(echo.sender[:40], f"an echo from a name of {len(echo.sender)} characters")]
        return [
            BearerPublish(
                echo_reply_message(
                    self._identities, echo.sender, EchoReply(self._name, echo.sent_at, now, self._settings)
                )
            )
        ]

    def echo_reply_received(self, answer: EchoReply, now: float) -> list[TransportEffect]:
        """An echo has come back; one that we did not send, or not lately, changes nothing."""
        node = answer.sender
        if answer.sent_at not in self._asked.get(node, ()):
            return []
        del self._asked[node]
        round_trip = now - answer.sent_at
        if not 0.0 <= round_trip <= ROUND_TRIP_MAX:
            return [InputRefused(node[:40], f"an echo that took {round_trip:g} s")]
        return self._measured(node, round_trip, now)

    def _measured(self, node: str, round_trip: float, now: float) -> list[TransportEffect]:
        found = self._known.get(node)
        if found is None:
            self._known[node] = _Known(round_trip, now)
            return self._bounded(self._known, "distances")
        found.round_trip += SMOOTHING * (round_trip - found.round_trip)
        found.measured_at = now
        self._known.move_to_end(node)
        return []

    def _bounded(
        self, table: OrderedDict[str, _Known] | OrderedDict[str, tuple[float, ...]], what: str
    ) -> list[TransportEffect]:
        limit = self._config.distances_max
        if len(table) <= limit:
            return []
        table.popitem(last=False)
        return [LimitReached(what, limit)]


def plausible_name(name: str) -> bool:
    """Whether a client may be called so."""
    return 0 < len(name) <= NAME_LENGTH_MAX
