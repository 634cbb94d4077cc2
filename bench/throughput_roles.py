"""The two ends of a throughput measurement, for each system: a publisher or a subscriber in a process of its own.

Started by `throughput.py`: `python throughput_roles.py ROLE SYSTEM ADDRESS OPTIONS`. Orders come on stdin and answers
go to stdout, one JSON object a line; when stdin ends the process ends. Times are CLOCK_MONOTONIC, which all processes
of a machine share. To add a system, write its two classes and enter them in SYSTEMS.

    publish   {"count", "size", "rate"}     answers {"began", "ended", "cpu"}; rate null: as fast as it goes
    receive   {"count", "patience"}         answers {"listening"}, then {"received", "last", "cpu", "delays"}

Every message carries the time of its publication in the first eight bytes of its body (0 when going flat out).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from penstock.live.event_loop import run

SUBJECT = "quotes.IBM"
PRICES = [100 + cents / 100 for cents in range(10_000)]
WHERE = "symbol = 'IBM' AND price < 200"
SUBSCRIPTIONS_PER_CLIENT = 900
QUIET = 0.7  # seconds without a message after which the rest counts as lost
YIELD_EVERY = 64


class Publisher(Protocol):
    async def open(self, address: str, options: dict[str, Any]) -> None: ...
    async def publish(self, number: int, body: bytes) -> None: ...
    async def flush(self) -> None: ...
    async def close(self) -> None: ...


class Subscriber(Protocol):
    async def open(self, address: str, options: dict[str, Any]) -> None: ...
    async def take(self, within: float) -> Sequence[bytes]: ...
    async def close(self) -> None: ...


# Penstock.


class PenstockPublisher:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import penstock

        self._trace = _trace(options, "publisher")
        self._network = penstock.connect(address, name="publisher", trace=self._trace)
        await self._network.open()

    async def publish(self, number: int, body: bytes) -> None:
        await self._network.publish({"symbol": "IBM", "price": PRICES[number % 10_000]}, body)

    async def flush(self) -> None:
        await self._network._link.let_out()

    async def close(self) -> None:
        await self._network.close()
        if self._trace is not None:
            self._trace.close()


class PenstockSubscriber:
    """Also holds the filters that match nothing, on clients of their own."""

    async def open(self, address: str, options: dict[str, Any]) -> None:
        import penstock

        self._trace = _trace(options, "subscriber")
        self._networks = [penstock.connect(address, name="subscriber", trace=self._trace)]
        await self._networks[0].open()
        self._messages = await self._networks[0].subscribe(WHERE, queue_max=10_000_000).open()
        others = options["filters"] - 1
        for start in range(0, others, SUBSCRIPTIONS_PER_CLIENT):
            network = await penstock.connect(address, name=f"bystander-{start}").open()
            self._networks.append(network)
            texts = [f"symbol = 'S{i}' AND price < 200" for i in range(start, min(others, start + 900))]
            await asyncio.gather(*(network.subscribe(text).open() for text in texts))

    async def take(self, within: float) -> Sequence[bytes]:
        try:
            async with asyncio.timeout(within):
                return [message.body for message in await self._messages.take(100_000)]
        except TimeoutError:
            return []

    async def close(self) -> None:
        for network in self._networks:
            await network.close()
        if self._trace is not None:
            self._trace.close()


def _trace(options: dict[str, Any], name: str) -> Any:
    if not options.get("trace"):
        return None
    from pathlib import Path

    from penstock.live.trace import open_trace

    return open_trace(Path(options["trace"]), name, began=options["began"])


# NATS: a subject for each filter.


class NatsPublisher:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import nats

        self._client = await nats.connect(address)

    async def publish(self, number: int, body: bytes) -> None:
        await self._client.publish(SUBJECT, body)

    async def flush(self) -> None:
        await self._client.flush(timeout=30)

    async def close(self) -> None:
        await self._client.close()


class NatsSubscriber:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import nats

        self._bodies: list[bytes] = []
        self._some = asyncio.Event()
        self._client = await nats.connect(address)
        wide = {"pending_msgs_limit": 10_000_000, "pending_bytes_limit": 1 << 34}
        await self._client.subscribe(SUBJECT, cb=self._came, **wide)
        for i in range(options["filters"] - 1):
            await self._client.subscribe(f"quotes.S{i}", cb=self._came)
        await self._client.flush(timeout=60)

    async def _came(self, message: Any) -> None:
        self._bodies.append(message.data)
        self._some.set()

    async def take(self, within: float) -> Sequence[bytes]:
        try:
            async with asyncio.timeout(within):
                await self._some.wait()
        except TimeoutError:
            return []
        bodies, self._bodies = self._bodies, []
        self._some.clear()
        return bodies

    async def close(self) -> None:
        await self._client.close()


# pyzmq: PUB and SUB face to face, no broker; the topic is a frame of its own.


class ZmqPublisher:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import zmq

        self._socket = zmq.Context.instance().socket(zmq.PUB)
        self._socket.set_hwm(0)
        self._socket.bind(address)

    async def publish(self, number: int, body: bytes) -> None:
        self._socket.send_multipart((b"quotes.IBM", body), copy=True)

    async def flush(self) -> None: ...

    async def close(self) -> None:
        self._socket.close(linger=0)


class ZmqSubscriber:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import zmq

        self._zmq = zmq
        self._socket = zmq.Context.instance().socket(zmq.SUB)
        self._socket.set_hwm(0)
        self._socket.connect(address)
        self._socket.subscribe(b"quotes.IBM")

    async def take(self, within: float) -> Sequence[bytes]:
        bodies: list[bytes] = []
        receive, again = self._socket.recv_multipart, self._zmq.ProactiveRepair
        if self._socket.poll(within * 1000):
            try:
                while len(bodies) < 10_000:
                    bodies.append(receive(self._zmq.NOBLOCK)[1])
            except again:
                pass
        return bodies

    async def close(self) -> None:
        self._socket.close(linger=0)


# zenoh: two peers, no router.


def _zenoh_session(key: str, address: str) -> Any:
    import zenoh

    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("scouting/gossip/enabled", "false")
    config.insert_json5("listen/endpoints", json.dumps([address] if key == "listen" else []))
    config.insert_json5("connect/endpoints", json.dumps([address] if key == "connect" else []))
    return zenoh.open(config)


class ZenohPublisher:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import zenoh

        self._session = _zenoh_session("listen", address)
        self._publisher = self._session.declare_publisher(
            "quotes/IBM", congestion_control=zenoh.CongestionControl.BLOCK
        )

    async def publish(self, number: int, body: bytes) -> None:
        self._publisher.put(body)

    async def flush(self) -> None: ...

    async def close(self) -> None:
        self._session.close()


class ZenohSubscriber:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        self._bodies: list[bytes] = []
        self._session = _zenoh_session("connect", address)
        self._subscriber = self._session.declare_subscriber(
            "quotes/IBM", lambda sample: self._bodies.append(sample.payload.to_bytes())
        )

    async def take(self, within: float) -> Sequence[bytes]:
        until = time.monotonic() + within
        while not self._bodies and time.monotonic() < until:
            time.sleep(0.000_05)
        bodies, self._bodies = self._bodies, []
        return bodies

    async def close(self) -> None:
        self._session.close()


SYSTEMS: dict[str, tuple[type[Publisher], type[Subscriber]]] = {
    "penstock": (PenstockPublisher, PenstockSubscriber),
    "nats": (NatsPublisher, NatsSubscriber),
    "pyzmq": (ZmqPublisher, ZmqSubscriber),
    "zenoh": (ZenohPublisher, ZenohSubscriber),
}


# Orders.


async def publish(publisher: Publisher, *, count: int, size: int, rate: float | None) -> dict[str, Any]:
    cpu, began = time.process_time(), time.monotonic()
    if rate is None:
        body, send = bytes(size), publisher.publish
        for number in range(count):
            await send(number, body)
    else:
        rest = bytes(size - 8)
        for number in range(count):
            wait = began + number / rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            await publisher.publish(number, time.monotonic_ns().to_bytes(8, "big") + rest)
    await publisher.flush()
    return {"began": began, "ended": time.monotonic(), "cpu": time.process_time() - cpu}


async def receive(subscriber: Subscriber, *, count: int, patience: float) -> dict[str, Any]:
    cpu, received, last = time.process_time(), 0, 0.0
    delays: list[float] = []
    while received < count:
        bodies = await subscriber.take(QUIET if received else patience)
        if not bodies:
            break
        received += len(bodies)
        last = time.monotonic()
        stamps = (int.from_bytes(body[:8], "big") for body in (bodies if bodies[-1][:8].strip(b"\0") else ()))
        delays += [last - stamp / 1e9 for stamp in stamps if stamp]
    return {"received": received, "last": last, "cpu": time.process_time() - cpu, "delays": delays}


def orders() -> Iterator[dict[str, Any]]:
    while line := sys.stdin.readline():
        yield json.loads(line)


def answer(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def main(role: str, system: str, address: str, options: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    end: Any = SYSTEMS[system][role == "subscriber"]()
    await end.open(address, options)
    answer(ready=True)
    waiting = orders()
    while (order := await loop.run_in_executor(None, lambda: next(waiting, None))) is not None:
        if role == "subscriber":
            answer(listening=True)
            answer(**await receive(end, **order))
        else:
            answer(**await publish(end, **order))
    await end.close()


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
