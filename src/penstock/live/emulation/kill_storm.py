"""A storm of kills: brokers as processes, a stream under load, and `kill -9` at random moments.

Five brokers: two have a pubend of the stream each, two stand in the middle, one at the edge has most of the clients.
Every link goes over a link emulator, so that it can be cut; one of them is made of datagrams, and loses some. What
strikes, and when, is drawn from the seed:

    kill        one broker, pubend or relay or edge, ends with SIGKILL and is started again
    kill all    all of them at once
    stop        one stands still for a while (SIGSTOP, SIGCONT): it is not dead, and its connections are open
    cut         a link carries nothing for a while

After the last one everything heals, publishers wait for their answers, readers for all that is stored; then the same
checkers as in the simulator judge what the applications saw. Real time does not repeat itself: a seed gives the same
blows in the same order, not the same run.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from penstock.kernel.randomness import generator
from penstock.live.broker.plan import assign_addresses
from penstock.live.broker.supervisor import Brokers
from penstock.live.emulation.kill_clients import Facts, StormPublisher, StormReader
from penstock.live.emulation.link_emulator import Impairment, LinkEmulator
from penstock.live.emulation.scenario_run import settled
from penstock.scenario.spec import BrokerSpec, LinkSpec, Scenario, StreamSpec
from penstock.scenario.stream_checkers import STREAM_CHECKERS, StreamChecker

STREAM = "orders"
PUBENDS, RELAYS, EDGES = ("bank", "market"), ("north", "south"), ("harbour",)
CHECKED = ("stream-once", "stream-true", "stream-in-force", "stream-positions", "stream-converges")
LOSS = 0.05  # of the link that is made of datagrams
HEAL_WITHIN = 60.0  # seconds for everything to be read in the end
PAUSE_MEAN = 0.4  # seconds between two blows
STILL_MEAN = 1.0  # seconds that a broker stands still, or a link is cut
BLOWS = ("kill",) * 6 + ("kill all",) + ("stop",) * 2 + ("cut",) * 2


def kill_scenario() -> Scenario:
    """The network that is struck."""
    pairs = [(end, relay) for end in (*PUBENDS, *EDGES) for relay in RELAYS]
    links = [LinkSpec(between=pair, kind="reliable") for pair in pairs]
    links[0] = LinkSpec(between=pairs[0], kind="datagram", loss=LOSS)
    return Scenario(
        name="kills",
        broker=tuple(BrokerSpec(name=name) for name in (*PUBENDS, *RELAYS, *EDGES)),
        link=tuple(links),
        stream=(StreamSpec(name=STREAM, at=PUBENDS),),
    )


@dataclass
class KillResult:
    """What came of a storm of kills."""

    seed: int
    blows: Counter[str] = field(default_factory=Counter)
    kills: int = 0  # processes that were killed
    stored: int = 0  # messages whose publishers were told so
    read: int = 0  # messages, by all readers together
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


async def kill_storm(
    seed: int, kills: int, *, rate: float = 100.0, progress: Callable[[float], None] | None = None
) -> KillResult:
    """Let so many brokers be killed, heal, and judge."""
    began = time.monotonic()
    result = KillResult(seed)
    scenario = kill_scenario()
    checkers = [STREAM_CHECKERS[name](scenario) for name in CHECKED]
    facts = Facts(checkers)
    async with AsyncExitStack() as stack:
        storm = await _KillStorm(scenario, seed, result, stack).open()
        publishers, readers = storm.clients(facts, rate)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        reading = [group.create_task(reader.run()) for reader in readers]
        publishing = [group.create_task(publisher.run()) for publisher in publishers]
        while result.kills < kills:
            await storm.strike()
            if progress is not None:
                progress(result.kills / kills)
        await storm.heal()
        for publisher in publishers:
            publisher.stop()
        await asyncio.gather(*publishing)
        for reader in readers:
            reader.stop_crashing()
        book = next(checker.book for checker in checkers if isinstance(checker, StreamChecker))
        await _until_read(lambda: all(name.has(*at) for name in book.names.values() for at in _due(book, name)))
        for task in reading:
            task.cancel()
    for checker in checkers:
        checker.finish()
    result.problems = [problem for checker in checkers for problem in checker.problems]
    result.stored, result.read, result.seconds = facts.stored, facts.read, time.monotonic() - began
    return result


async def _until_read(holds: Callable[[], bool]) -> None:
    """Wait for all that is stored; if it does not come, the checkers say what is missing."""
    until = time.monotonic() + HEAL_WITHIN
    while not holds() and time.monotonic() < until:
        await asyncio.sleep(0.1)


def _due(book: Any, name: Any) -> list[tuple[str, int]]:
    return [(pubend, tick) for pubend, tick, _ in book.due(name)]


class _KillStorm:
    """The brokers, their links, and what strikes them."""

    def __init__(self, scenario: Scenario, seed: int, result: KillResult, stack: AsyncExitStack) -> None:
        self._scenario = scenario
        self._seed = seed
        self._result = result
        self._stack = stack
        self._random = generator(seed, "kills")
        self._names = [broker.name for broker in scenario.broker]
        self._links: list[LinkEmulator] = []
        self._healing: set[asyncio.Task[None]] = set()

    async def open(self) -> _KillStorm:
        """Start the brokers; returns when they agree on the map."""
        data = Path(self._stack.enter_context(TemporaryDirectory(prefix="penstock-")))
        addresses = assign_addresses(self._scenario, base_port=None)
        via = {}
        for link in self._scenario.link:
            dialer, dialled = link.between
            impairment = Impairment(loss=link.loss)
            emulator = LinkEmulator(addresses[dialled], impairment, seed=self._seed, name=f"{dialer}-{dialled}")
            via[dialer, dialled] = (await self._stack.enter_async_context(emulator)).address
            self._links.append(emulator)
        self._brokers = await self._stack.enter_async_context(Brokers(self._scenario, addresses, via=via, data=data))
        await settled(addresses, self._scenario)
        return self

    def clients(self, facts: Facts, rate: float) -> tuple[list[StormPublisher], list[StormReader]]:
        """Those who use the stream meanwhile."""

        def made(name: str) -> tuple[str, str, Callable[[], str], Facts, Random]:
            random = generator(self._seed, name)
            return name, STREAM, lambda: self._url(random), facts, random

        publishers = [StormPublisher(*made(name), rate=rate / 2) for name in ("writer", "author")]
        readers = [
            StormReader(*made("keeper"), where="TRUE", way="keep", life=3.0),
            StormReader(*made("confirmer"), where="kind = 'a'", way="confirm", life=3.0),
            StormReader(*made("steady"), where="kind = 'b' OR number < 10", way="steady", life=0.0),
        ]
        return publishers, readers

    def _url(self, random: Random) -> str:
        """Some brokers, in some order."""
        some = random.sample(self._names, 3)
        return f"penstock://{','.join(str(self._brokers.addresses[name]) for name in some)}"

    async def strike(self) -> None:
        """Wait a moment, and strike."""
        await asyncio.sleep(self._random.expovariate(1.0 / PAUSE_MEAN))
        blow, name = self._random.choice(BLOWS), self._random.choice(self._names)
        link, still = self._random.choice(self._links), self._random.expovariate(1.0 / STILL_MEAN)
        if blow == "kill":
            await self._kill([name])
        elif blow == "kill all":
            await self._kill(self._names)
        elif blow == "stop" and self._brokers.is_up(name):
            self._brokers.send_signal(name, signal.SIGSTOP)
            self._later(still, lambda: self._brokers.send_signal(name, signal.SIGCONT))
        elif blow == "cut" and not link.severed:
            link.sever()
            self._later(still, link.mend)
        else:
            return
        self._result.blows[blow] += 1

    async def _kill(self, names: list[str]) -> None:
        """Kill those that run; one that is being started again is not counted."""
        running = [name for name in names if self._brokers.is_up(name)]
        await asyncio.gather(*map(self._brokers.kill, running))
        self._result.kills += len(running)

    def _later(self, wait: float, call: Callable[[], None]) -> None:
        async def after() -> None:
            await asyncio.sleep(wait)
            call()

        task = asyncio.get_running_loop().create_task(after())
        self._healing.add(task)
        task.add_done_callback(self._healing.discard)

    async def heal(self) -> None:
        """Let everything come back."""
        await asyncio.gather(*self._healing)
        while not all(map(self._brokers.is_up, self._names)):
            await asyncio.sleep(0.05)
