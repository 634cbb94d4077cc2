"""Alerts: sensors publish what they measure, and everybody says in a WHERE text what concerns them.

Each reading is carried once to whoever wants it; filters may overlap, and nobody but the subscriber knows of them.
"""

import asyncio
import os

import penstock
from penstock.testing import embedded_network

CONCERNS = {
    "fire brigade": "kind = 'smoke' AND level >= 5",
    "janitor": "(kind = 'smoke' AND level < 5) OR kind = 'door' OR battery < 0.2",
    "heating": "kind = 'temperature' AND celsius NOT BETWEEN 17 AND 26",
    "laboratory": "room LIKE 'lab-%' AND kind IN ('smoke', 'temperature')",
}
READINGS: list[dict[str, penstock.Value]] = [
    {"kind": "temperature", "room": "office-3", "celsius": 21.5},
    {"kind": "smoke", "room": "lab-1", "level": 7},
    {"kind": "door", "room": "hall", "open": True},
    {"kind": "temperature", "room": "lab-2", "celsius": 31.0},
    {"kind": "smoke", "room": "kitchen", "level": 2, "battery": 0.1},
]


async def read(messages: penstock.Subscription) -> list[str]:
    """The rooms of all messages, until the building closes."""
    rooms = []
    async for message in messages:
        if "closing" in message.attributes:
            break
        rooms.append(f"{message.attributes['kind']} in {message.attributes['room']}")
    return rooms


async def main(url: str) -> None:
    async with penstock.connect(url) as building, asyncio.TaskGroup() as group:
        readers = {}
        for who, where in CONCERNS.items():
            # A name alone is true if the attribute is: so ends the stream, for all of them.
            messages = await building.subscribe(f"({where}) OR closing").open()
            readers[who] = group.create_task(read(messages))

        async with penstock.connect(url, name="sensors") as sensors:
            for reading in READINGS:
                await sensors.publish(reading)
            await sensors.publish({"closing": True})

        for who, reader in readers.items():
            print(f"{who:13} {', '.join(await reader)}")


async def start() -> None:
    if url := os.environ.get("PENSTOCK_URL"):
        await main(url)
    else:
        async with embedded_network() as brokers:
            await main(brokers.url)


if __name__ == "__main__":
    asyncio.run(start())
