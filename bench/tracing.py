"""What does it cost to trace a network while it runs? Run: `python bench/tracing.py [--quick] [--json FILE]`.

Two brokers and two clients in one process: microseconds of its processor for a message of 80 bytes with three
attributes that is published once and delivered once, without tracing, with every message traced (two records each,
which are also sent and stored), and with one in a hundred. The three take turns, and the median of each counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path

import penstock
from penstock.testing import embedded_network

MESSAGES = 15_000
TURNS = 5
TOGETHER = 100  # messages between two pauses: publishers that never pause are thinned
PAUSE = 0.001  # seconds
SETTLE = 1.5  # seconds, in which what was traced goes out
ATTRIBUTES = {"n": 1, "symbol": "IBM", "price": 1.5}
BODY = bytes(80)
KINDS = {"without": 0, "every message": 1, "one in a hundred": 100}


async def turn(publisher: penstock.Network, messages: penstock.Subscription, count: int) -> float:
    """Microseconds for each message."""

    async def read() -> None:
        for _ in range(count):
            await anext(messages)

    began = time.process_time()
    reading = asyncio.create_task(read())
    for number in range(1, count + 1):
        await publisher.publish(ATTRIBUTES, BODY)
        if number % TOGETHER == 0:
            await asyncio.sleep(PAUSE)
    await asyncio.wait_for(reading, 60.0)
    return (time.process_time() - began) / count * 1e6


async def measured(count: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in KINDS}
    async with (
        embedded_network(("a", "b")) as brokers,
        penstock.connect(brokers.urls["a"]) as publisher,
        penstock.connect(brokers.urls["b"]) as reader,
        reader.subscribe("symbol = 'IBM'", queue_max=count) as messages,
    ):
        await turn(publisher, messages, count)  # the first one does not count
        for _ in range(TURNS):
            for name, one_in in KINDS.items():
                if one_in:
                    await publisher.trace(60, one_in=one_in)
                found[name].append(await turn(publisher, messages, count))
                await publisher.trace(0)
                await asyncio.sleep(SETTLE)
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages")
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    arguments = parser.parse_args()
    found = asyncio.run(measured(MESSAGES // 10 if arguments.quick else MESSAGES))
    for name, microseconds in found.items():
        print(f"{name:20} {microseconds:6.2f} us, {microseconds / found['without'] - 1.0:+.0%}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
