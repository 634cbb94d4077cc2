"""A pubend at random: slow and full disks, clocks that step, crashes between any two operations of the disk.

After every step: what was answered is on disk once, under the tick that was told; no tick below a horizon that was told
changes; no id is stored twice; nothing that a name needs is trimmed; no confirmed position is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from penstock.content.message import Message
from penstock.kernel.machine import Effect
from penstock.kernel.storage import Append, Operation, Put, StorageFailed, Trim
from penstock.overlay.packets import BrokerId
from penstock.streams.config import StreamsConfig
from penstock.streams.packets import (
    Item,
    Payload,
    ProgressStored,
    PublishAnswer,
    PublishStored,
    Registered,
    SessionEnded,
    Tick,
)
from penstock.streams.pubend import Pubend
from penstock.testing.pump import a_message
from pubend_bench import FULL, PubendBench

SEEDS = 300
STEPS = 80
NAMES = ("a", "b", "c")


class Attempt:
    """A publication of the test: one id, one message, any number of tries."""

    def __init__(self, publication_id: str, message: Message, began: float) -> None:
        self.publication_id = publication_id
        self.message = message
        self.began = began
        self.outstanding: list[int] = []  # requests without an answer
        self.lost = False  # a try that a crash left without an answer
        self.tick: Tick = 0  # as it was answered


class Reader:
    """What the test knows of one durable name."""

    def __init__(self) -> None:
        self.session = 0
        self.confirmed: Tick = 0  # it can never be below this again
        self.asked: Tick = 0  # nothing above this may be trimmed
        self.exists = False
        self.went_below = False  # it went back to a position after which something may be gone


class RandomLife(PubendBench):
    """A bench that drives itself and checks every step."""

    def __init__(self, seed: int) -> None:
        self.choose = Random(seed)
        self.real = 0.0  # seconds, whatever the clock says
        self.publications = 0
        self.attempts: list[Attempt] = []
        self.by_request: dict[int, Attempt] = {}
        self.registering: dict[int, tuple[str, Tick]] = {}
        self.readers = {name: Reader() for name in NAMES}
        self.told: Tick = 0
        self.settled: dict[Tick, str] = {}  # all that was ever on disk up to `told`
        self.places: dict[str, Tick] = {}  # of every id that was ever on disk
        self.trimmed_upto: Tick = 0
        config = StreamsConfig(
            lease=self.choose.choice((0.5, 2.0, 10.0)),
            history=self.choose.choice((0.1, 3.0)),
            ids_window=1e3,
            session_lease=3.0,
            pending_bytes_max=self.choose.choice((500, 100_000)),
        )
        super().__init__(config, seed=seed)
        self.hold = True

    # What it does.

    def step(self) -> None:
        kinds = [
            *((self.publish_new, 6), (self.publish_again, 4), (self.disk_answers, 12), (self.time_passes, 5)),
            *(
                (self.clock_steps, 1),
                (self.a_reader_begins, 2),
                (self.a_reader_comes_back, 1),
                (self.a_reader_progresses, 4),
                (self.a_slice, 2),
            ),
            *((self.a_crash, 1), (self.the_disk_changes, 1), (self.ids_expire, 2)),
        ]
        self.choose.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]()
        self.look()

    def publish_new(self) -> None:
        self.publications += 1
        number = self.publications
        attempt = Attempt(f"id{number}", a_message(number), self.real)
        self.attempts.append(attempt)
        self.try_it(attempt)

    def publish_again(self) -> None:
        if self.attempts:
            self.try_it(self.choose.choice(self.attempts[-8:]))

    def try_it(self, attempt: Attempt) -> None:
        request = self.requests + 1
        self.by_request[request] = attempt
        attempt.outstanding.append(request)
        self.publish(attempt.publication_id, attempt.message, age=self.real - attempt.began)

    def disk_answers(self) -> None:
        self.answer(self.choose.choice((1, 1, 2, 5)))

    def time_passes(self) -> None:
        seconds = self.choose.choice((0.001, 0.1, 1.0, 4.0))
        self.real += seconds
        self.advance(seconds)

    def clock_steps(self) -> None:
        self.now += self.choose.choice((-100.0, -1.0, 5.0, 100.0))
        self.wake()

    def ids_expire(self) -> None:
        """Let trims happen: after this, nobody asks again for what was published before."""
        self.attempts.clear()
        for _ in range(self.choose.choice((0, 150))):
            self.real += 9.0
            self.now += 9.0
            self.pubend.horizon(self.now)
            self.wake()

    def a_reader_begins(self) -> None:
        name = self.choose.choice(NAMES)
        reader = self.readers[name]
        position = -1
        if self.choose.random() < 0.3:
            position = self.choose.choice((reader.confirmed, reader.asked, self.told, self.pubend.gone))
        elif self.choose.random() < 0.2:
            reader.confirmed = min(reader.confirmed, 10**9)
            position = min(reader.confirmed, 10**9)
        if position >= 0:
            reader.went_below = reader.went_below or position < max(self.pubend.gone, reader.asked)
            reader.asked = max(reader.asked, position)
        if position >= 0 and reader.exists:
            reader.confirmed = min(reader.confirmed, position)
        request = self.requests + 1
        self.registering[request] = (name, position)
        self.register(
            name,
            start=self.choose.choice(("earliest", "latest")),
            position=position,
            reader=f"r{request}",
            takeover=True,
        )

    def a_reader_comes_back(self) -> None:
        """It presents what it has got; the name stays where it is."""
        name = self.choose.choice(NAMES)
        if self.readers[name].exists:
            request = self.requests + 1
            self.registering[request] = (name, -1)
            position = self.choose.choice((0, self.readers[name].asked, self.told))
            self.register(name, position=position, reader=f"r{request}", takeover=True, rewind=False)

    def a_reader_progresses(self) -> None:
        name = self.choose.choice(NAMES)
        reader = self.readers[name]
        if reader.session:
            tick = self.choose.choice((self.told, *list(self.settled)[-5:]))
            reader.asked = max(reader.asked, tick)
            self.progress(name, reader.session, tick)

    def a_slice(self) -> None:
        first = self.choose.choice((1, self.pubend.gone + 1, max(1, self.told - 10**6)))
        self.run(
            self.pubend.read(first, self.told + 10**6, count=self.choose.choice((1, 3, 100)), token=1, now=self.now)
        )

    def a_crash(self) -> None:
        for attempt in self.attempts:
            attempt.lost = attempt.lost or bool(attempt.outstanding)
            attempt.outstanding.clear()
        for name, position in self.registering.values():
            if position >= 0:
                self.readers[name].confirmed = min(self.readers[name].confirmed, position)
        self.registering.clear()
        self.by_request.clear()
        for reader in self.readers.values():
            reader.session = 0
        seconds = self.choose.choice((0.0, 1.0, 20.0))
        self.real += seconds
        self.restart(carried_out=self.choose.randint(0, len(self.held)), after=seconds)

    def the_disk_changes(self) -> None:
        kinds = self.choose.choice(((), (), (Append,), (Put,), (Append, Put, Trim)))

        def fails(operation: Operation) -> StorageFailed | None:
            return FULL if isinstance(operation, kinds) else None

        self.failing = fails

    # What it hears.

    def send_to(self, broker: BrokerId, payload: Payload, *, now: float) -> list[Effect]:
        match payload:
            case PublishAnswer():
                self.publish_answered(payload)
            case PublishStored():
                for request, tick in payload.stored:
                    self.publish_answered(PublishAnswer(request, payload.pubend, tick))
            case Registered():
                self.register_answered(payload)
            case ProgressStored():
                for _, session, tick in payload.done:
                    (reader,) = (one for one in self.readers.values() if one.session == session)
                    reader.confirmed = max(reader.confirmed, tick)
            case SessionEnded():
                reader = self.readers[payload.name]
                if payload.session == reader.session:
                    reader.session = 0
        return []

    def publish_answered(self, answer: PublishAnswer) -> None:
        attempt = self.by_request.pop(answer.request)
        if answer.request in attempt.outstanding:
            attempt.outstanding.remove(answer.request)
        if answer.problem:
            assert answer.again, answer.problem
            assert not attempt.tick or "opening" in answer.problem, "it was stored, and is refused now"
            return
        assert attempt.tick in (0, answer.tick)
        attempt.tick = answer.tick
        assert self.on_disk(answer.tick, attempt.publication_id)

    def on_disk(self, tick: Tick, publication_id: str) -> bool:
        return tick <= self.pubend.gone or (tick, publication_id) in [(at, e.publication_id) for at, e in self.log()]

    def register_answered(self, answer: Registered) -> None:
        name, position = self.registering.pop(answer.request)
        reader = self.readers[name]
        if answer.problem:
            return
        reader.session = answer.session
        if position < 0 and reader.exists:
            assert answer.position >= answer.done >= reader.confirmed
            assert not answer.gone_from or reader.went_below, "something is missing that was never acknowledged"
        if position >= 0:
            assert max(position, self.pubend.gone) == answer.position
        if position >= 0 or not reader.exists:  # an unanswered reader before it may have presented a position
            reader.went_below = reader.went_below or answer.gone_from > 0
        known = position < 0 and reader.exists
        reader.confirmed = answer.done
        floor = answer.position if answer.gone_from else answer.done  # a gap is told, so nobody waits for it
        reader.asked = max(floor, reader.asked) if known else floor
        reader.exists = True

    def slice_read(
        self, pubend: Pubend, token: int, first: Tick, upto: Tick, items: Sequence[Item], *, now: float
    ) -> list[Effect]:
        here = [tick for tick, _ in self.log() if first <= tick <= upto]
        assert [tick for tick, _ in items] == here
        return []

    # What must hold.

    def look(self) -> None:
        log = {tick: entry.publication_id for tick, entry in self.log()}
        ids = list(log.values())
        assert len(ids) == len(set(ids)), "an id is stored twice"
        for tick, publication_id in log.items():
            assert self.places.setdefault(publication_id, tick) == tick, "an id is stored again"
            assert tick > self.told or self.settled.get(tick) == publication_id, "silence has turned into data"
        gone = self.pubend.gone
        for tick in self.settled:
            if tick not in log and tick > self.trimmed_upto:
                assert tick <= gone or not self.pubend.ready, "data have vanished"
                self.nobody_needs(tick)
        assert gone >= self.trimmed_upto or not self.pubend.ready, "what was gone has come back"
        self.trimmed_upto = max(self.trimmed_upto, gone)
        horizon = self.pubend.horizon(self.now)
        assert horizon >= self.told or not self.pubend.ready, "the horizon has gone back"
        self.told = max(self.told, horizon)
        self.settled.update({tick: publication_id for tick, publication_id in log.items() if tick <= self.told})
        assert self.pubend.problem == ""
        for attempt in self.attempts:
            refused = not attempt.tick and not attempt.outstanding and not attempt.lost
            assert not refused or attempt.publication_id not in ids, "it was refused, and is stored"

    def nobody_needs(self, tick: Tick) -> None:
        for name, reader in self.readers.items():
            assert not reader.exists or tick <= reader.asked, f"'{name}' needs what was trimmed"

    def heal(self) -> None:
        """Everything works again: whatever is tried again is stored, once."""
        self.failing = lambda operation: None
        self.hold = False
        self.answer()
        self.advance(2.0)
        self.look()
        for attempt in self.attempts:
            self.try_it(attempt)
            assert attempt.tick
        self.look()
        for name, reader in self.readers.items():
            request = self.requests + 1
            self.registering[request] = (name, -1)
            self.register(name, reader=f"r{request}", takeover=True)
            assert reader.session
        assert self.pubend.status().waiting == 0
        assert self.pubend.status().waiting_bytes == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_nothing_answered_is_lost(seed: int) -> None:
    life = RandomLife(seed)
    try:
        for _ in range(STEPS):
            life.step()
        life.heal()
    except AssertionError as error:
        replay = f"pytest 'tests/unit/streams/test_pubend_crashes.py::{REPLAYED}[{seed}]'"
        raise AssertionError(f"{error}\nreplay: {replay}") from error


REPLAYED = test_whatever_happens_nothing_answered_is_lost.__name__
