"""Items for a client that cannot take them all at once: they wait here, and not in its queue.

A cache may have more items for one request than the queue to a client has places, and its plain subscriptions need
these too. So items go into the queue while few packets are in it. The others wait in line until some have left; a timer
looks.

State: a line for each client that has items waiting. Bound: `items_max` items in each; what finds no place is dropped
and recorded. Timer: ITEMS for each line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.kernel.service import NodeView
from penstock.kernel.timers import ServiceTimers
from penstock.overlay.egress import dropped
from penstock.retrieval.packets import RetrievedItem
from penstock.retrieval.timers import RetrievalTimer

AT_ONCE = 100  # packets in a client's queue
BYTES_AT_ONCE = 512 << 10  # that are put there in one go, and one item more
LOOK_EVERY = 0.02  # seconds


class _Turn:
    """What goes into the queue of one client now."""

    def __init__(self, node: NodeView, link: Link) -> None:
        self._node, self._link = node, link
        self._before = node.lane_packets(link, Lane.BEST_EFFORT)
        self._packets = self._bytes = 0

    def takes(self, effect: Send) -> bool:
        """Whether one more may go."""
        size_bytes = effect.packet.size_bytes()
        if self._before + self._packets >= AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            return False
        if not self._node.has_room(self._link, Lane.BEST_EFFORT, size_bytes, self._bytes, self._packets):
            return False
        self._packets += 1
        self._bytes += size_bytes
        return True


class ClientLines:
    """The lines of one broker's clients."""

    def __init__(self, node: NodeView, timers: ServiceTimers, items_max: int) -> None:
        self._node = node
        self._timers = timers
        self._items_max = items_max
        self._lines: dict[Link, deque[Send]] = {}

    def paced(self, effects: Sequence[Effect], now: float) -> list[Effect]:
        """What may go out; items that would crowd a queue stay here."""
        passed: list[Effect] = []
        turns: dict[Link, _Turn] = {}
        for effect in effects:
            if type(effect) is not Send or type(effect.packet) is not RetrievedItem:
                passed.append(effect)
                continue
            link = effect.to[0]
            if link not in turns:
                turns[link] = _Turn(self._node, link)
            if link not in self._lines and turns[link].takes(effect):
                passed.append(effect)
            else:
                passed += self._wait(link, effect, now)
        return passed

    def expired(self, link: Link, now: float) -> list[Effect]:
        """Some may have left."""
        line, turn = self._lines[link], _Turn(self._node, link)
        passed: list[Effect] = []
        while line and turn.takes(line[0]):
            passed.append(line.popleft())
        if line:
            self._timers.set(RetrievalTimer.ITEMS, now + LOOK_EVERY, link)
        else:
            del self._lines[link]
        return passed

    def link_down(self, link: Link) -> list[Effect]:
        """Nobody takes them any more."""
        self._timers.cancel(RetrievalTimer.ITEMS, link)
        return [_dropped("link down", effect) for effect in self._lines.pop(link, ())]

    def _wait(self, link: Link, effect: Send, now: float) -> list[Effect]:
        line = self._lines.get(link)
        if line is None:
            line = self._lines[link] = deque()
            self._timers.set(RetrievalTimer.ITEMS, now + LOOK_EVERY, link)
        if len(line) >= self._items_max:
            return [_dropped("client behind", effect)]
        line.append(effect)
        return []


def _dropped(cause: str, effect: Send) -> Effect:
    return dropped("egress", cause, "", effect.lane, effect.packet)
