"""An embedded network: brokers in this process, on real sockets and free ports of this machine, for tests.

    async with penstock.testing.embedded_network(("a", "b"), delay=0.02) as brokers:
        async with penstock.connect(brokers.urls["b"]) as network:
            ...
            await brokers.stop("a")     # and `start` lets it come back at the same address; `crash` is ruder

These are the brokers that `penstock up` starts as processes, with nothing replaced; only that they live in the caller's
event loop, and store their streams in a temporary folder, which ends with the network. Entering returns when all links
are up and all brokers agree on the map. `stop`, `crash` and `start` return when those that run have noticed. So no test
has to guess how long to wait.

Leaving closes everything, and fails loudly if anything of the brokers is left: a task, or a connection that does not
close. Clients that the test left open lose their brokers like any other client; they are the test's.
"""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import AsyncExitStack
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Literal
from weakref import WeakSet

from msgspec.structs import replace

from penstock.errors import NotPossibleHere, PenstockError, choose_one
from penstock.live.broker.plan import assign_addresses, plan_for
from penstock.live.broker.server import BrokerServer, ServerConfig
from penstock.live.broker.status import broker_status
from penstock.live.emulation.emulated_links import EmulatedLinks
from penstock.live.emulation.scenario_run import link_apart
from penstock.live.wire.addresses import Address
from penstock.overlay.assembly import NodeConfig
from penstock.scenario.spec import Scenario
from penstock.testing.shape import NAMES, Links, Shape, shape_of
from penstock.testing.waiting import links_at, until

SEED = 7
SETTLE_WITHIN = 30.0  # seconds; no healthy machine comes near
LEAVE_WITHIN = 1.0  # seconds that what was closed may take to end
PORT_ATTEMPTS = 5  # somebody may take a free port before we listen at it

_networks_open: WeakSet[EmbeddedNetwork] = WeakSet()


def embedded_network(
    brokers: Shape = NAMES,
    *,
    links: Links | None = None,
    kind: Literal["reliable", "shaped", "datagram"] | None = None,
    loss: float | None = None,
    delay: float | None = None,
    jitter: float | None = None,
    rate_bits_per_s: float | None = None,
    queue_packets: int | None = None,
    repair: bool = False,
    seed: int = SEED,
    config: ServerConfig | None = None,
    node: NodeConfig | None = None,
) -> EmbeddedNetwork:
    """Brokers in this process, to be opened with `async with`.

    `brokers` are names of brokers in a line, or a network file, or a Scenario; one broker if left out. `links` joins
    them otherwise: pairs of names, or a dict from pairs to settings of that link. The other words are settings of all
    links: the probability that a message is lost (`loss`, drawn from `seed`), seconds (`delay`, and `jitter` up and
    down from it, by which messages overtake each other), `rate_bits_per_s` and what may wait for it. What these links
    lose is lost, unless you say `repair`; those of a file or a Scenario say themselves whether they repair. Raises
    InvalidScenario. `config` and `node` are bounds and settings of the brokers themselves.
    """
    settings: dict[str, Any] = {
        "kind": kind,
        "loss": loss,
        "delay": delay,
        "jitter": jitter,
        "rate_bits_per_s": rate_bits_per_s,
        "queue_packets": queue_packets,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    given |= {"repair": True} if repair else {}
    return EmbeddedNetwork(shape_of(brokers, links, given), seed=seed, config=config, node=node)


class EmbeddedNetwork:
    """Brokers in this process. Made by `embedded_network`; an asynchronous context manager."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = SEED,
        config: ServerConfig | None = None,
        node: NodeConfig | None = None,
    ) -> None:
        self.names = [broker.name for broker in scenario.broker]
        self.servers: dict[str, BrokerServer] = {}  # those that run, for tests that look inside
        self._scenario = scenario
        self._seed = seed
        self._config = config
        self._node = node
        self._addresses: dict[str, Address] = {}
        self._data = Path()  # where they store, while it is open
        self._stack = AsyncExitStack()

    # Where to connect.

    @property
    def url(self) -> str:
        """Of the first broker."""
        return self.url_of(self.names[0])

    @property
    def urls(self) -> dict[str, str]:
        """Of every broker, by name; those that are stopped too, because they come back to the same address."""
        return {name: self.url_of(name) for name in self.names}

    def url_of(self, *names: str) -> str:
        """One URL for several brokers, which a client tries in turn."""
        for name in names:
            self._check_name(name)
        if not self._addresses:
            raise PenstockError("the embedded network is not open; use 'async with'")
        return f"penstock://{','.join(str(self._addresses[name]) for name in names)}"

    # Faults.

    async def stop(self, name: str) -> None:
        """Stop a broker in good order, as SIGTERM does; returns when the others know that it is gone."""
        await self._running(name).stop()
        del self.servers[name]
        await self._settled()

    async def crash(self, name: str) -> None:
        """End a broker without a word: what waits in it is lost, and its connections break."""
        server = self._running(name)
        for connection in list(server.connections):
            connection.abort("the broker crashed")
        await self.stop(name)

    async def start(self, name: str) -> None:
        """Start a broker again that was stopped, at the same address; returns when all agree on the map."""
        self._check_name(name)
        if name in self.servers:
            raise PenstockError(f"broker '{name}' runs already")
        await self._start(name)
        await self._settled()

    @property
    def lost_on_links(self) -> dict[tuple[str, str], int]:
        """(sender, receiver) -> messages that the links between brokers have lost so far, on purpose."""
        return dict(self.emulated.messages_lost)

    # Life.

    async def __aenter__(self) -> EmbeddedNetwork:
        if self._addresses:
            raise PenstockError("this embedded network was opened before; make another one with embedded_network()")
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                await self._open()
            except NotPossibleHere:
                if attempt == PORT_ATTEMPTS:
                    raise
            else:
                break
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        left = await self._left_behind()
        if left:
            problem = f"the embedded network is closed, and this is left of it: {'; '.join(left)}"
            if error is None:
                raise AssertionError(problem)
            error.add_note(problem)  # what the test found comes first

    async def _open(self) -> None:
        self.servers.clear()
        self._addresses = assign_addresses(self._scenario, base_port=None)
        async with AsyncExitStack() as stack:
            self._data = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-")))
            links = EmulatedLinks(self._scenario, self._addresses, self._seed)
            self.emulated = await stack.enter_async_context(links)
            stack.push_async_callback(self._stop_all)
            for name in reversed(self.names):  # of two in a line the first dials, so the second listens by then
                await self._start(name)
            await self._settled()
            self._stack = stack.pop_all()
        self._loop = asyncio.get_running_loop()
        _networks_open.add(self)
        links_at.update(dict.fromkeys(self._addresses.values(), self._scenario.link))

    async def _start(self, name: str) -> None:
        via = {other: self.emulated.via.get((name, other), address) for other, address in self._addresses.items()}
        plan = plan_for(self.emulated.scenario, name, via)
        plan = dataclasses.replace(plan, config=self._node or plan.config)
        server = BrokerServer(plan, self._config, data=self._data)
        await server.start()
        self.servers[name] = server

    async def _stop_all(self) -> None:
        for server in self.servers.values():
            await server.stop()

    async def _settled(self) -> None:
        await until(lambda: not self._unsettled(), within=SETTLE_WITHIN, what=self._unsettled)

    def _unsettled(self) -> str:
        """What those that run do not know yet; nothing, if they agree."""
        reports = {name: broker_status(server) for name, server in self.servers.items()}
        both = tuple(link for link in self._scenario.link if all(name in reports for name in link.between))
        apart = link_apart(reports, replace(self._scenario, link=both))
        if apart is not None:
            return f"the link between {apart[0]} and {apart[1]} is not up, or its ends know different things"
        for name, report in reports.items():
            for link in report["links"]:
                if link["up"] and link["peer"] not in reports:
                    return f"{name} has not noticed that {link['peer']} is gone"
        return ""

    async def _left_behind(self) -> list[str]:
        """Tasks and connections of brokers that should have ended; they get a moment to do so."""
        _networks_open.discard(self)
        for address in self._addresses.values():
            links_at.pop(address, None)
        loop = asyncio.get_running_loop()
        alone = not any(other._loop is loop for other in _networks_open)
        deadline = loop.time() + LEAVE_WITHIN
        while True:
            found = [f"a connection of {name}" for name, server in self.servers.items() for _ in server.connections]
            found += _broker_tasks() if alone else []  # else they may be another network's
            if not found or loop.time() > deadline:
                self.servers.clear()
                return found
            await asyncio.sleep(0.002)

    def _running(self, name: str) -> BrokerServer:
        self._check_name(name)
        if name not in self.servers:
            raise PenstockError(f"broker '{name}' does not run; start it first")
        return self.servers[name]

    def _check_name(self, name: str) -> None:
        if name not in self.names:
            raise PenstockError(f"there is no broker '{name}'; {choose_one(name, self.names)}")


def _broker_tasks() -> list[str]:
    """Tasks of this loop whose code is a broker's or a link emulator's."""
    found = []
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        if code is not None and PurePath(code.co_filename).parts[-3:-1] in (("live", "broker"), ("live", "emulation")):
            found.append(f"the task {code.co_qualname}")
    return found
