"""Congestion control: a slow reader slows down what it wants, and nothing else; and the publisher knows its name.

One publisher sends prices and details, ten of each every 20 ms. "archive" wants the details, and takes 20 ms for each;
"trader" wants the prices.
"""

import asyncio
import os
from collections import Counter

import penstock
from penstock.testing import embedded_network

CONTROL = penstock.TransportConfig(congestion=True)  # the same on both sides
PRICES = 800


async def publish(network: penstock.Network, kind: str, sent: Counter[str]) -> None:
    """Until all prices are out. Each kind has a task of its own, so that one can wait while the other goes on."""
    while sent["price"] < PRICES:
        for _ in range(10):
            await network.publish({"kind": kind})  # waits while somebody who wants this kind is behind
            sent[kind] += 1
        await asyncio.sleep(0.02)


async def read(messages: penstock.Subscription, seconds_each: float) -> None:
    async for _ in messages:
        await asyncio.sleep(seconds_each)


async def main(url: str) -> None:
    async with (
        penstock.connect(url, name="trader", transport=CONTROL) as trader,
        penstock.connect(url, name="archive", transport=CONTROL) as archive,
        penstock.connect(url, name="exchange", transport=CONTROL) as exchange,
        trader.subscribe("kind = 'price'") as prices,
        archive.subscribe("kind = 'detail'", queue_max=500) as details,
    ):
        readers = [asyncio.create_task(read(prices, 0.0)), asyncio.create_task(read(details, 0.02))]
        sent: Counter[str] = Counter()
        await asyncio.gather(publish(exchange, "price", sent), publish(exchange, "detail", sent))
        while prices.report().received < PRICES:  # the last ones are on their way
            await asyncio.sleep(0.01)

        for flow in exchange.flows():
            print(flow.reason)
        print(f"prices:  {sent['price']} sent, {prices.report().received} received")
        print(f"details: {sent['detail']} sent, none lost: {details.report().dropped == 0}")
        for reader in readers:
            reader.cancel()


async def start() -> None:
    if url := os.environ.get("PENSTOCK_URL"):
        await main(url)
    else:
        async with embedded_network() as brokers:
            await main(brokers.url)


if __name__ == "__main__":
    asyncio.run(start())
