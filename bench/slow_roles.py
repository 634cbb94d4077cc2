"""The three ends of the slow-subscriber measurement, for each system: each is a process of its own.

Started by `slow_subscriber.py`: `python slow_roles.py ROLE SYSTEM ADDRESS OPTIONS`. Orders come on stdin and answers go
to stdout, one JSON object a line; when stdin ends the process ends. To add a system, write its two classes and enter
them in SYSTEMS.

    publisher    {"seconds", "round"}      publishes; answers {"sent", "withheld", "seconds", "told"}
    subscriber   {"subscribe": [kinds]}    answers {"subscribed"}
                 {"report": round}         reads what is left without delay, and answers {"got", "during", "told", ...}

A body begins with the round, the kind, the number and the time of publication, so that copies are told from originals.
The subscriber's work on a message is a sleep that blocks, as a computation or a database call would.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.live.event_loop import run

HEAD = struct.Struct("<BcQd")  # round, kind, number, time
QUIET = 0.7  # seconds without a message: no more will come
KINDS = ("a", "b")


class Publisher(Protocol):
    withheld: int  # messages of kind b that did not leave, as the publisher was told

    async def open(self, address: str, options: dict[str, Any]) -> None: ...
    async def publish(self, kind: str, body: bytes) -> None: ...
    async def flush(self) -> None: ...
    def told(self) -> str: ...
    async def close(self) -> None: ...


class Subscriber(Protocol):
    async def open(self, address: str, options: dict[str, Any], seen: Seen) -> None: ...
    async def subscribe(self, kinds: Sequence[str]) -> None: ...
    def told(self) -> str: ...
    def recovered(self) -> int: ...
    async def close(self) -> None: ...


class Seen:
    """What a subscriber has got, and how long it takes over each message."""

    def __init__(self, work: float) -> None:
        self.work = work
        self.numbers: dict[tuple[int, str], set[int]] = defaultdict(set)
        self.last = 0.0
        self.age = 0.0  # of the last message, when it was read
        self.lock = threading.Lock()

    def __call__(self, body: bytes) -> None:
        if self.work:
            time.sleep(self.work)
        round_, kind, number, sent_at = HEAD.unpack_from(body)
        with self.lock:
            self.numbers[round_, kind.decode()].add(number)
            self.last = time.monotonic()
            self.age = self.last - sent_at

    def counts(self, round_: int) -> dict[str, int]:
        with self.lock:
            return {kind: len(self.numbers[round_, kind]) for kind in KINDS}


# Penstock.


def _settings(options: dict[str, Any]) -> Any:
    import penstock

    if options.get("plain"):
        return None
    return penstock.TransportConfig(congestion=True, when_full=options.get("when_full", "wait"))


class PenstockPublisher:
    async def open(self, address: str, options: dict[str, Any]) -> None:
        import penstock

        self.withheld = 0
        self._kinds: list[str] = [""]  # by the count of the identity
        self._network = penstock.connect(address, name="publisher", transport=_settings(options))
        self._network.on_withheld(self._was_withheld)
        await self._network.open()

    def _was_withheld(self, count: int, receiver: str) -> None:
        self.withheld += self._kinds[count] == "b"

    async def publish(self, kind: str, body: bytes) -> None:
        self._kinds.append(kind)
        await self._network.publish({"kind": kind}, body)

    async def flush(self) -> None:
        await self._network._link.let_out()

    def told(self) -> str:
        return ", ".join(flow.reason for flow in self._network.flows())

    async def close(self) -> None:
        await self._network.close()


class PenstockSubscriber:
    async def open(self, address: str, options: dict[str, Any], seen: Seen) -> None:
        import penstock

        self._seen = seen
        self._recover = bool(options.get("recover")) and not options.get("plain")
        self._network = penstock.connect(address, name=options["name"], transport=_settings(options))
        await self._network.open()
        self._subscriptions: list[Any] = []
        self._readers: list[asyncio.Task[None]] = []

    async def subscribe(self, kinds: Sequence[str]) -> None:
        where = f"kind IN ({', '.join(repr(kind) for kind in kinds)})"
        made = await self._network.subscribe(where, recover=self._recover).open()
        self._subscriptions.append(made)
        self._readers.append(asyncio.ensure_future(self._read(made)))

    async def _read(self, messages: Any) -> None:
        async for message in messages:
            self._seen(message.body)

    def told(self) -> str:
        reports = [made.report() for made in self._subscriptions]
        dropped = sum(report.dropped for report in reports)
        at_broker = sum(report.lost_at_broker for report in reports)
        noticed = sum(report.lost for report in reports)
        lost = f"{dropped} here, {at_broker} at the broker, {noticed} noticed" if dropped + at_broker + noticed else ""
        slowed = sum(report.feedbacks for report in reports)
        withheld = f"; {self.withheld()} withheld" if self.withheld() else ""
        return f"{lost or 'nothing lost'}{withheld}, {slowed} feedbacks" if lost or slowed else ""

    def withheld(self) -> int:
        """By its broker, because it reads slowly."""
        return sum(flow.messages for made in self._subscriptions for flow in made.report().withheld_by)

    def recovered(self) -> int:
        return sum(made.report().recovered for made in self._subscriptions)

    async def close(self) -> None:
        for reader in self._readers:
            reader.cancel()
        await self._network.close()


# NATS: a subject for each kind.


class NatsPublisher:
    withheld = 0

    async def open(self, address: str, options: dict[str, Any]) -> None:
        import nats

        self._errors: list[str] = []
        self._client = await nats.connect(address, error_cb=self._failed)

    async def _failed(self, error: Exception) -> None:
        self._errors.append(str(error))

    async def publish(self, kind: str, body: bytes) -> None:
        await self._client.publish(f"kind.{kind}", body)

    async def flush(self) -> None:
        await self._client.flush(timeout=30)

    def told(self) -> str:
        return "; ".join(self._errors)

    async def close(self) -> None:
        await self._client.close()


class NatsSubscriber:
    async def open(self, address: str, options: dict[str, Any], seen: Seen) -> None:
        import nats

        self._seen = seen
        self._errors: list[str] = []
        self._client = await nats.connect(address, error_cb=self._failed, disconnected_cb=self._cut_off)

    async def subscribe(self, kinds: Sequence[str]) -> None:
        for kind in kinds:
            await self._client.subscribe(f"kind.{kind}", cb=self._came)
        await self._client.flush(timeout=30)

    async def _came(self, message: Any) -> None:
        self._seen(message.data)

    async def _failed(self, error: Exception) -> None:
        self._errors.append(str(error) or type(error).__name__)

    async def _cut_off(self) -> None:
        self._errors.append("disconnected")

    def told(self) -> str:
        return "; ".join(dict.fromkeys(self._errors))

    def recovered(self) -> int:
        return 0

    async def close(self) -> None:
        await self._client.close()


# zenoh: three peers, no router; the publisher listens.


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
    withheld = 0

    async def open(self, address: str, options: dict[str, Any]) -> None:
        import zenoh

        control = zenoh.CongestionControl.BLOCK if options["blocks"] else zenoh.CongestionControl.DROP
        self._session = _zenoh_session("listen", address)
        self._publishers = {
            kind: self._session.declare_publisher(f"kind/{kind}", congestion_control=control) for kind in KINDS
        }

    async def publish(self, kind: str, body: bytes) -> None:
        self._publishers[kind].put(body)

    async def flush(self) -> None: ...

    def told(self) -> str:
        return ""  # `put` returns nothing, and no callback tells of it

    async def close(self) -> None:
        self._session.close()


class ZenohSubscriber:
    async def open(self, address: str, options: dict[str, Any], seen: Seen) -> None:
        self._seen = seen
        self._session = _zenoh_session("connect", address)
        self._subscribers: list[Any] = []

    async def subscribe(self, kinds: Sequence[str]) -> None:
        for kind in kinds:
            self._subscribers.append(
                self._session.declare_subscriber(f"kind/{kind}", lambda sample: self._seen(sample.payload.to_bytes()))
            )

    def told(self) -> str:
        return ""

    def recovered(self) -> int:
        return 0

    async def close(self) -> None:
        self._session.close()


SYSTEMS: dict[str, tuple[type[Any], type[Any]]] = {
    "penstock": (PenstockPublisher, PenstockSubscriber),
    "nats": (NatsPublisher, NatsSubscriber),
    "zenoh": (ZenohPublisher, ZenohSubscriber),
}


# Orders.


async def publish(publisher: Publisher, options: dict[str, Any], seconds: float, round_: int) -> dict[str, Any]:
    """The kinds in turn, or a writer for each; at a rate, or as fast as it goes."""
    sent = dict.fromkeys(KINDS, 0)
    rest, rate = bytes(options["size"] - HEAD.size), options.get("rate")
    withheld, began = publisher.withheld, time.monotonic()

    async def write(kinds: Sequence[str]) -> None:
        turn = 0
        while (now := time.monotonic()) - began < seconds or turn == 0:
            turn += 1
            for kind in kinds:
                body = HEAD.pack(round_, kind.encode(), sent[kind], now) + rest
                sent[kind] += 1
                await publisher.publish(kind, body)
            if rate is not None and turn % 8 == 0:
                await asyncio.sleep(max(0.0, began + turn / rate - time.monotonic()))
            elif turn % 64 == 0:
                await asyncio.sleep(0)

    writers = [write([kind]) for kind in KINDS] if options.get("writers") == 2 else [write(KINDS)]
    tasks = [asyncio.ensure_future(writer) for writer in writers]
    await asyncio.wait(tasks, timeout=seconds + 1.0)
    for task in tasks:
        task.cancel()
    took = time.monotonic() - began
    told = publisher.told()
    await publisher.flush()
    return {"sent": sent, "seconds": took, "withheld": publisher.withheld - withheld, "told": told}


async def report(subscriber: Subscriber, seen: Seen, round_: int) -> dict[str, Any]:
    """What came until now, and what comes when the reader no longer takes its time."""
    during, behind = seen.counts(round_), seen.age
    work, seen.work = seen.work, 0.0
    seen.last = max(seen.last, time.monotonic())
    while time.monotonic() - seen.last < QUIET:
        await asyncio.sleep(0.05)
    seen.work = work
    return {
        "during": during,
        "behind": behind,
        "got": seen.counts(round_),
        "told": subscriber.told(),
        "recovered": subscriber.recovered(),
        "withheld": subscriber.withheld() if isinstance(subscriber, PenstockSubscriber) else 0,
    }


def answer(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def main(role: str, system: str, address: str, options: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    end: Any = SYSTEMS[system][role == "subscriber"]()
    seen = Seen(options.get("work", 0.0))
    await (end.open(address, options, seen) if role == "subscriber" else end.open(address, options))
    answer(ready=True)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        if "subscribe" in order:
            await end.subscribe(order["subscribe"])
            answer(subscribed=True)
        elif "report" in order:
            answer(**await report(end, seen, order["report"]))
        else:
            answer(**await publish(end, options, order["seconds"], order["round"]))
    await end.close()


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
