"""Proactive repair: a publisher sends each message once more, before anybody requests it (beyond the papers).

On a link that loses single packets, a second copy that comes a moment later nearly always arrives: it brings back what
a link lost in the time of one way through the network, where a request and its repair take two ways more, after the
loss has been noticed. It costs the message's bytes again, which is less than a record of ten entries where messages are
small. Losses that come in bursts longer than `proactive_repair_after` take both copies; then records, heartbeats and
requests are still there. Under congestion it only adds to the load, so a controlled flow gets no proactive repairs.

The copy is a repair for everybody, so whoever has the message already drops it, and nothing is delivered twice.

State: the messages that wait, in the order in which they left. Timer: PROACTIVE_REPAIR for the first
of them. Bounds: `published_kept` messages; beyond it the oldest goes without a copy, with a record.
"""

from __future__ import annotations

from collections import deque

from penstock.content.message import Message
from penstock.errors import InvalidMessage
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import LimitReached
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import ControlIdentities, Key, Repair, repair_to_all

EVERYBODY = ""  # in the place of a requester


class ProactiveRepair:
    """The proactive repairs of one publisher."""

    def __init__(self, config: TransportConfig, timers: ServiceTimers, identities: ControlIdentities) -> None:
        self.sent = 0
        self._config = config
        self._timers = timers
        self._identities = identities
        self._waiting: deque[tuple[float, Key, Message]] = deque()  # when it left, which, what

    def left(self, key: Key, message: Message, now: float) -> list[TransportEffect]:
        """A message has left; its copy follows."""
        if not self._config.proactive_repair_after:
            return []
        self._waiting.append((now, key, message))
        limit = self._config.published_kept
        effects: list[TransportEffect] = []
        if len(self._waiting) > limit:
            self._waiting.popleft()
            effects.append(LimitReached("copies", limit))
        if len(self._waiting) == 1 or effects:
            self._arm()
        return effects

    def expired(self, *, now: float) -> list[TransportEffect]:
        """The time of the first has come, and perhaps of some after it."""
        effects: list[TransportEffect] = []
        while self._waiting and self._waiting[0][0] + self._config.proactive_repair_after <= now:
            departure, key, message = self._waiting.popleft()
            repair = Repair(key, message.identity.count, departure, EVERYBODY)
            try:
                effects.append(BearerPublish(repair_to_all(self._identities, repair, message)))
                self.sent += 1
            except (InvalidMessage, OverflowError):
                continue  # so large that there is no room for the header of a repair; the original has left
        self._arm()
        return effects

    def _arm(self) -> None:
        if self._waiting:
            self._timers.set(TransportTimer.PROACTIVE_REPAIR, self._waiting[0][0] + self._config.proactive_repair_after)
