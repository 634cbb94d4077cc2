"""Who sees everything in a run: the digest, the trace, the tallies of clients, and the checkers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from penstock.content.message import Identity, Message
from penstock.kernel.packet import BROKER, Packet
from penstock.kernel.storage import Append, Ask, Operation, Put, Trim
from penstock.kernel.trace import Digest, Dropped, NodeStarted, Record, Trace
from penstock.overlay.packets import Publication
from penstock.pricing.packets import PricedPublication
from penstock.pricing.records import MessageBought
from penstock.rates.records import ReaderThinned, Thinned
from penstock.retrieval.packets import CarriedPublication
from penstock.retrieval.records import RECORDS as RETRIEVAL_RECORDS
from penstock.scenario.checker import Checker
from penstock.scenario.shared_facts import FailedOnDisk
from penstock.scenario.stream_facts import (
    BrokerStarted,
    LogTrimming,
    LogWriting,
    MessageCommitted,
    ProgressOnDisk,
    StreamFact,
    TicksTold,
)
from penstock.scenario.stream_tally import StreamTallies
from penstock.sim.engine import Engine
from penstock.streams.log_codec import GONE, NAME_PREFIX, NameRecord, TickMark, decode
from penstock.streams.message import StreamMessage
from penstock.streams.packets import Knowledge
from penstock.streams.records import DurableStopped, GapNoticed, PubendCommitted
from penstock.transport.records import LossDetected, LossWithheld


@dataclass
class ClientTally:
    """What one client did and got."""

    published: int = 0
    refused: int = 0
    delivered: int = 0
    delays: list[float] = field(default_factory=list)  # of what it got, from publish() on
    per_second: Counter[int] = field(default_factory=Counter)  # deliveries in each second of the run
    streams: StreamTallies = field(default_factory=dict)


class Watch:
    """Hands everything that happens to the digest, the trace, the tallies and the checkers."""

    def __init__(self, engine: Engine, checkers: list[Checker], trace: Trace | None) -> None:
        self.digest = Digest()
        self.records: Counter[type[Record]] = Counter()
        self.drops: Counter[tuple[str, str, str, str]] = Counter()
        self.clients: dict[str, ClientTally] = {}
        self.published_at: dict[Identity, float] = {}
        self.broker_ids: dict[str, int] = {}
        self.engine = engine
        self._checkers = checkers
        self._trace = trace
        self._on_delivered = _listeners(checkers, "delivered")
        self._on_sent = _listeners(checkers, "sent")
        self._on_arrived = _listeners(checkers, "arrived")
        self._on_dropped = _listeners(checkers, "dropped")
        self._on_declared_lost = _listeners(checkers, "declared_lost")
        self._on_bought = _listeners(checkers, "bought")
        self._on_copy_sent = _listeners(checkers, "copy_sent")
        self._on_copy_arrived = _listeners(checkers, "copy_arrived")
        self._on_thinned = {
            Thinned: _listeners(checkers, "thinned"),
            ReaderThinned: _listeners(checkers, "reader_thinned"),
        }
        self._on_retrieval = _listeners(checkers, "retrieval")
        self._on_item_sent = _listeners(checkers, "item_sent")
        self._on_fact = _listeners(checkers, "stream_fact")
        packets = (self._on_sent, self._on_arrived, self._on_copy_sent, self._on_copy_arrived, self._on_fact)
        self.watches_packets = any(packets) or bool(self._on_item_sent)
        self.on_stream_record: Callable[[str, Record], None] | None = None  # the applications, which are told of some

    def record(self, node: str, record: Record) -> None:
        now = self.engine.now
        self.records[type(record)] += 1
        self.digest.write(now, node, record)
        if self._trace is not None:
            self._trace.write(now, node, record)
        if type(record) is Dropped:
            self.drops[node, record.peer, record.place, record.cause] += 1
            for listener in self._on_dropped:
                listener(now, record)
        elif type(record) is LossDetected or type(record) is LossWithheld:
            for listener in self._on_declared_lost:
                listener(now, node, record)
        elif type(record) is MessageBought:
            for listener in self._on_bought:
                listener(now, node, record)
        elif type(record) in self._on_thinned:
            for listener in self._on_thinned[type(record)]:
                listener(now, node, record)
        elif type(record) is PubendCommitted:
            identity = Identity(record.publisher, record.incarnation, record.count)
            self.fact(MessageCommitted(record.pubend, record.tick, identity))
        elif self.on_stream_record is not None and isinstance(record, GapNoticed | DurableStopped):
            self.on_stream_record(node, record)
        elif type(record) is NodeStarted and record.role == BROKER:
            self.fact(BrokerStarted(node))
            self._retrieval(node, record)
        elif type(record) in RETRIEVAL_RECORDS:
            self._retrieval(node, record)

    def _retrieval(self, node: str, record: Record) -> None:
        for listener in self._on_retrieval:
            listener(self.engine.now, node, record)

    def fact(self, fact: StreamFact) -> None:
        """Something has happened to a stream."""
        for listener in self._on_fact:
            listener(self.engine.now, fact)

    def asked(self, asked: Ask) -> None:
        """A broker wants something done to its disk."""
        pubend = asked.area.partition("/")[2]
        if pubend and isinstance(asked.operation, Append):
            self.fact(LogWriting(pubend, tuple(key for key, _ in asked.operation.entries), False))
        elif pubend and isinstance(asked.operation, Trim):
            self.fact(LogTrimming(pubend, asked.operation.upto))
        elif pubend and isinstance(asked.operation, Put) and asked.operation.name == GONE:  # a trim that was decided
            self.fact(LogTrimming(pubend, decode(asked.operation.value, TickMark).tick))

    def changed(self, area: str, operation: Operation) -> None:
        """A disk has changed."""
        pubend = area.partition("/")[2]
        if pubend and isinstance(operation, Append):
            self.fact(LogWriting(pubend, tuple(key for key, _ in operation.entries), True))
        elif pubend and isinstance(operation, Put) and operation.name.startswith(NAME_PREFIX) and operation.value:
            name, record = operation.name.removeprefix(NAME_PREFIX), decode(operation.value, NameRecord)
            self.fact(ProgressOnDisk(pubend, name, record.position))
            if record.share is not None:
                ticks = accumulate((step for step, _ in record.share.failed), initial=record.position)
                self.fact(FailedOnDisk(pubend, name, tuple(ticks)[1:]))

    def delivered(self, node: str, subscription: int, message: Message) -> None:
        now = self.engine.now
        tally = self.clients[node]
        tally.delivered += 1
        tally.per_second[int(now)] += 1
        if message.identity in self.published_at:  # not what a shared name has moved to another stream
            tally.delays.append(now - self.published_at[message.identity])
        if not isinstance(message, StreamMessage):  # those are told as facts
            for listener in self._on_delivered:
                listener(now, node, subscription, message)

    def sent(self, packet: Packet, *, node: str, peer: str) -> None:
        if type(packet) is Publication:
            for listener in self._on_sent:
                listener(self.engine.now, packet)
        elif type(packet) is PricedPublication:
            for listener in self._on_copy_sent:
                listener(self.engine.now, packet)
        elif self._on_item_sent and isinstance(packet, CarriedPublication):
            for listener in self._on_item_sent:
                listener(self.engine.now, node, peer, packet)
        elif type(packet) is Knowledge and self._on_fact:
            self.fact(TicksTold(packet.pubend, packet.first, packet.last, packet.data))

    def handled(self, node: str, packet: Packet) -> None:
        if type(packet) is Publication:
            for listener in self._on_arrived:
                listener(self.engine.now, self.broker_ids[node], packet)
        elif type(packet) is PricedPublication:
            for listener in self._on_copy_arrived:
                listener(self.engine.now, self.broker_ids[node], packet)

    def tell(self, call: Callable[[Checker], None]) -> None:
        """Tell all checkers of something that only the driver of the clients knows."""
        for checker in self._checkers:
            call(checker)


def _listeners(checkers: list[Checker], hook: str) -> list[Callable[..., None]]:
    """The hook of each checker that has something of its own to do there: a hop costs a call for each of them."""
    base = getattr(Checker, hook)
    return [getattr(checker, hook) for checker in checkers if getattr(type(checker), hook) is not base]
