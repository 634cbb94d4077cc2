"""Runs what one client received from one publisher through the transport's own ordering, as often as one likes.

002 section 3.5.2 lets receivers run several instances of ordering beside each other on the same arrivals, and its
records do not occupy the links. So an experiment about order needs no run of its own: a best-effort run says when each
message left and when it arrived, and any number of instances (a latch, a probability, a record size) can be fed with
it. What runs is `ReorderBuffer` of the transport itself, with its own deadlines.

A header is not made as bytes. `TracedHeader` looks like one and takes what it is asked for out of arrays. Its
entries are not encodings but the answer to the only question that is put to one: 1 if the client's own encodings match
it, 0 if not, worked out for all messages at once (`relevance`); the ordering is then given `bool` to decide.

Beside the instances stand two that need no machine. *None* hands over what comes, as it comes. The *oracle* knows which
messages are still to come and holds each message until all earlier ones that ever arrive are there, and no longer: what
an instance holds a message beyond that is counted as unnecessary. What static latches leave is known without a machine
as well (`RecordedPair.late_by`).

Of a message that came twice the first arrival counts; several at one moment came in the order of sending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from penstock.transport.config import TransportConfig
from penstock.transport.ordering.latch import make_latch
from penstock.transport.ordering.reorder_buffer import OrderingStep, ReorderBuffer
from penstock.transport.wire.header import Header

NONE, ORACLE = "none", "oracle"
HOPS_UNKNOWN = 2  # what a session takes where neither header nor configuration tells

Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Shape = tuple[int, int]  # of an entry: its bits and hashes


def shape_of(config: TransportConfig) -> Shape:
    """What decides how an entry looks."""
    return config.record_bits, config.record_hashes


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One way to order. If only its violations are asked for, pairs without disorder need not be run."""

    name: str
    config: TransportConfig
    violations_only: bool = False


class OrderingOutcome(NamedTuple):
    """How the messages of one pair fared under one instance. Seconds are sums over the messages."""

    messages: int
    violations: int  # handed over after a later one
    late: int  # the same, as the machine counts it
    latched: int  # messages that got a latch
    assigned: float  # the latches
    held: float  # the time they really waited
    unnecessary: float  # of it, what the oracle would not have waited
    losses: int  # declared
    gaps: int  # messages before which something may have been missing
    chance: float  # over the gaps: how likely it was still on its way, as estimated
    refused: int = 0  # never handed over, because the machine took them for too old
    published: int = 0  # by this publisher, wanted or not
    late_by: bytes = b""  # under none: by how many seconds each late message missed its place, as 8-byte numbers


@dataclass(frozen=True)
class RecordedPair:
    """What one client received of one publisher, in the order of reception."""

    departures: list[float]  # of all the publisher's messages; the first has the number 1
    sequences: NDArray[np.int64]  # of those that arrived
    arrivals: Floats
    relevant: Mapping[Shape, bytes]  # by the shape of entries: for every message, whether the client seems to want it
    _headers: dict[tuple[int, Shape], list[TracedHeader]] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def late(self) -> NDArray[np.bool_]:
        """Which arrive after a later one."""
        late: NDArray[np.bool_] = self.sequences < np.maximum.accumulate(self.sequences)
        return late

    @cached_property
    def gaps(self) -> NDArray[np.bool_]:
        """Which arrive first of all that were sent after them, with something missing before them."""
        highest = np.maximum.accumulate(self.sequences)
        gaps: NDArray[np.bool_] = np.zeros(len(highest), dtype=bool)
        gaps[1:] = self.sequences[1:] > highest[:-1] + 1
        return gaps

    @cached_property
    def late_by(self) -> Floats:
        """For each late message: the time since the first later one came.

        That one came at a gap, with the late message missing. A static latch without records holds it, and whatever
        else was sent later, until its time is up or the late one is there. So the late message keeps its place under
        every static latch that is at least this long, and no machine has to be run to count what such a latch leaves.
        Only the very first message waits for nobody: whatever was sent before it comes too late for any latch.
        """
        order = np.argsort(self.sequences)
        arrivals = self.arrivals[order]
        later = np.minimum.accumulate(arrivals[::-1])[::-1]
        late_by = np.append(arrivals[:-1] - later[1:], 0.0)
        late_by[self.sequences[order] < self.sequences[0]] = inf
        return late_by[self.late[order]]

    @cached_property
    def oracle(self) -> Floats:
        """How long each message has to wait for earlier ones that do arrive."""
        order = np.argsort(self.sequences)
        held = np.empty_like(self.arrivals)
        held[order] = np.maximum.accumulate(self.arrivals[order]) - self.arrivals[order]
        return held

    def headers(self, config: TransportConfig) -> list[TracedHeader]:
        """The headers with such records; instances with the same share them."""
        entries = config.record_entries
        shape = shape_of(config) if entries else (0, 0)
        if (entries, shape) not in self._headers:
            relevant = self.relevant[shape] if entries else b""
            self._headers[entries, shape] = [
                TracedHeader(number, self.departures, relevant, min(entries, number - 1))
                for number in self.sequences.tolist()
            ]
        return self._headers[entries, shape]


def make_pair(
    departures: list[float], sequences: NDArray[np.int64], arrivals: Floats, relevant: Mapping[Shape, bytes]
) -> RecordedPair:
    """The pair with its arrivals sorted, each message once."""
    order = np.lexsort((sequences, arrivals))
    sequences, arrivals = sequences[order], arrivals[order]
    first = np.sort(np.unique(sequences, return_index=True)[1])
    return RecordedPair(departures, sequences[first], arrivals[first], relevant)


class TracedHeader:
    """Looks like a `transport.header.Header`; it is its own list of ages, so that none is made in vain."""

    __slots__ = ("_departures", "_relevant", "departure", "record_size", "sequence")
    hops = 0
    heartbeats = False

    def __init__(self, sequence: int, departures: list[float], relevant: bytes, record_size: int) -> None:
        self.sequence = sequence
        self.departure = departures[sequence - 1]
        self.record_size = record_size
        self._departures = departures
        self._relevant = relevant

    @property
    def ages(self) -> TracedHeader:
        return self

    def __len__(self) -> int:
        return min(self.sequence - 1, max(1, self.record_size))

    def __getitem__(self, place: int) -> float:
        """The age of the message `place + 1` before this one."""
        return self.departure - self._departures[self.sequence - 2 - place]

    def entries(self) -> bytes:
        """For the messages before this one, newest first: whether the client seems to want them."""
        end = self.sequence - 1
        return self._relevant[end - self.record_size : end][::-1]


Watcher = Callable[[float, ReorderBuffer[int]], None]  # is shown the machine after each arrival


def order_trace(pair: RecordedPair, config: TransportConfig, watcher: Watcher | None = None) -> OrderingOutcome:
    """Feed the arrivals of a pair to a new machine of this configuration."""
    latch = make_latch(config, config.hops or HOPS_UNKNOWN)
    ordering: ReorderBuffer[int] = ReorderBuffer(config, latch)
    tally = _Tally(pair.oracle.tolist())
    due = inf
    headers = cast("list[Header]", pair.headers(config))
    for item, (header, now) in enumerate(zip(headers, pair.arrivals.tolist(), strict=True)):
        while due < now:
            tally.add(ordering.expired(now=due))
            due = _deadline(ordering)
        tally.add(ordering.arrived(header, bool, item, hold=True, now=now))
        due = _deadline(ordering)
        if watcher is not None:
            watcher(now, ordering)
    while due < inf:
        tally.add(ordering.expired(now=due))
        due = _deadline(ordering)
    return OrderingOutcome(
        len(headers),
        tally.violations,
        ordering.late,
        ordering.latched,
        ordering.assigned_seconds,
        ordering.held_seconds,
        tally.unnecessary,
        ordering.losses,
        ordering.gaps,
        ordering.chance_sum,
        len(headers) - tally.released,
        len(pair.departures),
    )


def _deadline(ordering: ReorderBuffer[int]) -> float:
    due = ordering.deadline()
    return inf if due is None else due


class _Tally:
    """Looks at what a machine hands over, and does not take its word for the order."""

    __slots__ = ("_highest", "_oracle", "released", "unnecessary", "violations")

    def __init__(self, oracle: list[float]) -> None:
        self._oracle = oracle
        self._highest = 0
        self.released = 0
        self.violations = 0
        self.unnecessary = 0.0

    def add(self, step: OrderingStep[int]) -> None:
        for one in step.released:
            self.released += 1
            if one.sequence < self._highest:
                self.violations += 1
            else:
                self._highest = one.sequence
            if one.held > 0.0:
                beyond = one.held - self._oracle[one.item]
                if beyond > 0.0:
                    self.unnecessary += beyond


def outcomes(pair: RecordedPair, instances: Sequence[Instance]) -> Iterable[tuple[str, OrderingOutcome]]:
    """The pair under no ordering, under the oracle, and under every instance."""
    messages, late, published = len(pair.arrivals), int(pair.late.sum()), len(pair.departures)
    nothing = OrderingOutcome(messages, 0, 0, 0, 0.0, 0.0, 0.0, 0, int(pair.gaps.sum()), 0.0, 0, published)
    yield NONE, nothing._replace(violations=late, late=late, late_by=pair.late_by.astype("<f8").tobytes())
    held = float(pair.oracle.sum())
    yield ORACLE, nothing._replace(latched=int((pair.oracle > 0.0).sum()), assigned=held, held=held)
    for instance in instances:
        if late or not instance.violations_only:
            yield instance.name, order_trace(pair, instance.config)


def relevance(messages: Words, wanted: Words) -> bytes:
    """For each message (a row of words), whether it has all bits of one of the wanted encodings (rows as well)."""
    found = np.zeros(len(messages), dtype=bool)
    for one in wanted:
        found |= np.all(messages & one == one, axis=1)
    return found.astype(np.uint8).tobytes()


def words_of(encoding: int, bits: int) -> Words:
    """An encoding as a row of words."""
    return np.frombuffer(encoding.to_bytes(bits // 8, "little"), dtype="<u8")
