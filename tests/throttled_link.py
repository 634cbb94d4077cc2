"""A way between two brokers that carries so many bytes per second and no more: what a narrow TCP link looks like.

It reads what comes from the dialler at that rate, with little room in its sockets, so that the dialler's kernel can
soon take nothing more; the other way is free.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from penstock.kernel.token_bucket import Pacer

ROOM_BYTES = 4_096  # in each of its sockets; the kernel doubles it
PIECE_BYTES = 2_048


class ThrottledLink:
    """Listens at `port`, and passes on to another."""

    def __init__(self, to_port: int, rate_bytes_per_s: float) -> None:
        self.rate = rate_bytes_per_s  # may be changed at any time
        self.passed_bytes = 0
        self._to_port = to_port
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks.append(asyncio.create_task(self._accept()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            near, _ = await loop.sock_accept(self._listener)
            far = socket.socket()
            far.setblocking(False)
            await loop.sock_connect(far, ("127.0.0.1", self._to_port))
            self._tasks.append(asyncio.create_task(self._pass_on(near, far)))

    async def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        try:
            await asyncio.gather(self._slowly(near, far), self._freely(far, near))
        finally:
            near.close()
            far.close()

    async def _slowly(self, source: socket.socket, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        pacer = Pacer(self.rate, loop.time())
        with suppress(OSError):
            while data := await loop.sock_recv(source, PIECE_BYTES):
                pacer.set_pace(self.rate, loop.time())
                pacer.spend(len(data), loop.time())
                await loop.sock_sendall(target, data)
                self.passed_bytes += len(data)
                while (wait := pacer.wait(loop.time())) > 0.0:
                    await asyncio.sleep(wait)

    async def _freely(self, source: socket.socket, target: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while data := await loop.sock_recv(source, 1 << 16):
                await loop.sock_sendall(target, data)
