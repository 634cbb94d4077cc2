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


def test_a_publisher_that_waits_loses_nothing_and_one_that_drops_waits_for_nothing() -> None:
    async def beside() -> None:
        links = {("a", "b"): {"rate_bits_per_s": 3_000_000.0}}
        patient, hasty = penstock.RatesClientConfig(when_full="wait"), penstock.RatesClientConfig(when_full="drop")
        async with (
            a_network(("a", "b"), links=links) as brokers,
            penstock.connect(url(brokers["a"]), name="patient", rates=patient) as waits,
            penstock.connect(url(brokers["a"]), name="hasty", rates=hasty) as drops,
            penstock.connect(url(brokers["b"]), name="reader") as reader,
            reader.subscribe("who = 'patient'", queue_max=100_000) as of_patient,
            reader.subscribe("who = 'hasty'", queue_max=100_000) as of_hasty,
        ):
            for number in range(MESSAGES):
                await waits.publish({"who": "patient", "x": number}, BODY)
                await drops.publish({"who": "hasty", "x": number}, BODY)
            home = brokers["a"].node.machine(RatesBroker)
            await until(lambda: of_patient.report().received == MESSAGES)
            await until(lambda: of_hasty.report().received + home.status().withheld_in_all == MESSAGES)
            assert sum(dropped(broker) for broker in brokers.values()) == 0
            assert all(one.publisher == "hasty" for one in home.status().withheld)

    run(beside())


def test_both_ends_are_told_what_was_withheld_and_by_which_link() -> None:
    async def told() -> None:
        async with (
            a_network(("a", "b"), links={("a", "b"): {"rate_bits_per_s": RATE_BITS}}) as brokers,
            penstock.connect(url(brokers["a"]), name="writer") as writer,
            penstock.connect(url(brokers["b"]), name="reader") as reader,
            reader.subscribe("x > 0", queue_max=100_000) as messages,
        ):
            for number in range(MESSAGES):
                await writer.publish({"x": number + 1}, BODY)
            home = brokers["a"].node.machine(RatesBroker)
            await until(
                lambda: messages.report().received + home.status().withheld_in_all + dropped(brokers["a"]) == MESSAGES
            )
            await until(lambda: writer.withheld == home.status().withheld_in_all > 0)
            (flow,) = writer.flows()
            assert isinstance(flow, penstock.WithheldFlow)
            assert (flow.link, flow.to, flow.messages) == (("a", "b"), "b", writer.withheld)
            assert flow.reason.startswith("the link a - b ")
            await until(lambda: sum(one.messages for one in messages.report().withheld_by) > 0)
            assert messages.report().withheld_by[0].link == ("a", "b")

    run(told())
