"""The application of a simulated client: it follows its script, and may read more slowly than messages come."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.kernel.packet import Lane
from penstock.kernel.trace import Delivered, Dropped, Published, Record, Subscribed, Unsubscribed
from penstock.lab.setups.paper_network import NO_RATES
from penstock.scenario.spec import (
    DEFAULT_CHECKS,
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    SubscriptionSpec,
)
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import RunResult, simulate
from penstock.transport.config import TransportConfig

RATE, SLOW = 100.0, 20.0  # messages/s that are published, and that a slow reader takes
START, END = 2.0, 32.0
CONTROLLED = {"transport": TransportConfig(congestion=True)}


class Kept:
    """A trace in memory."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str, Record]] = []

    def write(self, time: float, node: str, record: Record) -> None:
        self.lines.append((time, node, record))

    def of(self, node: str, kind: type[Record]) -> list[Any]:
        return [record for _, name, record in self.lines if name == node and isinstance(record, kind)]

    def times(self, node: str, kind: type[Record]) -> list[float]:
        return [time for time, name, record in self.lines if name == node and isinstance(record, kind)]


def a_run(
    *subscriptions: SubscriptionSpec,
    services: dict[str, Any] | None = None,
    faults: tuple[FaultSpec, ...] = (),
    check: tuple[str, ...] = DEFAULT_CHECKS,
) -> tuple[RunResult, Kept]:
    """A publisher at one broker and a reader at the next."""
    publisher = PublisherSpec(rate_messages_per_s=RATE, start=START, attributes={"n": 1})
    scenario = Scenario(
        name="reader",
        duration=END,
        services=NO_RATES,
        broker=(BrokerSpec(name="a"), BrokerSpec(name="b")),
        link=(LinkSpec(between=("a", "b")),),
        client=(
            ClientSpec(name="p", broker="a", publish=(publisher,), services=services or {}),
            ClientSpec(name="r", broker="b", subscribe=subscriptions, services=services or {}),
        ),
        fault=faults,
        check=check,
    )
    kept = Kept()
    result = simulate(scenario, 5, trace=kept)
    assert result.problems == []
    return result, kept


def wanted(rate: float | None = None, queue_max: int = 50, **more: Any) -> SubscriptionSpec:
    return SubscriptionSpec(where="n = 1", reads_messages_per_s=rate, queue_max=queue_max, **more)


# Reading.


def test_a_slow_reader_loses_what_does_not_fit_and_the_trace_says_so() -> None:
    result, kept = a_run(wanted(SLOW))
    drops = kept.of("r", Dropped)
    published = result.clients["p"].published
    assert {(drop.place, drop.cause, drop.peer, drop.lane, drop.kind, drop.destinations) for drop in drops} == {
        ("reader", "queue full", "", Lane.BEST_EFFORT, "Delivery", 1)
    }
    assert result.drops == {("r", "", "reader", "queue full"): len(drops)}
    assert result.clients["r"].delivered == published == (END - START) * RATE, "all of them reached the client"
    assert len(drops) == pytest.approx((END - START) * (RATE - SLOW) - 50, rel=0.02)
    counts = [drop.count for drop in drops]
    assert counts == sorted(set(counts)), "the oldest goes first, and each only once"


def test_the_queue_is_as_long_as_the_subscription_says_before_anything_is_lost() -> None:
    _, kept = a_run(wanted(SLOW, queue_max=400))
    first = kept.times("r", Dropped)[0]
    assert first == pytest.approx(START + 400 / (RATE - SLOW), rel=0.05)


@pytest.mark.parametrize("rate", [None, 10 * RATE])
def test_who_reads_at_once_or_fast_enough_loses_nothing(rate: float | None) -> None:
    result, kept = a_run(wanted(rate))
    assert kept.of("r", Dropped) == []
    assert result.clients["r"].delivered == result.clients["p"].published


def test_each_subscription_of_a_client_has_a_reader_of_its_own() -> None:
    result, kept = a_run(wanted(SLOW), wanted(None), wanted(2 * SLOW))
    assert result.clients["r"].delivered == 3 * result.clients["p"].published
    lost = (END - START) * (RATE - SLOW) + (END - START) * (RATE - 2 * SLOW) - 2 * 50
    assert len(kept.of("r", Dropped)) == pytest.approx(lost, rel=0.02)


def test_a_slow_reader_changes_nothing_about_what_is_delivered_and_replays_from_its_seed() -> None:
    slow, slow_kept = a_run(wanted(SLOW))
    at_once, kept = a_run(wanted(None))
    assert slow_kept.of("r", Delivered) == kept.of("r", Delivered)
    assert slow.digest != at_once.digest
    assert a_run(wanted(SLOW))[0].digest == slow.digest


def test_with_congestion_control_the_publisher_is_slowed_to_what_the_reader_takes() -> None:
    result, kept = a_run(wanted(SLOW), services=CONTROLLED)
    left = [time for time in kept.times("p", Published) if time > START + 10.0]
    assert len(left) / (END - START - 10.0) == pytest.approx(SLOW, rel=0.25)
    late = [time for time in kept.times("r", Dropped) if time > START + 10.0]
    assert len(late) < 0.05 * len(left)
    uncontrolled, _ = a_run(wanted(SLOW), services={"transport": TransportConfig()})
    assert len(kept.of("r", Dropped)) < 0.2 * sum(uncontrolled.drops.values())
    assert result.clients["r"].delivered < 0.5 * uncontrolled.clients["r"].delivered


def test_congestion_control_leaves_a_publisher_alone_whose_reader_keeps_up() -> None:
    result, kept = a_run(wanted(2 * RATE), services=CONTROLLED)
    assert len(kept.of("p", Published)) >= 0.98 * (END - START) * RATE
    assert result.drops == {}


# The script.


def test_subscriptions_begin_and_end_when_the_scenario_says() -> None:
    result, kept = a_run(wanted(start=5.0, stop=10.0), wanted(SLOW, start=6.0, stop=7.0))
    assert kept.times("r", Subscribed) == [5.0, 6.0]
    assert kept.times("r", Unsubscribed) == [7.0, 10.0]
    assert result.clients["r"].delivered == pytest.approx(6.0 * RATE, rel=0.02)


def test_a_subscription_that_ends_while_its_client_is_dead_is_owed_nothing_more() -> None:
    faults = (FaultSpec(at=8.0, kind="client_crash", client="r"), FaultSpec(at=12.0, kind="client_restart", client="r"))
    _, kept = a_run(wanted(stop=8.5), faults=faults, check=("rates-counted", "rates-readers", "nothing-missed"))
    assert len(kept.of("r", Subscribed)) == 1


def test_every_publication_is_made_and_those_that_cannot_leave_are_counted_as_refused() -> None:
    faults = (FaultSpec(at=10.0, kind="crash", broker="a"), FaultSpec(at=12.0, kind="restart", broker="a"))
    result, kept = a_run(wanted(), faults=faults)
    client = result.clients["p"]
    assert client.published == (END - START) * RATE
    assert client.refused == pytest.approx(2.0 * RATE, rel=0.02)
    assert len(kept.of("p", Published)) == client.published - client.refused
