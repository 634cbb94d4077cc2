"""The attackers' tools: a raw connection that is under no obligation to behave, and a record of what it was answered.

Packets are made with the project's own types and cross a real socket; nothing here goes through the client library.
Used by `hostile_attacks.py`.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from penstock.content.message import Identity
from penstock.errors import InvalidPacket
from penstock.kernel.packet import Packet
from penstock.live.wire.addresses import Address
from penstock.live.wire.frames import KEEPALIVE, Close, FrameDecoder, Handshake, encode_frame, encode_handshake
from penstock.overlay.packets import Answer, Attach, Delivery, Hello, Subscribe

PACKETS_PER_FRAME = 64
ANSWER_WITHIN = 2.0  # seconds for a handshake and a Hello
KEEPALIVE_EVERY = 0.5
READ_BYTES = 1 << 18


@dataclass(frozen=True)
class Ground:
    """What an attacker knows: where the brokers are, their numbers in the plan, and the names of the healthy pair."""

    addresses: Mapping[str, Address]  # of a, b and c; d is a neighbour in b's plan that is not running
    numbers: Mapping[str, int]
    publisher: str = "publisher"
    subscriber: str = "subscriber"
    scale: float = 1.0  # of all numbers that an attack names; tests use less

    @property
    def b(self) -> Address:
        return self.addresses["b"]

    def some(self, number: int) -> int:
        """So many, in this attack's scale."""
        return max(1, round(number * self.scale))


@dataclass
class Heard:
    """What the brokers answered, counted; texts that differ in numbers and names only count as one."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def note(self, what: str, times: int = 1) -> None:
        """Count one answer."""
        kind = re.sub(r"'[^']*'|\d+", "*", what)
        self.counts[kind] += times
        self.examples.setdefault(kind, what)

    def most(self, number: int = 3) -> list[str]:
        """The most frequent answers, in words."""
        return [f"{count:,} x {self.examples[kind]}" for kind, count in self.counts.most_common(number)]


async def connected_socket(address: Address, receive_bytes: int | None = None) -> socket.socket:
    """A bare connection, which ends without leaving its port in use."""
    sock = socket.socket()
    try:
        if receive_bytes is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.setblocking(False)
        async with asyncio.timeout(ANSWER_WITHIN):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


class Peer:
    """One connection of an attacker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Heard) -> None:
        self.heard = heard
        self.hello: Hello | None = None  # the broker's
        self.identity: Identity | None = None  # of the last message that was delivered here
        self.gone = False
        self._reader = reader
        self._writer = writer
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()  # a Hello has come, or the connection is gone

    @classmethod
    async def connect(
        cls, address: Address, heard: Heard, *, reads: bool = True, receive_bytes: int | None = None
    ) -> Peer:
        """Connect; a peer that does not read leaves everything in the socket."""
        sock = socket.socket()
        try:
            if receive_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            sock.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # ports are free again at once
            sock.setblocking(False)
            async with asyncio.timeout(ANSWER_WITHIN):
                await asyncio.get_running_loop().sock_connect(sock, address)
                peer = cls(*await asyncio.open_connection(sock=sock, limit=READ_BYTES), heard)
        except BaseException:
            sock.close()
            raise
        if reads:
            peer._reading = asyncio.get_running_loop().create_task(peer._read())
        else:
            peer._writer.transport.pause_reading()  # type: ignore[attr-defined]
        return peer

    async def write(self, data: bytes, until: float) -> None:
        """Send bytes, at the broker's pace; raises ConnectionError when it is over, TimeoutError when time is up."""
        if self.gone or self._writer.is_closing():
            raise ConnectionResetError("the broker closed the connection")
        self._writer.write(data)
        async with asyncio.timeout(max(0.0, until - time.monotonic())):
            await self._writer.drain()
        await asyncio.sleep(0)  # let others on this loop have their turn

    async def send(self, packets: Sequence[Packet], until: float) -> None:
        """Send packets in frames."""
        for start in range(0, len(packets), PACKETS_PER_FRAME):
            await self.write(encode_frame(packets[start : start + PACKETS_PER_FRAME]), until)

    async def handshake(self, role: Literal["broker", "client"], name: str, until: float, number: int = 0) -> None:
        """Say who we are, true or not."""
        said = Handshake(role=role, name=name, broker=number, incarnation=time.time_ns() // 1_000_000)
        await self.write(encode_handshake(said), until)

    async def linger(self, until: float) -> None:
        """Stay, and keep the connection alive."""
        while (left := until - time.monotonic()) > 0:
            await self.write(KEEPALIVE, until)
            await asyncio.sleep(min(left, KEEPALIVE_EVERY))

    async def heard_hello(self) -> Hello:
        """The broker's first Hello; raises ConnectionError if it closes instead."""
        async with asyncio.timeout(ANSWER_WITHIN):
            await self._news.wait()
        if self.hello is None:
            raise ConnectionResetError("the broker closed the connection")
        return self.hello

    async def until_closed(self) -> None:
        """Say nothing more, and wait for the broker to close; of use only to a peer that reads."""
        assert self._reading is not None
        await asyncio.wait([self._reading])

    def end(self) -> None:
        """Go without a word."""
        if self._reading is not None:
            self._reading.cancel()
        self._writer.transport.abort()

    async def _read(self) -> None:
        decoder = FrameDecoder()
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in decoder.feed(data):
                    if isinstance(frame, Close):
                        self.heard.note(f"closed: {frame.problem}")
                    elif isinstance(frame, list):
                        for packet in frame:
                            self._take(packet)
                await asyncio.sleep(0)
            self.heard.note("disconnected")
        except (OSError, InvalidPacket) as error:
            self.heard.note(f"disconnected ({type(error).__name__})")
        finally:
            self.gone = True
            self._news.set()

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Hello):
            self.hello = packet
            self._news.set()
        elif isinstance(packet, Delivery):
            self.identity = packet.message.identity
        elif isinstance(packet, Answer):
            self.heard.note(f"refused: {packet.problem}" if packet.problem else "accepted")


async def as_client(
    address: Address, name: str, heard: Heard, until: float, *, reads: bool = True, receive_bytes: int | None = None
) -> Peer:
    """A client of this name, attached."""
    peer = await Peer.connect(address, heard, reads=reads, receive_bytes=receive_bytes)
    try:
        await peer.handshake("client", name, until)
        await peer.send([Attach(name, time.time_ns() // 1_000_000)], until)
    except BaseException:
        peer.end()
        raise
    return peer


async def as_neighbour(ground: Ground, name: str, heard: Heard, until: float, *, claims: int | None = None) -> Peer:
    """A neighbour of b by this name, whose Hello was said; `claims` is the id in it, if not the right one.

    What else stands in the Hello is taken from b's own, so b finds nothing wrong with it.
    """
    number = ground.numbers[name]
    peer = await Peer.connect(ground.b, heard)
    try:
        await peer.handshake("broker", name, until, number)
        theirs = await peer.heard_hello()
        life = time.time_ns() // 1_000_000
        await peer.send([replace(theirs, broker=number if claims is None else claims, incarnation=life)], until)
        heard.note(f"admitted as neighbour {name}")
    except BaseException:
        peer.end()
        raise
    return peer


async def again_and_again(until: float, heard: Heard, session: Callable[[], Awaitable[None]], pause: float) -> None:
    """Repeat a session whenever the broker ends it, until the time is up."""
    while (left := until - time.monotonic()) > 0:
        try:
            async with asyncio.timeout(left):
                await session()
        except OSError as error:  # a TimeoutError is one too
            if time.monotonic() < until and not isinstance(error, ConnectionResetError | BrokenPipeError):
                heard.note(type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.sleep(min(pause, max(0.0, until - time.monotonic())))


async def subscribe(peer: Peer, texts: Sequence[str], until: float, first: int = 1) -> None:
    """Subscribe with these texts, under consecutive numbers."""
    packets = [Subscribe(number, number, text) for number, text in enumerate(texts, start=first)]
    await peer.send(packets, until)
