"""Orders that survive a crash: a stream at the bank, a reader with a durable name, and a broker that dies in between.

`publish` returns when the order is on disk. The clearing house reads under the name "clearing": whenever it comes back,
at whichever broker, it goes on behind the last order that it had acknowledged.
"""

import asyncio
import os
from contextlib import suppress

import penstock
from penstock.testing import EmbeddedNetwork, embedded_network

ORDERS = [("buy", "IBM", 100), ("sell", "AMD", 30), ("buy", "SAP", 7), ("sell", "IBM", 50), ("buy", "ARM", 12)]


async def place(url: str, orders: list[tuple[str, str, int]]) -> None:
    """The trader: every order is stored, or an error says so."""
    async with penstock.connect(url, name="trader") as network:
        stream = network.stream("orders")
        for side, symbol, shares in orders:
            await stream.publish({"side": side, "symbol": symbol, "shares": shares}, key=symbol)


async def clear(url: str, count: int) -> None:
    """The clearing house: so many orders, each once."""
    async with penstock.connect(url) as network:
        stream = network.stream("orders")
        async with stream.subscribe(durable="clearing", start="earliest", ack="manual") as messages:
            for _ in range(count):
                message = await anext(messages)
                order = message.attributes
                print(f"cleared: {order['side']} {order['shares']} {order['symbol']}")
                await messages.ack(message)


async def crash(brokers: EmbeddedNetwork | None) -> None:
    """Kill the bank's broker, and start it again with its disk; a network that is not ours is left alone."""
    if brokers is not None:
        await brokers.crash("bank")
        await brokers.start("bank")
    print("the bank's broker was killed, and is back")


async def main(url: str, bank: str, brokers: EmbeddedNetwork | None = None) -> None:
    async with penstock.connect(url) as network:
        with suppress(penstock.StreamRefused):  # it is there already
            await network.add_stream("orders", at=[bank])
    await place(url, ORDERS[:3])
    await clear(url, 2)
    await crash(brokers)
    await place(url, ORDERS[3:])
    await clear(url, 3)


async def start() -> None:
    if url := os.environ.get("PENSTOCK_URL"):
        await main(url, os.environ.get("PENSTOCK_BROKER", "broker"))
    else:
        async with embedded_network(("bank", "town")) as brokers:
            await main(brokers.urls["town"], "bank", brokers)


if __name__ == "__main__":
    asyncio.run(start())
