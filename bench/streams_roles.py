"""One client of a stream, Penstock's or JetStream's, in a process of its own.

Started by `streams.py`: `python streams_roles.py SYSTEM ADDRESS NAME`. Orders come on stdin and answers go to stdout,
one JSON object a line; when stdin ends the process ends. Times are CLOCK_MONOTONIC, which all processes share.

    make                                    the stream
    publish  {"publishers", "seconds"}      each publisher waits for its acknowledgement: {"count", "seconds", "cpu"}
    fill     {"count"}                      so many messages, as fast as they are acknowledged: {"seconds"}
    trickle  {"rate", "seconds"}            so many a second, whenever the acknowledgements come: {"count"}
    replay   {"name", "count"}              a new reader, from the first message on: {"received", "seconds", "cpu"}
    follow   {"name"}                       a new reader, from now on, beside all other orders
    delays                                  of what it has read since it was last asked: {"delays"}
    readers  {"first", "last"}              durable readers of these numbers, each with its part of the messages
    count                                   how many messages those have had: {"received"}

A body begins with the time of its publication in eight bytes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from penstock.live.event_loop import run

STREAM = "orders"
BODY_BYTES = 128
FILLING = 256  # publications at once
BATCH = 1_000  # messages that a reader takes at once
PARTS = 1_000  # into which the messages are divided, for `readers`
_REST = bytes(BODY_BYTES - 8)


class Client(Protocol):
    async def open(self, address: str, name: str) -> None: ...
    async def make(self) -> None: ...
    async def publish(self, number: int, body: bytes) -> None: ...
    async def read(self, name: str, got: Callable[[list[bytes]], bool], *, replay: bool) -> None:
        """Let `got` have bodies until it returns True."""

    async def add_reader(self, number: int, got: Callable[[], None]) -> None: ...
    async def close(self) -> None: ...


class Penstock:
    """Durable names with their positions on disk; a publisher waits for the disk."""

    async def open(self, address: str, name: str) -> None:
        import penstock

        self._network = penstock.connect(address, name=name)
        await self._network.open()
        self._stream = self._network.stream(STREAM)
        self._tasks: list[asyncio.Task[None]] = []

    async def make(self) -> None:
        await self._network.add_stream(STREAM, at="broker")

    async def publish(self, number: int, body: bytes) -> None:
        await self._stream.publish({"symbol": "IBM", "part": number % PARTS}, body)

    async def read(self, name: str, got: Callable[[list[bytes]], bool], *, replay: bool) -> None:
        async with self._stream.subscribe(durable=name, start="earliest" if replay else "latest") as messages:
            while not got([message.body for message in await messages.take(BATCH)]):
                pass

    async def add_reader(self, number: int, got: Callable[[], None]) -> None:
        messages = self._stream.subscribe(f"part = {number}", durable=f"reader-{number}")
        await messages.__aenter__()

        async def reading() -> None:
            async for _ in messages:
                got()

        self._tasks.append(asyncio.create_task(reading()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._network.close()


class JetStream:
    """File storage; how often it is synced is the server's setting. Parts are subjects."""

    async def open(self, address: str, name: str) -> None:
        import nats

        self._connection = await nats.connect(address, name=name)
        self._js = self._connection.jetstream(timeout=60.0)
        self._subjects = [f"{STREAM}.{part}" for part in range(PARTS)]

    async def make(self) -> None:
        from nats.js.api import StorageType

        await self._js.add_stream(name=STREAM, subjects=[f"{STREAM}.*"], storage=StorageType.FILE)

    async def publish(self, number: int, body: bytes) -> None:
        await self._js.publish(self._subjects[number % PARTS], body)

    async def read(self, name: str, got: Callable[[list[bytes]], bool], *, replay: bool) -> None:
        from nats.js.api import DeliverPolicy

        over = asyncio.Event()

        async def came(message: Any) -> None:
            if got([message.data]):
                over.set()

        policy = DeliverPolicy.ALL if replay else DeliverPolicy.NEW
        reader = await self._js.subscribe(f"{STREAM}.*", cb=came, ordered_consumer=True, deliver_policy=policy)
        await over.wait()
        await reader.unsubscribe()

    async def add_reader(self, number: int, got: Callable[[], None]) -> None:
        from nats.js.api import DeliverPolicy

        async def came(message: Any) -> None:
            got()

        policy = DeliverPolicy.NEW
        await self._js.subscribe(self._subjects[number], cb=came, durable=f"reader-{number}", deliver_policy=policy)

    async def close(self) -> None:
        await self._connection.close()


SYSTEMS: dict[str, type[Client]] = {"penstock": Penstock, "jetstream": JetStream}


class Role:
    """Carries out orders."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count()
        self._delays: list[float] = []
        self._received = 0
        self._following: list[asyncio.Task[None]] = []

    def _body(self) -> bytes:
        return time.monotonic_ns().to_bytes(8, "big") + _REST

    async def make(self) -> dict[str, Any]:
        await self._client.make()
        return {}

    async def publish(self, publishers: int, seconds: float) -> dict[str, Any]:
        cpu, began, count = time.process_time(), time.monotonic(), 0

        async def publisher() -> None:
            nonlocal count
            while time.monotonic() < began + seconds:
                await self._client.publish(next(self._numbers), self._body())
                count += 1

        await asyncio.gather(*(publisher() for _ in range(publishers)))
        return {"count": count, "seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}

    async def fill(self, count: int) -> dict[str, Any]:
        began, left = time.monotonic(), count

        async def publisher() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self._client.publish(next(self._numbers), self._body())

        await asyncio.gather(*(publisher() for _ in range(FILLING)))
        return {"seconds": time.monotonic() - began}

    async def trickle(self, rate: float, seconds: float) -> dict[str, Any]:
        began, tasks = time.monotonic(), list[asyncio.Task[None]]()
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            publication = self._client.publish(next(self._numbers), self._body())
            tasks.append(asyncio.ensure_future(publication))
        await asyncio.gather(*tasks)
        return {"count": len(tasks)}

    async def replay(self, name: str, count: int) -> dict[str, Any]:
        cpu, began, received = time.process_time(), time.monotonic(), 0

        def got(bodies: list[bytes]) -> bool:
            nonlocal received
            received += len(bodies)
            return received >= count

        await self._client.read(name, got, replay=True)
        return {"received": received, "seconds": time.monotonic() - began, "cpu": time.process_time() - cpu}

    async def follow(self, name: str) -> dict[str, Any]:
        def got(bodies: list[bytes]) -> bool:
            now = time.monotonic_ns()
            self._delays += [(now - int.from_bytes(body[:8], "big")) / 1e9 for body in bodies]
            return False

        self._following.append(asyncio.create_task(self._client.read(name, got, replay=False)))
        return {}

    async def delays(self) -> dict[str, Any]:
        delays, self._delays = self._delays, []
        return {"delays": delays}

    async def readers(self, first: int, last: int) -> dict[str, Any]:
        def got() -> None:
            self._received += 1

        began = time.monotonic()
        for number in range(first, last + 1):
            await self._client.add_reader(number, got)
        return {"seconds": time.monotonic() - began}

    async def count(self) -> dict[str, Any]:
        return {"received": self._received}

    async def close(self) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)
        await self._client.close()


async def main(system: str, address: str, name: str) -> None:
    loop, client = asyncio.get_running_loop(), SYSTEMS[system]()
    await client.open(address, name)
    role = Role(client)
    print(json.dumps({"ready": True}), flush=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        do: Callable[..., Awaitable[dict[str, Any]]] = getattr(role, order.pop("do"))
        print(json.dumps(await do(**order)), flush=True)
    await role.close()


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
