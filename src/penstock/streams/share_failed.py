"""What was tried too often moves to another stream, one message after the other.

A message is read from the log and published to the stream that the name was given, with its attributes and body, and
attributes that say where it comes from. Its publication_id is made of its place, so however often that is tried, it is
stored once (as long as that stream knows the id). When it is stored it is done with here, and not before. If it cannot
be stored, the reason stands in the report of the name, and it is tried again after a pause. What cannot be a message
with more attributes than it has stays where it is.

State: one message that is under way. Bound: one.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Protocol

from penstock.content.message import Identity, Message, make_message
from penstock.errors import InvalidMessage
from penstock.kernel.machine import Effect
from penstock.kernel.packet import CLIENT_NAME_BYTES_MAX
from penstock.kernel.storage import Entries, Read, StorageFailed, StorageResult
from penstock.streams.log_codec import UnreadableEntry, decode_messages
from penstock.streams.packets import PublishAnswer, Tick
from penstock.streams.pubend_core import PubendCore
from penstock.streams.share_window import ShareWindow

PAUSE_FIRST = 0.5  # seconds, doubled each time
PAUSE_MAX = 8.0
ANSWER_WITHIN = 5.0  # seconds; then it is tried again

Answered = Callable[[PublishAnswer, float], list[Effect]]
StoreElsewhere = Callable[[str, str, str, Message, Answered, float], list[Effect]]  # stream, key, publication_id, ...


class Failing(Protocol):
    """A shared name, as far as its mover needs it."""

    name: str
    failed_stream: str
    window: ShareWindow

    def pump(self, now: float) -> list[Effect]:
        """Something is done with."""


class FailedMover:
    """Moves the failed messages of one shared name."""

    def __init__(self, core: PubendCore, shared: Failing, store: StoreElsewhere) -> None:
        self.moved = 0
        self.problem = ""
        self._core = core
        self._shared = shared
        self._store = store
        self._moving: Tick = 0  # 0: none
        self._tried = 0  # which try an answer belongs to
        self._not_before = 0.0
        self._pause = PAUSE_FIRST
        self._skipped: dict[Tick, None] = {}  # what cannot be moved

    def start(self, now: float) -> list[Effect]:
        """Begin with the next one, if it is time."""
        at, failed = self._core.ticks.clock.elapsed, self._shared.window.failed
        if not self._shared.failed_stream or at < self._not_before:
            return []
        tick = next((tick for tick in failed if tick > self._core.gone and tick not in self._skipped), 0)
        if not tick:
            return []
        self._moving = tick
        self._tried += 1
        self._not_before = at + ANSWER_WITHIN
        tried = self._tried

        def read(result: StorageResult, now: float) -> list[Effect]:
            return self._read(result, now) if tried == self._tried else []

        return self._core.disk.ask(Read(tick, tick, 1), read)

    def _read(self, result: StorageResult, now: float) -> list[Effect]:
        if not isinstance(result, Entries):
            assert isinstance(result, StorageFailed)
            return self._core.failed(result) + self._later(result.problem)
        try:
            items = decode_messages(result.entries)
        except UnreadableEntry as error:
            return self._core.stop(f"{self._core.name}: {error}")
        if not items or self._moving not in self._shared.window.failed:
            return self._later("" if items else f"{self._core.name} has nothing at {self._moving}")
        tried = self._tried

        def answered(answer: PublishAnswer, now: float) -> list[Effect]:
            return self._answered(answer, now) if tried == self._tried and self._moving else []

        try:
            message = self._marked(*items[0])
        except InvalidMessage as error:
            self._skipped = {tick: None for tick in self._skipped if tick in self._shared.window.failed}
            self._skipped[self._moving] = None
            return self._later(f"the message at {self._moving} cannot be marked: {error}")
        name = f"{self._core.name} {self._core.epoch} {self._moving} {self._shared.name}"
        chosen = blake2b(name.encode(), digest_size=16).hexdigest()
        return self._store(self._shared.failed_stream, self._core.name, chosen, message, answered, now)

    def _marked(self, tick: Tick, message: Message) -> Message:
        """The message, and where it comes from."""
        attributes = {
            **message.attributes,
            "failed_stream": self._core.stream,
            "failed_durable": self._shared.name,
            "failed_pubend": self._core.name,
            "failed_tick": tick,
            "failed_attempts": self._shared.window.failed[tick].attempts,
            "failed_publisher": message.identity.publisher,
        }
        publisher = f"{self._core.name}:{self._shared.name}".encode()[:CLIENT_NAME_BYTES_MAX].decode(errors="ignore")
        identity = Identity(publisher, self._core.epoch, tick)
        return make_message(identity, attributes, message.body, reserved=True)

    def _answered(self, answer: PublishAnswer, now: float) -> list[Effect]:
        if answer.problem:
            return self._later(f"the stream '{self._shared.failed_stream}': {answer.problem}")
        self._shared.window.drop_failed((self._moving,))
        self.moved += 1
        self.problem = ""
        self._moving, self._not_before, self._pause = 0, 0.0, PAUSE_FIRST
        return self._shared.pump(now)

    def _later(self, problem: str) -> list[Effect]:
        self.problem = problem
        self._moving = 0
        self._not_before = self._core.ticks.clock.elapsed + self._pause
        self._pause = min(PAUSE_MAX, 2 * self._pause)
        return []
