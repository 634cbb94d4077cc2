"""`penstock bench`: throughput and latency against a running network, with one publisher and some subscribers.

Two phases. Throughput: publish as fast as the connection takes it, and count what arrives; best effort drops what a
broker cannot keep up with, so received over sent is part of the answer. Latency: publish at a modest rate, and take
the time from publishing to reading, both by this machine's clock. The publisher is a process of its own, because one
event loop for both ends would measure itself.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.clients import CONNECT_WITHIN, AsJson, Url, run_client
from penstock.cli.sim import percentile
from penstock.errors import Unreachable
from penstock.lab.engine.pool_processes import end_with_parent

if TYPE_CHECKING:
    from penstock.live.client.network import Network
    from penstock.live.client.subscription import Subscription

QUIET = 1.0  # seconds without a message before what is missing counts as lost
QUEUE_MAX = 1_000_000


def bench_command(
    messages: Annotated[int, typer.Option(help="How many messages for throughput.", min=1)] = 100_000,
    size: Annotated[int, typer.Option(help="Bytes of body.", min=0, max=1 << 20)] = 128,
    subscribers: Annotated[int, typer.Option(help="How many clients want every message.", min=1, max=1000)] = 1,
    filters: Annotated[int, typer.Option(help="How many more filters, none of which match.", min=0)] = 0,
    rate: Annotated[float, typer.Option(help="Messages per second for latency.", min=1.0)] = 1000.0,
    seconds: Annotated[float, typer.Option(help="How long to measure latency.", min=0.1)] = 3.0,
    to: Annotated[str | None, typer.Option(metavar="URL", help="The subscribers' broker, if another one.")] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Measure throughput and latency of a running network.

    Example: penstock bench --messages 100000 --size 128
    """
    found = run_client(_bench(url, to or url, messages, size, subscribers, filters, rate, seconds))
    if as_json:
        typer.echo(json.dumps(found))
        return
    sent, received = found["sent_per_s"], found["received_per_s"]
    share = found["received"] / (messages * subscribers)
    typer.echo(f"throughput  {received:,.0f} messages/s received, {sent:,.0f}/s sent; {share:.2%} of all arrived")
    latency = " ".join(f"{name} {found[f'latency_{name}'] * 1e3:.2f} ms" for name in ("p50", "p90", "p99", "max"))
    typer.echo(f"latency     {latency} at {rate:,.0f} messages/s")


async def _bench(
    url: str | None,
    to: str | None,
    messages: int,
    size: int,
    subscribers: int,
    filters: int,
    rate: float,
    seconds: float,
) -> dict[str, Any]:
    from contextlib import AsyncExitStack

    from penstock.live.client.network import connect

    topic = f"bench-{time.time_ns()}"
    async with AsyncExitStack() as stack:
        readers = []
        network: Network | None = None
        for _ in range(subscribers):
            network = await stack.enter_async_context(connect(to, connect_within=CONNECT_WITHIN))
            subscription = network.subscribe(f"bench = '{topic}'", queue_max=QUEUE_MAX)
            readers.append(await stack.enter_async_context(subscription))
        assert network is not None
        for number in range(filters):
            if number % 900 == 0:  # a client may have no more than a thousand
                network = await stack.enter_async_context(connect(to, connect_within=CONNECT_WITHIN))
            await stack.enter_async_context(network.subscribe(f"bench = '{topic}' AND n = {-1 - number}"))
        context = multiprocessing.get_context("spawn")  # a fork would take our event loop along
        pool = stack.enter_context(ProcessPoolExecutor(1, mp_context=context, initializer=end_with_parent))
        await _warm_up(pool, readers, url, topic)
        throughput = await _throughput(pool, readers, url, topic, messages, size)
        latencies = await _latencies(pool, readers[0], url, topic, rate, seconds, size)
    return {**throughput, **latencies, "size": size, "subscribers": subscribers, "filters": filters}


async def _warm_up(pool: ProcessPoolExecutor, readers: list[Subscription], url: str | None, topic: str) -> None:
    """Publish single messages until one has arrived everywhere: the subscription is known to all brokers."""
    loop = asyncio.get_running_loop()
    waiting = [asyncio.ensure_future(reader.take()) for reader in readers]
    for _ in range(50):
        await loop.run_in_executor(pool, _publish, url, topic, 1, 0, None)
        if (await asyncio.wait(waiting, timeout=0.2))[1] == set():
            return
    for task in waiting:
        task.cancel()
    raise Unreachable("no message gets from publisher to subscriber; are their brokers linked? try penstock report")


async def _throughput(
    pool: ProcessPoolExecutor, readers: list[Subscription], url: str | None, topic: str, messages: int, size: int
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    counting = [asyncio.ensure_future(_count(reader, messages)) for reader in readers]
    began, ended = await loop.run_in_executor(pool, _publish, url, topic, messages, size, None)
    counted = await asyncio.gather(*counting)
    received = sum(count for count, _ in counted)
    last = max(at for _, at in counted)
    return {
        "sent": messages,
        "received": received,
        "sent_per_s": messages / (ended - began),
        "received_per_s": received / max(last - began, 1e-9),
    }


async def _count(reader: Subscription, messages: int) -> tuple[int, float]:
    """How many came, and when the last one did; ends when all have come or it is quiet."""
    count, last = 0, time.monotonic()
    begun = False
    while count < messages:
        try:
            async with asyncio.timeout(QUIET if begun else 30.0):
                batch = await reader.take(10_000)
        except TimeoutError:
            break
        fresh = sum(message.attributes["n"] >= 0 for message in batch)  # type: ignore[operator]  # we sent integers
        begun = begun or fresh > 0
        count += fresh
        last = time.monotonic() if fresh else last
    return count, last


async def _latencies(
    pool: ProcessPoolExecutor,
    reader: Subscription,
    url: str | None,
    topic: str,
    rate: float,
    seconds: float,
    size: int,
) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    delays: list[float] = []

    async def read() -> None:
        while batch := await reader.take():
            now = time.monotonic()
            delays.extend(now - float(message.attributes["at"]) for message in batch if "at" in message.attributes)

    reading = asyncio.ensure_future(read())
    await loop.run_in_executor(pool, _publish, url, topic, int(rate * seconds), size, rate)
    await asyncio.wait([reading], timeout=QUIET)
    reading.cancel()
    if not delays:
        raise Unreachable("nothing arrived while latency was measured; try penstock report")
    shares = {"latency_p50": 0.5, "latency_p90": 0.9, "latency_p99": 0.99, "latency_max": 1.0}
    return {name: percentile(delays, share) or 0.0 for name, share in shares.items()}


def _publish(url: str | None, topic: str, count: int, size: int, rate: float | None) -> tuple[float, float]:
    """In a process of its own: publish, and say when it began and ended."""
    from penstock.live.event_loop import run

    return run(_published(url, topic, count, size, rate))


async def _published(url: str | None, topic: str, count: int, size: int, rate: float | None) -> tuple[float, float]:
    from penstock.live.client.network import connect

    body = bytes(size)
    warming = count == 1
    async with connect(url, connect_within=CONNECT_WITHIN) as network:
        began = time.monotonic()
        for number in range(count):
            if rate is None:
                await network.publish({"bench": topic, "n": -1 if warming else number}, body)
                continue
            wait = began + number / rate - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            await network.publish({"bench": topic, "n": number, "at": time.monotonic()}, body)
    return began, time.monotonic()
