"""Shared names as an application meets them, on real brokers: several readers, each message to one of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import penstock
from live_help import run
from penstock.errors import InvalidOption
from penstock.testing import embedded_network, embedded_network_blocking, until

WITHIN = 40.0  # seconds; no healthy machine comes near


def test_members_at_several_brokers_share_the_work_and_the_next_gets_what_one_leaves() -> None:
    async def sharing() -> None:
        async with (
            asyncio.timeout(WITHIN),
            embedded_network(("a", "b", "c")) as brokers,
            penstock.connect(brokers.urls["b"]) as one,
            penstock.connect(brokers.urls["c"]) as other,
        ):
            await one.add_stream("orders", at=["a", "b"])
            seen: Counter[int] = Counter()

            async def work(messages: penstock.SharedSubscription) -> None:
                async for message in messages:
                    seen[message.attributes["n"]] += 1

            asked: dict[str, Any] = {"durable": "billing", "share": True, "start": "earliest"}
            orders = one.stream("orders")
            async with (
                orders.subscribe("n >= 0", **asked) as first,
                other.stream("orders").subscribe("n >= 0", ack="manual", **asked) as second,
            ):
                tasks = [asyncio.create_task(work(first))]
                await asyncio.gather(*(orders.publish({"n": n}, key=str(n)) for n in range(40)))
                held = await second.take(5)
                assert held
                done, left = held[0], held[1:]
                await second.ack(done)
                with pytest.raises(InvalidOption, match="settled"):
                    await second.ack(done)
                await second.close()
                await until(lambda: len(seen) == 39)
                info = (await orders.info(durable="billing"))["pubends"]
                assert sum(pubend["names"][0]["share"]["members_in_all"] for pubend in info) == 2
            for task in tasks:
                task.cancel()
            assert set(seen) == set(range(40)) - {done.attributes["n"]}
            assert all(seen[message.attributes["n"]] == 1 for message in left)

    run(sharing())


def test_what_is_rejected_too_often_is_stored_elsewhere_or_kept_in_a_list() -> None:
    with embedded_network_blocking(("a", "b")) as brokers, penstock.connect_blocking(brokers.urls["b"]) as network:
        network.add_stream("orders", at=["a"])
        network.add_stream("bad", at=["b"])
        orders = network.stream("orders")
        orders.publish({"n": 1}, b"body")
        asked: dict[str, Any] = {"share": True, "start": "earliest", "ack": "manual", "attempts_max": 2}
        for durable, failed in (("moved", "bad"), ("listed", "")):
            with orders.subscribe(durable=durable, failed=failed, **asked) as messages:
                for attempt in (1, 2):
                    (message,) = messages.take(1, timeout=WITHIN)
                    assert message.attempt == attempt
                    messages.reject(message)
        with network.stream("bad").subscribe(durable="repair", start="earliest") as failures:
            (moved,) = failures.take(1, timeout=WITHIN)
            assert moved.body == b"body"
            assert moved.attributes["n"] == 1
            assert moved.attributes["failed_stream"] == "orders"
            assert moved.attributes["failed_durable"] == "moved"
        (listed,) = orders.failed(durable="listed")["pubends"]
        assert [one["attempts"] for one in listed["failed"]] == [2]
        with orders.subscribe(durable="listed", **asked) as messages:
            assert orders.failed(durable="listed", redeliver=True)["pubends"][0]["redelivered"] == 1
            (message,) = messages.take(1, timeout=WITHIN)
            assert message.attempt == 3
            messages.ack()
        with pytest.raises(penstock.StreamRefused, match="shared"), orders.subscribe(durable="listed"):
            pass
