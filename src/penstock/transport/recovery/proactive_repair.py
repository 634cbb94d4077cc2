"""A publisher says each message once more, before anybody asks (beyond the papers).

On a link that loses single packets, a second copy that comes a moment later finds its way nearly always: it brings back
what a link lost in the time of one way through the network, where a request and its repair take two ways more, after
the loss has been noticed. It costs the message's bytes again, which is less than a record of ten entries where
messages are small. Losses that come in bursts longer than `repeat_after` take both copies; then records, heartbeats and
requests are still there. Under congestion it only adds to the load, so a controlled flow sends no copies.

The copy is a repair for everybody, so whoever has the message already drops it, and nothing is delivered twice.

State: the messages that wait, in the order in which they left. Timer: ("transport", "again") for the first of them.
Bounds: `published_kept` messages; beyond it the oldest goes without a copy, with a record.
"""

from __future__ import annotations

from collections import deque

from penstock.content.message import Message
from penstock.errors import InvalidMessage
from penstock.kernel.timers import Timers
from penstock.kernel.trace import LimitReached
from penstock.transport.bearer import Publish, TransportEffect
from penstock.transport.config import TransportConfig
from penstock.transport.wire.control_messages import Key, Repair, Voice, repair_to_all

AGAIN_TIMER = ("transport", "again")
EVERYBODY = ""  # in the place of a requester


class Again:
    """The second copies of one publisher."""

    def __init__(self, config: TransportConfig, timers: Timers, voice: Voice) -> None:
        self.sent = 0
        self._config = config
        self._timers = timers
        self._voice = voice
        self._waiting: deque[tuple[float, Key, Message]] = deque()  # when it left, which, what

    def left(self, key: Key, message: Message, now: float) -> list[TransportEffect]:
        """A message has left; its copy follows."""
        if not self._config.repeat_after:
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
        while self._waiting and self._waiting[0][0] + self._config.repeat_after <= now:
            departure, key, message = self._waiting.popleft()
            repair = Repair(key, message.identity.count, departure, EVERYBODY)
            try:
                effects.append(Publish(repair_to_all(self._voice, repair, message)))
                self.sent += 1
            except (InvalidMessage, OverflowError):
                continue  # so large that there is no room for the header of a repair; the original has left
        self._arm()
        return effects

    def _arm(self) -> None:
        if self._waiting:
            self._timers.set(AGAIN_TIMER, self._waiting[0][0] + self._config.repeat_after)
