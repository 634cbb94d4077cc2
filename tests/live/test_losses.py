"""No loss without a count: what was delivered and what was counted as lost are together all that was published."""

from __future__ import annotations

import penstock
from live_help import a_broker, dropped, run, until, url
from penstock.live.broker.server import BrokerServer, ServerConfig


async def overflow(broker: BrokerServer, publisher: penstock.Network, slow: penstock.Network) -> int:
    """Publish while `slow` does not read, until its queue at the broker has overflown; returns how many."""
    assert slow._link is not None
    assert slow._link.port is not None
    slow._link.port.connection.hold()
    sent = 0
    while not dropped(broker, cause="queue full"):
        for n in range(64):
            await publisher.publish({"n": n}, bytes(20_000))
        sent += 64
    slow._link.port.connection.release()
    return sent


def test_a_slow_client_that_leaves_is_told_the_last_of_what_its_broker_dropped() -> None:
    async def last_word() -> None:
        async with (
            a_broker(ServerConfig(client_queue_packets=10)) as broker,
            penstock.connect(url(broker)) as publisher,
            penstock.connect(url(broker), name="slow") as slow,
            slow.subscribe("n >= 0") as messages,
        ):
            await overflow(broker, publisher, slow)
            await slow.close()
            assert messages.report().lost_at_broker == dropped(broker, cause="queue full")

    run(last_word())


def test_each_subscription_knows_what_was_lost_of_its_own_messages() -> None:
    async def its_own() -> None:
        async with (
            a_broker(ServerConfig(client_queue_packets=10)) as broker,
            penstock.connect(url(broker)) as publisher,
            penstock.connect(url(broker), name="slow") as slow,
            slow.subscribe("n < 32") as low,
            slow.subscribe("n >= 0") as all_of_them,
            slow.subscribe("n < 0") as none,
        ):
            sent = await overflow(broker, publisher, slow)

            def adds_up(messages: penstock.Subscription, matching: int) -> bool:
                report = messages.report()
                return report.received + report.lost_at_broker == matching

            await until(lambda: adds_up(low, sent // 2) and adds_up(all_of_them, sent))
            assert adds_up(none, 0)
            assert slow.lost_at_broker == low.report().lost_at_broker + all_of_them.report().lost_at_broker

    run(its_own())
