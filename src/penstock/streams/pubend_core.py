"""What the parts of a pubend share: who it is, its ticks, its disk, and whom it tells.

The parts are the opening, the publish queue, the durable names with their sessions, retention and the commands. Each
asks the disk through `PubendDisk` and is called back with the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from penstock.kernel.machine import Effect
from penstock.kernel.storage import Operation, ServiceStorage, StorageFailed, StorageResult, Ticket
from penstock.kernel.timers import ServiceTimers
from penstock.kernel.trace import TraceSwitch
from penstock.overlay.packets import BrokerId
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import Item, Payload, Tick, pubend_name
from penstock.streams.pubend_clock import TickSource
from penstock.streams.records import PubendStopped
from penstock.streams.timers import StreamTimer

Then = Callable[[StorageResult, float], list[Effect]]
Send = Callable[[BrokerId, Payload, float], list[Effect]]
Committed = Callable[[Sequence[Item], float], list[Effect]]
GoneMoved = Callable[[float], list[Effect]]


class PubendDisk:
    """The pubend's area of storage: each answer goes to the part that asked."""

    def __init__(self, storage: ServiceStorage, log: str) -> None:
        self._storage = storage
        self._log = log
        self._asked: dict[Ticket, Then] = {}
        self.closed = False  # it is being deleted: nothing more is written, and nobody waits for it

    def ask(self, operation: Operation, then: Then) -> list[Effect]:
        if self.closed:
            return []
        question = self._storage.ask(operation, self._log)
        self._asked[question.ticket] = then
        return [question]

    def answered(self, ticket: Ticket) -> Then | None:
        """Who waits for this; None if it was not asked here."""
        return self._asked.pop(ticket, None)


class PubendCore:
    """The shared state of one pubend."""

    def __init__(
        self,
        stream: str,
        number: int,
        of: int,
        *,
        storage: ServiceStorage,
        config: StreamsConfig,
        timers: ServiceTimers,
        random: Random,
        send: Send,
        committed: Committed,
        gone_moved: GoneMoved,
        traced: TraceSwitch | bool,  # whether anybody keeps records
    ) -> None:
        self.stream = stream
        self.number = number
        self.of = of
        self.name = pubend_name(stream, number)
        self.epoch = 0
        self.ready = False
        self.doing = "is opening"  # while it is not ready
        self.problem = ""
        self.gone: Tick = 0
        self.config = config
        self.random = random
        self.send = send
        self.committed = committed
        self.gone_moved = gone_moved
        self.traced = traced
        self.ticks = TickSource(config.lease)
        self.disk = PubendDisk(storage, self.name)
        self._timers = timers

    def set_timer(self, timer: StreamTimer, at: float) -> None:
        self._timers.set(timer, at, self.name)

    def cancel_timers(self) -> None:
        for timer in StreamTimer:
            if timer.name.startswith("PUBEND_") and timer is not StreamTimer.PUBEND_SILENCE:
                self._timers.cancel(timer, self.name)

    def stop(self, problem: str) -> list[Effect]:
        """Serve nobody any more, for this reason. Nothing on disk is changed."""
        if self.problem:
            return []
        self.problem = problem
        self.ready = False
        return [PubendStopped(self.name, problem)]

    def failed(self, result: StorageFailed) -> list[Effect]:
        """The disk could not do something: damage stops the pubend, all else may pass."""
        return self.stop(f"{self.name} is damaged: {result.problem}") if result.damaged else []

    def refusal(self) -> tuple[str, bool]:
        """Why it serves nobody now, and whether that may pass; an empty text if it serves."""
        if self.problem:
            return self.problem, False
        return ("", False) if self.ready else (f"{self.name} {self.doing}", True)
