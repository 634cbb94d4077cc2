"""The two ends of a measurement over a lossy link: a publisher or a subscriber in a process of its own.

Started by `lossy_link.py`: `python lossy_roles.py ROLE SYSTEM ADDRESS OPTIONS`. Orders come on stdin and answers go to
stdout, one JSON object a line; when stdin ends the process ends. Times are CLOCK_MONOTONIC, which all processes share.

    publish   {"count", "rate", "size"}   answers {"sent"} when all have been handed over
    report    {"quiet"}                   waits until nothing has come for so long: {"received", "delays"}

A body begins with the time of its publication, in eight bytes, and its number, in four.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from penstock.live.event_loop import run
from throughput_roles import (
    NatsPublisher,
    NatsSubscriber,
    Publisher,
    Subscriber,
    ZenohPublisher,
    ZenohSubscriber,
    orders,
)

WHERE = "symbol = 'IBM' AND price < 200"
TOPIC = "quotes/IBM"


class LossyPenstockPublisher:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import penstock

        settings = {"transport": penstock.TransportConfig()} if options.get("recover") else {}
        self._network = await penstock.connect(address, name="publisher", **settings).open()

    async def publish(self, number: int, body: bytes) -> None:
        await self._network.publish({"symbol": "IBM", "price": 100 + number % 50}, body)

    async def flush(self) -> None: ...

    async def close(self) -> None:
        await self._network.close()


class LossyPenstockSubscriber:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import penstock

        settings = {"transport": penstock.TransportConfig()} if options.get("recover") else {}
        self._network = await penstock.connect(address, name="subscriber", **settings).open()
        wanted = {name: True for name in ("ordered", "recover") if options.get(name)}
        self._messages = await self._network.subscribe(WHERE, **wanted).open()

    async def take(self, within: float) -> list[bytes]:
        try:
            async with asyncio.timeout(within):
                return [message.body for message in await self._messages.take(1_000)]
        except TimeoutError:
            return []

    async def close(self) -> None:
        await self._network.close()


class MqttClient:
    """Quality of service 1: the client keeps a message and sends it again until the broker has acknowledged it."""

    async def open(self, address: str, options: dict[str, Any]) -> None:
        from paho.mqtt import client

        self._bodies: list[bytes] = []
        self._ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._client = client.Client(client.CallbackAPIVersion.VERSION2, client_id=type(self).__name__)
        self._client.max_inflight_messages_set(1_000)
        self._client.on_message = lambda _client, _data, message: self._bodies.append(message.payload)
        self._client.on_connect = lambda *_: self._connected()
        self._client.on_subscribe = lambda *_: loop.call_soon_threadsafe(self._ready.set)
        host, _, port = address.rpartition(":")
        self._client.connect(host, int(port))
        self._client.loop_start()
        await asyncio.wait_for(self._ready.wait(), 30)

    def _connected(self) -> None:
        self._client.subscribe(TOPIC if isinstance(self, MqttSubscriber) else "nothing", qos=1)

    async def publish(self, number: int, body: bytes) -> None:
        self._client.publish(TOPIC, body, qos=1)

    async def flush(self) -> None: ...

    async def take(self, within: float) -> list[bytes]:
        until = time.monotonic() + within
        while not self._bodies and time.monotonic() < until:
            await asyncio.sleep(0.001)
        bodies, self._bodies = self._bodies, []
        return bodies

    async def close(self) -> None:
        self._client.loop_stop()


class MqttPublisher(MqttClient): ...


class MqttSubscriber(MqttClient): ...


SYSTEMS: dict[str, tuple[type[Publisher], type[Subscriber]]] = {
    "penstock": (LossyPenstockPublisher, LossyPenstockSubscriber),
    "nats": (NatsPublisher, NatsSubscriber),
    "zenoh": (ZenohPublisher, ZenohSubscriber),
    "mqtt": (MqttPublisher, MqttSubscriber),
}


async def publish(publisher: Publisher, *, count: int, rate: float, size: int) -> dict[str, Any]:
    began, rest = time.monotonic(), bytes(size - 12)
    for number in range(count):
        wait = began + number / rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        await publisher.publish(number, time.monotonic_ns().to_bytes(8, "big") + number.to_bytes(4, "big") + rest)
    await publisher.flush()
    return {"sent": count}


class Reader:
    """Takes all that comes, and keeps when each message came for the first time."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        self.delays: dict[int, float] = {}
        self.last = time.monotonic()

    async def read(self) -> None:
        while True:
            bodies = await self._subscriber.take(0.05)
            now = time.monotonic()
            for body in bodies:
                self.last = now
                stamp, number = int.from_bytes(body[:8], "big"), int.from_bytes(body[8:12], "big")
                self.delays.setdefault(number, now - stamp / 1e9)
            await asyncio.sleep(0)

    async def report(self, *, quiet: float) -> dict[str, Any]:
        while time.monotonic() - self.last < quiet:
            await asyncio.sleep(0.05)
        return {"received": len(self.delays), "delays": list(self.delays.values())}


def answer(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


async def main(role: str, system: str, address: str, options: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    end: Any = SYSTEMS[system][role == "subscriber"]()
    await end.open(address, options)
    reader = Reader(end)
    reading = loop.create_task(reader.read()) if role == "subscriber" else None
    answer({"ready": True})
    waiting = orders()
    while (order := await loop.run_in_executor(None, lambda: next(waiting, None))) is not None:
        answer(await (publish(end, **order) if role == "publisher" else reader.report(**order)))
    if reading is not None:
        reading.cancel()
    await end.close()


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
