"""A publisher's record: a header on every message, and heartbeats for who receives too few (002 sections 3.2.6, 4.3).

A message gets its sequence number when it leaves, from 1 on in each life of the publisher, together with its departure
time and the record: encodings and departures of the messages before it. The record has `record_entries` entries, or,
with `record_span`, as many as were published in that time (a fast publisher needs a longer one, section 3.2.6).

A heartbeat is a record with no message, for subscribers whose share of the messages is so small that the record on the
next one they get comes too late or never. It is sent every `heartbeat_interval`, or as soon as HEARTBEAT_NEW messages
have left, and covers everything since the heartbeat before the last, so that one may be lost. When nothing follows, it
is repeated `heartbeat_repeats` times: the last messages of a burst have no later ones that reveal their loss.

State: the encodings and departures of the last messages. Timer: HEARTBEAT.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from penstock.content.envelope import wrap
from penstock.content.message import DEFAULT_LIMITS, Message, MessageLimits
from penstock.kernel.rate_estimator import RateEstimator
from penstock.kernel.timers import ServiceTimers
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import RECORD_ENTRIES_TAKEN_MAX, TransportConfig
from penstock.transport.timers import TransportTimer
from penstock.transport.wire.control_messages import ControlIdentities, Key, heartbeat_message
from penstock.transport.wire.flow_fields import Control
from penstock.transport.wire.header import HEARTBEATS, SHARED, encode_header, shared_entry, whole_entry

HEARTBEAT_NEW = RECORD_ENTRIES_TAKEN_MAX // 2  # two heartbeats' worth of messages fit one record
RATE_WINDOW = 2.0  # seconds over which the rate in the header is measured
LIMITS = MessageLimits(  # of an application's message, so that there is always room for a header
    attributes_max=DEFAULT_LIMITS.attributes_max - 2, body_bytes_max=DEFAULT_LIMITS.body_bytes_max - (1 << 15)
)


class PublicationRecord:
    """Numbers what a client publishes, and keeps the record of it for headers and heartbeats."""

    def __init__(
        self, name: str, incarnation: int, config: TransportConfig, timers: ServiceTimers, identities: ControlIdentities
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.sequence = 0  # of the last message that left
        self._config = config
        self._timers = timers
        self._identities = identities
        self._encodes = config.record_entries > 0 or config.heartbeat_interval > 0.0 or config.congestion
        self._rate = RateEstimator(RATE_WINDOW)
        self._shared = config.record_form == "shared"
        self._entry_bytes = config.record_bits // 8
        kept = RECORD_ENTRIES_TAKEN_MAX if config.heartbeat_interval else max(1, config.record_entries)
        # Newest first: departures, encodings, and each entry as it is written for somebody who knows the one after it.
        self._departures: deque[float] = deque(maxlen=kept)
        self._encodings: deque[int] = deque(maxlen=kept)
        self._written: deque[bytes] = deque(maxlen=kept)
        self._heartbeat_at = 0  # the sequence number up to which the last heartbeat covered
        self._heartbeat_before = 0  # and the one before it
        self._repeats_left = 0

    def encoding(self, message: Message) -> int:
        """How the message stands in records and is compared with flows."""
        return self._config.encoding.encode_message(message.attributes) if self._encodes else 0

    def wrap(self, message: Message, *, now: float, control: Control | None = None) -> tuple[Message, Key]:
        """The message with its header, as it leaves now; raises InvalidMessage if there is no room for one.

        `control` are its congestion control fields; the rate is filled in here.
        """
        departure = self._not_before_the_last(now)
        encoding = self.encoding(message)
        if self._config.congestion:
            control = (control or Control(0.0))._replace(rate=self._rate.rate(now))
        size = self._record_size(departure)
        wrapped = wrap(message, self._header(self.sequence + 1, encoding, size, departure, control))
        self.sequence += 1
        self._rate.add(now)
        self._remember(encoding, departure)
        if self._config.heartbeat_interval:
            self._repeats_left = self._config.heartbeat_repeats
            if self.sequence - self._heartbeat_at == 1:
                self._timers.set(TransportTimer.HEARTBEAT, now + self._config.heartbeat_interval)
        return wrapped, Key(self.name, self.incarnation, self.sequence)

    def heartbeat_due(self) -> bool:
        """Whether so much has left since the last heartbeat that the next one should not wait for its time."""
        return self._config.heartbeat_interval > 0.0 and self.sequence - self._heartbeat_at >= HEARTBEAT_NEW

    def heartbeat(self, *, now: float) -> list[TransportEffect]:
        """The record of what left lately; called when the timer expires, and when a heartbeat is due earlier."""
        if self.sequence == self._heartbeat_at:
            self._repeats_left -= 1
        news = self.sequence > self._heartbeat_at
        reported = self._heartbeat_at if news and self._config.heartbeat_spans == 1 else self._heartbeat_before
        size = min(len(self._encodings), self.sequence - reported, RECORD_ENTRIES_TAKEN_MAX)
        header = self._header(self.sequence + 1, 0, size, self._not_before_the_last(now))
        if self.sequence > self._heartbeat_at:
            self._heartbeat_before, self._heartbeat_at = self._heartbeat_at, self.sequence
        if self._repeats_left > 0:
            self._timers.set(TransportTimer.HEARTBEAT, now + self._config.heartbeat_interval)
        else:
            self._timers.cancel(TransportTimer.HEARTBEAT)
        return [BearerPublish(heartbeat_message(self._identities, self.name, header))] if size else []

    def _not_before_the_last(self, now: float) -> float:
        """A clock that was set back must not make the record run backwards; timers go by the clock as it is."""
        return max(now, self._departures[0]) if self._departures else now

    def _record_size(self, now: float) -> int:
        size = min(self._config.record_entries, len(self._encodings))
        if not self._config.record_span:
            return size
        young = next((i for i, left in enumerate(self._departures) if now - left > self._config.record_span), size)
        return min(size, max(1, young))

    def _header(self, sequence: int, encoding: int, size: int, now: float, control: Control | None = None) -> bytes:
        """A header whose record has `size` entries. Those written as differences begin with that to `encoding`."""
        ages = [max(0.0, now - left) for left in islice(self._departures, max(1, size))]
        entries = list(islice(self._written, size))
        if entries and self._shared:
            entries[0] = shared_entry(self._encodings[0], encoding, self._entry_bytes)
        flags = (SHARED if self._shared else 0) | (HEARTBEATS if self._config.heartbeat_interval else 0)
        return encode_header(sequence, now, ages, entries, flags=flags, entry_bytes=self._entry_bytes, control=control)

    def _remember(self, encoding: int, now: float) -> None:
        if self._shared and self._written:
            self._written[0] = shared_entry(self._encodings[0], encoding, self._entry_bytes)
        self._departures.appendleft(now)
        self._encodings.appendleft(encoding)
        self._written.appendleft(b"" if self._shared else whole_entry(encoding, self._entry_bytes))
