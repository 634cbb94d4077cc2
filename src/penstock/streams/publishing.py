"""Publications of this broker's clients on their way to their pubends, and the answers on their way back.

A client's StreamPublish goes to the pubend that its key chooses, over the brokers between, or straight if the pubend is
here. Whoever waits is remembered by a number of ours; nothing is tried again here: the client does that, under the same
publication_id.

A pubend here may publish too (`store`): what was tried too often under a shared name goes to another stream.

State: who waits; and, for one batch of packets, where its publications go. Bound: WAITING_MAX; the oldest are
forgotten, and their clients try again.
"""

from __future__ import annotations

from zlib import crc32

from penstock.content.message import Message
from penstock.kernel.link import Link
from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.overlay.packets import BrokerId
from penstock.streams.home_broker import HomeBroker
from penstock.streams.packets import (
    PublishAnswer,
    PublishRequest,
    PublishStored,
    PublishWaits,
    StreamPublish,
    StreamPublished,
    StreamStored,
    StreamWaits,
    Tick,
    pubend_name,
)
from penstock.streams.share_failed import Answered

WAITING_MAX = 100_000
OURS_MAX = 1_000


class Publishing:
    """Between clients here and pubends anywhere."""

    def __init__(self, broker: HomeBroker) -> None:
        self._broker = broker
        self._waiting: dict[int, tuple[Link, int]] = {}  # our number -> the client and its number
        self._ours: dict[int, Answered] = {}  # what this broker waits for itself
        self._counts: dict[str, tuple[int, str, bool]] = {}  # found out for the present batch: of streams
        self._hosts: dict[tuple[str, int], tuple[str, BrokerId | None]] = {}  # and of their pubends

    def look_again(self) -> None:
        """A new batch: since the last one, a stream or its broker may have come or gone."""
        self._counts.clear()
        self._hosts.clear()

    def publish(self, packet: StreamPublish, link: Link, client: str, *, now: float) -> list[Effect]:
        """A client wants a message stored; messages under another's name go no further."""
        publisher = packet.message.identity.publisher
        if publisher != client:
            problem = f"a client publishes under its own name, not as '{publisher}'"
            return [_refusal(link, packet, problem, again=False)]
        count, problem, again = self._counts.get(packet.stream) or self._count(packet.stream)
        if problem:
            return [_refusal(link, packet, problem, again=again)]
        chosen = crc32((packet.key or publisher).encode()) % count
        pubend, host = self._hosts.get((packet.stream, chosen)) or self._host(packet.stream, chosen)
        if host is None:
            return [_refusal(link, packet, self._broker.unreachable(pubend), again=True)]
        request = self._broker.next_request()
        if len(self._waiting) >= WAITING_MAX:
            del self._waiting[next(iter(self._waiting))]
        self._waiting[request] = (link, packet.request)
        wanted = PublishRequest(request, pubend, packet.publication_id, packet.age, packet.message, packet.key)
        return self._broker.send_to(host, wanted, now=now)

    def store(
        self,
        stream: str,
        key: str,
        publication_id: str,
        message: Message,
        answered: Answered,
        *,
        now: float,
    ) -> list[Effect]:
        """Publish a message of this broker's own; whoever wants it stored tries again."""
        count, problem, again = self._broker.pubends(stream)
        if problem:
            return answered(PublishAnswer(0, "", 0, problem, again), now)
        pubend = pubend_name(stream, crc32(key.encode()) % count)
        host = self._broker.host(pubend)
        if host is None:
            return answered(PublishAnswer(0, pubend, 0, self._broker.unreachable(pubend), True), now)
        request = self._broker.next_request()
        if len(self._ours) >= OURS_MAX:
            del self._ours[next(iter(self._ours))]
        self._ours[request] = answered
        return self._broker.send_to(host, PublishRequest(request, pubend, publication_id, 0.0, message), now=now)

    def _count(self, stream: str) -> tuple[int, str, bool]:
        found = self._counts[stream] = self._broker.pubends(stream)
        return found

    def _host(self, stream: str, number: int) -> tuple[str, BrokerId | None]:
        pubend = pubend_name(stream, number)
        found = self._hosts[stream, number] = (pubend, self._broker.host(pubend))
        return found

    def answered(self, packet: PublishAnswer, *, now: float) -> list[Effect]:
        """The pubend has answered."""
        link, request = self._waiting.pop(packet.request, (None, 0))
        if link is None:
            ours = self._ours.pop(packet.request, None)
            return [] if ours is None else ours(packet, now)
        answer = StreamPublished(request, packet.pubend, packet.tick, packet.problem, packet.again, packet.unknown)
        return [Send((link,), answer, Lane.CONTROL)]

    def stored(self, packet: PublishStored, *, now: float) -> list[Effect]:
        """The pubend has several on disk."""
        stored: dict[Link, list[tuple[int, Tick]]] = {}
        waiting = self._waiting.pop
        effects: list[Effect] = []
        for number, tick in packet.stored:
            link, request = waiting(number, (None, 0))
            if link is not None:
                stored.setdefault(link, []).append((request, tick))
            elif number in self._ours:
                effects += self._ours.pop(number)(PublishAnswer(number, packet.pubend, tick), now)
        return effects + [
            Send((link,), StreamStored(packet.pubend, tuple(requests)), Lane.CONTROL)
            for link, requests in stored.items()
        ]

    def waits(self, packet: PublishWaits) -> list[Effect]:
        """The pubend has them, and takes its time."""
        requests: dict[Link, list[int]] = {}
        for number in packet.requests:
            link, request = self._waiting.get(number, (None, 0))
            if link is not None:
                requests.setdefault(link, []).append(request)
        return [
            Send((link,), StreamWaits(tuple(numbers), packet.notice), Lane.CONTROL)
            for link, numbers in requests.items()
        ]

    def link_down(self, link: Link) -> None:
        """A client is gone."""
        self._waiting = {request: who for request, who in self._waiting.items() if who[0] != link}


def _refusal(link: Link, packet: StreamPublish, problem: str, *, again: bool) -> Effect:
    return Send((link,), StreamPublished(packet.request, "", 0, problem, again), Lane.CONTROL)
