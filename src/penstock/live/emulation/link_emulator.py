"""A bad network between two brokers on one machine: datagrams are lost, delayed and put out of order on purpose.

Loopback loses nothing, so order and recovery could not be shown on it without root. A link emulator stands in the
middle of one link. The broker that dials finds the emulator where it thinks its neighbour is; the emulator dials the
neighbour and passes everything on. Brokers learn from the handshake on the TCP connection where to send datagrams, so
in both handshakes the emulator puts its own two ports in that place, one for each path (`forth`: from the broker that
dials; `back`).

    what                 what happens to it
    the TCP connection   passed on as it is, without loss and without delay: control is never lost on a datagram link
    a datagram           lost with probability `loss`; else it leaves after `delay` plus a part of `jitter` that is
                         drawn for it alone, so a later one may overtake it; with probability `reorder` it waits
                         REORDER_WAIT more

The unit is the datagram. A link with a rate puts one packet into each, so there `loss` is that of messages; a link
without one fills datagrams with up to `DATAGRAM_FILL_BYTES` of packets, which are lost together.

What becomes of a datagram is drawn from the random numbers of its path, three for each in the order in which they come,
whatever the settings and however late the loop is: the n-th datagram has the same fate in every run.

State: for each path where it leads and a heap of datagrams that wait. Bounds: WAITING_MAX and WAITING_BYTES_MAX; what
is over is dropped. Every datagram that does not get through is told to `on_drop`, with the cause. A connection that is
made again only renews where the paths lead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random
from types import TracebackType
from typing import cast

import msgspec

from penstock.errors import InvalidPacket
from penstock.kernel.gilbert import GilbertLoss
from penstock.kernel.randomness import generator
from penstock.live.wire.addresses import LOOPBACK, Address
from penstock.live.wire.frames import HANDSHAKE_BYTES_MAX, HEAD_BYTES, decode_handshake, encode_handshake
from penstock.live.wire.udp import datagram_socket

REORDER_WAIT = 0.02  # seconds: longer than between two messages of any flow worth ordering
WAITING_MAX = 20_000  # datagrams
WAITING_BYTES_MAX = 64 << 20
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Impairment:
    """What a link emulator does to datagrams, the same in both directions."""

    loss: float = 0.0  # probability
    loss_burst: float = 1.0  # datagrams lost in a row, on average; 1: each is lost by itself
    delay: float = 0.0  # seconds, for all
    jitter: float = 0.0  # seconds: each datagram waits a uniform part of this longer
    reorder: float = 0.0  # probability of waiting REORDER_WAIT longer

    def __post_init__(self) -> None:
        if not 0.0 <= self.loss <= 1.0 or not 0.0 <= self.reorder <= 1.0:
            raise ValueError("loss and reorder are probabilities, between 0 and 1")
        if not 1.0 <= self.loss_burst <= 1e6 or (self.loss_burst > 1.0 and self.loss > 0.5):
            raise ValueError("loss_burst is at least 1; with bursts loss is at most a half")
        if not 0.0 <= self.delay < 3600.0 or not 0.0 <= self.jitter < 3600.0:
            raise ValueError("delay and jitter are seconds, at least 0 and less than an hour")


class Fates:
    """What becomes of the datagrams of one path, one after the other."""

    def __init__(self, impairment: Impairment, random: Random) -> None:
        self._impairment = impairment
        self._random = random
        self._bursts = GilbertLoss(impairment.loss, impairment.loss_burst) if impairment.loss_burst > 1.0 else None

    def next(self) -> float | None:
        """How long the next one waits, in seconds; None if it is lost."""
        what, random = self._impairment, self._random.random
        draw, part, aside = random(), random(), random() < what.reorder
        lost = draw < what.loss if self._bursts is None else self._bursts.loses(draw)
        return None if lost else what.delay + part * what.jitter + aside * REORDER_WAIT


class EmulatedPath(asyncio.DatagramProtocol):
    """One direction: a UDP socket that takes datagrams, and sends on what is left of them."""

    def __init__(self, fates: Fates) -> None:
        self.on_drop: Callable[[str, bytes], None] = lambda cause, data: None
        self.on_pass: Callable[[bytes], None] = lambda data: None
        self.port = 0
        self.severed = False
        self.leads_to: tuple[str, int] | None = None
        self.came = self.lost = self.passed = self.overtaken = self.overflowed = self.astray = 0
        self._fates = fates
        self._waiting: list[tuple[float, int, bytes]] = []  # when it leaves, its number, itself
        self._waiting_bytes = 0
        self._newest = 0  # the highest number that has left
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.DatagramTransport | None = None

    async def open(self) -> None:
        sock = datagram_socket(LOOPBACK, 0)
        self.port = sock.getsockname()[1]
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=sock)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for *_, data in self._waiting:
            self.on_drop("link down", data)
        self._waiting.clear()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: object) -> None:
        self.came += 1
        wait = self._fates.next()
        if wait is None or self.severed:
            self.lost += 1
            self.on_drop("lost on the wire", data)
        elif self.leads_to is None:
            self.astray += 1
            self.on_drop("nobody there yet", data)
        elif len(self._waiting) >= WAITING_MAX or self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
            self.overflowed += 1
            self.on_drop("emulator full", data)
        elif wait == 0.0 and not self._waiting:
            self._send(self.came, data)
        else:
            heappush(self._waiting, (time.monotonic() + wait, self.came, data))
            self._waiting_bytes += len(data)
            self._arm()

    def error_received(self, exc: Exception) -> None:
        """Nobody listens where this path leads; the brokers find out by themselves."""

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            wait = max(0.0, self._waiting[0][0] - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._leave)

    def _leave(self) -> None:
        """Let out what is due, in the order in which it is due, also when the loop is late."""
        self._timer = None
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, number, data = heappop(self._waiting)
            self._waiting_bytes -= len(data)
            self._send(number, data)
        self._arm()

    def _send(self, number: int, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing() or self.leads_to is None:
            return
        self.passed += 1
        self.on_pass(data)
        self.overtaken += number < self._newest
        self._newest = max(self._newest, number)
        self._transport.sendto(data, self.leads_to)


class LinkEmulator:
    """Stands between a broker that dials `address` and its neighbour at `target`; an asynchronous context manager."""

    def __init__(self, target: Address, impairment: Impairment, *, seed: int, name: str = "emulator") -> None:
        self.target = target
        self.address = Address(LOOPBACK, 0)  # where to dial it, once it is open
        self.connections = 0  # so far
        self.severed = False
        self.forth = EmulatedPath(Fates(impairment, generator(seed, name, "forth")))
        self.back = EmulatedPath(Fates(impairment, generator(seed, name, "back")))
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> LinkEmulator:
        try:
            await self.forth.open()
            await self.back.open()
            self._server = await asyncio.start_server(self._accepted, LOOPBACK, 0)
        except BaseException:
            await self.close()
            raise
        self.address = Address(LOOPBACK, self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Drop what waits and end all connections."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.forth.close()
        self.back.close()

    def sever(self) -> None:
        """Let nothing through until `mend`: connections end, and so do those that are dialled; datagrams are lost."""
        self.severed = self.forth.severed = self.back.severed = True
        self.cut()

    def mend(self) -> None:
        """Let everything through again."""
        self.severed = self.forth.severed = self.back.severed = False

    def cut(self) -> None:
        """End all connections without a close frame, as a cut cable would; whoever dials again is let through."""
        for task in self._tasks:
            task.cancel()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._tasks.add(task)
        self.connections += 1
        writers = [writer]
        try:
            if self.severed:
                return
            there, to_there = await asyncio.open_connection(*self.target)
            writers.append(to_there)
            dialer = writer.get_extra_info("peername")[0]
            await _either(
                _pass_on(reader, to_there, self.back, dialer), _pass_on(there, writer, self.forth, self.target.host)
            )
        except (OSError, asyncio.CancelledError):
            pass  # the neighbour is not there, or we end: closing is all that is left
        finally:
            self._tasks.discard(task)
            for end in writers:
                end.close()


async def _either(*works: Coroutine[None, None, None]) -> None:
    """Until one of these has ended; the others are cancelled."""
    tasks = [asyncio.get_running_loop().create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: EmulatedPath, host: str
) -> None:
    """Carry one direction of the TCP connection; `answers` is the path that datagrams for its sender take."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        writer.write(await _first_frame(reader, answers, host))
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()


async def _first_frame(reader: asyncio.StreamReader, answers: EmulatedPath, host: str) -> bytes:
    """The handshake, with our port in place of the sender's; what is no handshake is passed on as it is."""
    head = await reader.readexactly(HEAD_BYTES)
    length = int.from_bytes(head, "big")
    if length > HANDSHAKE_BYTES_MAX:
        return head
    payload = await reader.readexactly(length)
    try:
        handshake = decode_handshake(payload)
    except InvalidPacket:
        return head + payload
    if not handshake.datagram_port:
        return head + payload
    answers.leads_to = (host, handshake.datagram_port)
    return encode_handshake(msgspec.structs.replace(handshake, datagram_port=answers.port))
