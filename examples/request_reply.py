"""Requests and replies over three brokers: whoever can answer does, and nobody needs an address.

A reply is a message that only the asker wants. An open subscription is known to all brokers, so the reply to what is
published next finds it.
"""

import asyncio
import os

import penstock
from penstock.testing import embedded_network

CAPITALS = {"France": "Paris", "Japan": "Tokyo", "Peru": "Lima"}


async def answer(network: penstock.Network, requests: penstock.Subscription) -> None:
    async for request in requests:
        capital = CAPITALS.get(str(request.attributes["country"]), "unknown")
        await network.publish({"reply_to": request.identity.publisher, "capital": capital})


async def ask(network: penstock.Network, replies: penstock.Subscription, country: str) -> str:
    await network.publish({"question": "capital", "country": country})
    async with asyncio.timeout(5.0):  # best effort: a question may get lost, and then no answer comes
        reply = await anext(replies)
    return str(reply.attributes["capital"])


async def main(here: str, there: str) -> None:
    async with (
        penstock.connect(there, name="atlas") as atlas,
        atlas.subscribe("question = 'capital'") as requests,
        penstock.connect(here, name="asker") as asker,
        asker.subscribe(f"reply_to = '{asker.name}'") as replies,
    ):
        answering = asyncio.create_task(answer(atlas, requests))
        for country in ("Japan", "Peru", "Atlantis"):
            print(f"{country}: {await ask(asker, replies, country)}")
        answering.cancel()


async def start() -> None:
    if url := os.environ.get("PENSTOCK_URL"):
        await main(url, url)
    else:
        async with embedded_network(("a", "b", "c")) as brokers:
            await main(brokers.urls["a"], brokers.urls["c"])


if __name__ == "__main__":
    asyncio.run(start())
