"""The programs of `hostile.py` that run in processes of their own: the healthy pair's two ends, and the attacker.

Started as `python hostile_roles.py ROLE OPTIONS`. Orders come on stdin and answers go to stdout, one JSON object a
line; when stdin ends the process ends. Times are CLOCK_MONOTONIC, which all processes of a machine share.

    publisher   {"rate"}    publishes without end, message n at began + n / rate; answers {"began"} at once
                {}          answers {"refused"}: how many could not be published, then stops
    subscriber  {}          answers {"arrivals": [[n, time], ...], "twice", "forged"}
    attacker    {"until"}   attacks; answers {"heard": [...], "problem"}
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from array import array
from typing import Any

import penstock
from hostile_attacks import ATTACKS, PAIR_WHERE
from hostile_peer import Ground
from penstock.live.event_loop import run
from penstock.live.wire.addresses import parse_address

LATE_AFTER = 1.0  # seconds after it was due; a message that is later does not count as delivered
BODY_BYTES = 128
TICK = 0.002


class Orders:
    """Lines of JSON, in and out."""

    async def open(self) -> Orders:
        self._reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._reader), sys.stdin)
        self.answer(ready=True)
        return self

    async def next(self) -> dict[str, Any] | None:
        line = await self._reader.readline()
        return json.loads(line) if line else None

    def answer(self, **what: Any) -> None:
        print(json.dumps(what), flush=True)


async def publisher(options: dict[str, Any]) -> None:
    """One message at each time that the rate names; whatever is late already is left out, and counts as lost."""
    async with penstock.connect(options["url"], name=options["name"], transport=True) as network:
        orders = await Orders().open()
        order = await orders.next()
        if order is None:
            return
        rate, began, refused = order["rate"], time.monotonic(), 0
        token = options["token"].encode()
        orders.answer(began=began)
        ending = asyncio.ensure_future(orders.next())
        number = 0
        while not ending.done():
            now = time.monotonic()
            number = max(number, int((now - began - LATE_AFTER) * rate))
            while began + number / rate <= now:
                body = token + number.to_bytes(8, "big")
                try:
                    await network.publish({"stream": "pair", "n": number}, body.ljust(BODY_BYTES, b"\0"))
                except penstock.PenstockError:
                    refused += 1
                number += 1
            await asyncio.sleep(TICK)
        orders.answer(refused=refused)
        await orders.next()


async def subscriber(options: dict[str, Any]) -> None:
    """Notes when each message came; a message under the publisher's name without the token is a forgery."""
    token, first = options["token"].encode(), len(options["token"])
    numbers, times = array("q"), array("d")
    forged = 0
    async with penstock.connect(options["url"], name=options["name"], transport=True) as network:
        messages = await network.subscribe(PAIR_WHERE, queue_max=1_000_000).open()
        orders = await Orders().open()

        async def reads() -> None:
            nonlocal forged
            while True:
                for message in await messages.take(10_000):
                    if message.body.startswith(token):
                        numbers.append(int.from_bytes(message.body[first : first + 8], "big"))
                        times.append(time.monotonic())
                    else:
                        forged += 1

        reading = asyncio.ensure_future(reads())
        while await orders.next() is not None:
            arrivals: dict[int, float] = {}
            for number, at in zip(numbers, times, strict=True):
                arrivals.setdefault(number, at)
            twice = len(numbers) - len(arrivals)
            orders.answer(arrivals=list(arrivals.items()), twice=twice, forged=forged, reconnects=network.reconnects)
        reading.cancel()


async def attacker(options: dict[str, Any]) -> None:
    """One attack, at a lower priority: a real attacker would not share a machine with its victims."""
    os.nice(10)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    addresses = {name: parse_address(address) for name, address in options["addresses"].items()}
    ground = Ground(addresses, options["numbers"])
    orders = await Orders().open()
    while (order := await orders.next()) is not None:
        problem, heard = "", []
        try:
            async with asyncio.timeout(order["until"] - time.monotonic() + 3.0):
                heard = (await ATTACKS[options["attack"]].run(ground, order["until"])).most()
        except Exception as error:  # whatever it is, the bench says so
            problem = f"the attack failed: {type(error).__name__}: {error}"
        orders.answer(heard=heard, problem=problem)


if __name__ == "__main__":
    roles = {"publisher": publisher, "subscriber": subscriber, "attacker": attacker}
    run(roles[sys.argv[1]](json.loads(sys.argv[2])))
