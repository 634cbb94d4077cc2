"""For tests of stores, whatever they store in: ask, and compare with the store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Generic, TypeVar

from live_help import until
from penstock.kernel.memory_store import MemoryStore
from penstock.kernel.storage import (
    READ_MAX,
    Append,
    Ask,
    Drop,
    Extent,
    Get,
    Measure,
    Names,
    Operation,
    Put,
    Read,
    StorageResult,
    Trim,
)
from penstock.live.store.group_commit import Answered, Answers, GroupCommit

ALL = Read(1, 1 << 60, READ_MAX)
AnyStore = TypeVar("AnyStore", bound=GroupCommit)


class Asker(Generic[AnyStore]):
    """Asks a store, and keeps what it answers."""

    def __init__(self, opened: Callable[[Answered], AnyStore]) -> None:
        self.answers: Answers = []
        self.store = opened(lambda ticket, result: self.answers.append((ticket, result)))
        self._ticket = self._key = 0

    def ask(self, operation: Operation, area: str = "toy") -> int:
        self._ticket += 1
        self.store.ask(Ask(self._ticket, area, operation))
        return self._ticket

    def append(self, *entries: bytes) -> Append:
        """With the next keys."""
        first = self._key + 1
        self._key += len(entries)
        return Append(tuple(enumerate(entries, start=first)))

    async def answered(self, operation: Operation, area: str = "toy") -> StorageResult:
        ticket = self.ask(operation, area)
        await until(lambda: bool(self.answers) and self.answers[-1][0] == ticket)
        return self.answers[-1][1]


@asynccontextmanager
async def an_asker(opened: Callable[[Answered], AnyStore]) -> AsyncIterator[Asker[AnyStore]]:
    asker = Asker(opened)
    try:
        yield asker
    finally:
        asker.store.close()


def random_operation(random: Random, key: int) -> Operation:
    names = ("a", "b", "a name with spaces", "ü\0")
    match random.randrange(9):
        case 0 | 1:
            keys = sorted(random.randrange(key, key + 10) for _ in range(random.randrange(4)))
            return Append(tuple((one, random.randbytes(random.randrange(4))) for one in keys))
        case 2:
            ends = (-3, 0, random.randrange(key + 1), random.randrange(key + 1), 2**80)
            return Read(random.choice(ends), random.choice(ends), random.choice((-1, 0, 1, 3, 2**80)))
        case 3:
            return Trim(random.choice((-3, random.randrange(key + 5), random.randrange(key + 1), 2**80)))
        case 4:
            return Put(random.choice(names), random.randbytes(random.randrange(4)))
        case 5 if random.random() < 0.5:
            return Extent()
        case 5:
            ends = (-3, 0, random.randrange(key + 1), random.randrange(key + 1), 2**80)
            most = (-1, 0, 1, 5, 2**80)
            first, last = random.choice(ends), random.choice(ends)
            return Measure(first, last, random.choice(most), random.choice(most), random.choice((-1, 1, 3, 2**80)))
        case 6:
            return Names()
        case 7 if random.random() < 0.1:
            return Drop()
        case _:
            return Get(random.choice(names))


async def answers_like_memory(opened: Callable[[], AbstractAsyncContextManager[Asker[AnyStore]]], seed: int) -> None:
    """Whatever is asked, also when it is opened again."""
    random, memory = Random(seed), MemoryStore()
    for _ in range(4):
        async with opened() as store:
            expected = []
            for number in range(200):
                operation, area = random_operation(random, number), random.choice(("one", "two"))
                expected.append((store.ask(operation, area), memory.carry_out(area, operation)))
            await until(lambda: len(store.answers) == 200)
            assert store.answers == expected
