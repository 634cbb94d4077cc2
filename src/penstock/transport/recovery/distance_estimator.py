"""How far away other clients are: one-way trip times, measured by echo (002 section 4.2; outside: SRM).

Requests and repairs wait in proportion to distances, so that the nearest speaks first and the others hear it in time.
The clocks of two clients have nothing to do with each other, so a distance is half of a round trip on the asker's own
clock, smoothed (nine parts old, one part new).

State: `_known`, a smoothed round trip per node, and `_asked`, when the last two echoes left of which none has come back
yet (on a way of more than ECHO_LOST_AFTER the answer to the first comes after the second). They are two tables so that
names nobody answers to, which a forger can invent, never push out what is known. Messages: an Echo to the other's
inbox, an Answer to ours. No timers: who needs a distance says `ask`, and that sends an echo only if the estimate is old
and none is under way.

Forgery. An Answer counts only if it names a node that was asked and the very time of that echo, so who has not seen the
echo cannot answer it. Who can read the other's inbox can; the network below has no secrets. A round trip that cannot be
(the clock was set back, or it took over a minute) is refused with a record and the estimate stays.

Bounds: `distances_max` of each table; the least recently used goes, with a record.
"""

from __future__ import annotations

from collections import OrderedDict

from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.bearer import Publish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.wire.control_messages import Answer, Echo, Voice, answer_message, echo_message

SMOOTHING = 0.1  # the weight of a new round trip
ECHO_LOST_AFTER = 2.0  # then another one may be sent
ROUND_TRIP_MAX = 60.0  # nothing that takes longer is a distance
DISTANCE_MIN = 1e-4  # a wait of nothing would let everybody speak at once
NAME_LENGTH_MAX = 256  # characters; nobody's name is longer


class _Known:
    """A smoothed round trip, and when the last one came in."""

    __slots__ = ("measured_at", "round_trip")

    def __init__(self, round_trip: float, now: float) -> None:
        self.round_trip = round_trip
        self.measured_at = now


class Distances:
    """The distances of one client to others."""

    def __init__(self, name: str, config: TransportConfig, voice: Voice) -> None:
        self._name = name
        self._config = config
        self._voice = voice
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
        """Send an echo, if the estimate is old (or missing) and no echo is under way."""
        interval = self._config.echo_interval
        if not interval or node == self._name or not plausible_name(node):
            return []
        found = self._known.get(node)
        # A clock that was set back makes times of the future; they say nothing, so it is asked again.
        if found is not None and 0.0 <= now - found.measured_at < interval:
            return []
        before = self._asked.get(node, ())
        if before and 0.0 <= now - before[0] < ECHO_LOST_AFTER:
            return []
        self._asked[node] = (now, *before[:1])
        self._asked.move_to_end(node)
        return [Publish(echo_message(self._voice, node, Echo(self._name, now))), *self._bounded(self._asked, "echoes")]

    def heard_echo(self, echo: Echo, now: float) -> list[TransportEffect]:
        """Somebody asks where we are."""
        if echo.sender == self._name:
            return []
        if not plausible_name(echo.sender):
            return [InputRefused(echo.sender[:40], f"an echo from a name of {len(echo.sender)} characters")]
        return [Publish(answer_message(self._voice, echo.sender, Answer(self._name, echo.sent_at, now)))]

    def heard_answer(self, answer: Answer, now: float) -> list[TransportEffect]:
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
