"""A subscription that is open is known everywhere: what a newcomer publishes next arrives."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

import penstock
from live_help import a_network, run, until, url
from penstock.overlay.packets import Confirmation, ConfirmRequest
from penstock.overlay.routing import Routing
from penstock.testing import embedded_network

RING = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("d", "e")]


def test_what_is_published_far_away_right_after_subscribing_arrives() -> None:
    async def all_arrive() -> None:
        async with (
            embedded_network(tuple("abcde"), links=RING, kind="datagram", delay=0.02) as brokers,
            AsyncExitStack() as stack,
        ):
            far = [await stack.enter_async_context(penstock.connect(url)) for url in brokers.urls.values()]
            for number in range(6):
                where = f"round = {number} AND price < 50"
                async with far[number % 5].subscribe(where) as messages:
                    assert messages.unconfirmed == ()
                    for publisher in far:
                        await publisher.publish({"round": number, "price": 10.0})
                    got = [await anext(messages) for _ in far]
                    assert len(got) == 5

    run(all_arrive())


def test_a_first_program_of_requests_and_replies_loses_none() -> None:
    async def asks_and_answers() -> None:
        async with (
            embedded_network(("a", "b", "c"), kind="datagram") as brokers,
            penstock.connect(brokers.urls["a"]) as asker,
            penstock.connect(brokers.urls["c"]) as answerer,
        ):

            async def answer(requests: penstock.Subscription) -> None:
                async for request in requests:
                    await answerer.publish({"reply": request.attributes["request"]})

            async with answerer.subscribe("EXISTS request") as requests:
                answering = asyncio.create_task(answer(requests))
                for number in range(50):
                    async with asker.subscribe(f"reply = {number}") as replies:
                        await asker.publish({"request": number})
                        assert (await anext(replies)).attributes == {"reply": number}
                answering.cancel()

    run(asks_and_answers())


def test_who_has_not_confirmed_is_named_and_waiting_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def one_is_silent() -> None:
        async with (
            a_network(("a", "b", "c"), kind="datagram") as brokers,
            penstock.connect(url(brokers["a"])) as network,
        ):
            routing = brokers["b"].node.machine(Routing)
            await until(lambda: len(brokers["a"].node.machine(Routing).exits()) == 2)
            receive = routing.receive

            def deaf(packets, **rest):  # type: ignore[no-untyped-def]
                heard = [packet for packet in packets if not isinstance(packet, ConfirmRequest | Confirmation)]
                return receive(heard, **rest) if heard else []

            for kind in (ConfirmRequest, Confirmation):
                monkeypatch.setitem(brokers["b"].node._receivers, kind, deaf)
            async with network.subscribe("n = 1", ready_within=0.3) as messages:
                assert messages.unconfirmed == ("b",)
                assert messages.report().unconfirmed == ("b",)
                await network.publish({"n": 1})
                assert (await anext(messages)).attributes == {"n": 1}
            async with network.subscribe("n = 2", ready=False) as messages:
                assert messages.unconfirmed == ()
            with pytest.raises(ValueError, match="ready_within"):
                network.subscribe("n = 3", ready_within=0.0)

    with caplog.at_level(logging.WARNING, "penstock.client"):
        run(one_is_silent())
    assert [record for record in caplog.records if "no confirmation from b" in record.getMessage()]
