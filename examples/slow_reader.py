"""Congestion control: a slow reader slows down what it wants, and nothing else; and the publisher knows its name.

One publisher sends prices and details, 400 of each per second. "archive" wants the details and takes 10 ms for each;
"trader" wants the prices.
"""

import asyncio
import os
import time

import penstock
from penstock.testing import embedded_network

CONTROL = penstock.TransportConfig(congestion=True, record_entries=2)  # the same on both sides
SECONDS, RATE = 2.0, 400.0


async def publish(network: penstock.Network, kind: str) -> int:
    """At the rate, or as fast as congestion control lets us; each kind in a task of its own, so that one can wait."""
    began, sent = time.monotonic(), 0
    while (now := time.monotonic() - began) < SECONDS:
        if sent < now * RATE:
            await network.publish({"kind": kind})
            sent += 1
        else:
            await asyncio.sleep(1 / RATE)
    return sent


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
        readers = [asyncio.create_task(read(prices, 0.0)), asyncio.create_task(read(details, 0.01))]
        sent_prices, sent_details = await asyncio.gather(publish(exchange, "price"), publish(exchange, "detail"))
        while prices.report().received < sent_prices:  # the last ones are on their way
            await asyncio.sleep(0.01)

        for flow in exchange.flows():
            print(f"{flow.limiting_receiver} slows {flow.flow} to {flow.quota:.0f} messages/s")
        print(f"prices:  {sent_prices} sent, {prices.report().received} received")
        print(f"details: {sent_details} sent, none lost: {details.report().dropped == 0}")
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
