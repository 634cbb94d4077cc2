"""What does priced sending cost, and how soon does it settle? Run: `python bench/pricing.py [--quick] [--json FILE]`.

Three questions, a table each, all in the simulator and so in one thread:

    message   microseconds of the processor for each message, of everything (clients, brokers, links, simulator): best
              effort and priced, over the same reliable link, which is not full
    senders   seconds of the network's own time until senders at one broker use 90 % of a link of 2 Mbit/s in each
              second of five, the largest buffer until then and later, and how far the furthest sender is from the mean
    links     the same for four senders on the first link of a chain of so many; the other links are idle and cost
              nothing, so what grows is the number of brokers that say so, once a second

Times of the processor, not of the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from penstock.kernel.trace import Record
from penstock.lab.setups.spread import MBIT, WIRE_BYTES, spread_network
from penstock.pricing.config import PricingConfig
from penstock.pricing.records import LinkPriced, MessageBought
from penstock.scenario.spec import Scenario
from penstock.sim.run import simulate

Row = dict[str, Any]
BOTTLENECK = 2.0  # Mbit/s
ENOUGH = 0.9
STEADY = 5  # seconds
SENDERS = (2, 10, 40, 100, 400, 1_000)
LINKS = (5, 20, 100, 500)
SECONDS = 40.0


class Look:
    """What is bought in each second and by whom, and the largest buffer in each second."""

    def __init__(self) -> None:
        self.bought: Counter[int] = Counter()
        self.senders: Counter[str] = Counter()
        self.buffers: Counter[int] = Counter()

    def write(self, time: float, node: str, record: Record) -> None:
        """One record of the run."""
        second = int(time)
        if isinstance(record, MessageBought):
            self.bought[second] += 1
            if time > SECONDS / 2:
                self.senders[record.publisher] += 1
        elif isinstance(record, LinkPriced):
            self.buffers[second] = max(self.buffers[second], record.most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few senders and links: half a minute")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    senders, links = (SENDERS[:3], LINKS[:2]) if arguments.quick else (SENDERS, LINKS)
    measured: dict[str, Iterator[Row]] = {
        "message": (per_message(priced) for priced in (False, True)),
        "senders": (settle(count, 1) for count in senders),
        "links": (settle(4, count) for count in links),
    }
    tables: dict[str, list[Row]] = {}
    for name, rows in measured.items():
        print(f"\n{name}")
        for row in rows:
            print("  " + "  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            tables.setdefault(name, []).append(row)
    if arguments.json:
        arguments.json.write_text(json.dumps(tables, indent=1))


def per_message(priced: bool) -> Row:
    """The cost of one message, less that of the same network in which nobody sends."""
    count, seconds = 10, 20.0
    busy = network(count, 1, seconds, rate=20.0 * BOTTLENECK, priced=priced)
    clients = tuple(
        replace(client, publish=tuple(replace(flow, rate_messages_per_s=40.0) for flow in client.publish))
        for client in busy.client
    )
    busy = replace(busy, client=clients)
    idle = replace(busy, client=tuple(replace(client, publish=()) for client in clients))
    simulate(idle, 1)
    spent = cpu(busy) - cpu(idle)
    messages = count * 40.0 * (seconds - 2.0)
    return {"priced": priced, "microseconds per message": round(1e6 * spent / messages, 1)}


def cpu(scenario: Scenario) -> float:
    """Seconds of the processor."""
    start = time.process_time()
    simulate(scenario, 1)
    return time.process_time() - start


def settle(senders: int, links: int) -> Row:
    """How soon a network is used, and how."""
    look = Look()
    scenario = network(senders, links, SECONDS, rate=BOTTLENECK, priced=True)
    start = time.process_time()
    simulate(scenario, 1, trace=look)
    spent = time.process_time() - start
    needed = ENOUGH * BOTTLENECK * MBIT / 8 / WIRE_BYTES
    good = [
        second
        for second in range(2, int(SECONDS) - STEADY)
        if all(look.bought[second + later] >= needed for later in range(STEADY))
    ]
    settled = good[0] - 2 if good else None
    begun = 2 + (settled if settled is not None else int(SECONDS))
    shares = list(look.senders.values())
    mean = sum(shares) / senders
    return {
        "senders": senders,
        "links": links,
        "settled after (s)": settled,
        "largest buffer until then": max((look.buffers[s] for s in range(begun + 1)), default=0),
        "later": max((look.buffers[s] for s in range(begun + 1, int(SECONDS))), default=0),
        "furthest sender (%)": round(100 * max(abs(one - mean) for one in shares) / mean, 1) if mean else None,
        "processor (s)": round(spent, 1),
    }


def network(senders: int, links: int, seconds: float, *, rate: float, priced: bool) -> Scenario:
    """A chain with all senders at its first broker and their readers at the second."""
    names = [f"b{number}" for number in range(links + 1)]
    pairs = dict.fromkeys(pairwise(names), rate)
    return spread_network(
        "bench",
        pairs,
        {"G": (names[0], (names[1],))},
        duration=seconds,
        senders=senders,
        pricing=PricingConfig(),
        priced=priced,
    )


if __name__ == "__main__":
    main()
