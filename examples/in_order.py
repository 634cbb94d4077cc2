"""Order and recovery over a bad link: two subscribers to the same messages, one of which asks for more.

The link between the two brokers loses one message in twenty and lets messages overtake each other. The publisher adds
what it takes to notice that (`transport=`); whether to use it is up to each subscription.
"""

import asyncio
import os

import penstock
from penstock.testing import embedded_network

COUNT = 300
CAREFUL = penstock.TransportConfig(late="hold")  # wait for what is being recovered, two seconds at most


async def read(messages: penstock.Subscription) -> list[int]:
    """The numbers of all messages as they come, until the publisher says that it is done."""
    numbers = []
    async for message in messages:
        number = message.attributes["number"]
        assert isinstance(number, int)
        if number > COUNT:
            break
        numbers.append(number)
    return numbers


def out_of_order(numbers: list[int]) -> int:
    return sum(number < max(numbers[:place]) for place, number in enumerate(numbers) if place)


async def main(here: str, there: str) -> None:
    async with (
        penstock.connect(there, name="careful", transport=CAREFUL) as careful,
        careful.subscribe("number > 0", ordered=True, recover=True) as repaired,
        penstock.connect(there, name="plain") as plain,
        plain.subscribe("number > 0") as bare,
        penstock.connect(here, name="exchange", transport=True) as exchange,
        asyncio.TaskGroup() as group,
    ):
        reading = {"careful": group.create_task(read(repaired)), "plain": group.create_task(read(bare))}
        for number in range(1, COUNT + 1):
            await exchange.publish({"number": number})
            await asyncio.sleep(0.003)
        while not all(task.done() for task in reading.values()):  # the end may get lost like anything else
            await asyncio.sleep(0.05)
            await exchange.publish({"number": COUNT + 1})

        for name, task in reading.items():
            numbers = task.result()
            print(f"{name:8} {len(numbers)} of {COUNT} messages, {out_of_order(numbers)} of them out of order")
        report = repaired.report()
        print(f"careful  {report.recovered} were lost and recovered, {report.known_lost} given up")
        print(f"careful  a message waited {1000 * report.delay_held:.0f} ms for others on average")


async def start() -> None:
    if url := os.environ.get("PENSTOCK_URL"):
        await main(url, url)
    else:
        async with embedded_network(("a", "b"), loss=0.05, delay=0.01, jitter=0.005) as brokers:
            await main(brokers.urls["a"], brokers.urls["b"])


if __name__ == "__main__":
    asyncio.run(start())
