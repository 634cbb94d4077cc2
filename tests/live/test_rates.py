"""Fair rates on real sockets: a narrow link thins what crosses it, and who is before it gets everything."""

from __future__ import annotations

import pytest

import penstock
from live_help import a_network, dropped, run, until, url
from penstock.rates.broker_service import RatesBroker

BODY = bytes(400)
RATE_BITS = 300_000.0
MESSAGES = 600


@pytest.mark.parametrize("kind", ["datagram", "reliable"])
def test_a_narrow_link_thins_what_crosses_it_and_who_is_before_it_gets_all(kind: str) -> None:
    async def beside() -> None:
        links = {("a", "b"): {"kind": kind}, ("b", "c"): {"kind": kind, "rate_bits_per_s": RATE_BITS}}
        async with (
            a_network(("a", "b", "c"), links=links) as brokers,
            penstock.connect(url(brokers["a"]), name="writer") as writer,
            penstock.connect(url(brokers["b"]), name="near") as near,
            penstock.connect(url(brokers["c"]), name="far") as far,
            near.subscribe("x > 0", queue_max=100_000) as near_messages,
            far.subscribe("x > 0", queue_max=100_000) as far_messages,
        ):
            for number in range(MESSAGES):
                await writer.publish({"x": number + 1}, BODY)
            await until(lambda: near_messages.report().received == MESSAGES)
            home = brokers["a"].node.machine(RatesBroker)
            await until(
                lambda: (
                    far_messages.report().received
                    + home.status().withheld_in_all
                    + sum(dropped(broker) for broker in brokers.values())
                    == MESSAGES
                )
            )
            assert home.status().withheld_in_all > 0
            (one, *_) = home.status().withheld or [None]
            assert one is None or (one.publisher, one.link, one.destination) == ("writer", ("b", "c"), "c")

    run(beside())
