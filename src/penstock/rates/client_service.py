"""A client says what becomes of messages for which a link has no room, and how fast it reads if that is slowly.

`when_full` and `keep` are told when the link comes up, unless they are the defaults. Who waits asks for credit in the
lanes of its messages, so that the broker can hold it (`overlay.credit`).

Every subscription that no other service serves has a pace (`kernel.reader_pace`): from when half of its queue is used,
and while it is long, what the application takes is told, with a correction that brings the queue back to a quarter. It
is told when it has changed, and every REFRESH seconds; and once more when the reader keeps up again.

Its broker tells what was withheld: of what it published, and from its broker or itself (`told`).

State: the pace of each subscription that was read, and what was told. Bound: the client's subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isinf

from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane, Packet
from penstock.kernel.reader_pace import ReaderPace
from penstock.kernel.service import Context, Reading
from penstock.rates.config import RatesClientConfig
from penstock.rates.packets import ClientTerms, Note, ReaderRate, WithheldNotice
from penstock.rates.records import WithheldTold
from penstock.rates.regulated import LANES
from penstock.rates.told import WithheldFlows

RATE_LEAST = 0.1  # messages per second; 0 would mean any number
CHANGE = 0.1
EVERY, REFRESH = 0.1, 1.0
SLOW_FROM = 0.5  # of the queue
SUBSCRIPTIONS_MAX = 10_000
NEVER = (0.0, -inf)
OnWithheld = Callable[[Note, float], list[Effect]]


class RatesClient:
    """The machine of clients."""

    packet_kinds: tuple[type[Packet], ...] = (WithheldNotice,)

    def __init__(self, context: Context) -> None:
        self._config = context.settings(RatesClientConfig)
        self._node = context.node
        self.published = WithheldFlows()  # of our own messages
        self.wanted = WithheldFlows()  # from our broker, or from us
        self.on_withheld: OnWithheld | None = None  # a service that recovers what is missed
        self._link: Link | None = None
        self._paces: dict[int, ReaderPace] = {}
        self._told: dict[int, tuple[float, float]] = {}  # rate, and when

    def link_changed(self, link: Link, *, up: bool, now: float) -> list[Effect]:
        self._link = link if up else None
        self._told.clear()
        terms = ClientTerms(self._config.when_full, self._config.keep)
        if not up or terms == ClientTerms():
            return []
        lanes = LANES if terms.when_full == "wait" else ()
        asked = [effect for lane in lanes for effect in self._node.ask_credit(link, lane)]
        return [*asked, Send((link,), terms, Lane.CONTROL)]

    def receive(self, packets: Sequence[Packet], *, sender: Link, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for packet in packets:
            assert isinstance(packet, WithheldNotice)
            flows = self.published if packet.role == "publisher" else self.wanted
            flows.messages += packet.left_off
            for note in packet.notes:
                flows.add(note, now)
                about = (note.publisher, note.link[0], note.link[1], note.rate, note.to)
                effects.append(WithheldTold(packet.role, *about, note.messages, note.slow_reader))
                if packet.role == "reader" and note.counts and self.on_withheld is not None:
                    effects += self.on_withheld(note, now)
        return effects

    def read(self, number: int, reading: Reading, *, now: float) -> list[Effect]:
        """How the application takes its messages."""
        if not self._config.enabled or self._link is None:
            return []
        pace = self._paces.get(number)
        if pace is None:
            if len(self._paces) >= SUBSCRIPTIONS_MAX:
                self._paces.clear()
            pace = self._paces[number] = ReaderPace(reading.queue_max)
        pace.taken += reading.taken
        rate = pace.look(reading.waiting, now)
        if rate is None or (number not in self._told and reading.waiting < SLOW_FROM * reading.queue_max):
            return []  # a program that does other things for a moment is not slow
        if not self._worth(number, rate, now):
            return []
        if isinf(rate):
            del self._told[number]
        packet = ReaderRate(number, 0.0 if isinf(rate) else max(RATE_LEAST, rate), self._config.keep == "newest")
        return [Send((self._link,), packet, Lane.CONTROL)]

    def _worth(self, number: int, rate: float, now: float) -> bool:
        """Whether this is told now; if so, it has been."""
        told, at = self._told.get(number, NEVER)
        since = abs(now - at)
        changed = isinf(told) or abs(rate - told) > CHANGE * told
        if not (isinf(rate) or since >= REFRESH or (changed and since >= EVERY)):
            return False
        self._told[number] = (rate, now)
        return True
