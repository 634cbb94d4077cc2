"""Streams in scenarios made by hand: what storms have found, small enough to look at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.scenario.spec import (
    BrokerSpec,
    ClientSpec,
    FaultSpec,
    LinkSpec,
    Scenario,
    StreamSpec,
    SubscriptionSpec,
)
from penstock.scenario.stream_checkers import STREAM_CHECKERS
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.sim.run import RunResult, simulate
from penstock.streams.broker_service import StreamBroker
from penstock.streams.relays import Relays


def publisher(broker: str, rate: float = 20.0) -> ClientSpec:
    flow = PublisherSpec(
        rate_messages_per_s=rate,
        attributes={"symbol": Recipe(choose=("IBM", "SAP"))},
        options={"stream": "orders"},
    )
    return ClientSpec(name="p", broker=broker, publish=(flow,))


def reader(name: str, broker: str, where: str = "TRUE", durable: str = "", **subscription: Any) -> ClientSpec:
    options = {"stream": "orders", "durable": durable or name, **subscription.pop("options", {})}
    return ClientSpec(
        name=name, broker=broker, subscribe=(SubscriptionSpec(where=where, options=options, **subscription),)
    )


def play(
    clients: Sequence[ClientSpec],
    faults: Sequence[FaultSpec] = (),
    *,
    brokers: str = "ab",
    seed: int = 1,
    **settings: Any,
) -> RunResult:
    """A chain of brokers; the stream is at the first."""
    scenario = Scenario(
        name="s",
        duration=8.0,
        drain=12.0,
        broker=tuple(BrokerSpec(name=name) for name in brokers),
        link=tuple(LinkSpec(between=(a, b), delay=0.01) for a, b in pairwise(brokers)),
        stream=(StreamSpec(name="orders", at=(brokers[0],)),),
        client=tuple(clients),
        fault=tuple(faults),
        check=tuple(STREAM_CHECKERS),
        services={"streams": settings},
    )
    return simulate(scenario, seed)


def one_reader_after_another() -> RunResult:
    """The Leave of the first is lost, so upstream goes on under the interest of the first when the second comes."""
    clients = [
        publisher("a"),
        reader("r1", "b", "symbol = 'IBM'", stop=3.0),
        reader("r2", "b", "symbol = 'SAP'", start=4.5, options={"start_at": "earliest"}),
    ]
    cut = FaultSpec(at=2.9, kind="link_down", link=("a", "b"), towards="a")
    return play(clients, [cut, FaultSpec(at=4.6, kind="link_up", link=("a", "b"))], refresh_interval=0.3)


def test_silence_that_was_filtered_for_a_reader_before_is_none_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    assert one_reader_after_another().problems == []
    monkeypatch.setattr(Relays, "drop", lambda self, pubend: self._relays.pop(pubend, None))
    assert one_reader_after_another().problems, "versions of interest that begin again should be found here"


def a_home_broker_that_restarts() -> RunResult:
    """The disk is slow, so answers to requests of its first life come in the second."""
    faults = [
        FaultSpec(at=1.0, kind="disk_slow", broker="a", seconds=1.0),
        FaultSpec(at=2.0, kind="crash", broker="b"),
        FaultSpec(at=2.1, kind="restart", broker="b"),
        FaultSpec(at=5.0, kind="heal"),
    ]
    return play([publisher("b"), reader("r", "a", options={"start_at": "earliest"})], faults)


def test_a_late_answer_to_an_earlier_life_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert a_home_broker_that_restarts().problems == []

    def counted(self: Any) -> int:
        self.counted = getattr(self, "counted", 0) + 1
        return int(self.counted)

    monkeypatch.setattr(StreamBroker, "next_request", counted)
    problems = a_home_broker_that_restarts().problems
    assert any("stands at" in problem for problem in problems), "the wrong message is confirmed"


@pytest.mark.parametrize("damage", ["disk_flip", "disk_roll_back"])
@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_log_stops_its_pubend_and_loses_nothing_once_it_is_restored(damage: Any, seed: int) -> None:
    faults = [
        FaultSpec(at=3.0, kind=damage, broker="a"),
        FaultSpec(at=3.0, kind="crash", broker="a"),
        FaultSpec(at=3.1, kind="restart", broker="a"),
        FaultSpec(at=6.0, kind="heal"),
    ]
    clients = [publisher("b"), reader("r", "c", options={"start_at": "earliest"}), reader("late", "b", start=7.0)]
    result = play(clients, faults, brokers="abc", seed=seed)
    assert result.problems == []
    assert result.records["PubendStopped"] >= 1
    assert result.records["StreamConfirmed"] > 80


def test_a_full_disk_refuses_and_takes_up_its_work_again() -> None:
    faults = [FaultSpec(at=2.0, kind="disk_full", broker="a"), FaultSpec(at=4.0, kind="disk_freed", broker="a")]
    result = play([publisher("b"), reader("r", "b", options={"start_at": "earliest"})], faults)
    assert result.problems == []
    assert result.records["StreamConfirmed"] == result.records["StreamDelivered"] == 160


def test_a_partition_that_heals_in_one_direction_first() -> None:
    faults = [
        FaultSpec(at=2.0, kind="partition", group=("a",)),
        FaultSpec(at=4.0, kind="link_up", link=("a", "b"), towards="b"),
        FaultSpec(at=6.0, kind="link_up", link=("a", "b"), towards="a"),
    ]
    clients = [publisher("c"), reader("r", "b", options={"start_at": "earliest"}), reader("s", "a", start=3.0)]
    result = play(clients, faults, brokers="abc")
    assert result.problems == []
    assert result.records["StreamConfirmed"] == 160


def test_a_reader_that_is_away_for_longer_than_messages_are_kept_is_told_of_the_gap() -> None:
    clients = [
        publisher("a"),
        reader("r1", "b", durable="d", stop=2.0),
        reader("r2", "b", durable="d", start=6.0),
    ]
    result = play(clients, history=1.0, retain=2.0, ids_window=1.0)
    assert result.problems == []
    assert result.records["GapNoticed"] >= 1


@pytest.mark.parametrize("stays", [0.0, 0.03, 0.06, 0.09, 0.12])
def test_a_gap_that_a_reader_did_not_stay_to_hear_of_is_told_to_the_next(stays: float) -> None:
    brief = replace(reader("r2", "b", durable="d", start=6.0, stop=6.0 + stays), access_delay=0.02)
    clients = [
        publisher("a"),
        reader("r1", "b", durable="d", stop=2.0),
        brief,
        reader("r3", "b", durable="d", start=6.5),
    ]
    result = play(clients, history=1.0, retain=2.0, ids_window=1.0)
    assert result.problems == []
    assert result.records["GapNoticed"] >= 1
