"""From a PublishRequest to an entry in the log of a pubend, and its answer.

State: publications that wait for the disk, by publishers who take turns (`publish_turns`); one batch of them that is
being written; the ids of what was stored. What comes first is written at once; what comes meanwhile goes together into
the next write, so the commits of a busy pubend are shared. Ticks are given when a batch is written. They answer when it
is on disk: each publication to all who asked for it under its id, and then the outlet learns of it, in the order of
ticks.

A write that fails leaves nothing: its ticks are silence, and its publishers may try again. If the lease does not reach
for a tick the queue waits until it is renewed, and is refused if it cannot be.

Congestion control may limit how many are written per second (`limit`): the others wait, and so do their publishers,
because nothing is acknowledged before it is on disk (001 section 3.1: acknowledgements are withheld). They are told so
(`wait_notices`), and that it is no reason to give up.

Bounds: `pending_bytes_max` for all that waits and is being written, of which a publisher has a share, `BATCH_MAX` and
`BATCH_BYTES_MAX` for one write, `ASKERS_MAX` who wait for one publication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from penstock.kernel.machine import Effect
from penstock.kernel.rate_estimator import RateEstimator
from penstock.kernel.storage import ENTRY_BYTES_MAX, Append, StorageFailed, StorageResult
from penstock.kernel.token_bucket import TokenBucket
from penstock.overlay.packets import BrokerId
from penstock.streams.log_codec import VERSION, LogEntry, encode
from penstock.streams.packets import STORED_MAX, PublishAnswer, PublishRequest, PublishStored, Tick
from penstock.streams.pubend_core import PubendCore
from penstock.streams.publication_ids import PublicationIds, content_digest
from penstock.streams.publish_limit import PublishLimit
from penstock.streams.publish_turns import Asker, PendingPublication, PublicationTurns
from penstock.streams.records import committed_record
from penstock.streams.timers import StreamTimer
from penstock.streams.wait_notices import WaitNotices

BATCH_MAX = 1_000
BURST_SECONDS = 0.1  # of the rate that may be written at once after a quiet moment
ARRIVALS_WINDOW = 1.0  # seconds over which arrivals are counted
BATCH_BYTES_MAX = 4 << 20
ASKERS_MAX = 16
MEAN_SHARE = 0.1  # of the newest message in the mean size


class PublishQueue:
    """Publications of one pubend that are not on disk yet."""

    def __init__(
        self,
        core: PubendCore,
        ids: PublicationIds,
        *,
        renew_lease: Callable[[float], list[Effect]],
        appended: Callable[[Tick, int, int, float], list[Effect]],
    ) -> None:
        self._core = core
        self._ids = ids
        self._renew_lease = renew_lease
        self._appended = appended  # (first tick, entries, bytes, now): the log has grown
        self._waiting = PublicationTurns()
        self._batch: Sequence[tuple[Tick, PendingPublication]] = ()
        self._by_id: dict[str, PendingPublication] = {}  # of both
        self.size_bytes = 0  # of both
        self.limited: PublishLimit | None = None
        self._allowance: TokenBucket | None = None  # None: no limit
        self._notices = WaitNotices(core)
        self._arrivals = RateEstimator(ARRIVALS_WINDOW)
        self.message_bytes = 0.0  # of those that came lately, on the mean

    def __len__(self) -> int:
        return len(self._waiting) + len(self._batch)

    def publish(self, packet: PublishRequest, reply_to: BrokerId, now: float, *, write: bool = True) -> list[Effect]:
        asker = (reply_to, packet.request)
        problem, again = self._core.refusal()
        if problem:
            return self._refuse(asker, problem, again, now)
        digest = content_digest(packet.message)
        repeated = self._repeated(packet, digest, asker, now)
        if repeated is not None:
            return repeated
        entry = encode(LogEntry(VERSION, packet.publication_id, packet.message, packet.key))
        if len(entry) > ENTRY_BYTES_MAX:
            return self._refuse(
                asker, f"the message has {len(entry)} bytes; the limit is {ENTRY_BYTES_MAX}", False, now
            )
        limit = self._core.config.pending_bytes_max
        publication = PendingPublication(packet.publication_id, digest, packet.message, entry, [asker], now)
        size_bytes, free_bytes = publication.size_bytes, limit - self.size_bytes
        if self.size_bytes and not self._waiting.has_room(publication.publisher, size_bytes, free_bytes):
            busy = f"{self.size_bytes} bytes wait for the disk of {self._core.name}"
            busy = f"{busy}; the limit pending_bytes_max is {limit}, of which each publisher has a share"
            return self._notices.told(self.limited, asker, now) + self._refuse(asker, busy, True, now)
        self._waiting.add(publication)
        self._arrivals.add(now)
        self.message_bytes += MEAN_SHARE * (len(entry) - self.message_bytes)
        self._by_id[publication.publication_id] = publication
        self.size_bytes += size_bytes
        effects = self.write(now) if write else []
        if self._allowance is not None and self._allowance.tokens(now) < len(self._waiting):
            effects += self._notices.added(self.limited, publication, len(self._waiting), now)
        return effects

    def write(self, now: float) -> list[Effect]:
        """Begin the next write, if there is none and something waits."""
        if self._batch or not self._waiting or not self._core.ready:
            return []
        count = self._allowed(min(len(self._waiting), BATCH_MAX), now)
        if not count:
            return []
        count = min(count, self._core.ticks.left(now=now))
        if not count:
            return self._renew_lease(now)
        taken = self._waiting.take(count, BATCH_BYTES_MAX)
        if self._allowance is not None:
            self._allowance.take(now, len(taken))
        self._batch = list(zip(self._core.ticks.give(len(taken), now=now), taken, strict=True))
        entries = tuple((tick, publication.entry) for tick, publication in self._batch)
        return self._core.disk.ask(Append(entries), self._written)

    def limit(self, limited: PublishLimit | None, now: float) -> list[Effect]:
        """From now on so many publications per second are written; the others wait. None: as many as come."""
        self.limited = limited
        rate = 0.0 if limited is None else limited.rate
        if limited is None:
            self._allowance = None
        elif self._allowance is None:
            self._allowance = TokenBucket(rate, max(1.0, BURST_SECONDS * rate), now)
        else:
            self._allowance.set_rate(rate, now, max(1.0, BURST_SECONDS * rate))
        return self.write(now)

    def offered(self, now: float) -> float:
        """Publications per second that publishers would send; infinite if some wait for the limit, not for the disk."""
        limited = self._allowance is not None and len(self._waiting) > self._allowance.tokens(now)
        return inf if limited else self._arrivals.rate(now)

    def arrivals(self, now: float) -> float:
        """Publications per second that came lately."""
        return self._arrivals.rate(now)

    def report(self) -> dict[str, Any]:
        """What waits, since when, and why, as plain data."""
        limited = None if self.limited is None else self.limited.report()
        return {"waiting": len(self), "waiting_since": self.oldest(), "limit": limited}

    def oldest(self) -> float | None:
        """When the publication came that has waited longest; None if none waits."""
        return self._waiting.oldest()

    def tell_waiting(self, now: float) -> list[Effect]:
        """Whoever waits hears that it is not forgotten."""
        return self._notices.tell_all(self.limited, self._waiting, now)

    def _allowed(self, count: int, now: float) -> int:
        """How many of these may be written now; if none may, the timer says when."""
        if self._allowance is None:
            return count
        tokens = int(self._allowance.tokens(now))
        if not tokens:
            self._core.set_timer(StreamTimer.PUBEND_SHAPE, self._allowance.ready_at())
        return min(count, tokens)

    def refuse_waiting(self, problem: str, again: bool, now: float) -> list[Effect]:
        """Nothing that waits will be written; what is being written is not touched."""
        effects: list[Effect] = []
        for publication in self._waiting.take(len(self._waiting), self.size_bytes):
            effects += self._end(publication, PublishAnswer(0, self._core.name, 0, problem, again), now)
        return effects

    def _repeated(self, packet: PublishRequest, digest: bytes, asker: Asker, now: float) -> list[Effect] | None:
        """What to do with an id that is known, or too old to be; None: it is a new one."""
        if not packet.publication_id:
            return None
        stored = self._ids.find(packet.publication_id)
        waiting = self._by_id.get(packet.publication_id)
        if stored is None and waiting is None:
            self._core.ticks.clock.read(now)
            if self._ids.reach_back(packet.age, self._core.ticks.clock.elapsed):
                return None
            problem = (
                f"it was first tried {packet.age:.0f} s ago, and {self._core.name} does not know the publication ids of"
                " that time any more"
            )
            answer = PublishAnswer(asker[1], self._core.name, 0, problem, False, True)
            return self._core.send(asker[0], answer, now)
        if digest != (stored.digest if stored else waiting.digest if waiting else b""):
            problem = f"the publication_id '{packet.publication_id}' was used for another message; choose another one"
            return self._refuse(asker, problem, False, now)
        if stored is not None:
            return self._core.send(asker[0], PublishAnswer(asker[1], self._core.name, stored.tick), now)
        assert waiting is not None
        return self._join(waiting, asker, now)

    def _join(self, waiting: PendingPublication, asker: Asker, now: float) -> list[Effect]:
        """One more waits for the same publication."""
        if asker in waiting.askers:
            return []
        waiting.askers.append(asker)
        effects = self._notices.told(self.limited, asker, now)
        if len(waiting.askers) <= ASKERS_MAX:
            return effects
        return effects + self._refuse(
            waiting.askers.pop(0), "it is being written, and was asked for again since", True, now
        )

    def _written(self, result: StorageResult, now: float) -> list[Effect]:
        batch, self._batch = self._batch, ()
        self._core.ticks.settled()
        if isinstance(result, StorageFailed):
            return self._not_written(batch, result, now)
        core = self._core
        self._core.ticks.clock.read(now)
        ids = [(publication.publication_id, publication.digest, tick) for tick, publication in batch]
        self._ids.add_all(ids, core.ticks.clock.elapsed)
        effects = self.write(now)
        told: dict[BrokerId, list[tuple[int, Tick]]] = {}
        for tick, publication in batch:
            if core.traced:
                effects.append(committed_record(core.name, core.epoch, tick, publication.message))
            self._forget(publication)
            for broker, request in publication.askers:
                told.setdefault(broker, []).append((request, tick))
        for broker, stored in told.items():
            effects += self._tell_stored(broker, stored, now)
        size_bytes = sum(len(publication.entry) for _, publication in batch)
        effects += self._appended(batch[0][0], len(batch), size_bytes, now)
        items = [(tick, publication.message) for tick, publication in batch]
        return effects + core.committed(items, now)

    def _not_written(
        self, batch: Sequence[tuple[Tick, PendingPublication]], failure: StorageFailed, now: float
    ) -> list[Effect]:
        effects = self._core.failed(failure)
        problem = self._core.problem or f"{self._core.name} could not store it: {failure.problem}"
        again = not self._core.problem
        for _, publication in batch:
            effects += self._end(publication, PublishAnswer(0, self._core.name, 0, problem, again), now)
        return effects + self.write(now)

    def _end(self, publication: PendingPublication, answer: PublishAnswer, now: float) -> list[Effect]:
        """It does not wait any more; all who asked get the answer."""
        self._forget(publication)
        effects: list[Effect] = []
        for broker, request in publication.askers:
            told = PublishAnswer(request, answer.pubend, answer.tick, answer.problem, answer.again)
            effects += self._core.send(broker, told, now)
        return effects

    def _forget(self, publication: PendingPublication) -> None:
        self.size_bytes -= publication.size_bytes
        if self._by_id.get(publication.publication_id) is publication:
            del self._by_id[publication.publication_id]

    def _tell_stored(self, broker: BrokerId, stored: Sequence[tuple[int, Tick]], now: float) -> list[Effect]:
        """What was written together is answered together."""
        core = self._core
        if len(stored) == 1:
            return core.send(broker, PublishAnswer(stored[0][0], core.name, stored[0][1]), now)
        return [
            effect
            for at in range(0, len(stored), STORED_MAX)
            for effect in core.send(broker, PublishStored(core.name, tuple(stored[at : at + STORED_MAX])), now)
        ]

    def _refuse(self, asker: Asker, problem: str, again: bool, now: float) -> list[Effect]:
        return self._core.send(asker[0], PublishAnswer(asker[1], self._core.name, 0, problem, again), now)
