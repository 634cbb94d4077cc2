"""All brokers of a network as processes of this one, started together, watched, and stopped together.

A broker that dies is started again, with growing waits, unless that is not wanted; its neighbours and clients find it
again by themselves. If this process dies, even by `kill -9`, the brokers notice that nobody holds the other end of
their stdin, and stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from penstock.errors import NotPossibleHere
from penstock.kernel.randomness import generator
from penstock.live.broker.process_main import Orders
from penstock.live.process_name import visible
from penstock.live.store.place import Place, text_of
from penstock.live.wire.addresses import Address
from penstock.live.wire.backoff import Backoff
from penstock.scenario.spec import Scenario

log = logging.getLogger("penstock.up")

READY_WITHIN = 30.0  # seconds for a broker to start; a loaded machine takes a few
STOP_WITHIN = 10.0  # seconds to drain before it is killed


class Brokers:
    """The broker processes of a scenario; an asynchronous context manager."""

    def __init__(
        self,
        scenario: Scenario,
        addresses: Mapping[str, Address],
        *,
        via: Mapping[tuple[str, str], Address] | None = None,  # (dialer, dialled): where to dial instead
        before: Mapping[str, Sequence[str]] | None = None,  # words before a broker's command: where it is to run
        trace: Path | None = None,
        data: Place | None = None,  # where services keep what must survive a crash
        began: float | None = None,
        restart: bool = True,
        verbose: bool = False,
    ) -> None:
        self.addresses = dict(addresses)
        self.drops: dict[str, list[dict[str, Any]]] = {}  # what each broker had dropped when it ended
        self._scenario = scenario
        self._via = via or {}
        self._before = before or {}
        self._trace = trace
        self._data = data
        self._began = time.time() if began is None else began
        self._restart = restart
        self._verbose = verbose
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._listening: dict[str, None] = {}
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    async def __aenter__(self) -> Brokers:
        loop = asyncio.get_running_loop()
        starts = [loop.create_task(self.start(broker.name)) for broker in self._scenario.broker]
        try:
            await asyncio.wait(starts, return_when=asyncio.FIRST_EXCEPTION)
            for start in starts:
                if start.done():
                    start.result()  # of several that cannot start, the first of the file is named
        except BaseException:
            await _cancelled(starts)  # before stop(), which reads where they read
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    def url(self, name: str) -> str:
        """Where clients of this broker connect."""
        return f"penstock://{self.addresses[name]}"

    def pid(self, name: str) -> int:
        """The process of this broker."""
        return self._processes[name].pid

    def is_up(self, name: str) -> bool:
        """Whether this broker listens, as far as we know."""
        process = self._processes.get(name)
        return process is not None and process.returncode is None and name in self._listening

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to this broker: SIGSTOP lets it stand still, SIGCONT go on."""
        with suppress(ProcessLookupError):
            self._processes[name].send_signal(number)

    async def start(self, name: str) -> None:
        """Start one broker; returns when it listens, raises NotPossibleHere if it cannot."""
        orders = Orders(
            name=name,
            scenario=self._scenario,
            addresses={
                broker: str(self._via.get((name, broker), address)) for broker, address in self.addresses.items()
            },
            trace=str(self._trace.resolve()) if self._trace is not None else None,
            data=text_of(self._data) if self._data is not None else None,
            began=self._began,
            verbose=self._verbose,
        )
        process = await asyncio.create_subprocess_exec(
            *self._before.get(name, ()),
            sys.executable,
            "-m",
            "penstock.live.broker.process_main",
            "broker",  # this and the name are for `ps`
            visible(name),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is for us; we tell them
        )
        self._processes[name] = process
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(orders) + b"\n")
        await self._ready(name, process)
        self._listening[name] = None
        self._watchers[name] = asyncio.get_running_loop().create_task(self._watch(name, process))

    async def kill(self, name: str, *, restart: bool = True) -> None:
        """End one broker at once, as a crash would; without `restart` it stays down until `start`."""
        process = self._processes[name]
        if not restart:
            self._listening.pop(name, None)
            await _cancelled([self._watchers[name]])
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        await process.wait()

    async def stop(self) -> None:
        """Ask all to stop, give them time to drain, and make sure that they are gone."""
        self._stopping = True
        await _cancelled(list(self._watchers.values()))  # one of them may be starting a broker again
        living = {name: process for name, process in self._processes.items() if process.returncode is None}
        for process in living.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_WITHIN):
                await asyncio.gather(*(self._ended(name, process) for name, process in living.items()))
        except TimeoutError:
            for process in living.values():
                with suppress(ProcessLookupError):
                    process.kill()
            await asyncio.gather(*(process.wait() for process in living.values()))

    async def _ended(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Wait for the end of a process, and hear its last words."""
        assert process.stdout is not None
        words = await process.stdout.read()
        await process.wait()
        with suppress(msgspec.DecodeError):
            self.drops[name] = msgspec.json.decode(words, type=dict[str, list[dict[str, Any]]])["drops"]

    async def _ready(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(READY_WITHIN):
                line = await process.stdout.readline()
        except TimeoutError:
            line = b""
        answer = msgspec.json.decode(line, type=dict[str, str]) if line else {}
        if "listen" not in answer:
            problem = answer.get("problem", "it did not start; its own output is above")
            remedy = answer.get("remedy", f"try it alone: penstock broker {name}")
            raise NotPossibleHere(f"broker {name}: {problem}", remedy)

    async def _watch(self, name: str, process: asyncio.subprocess.Process) -> None:
        """Wait for the end of a process, and start another one for it."""
        code = await process.wait()
        self._listening.pop(name, None)
        if self._stopping or not self._restart:
            return
        log.warning("broker %s ended (%s); starting it again", name, _ending(code))
        backoff = Backoff(generator(time.time_ns(), name, "restart"))
        while True:
            await asyncio.sleep(backoff.wait())
            try:
                await self.start(name)  # with a watcher of its own
                return
            except NotPossibleHere as error:
                log.warning("%s", error)


async def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End these tasks, and wait until they have ended, however they did."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
