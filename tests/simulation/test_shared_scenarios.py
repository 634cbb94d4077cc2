"""Shared names in scenarios made by hand: a healthy network, and one blow at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from penstock.scenario.shared_checkers import SHARED_CHECKERS
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
from penstock.streams.share_window import OpenMessage
from penstock.streams.shared_name import SharedName

SECONDS = 8.0
RATE = 20.0


def member(name: str, broker: str, **subscription: Any) -> ClientSpec:
    shared = {"stream": "orders", "durable": "work", "share": True, "start_at": "earliest"}
    options = {**shared, **subscription.pop("options", {})}
    asked = SubscriptionSpec(where="TRUE", options=options, **subscription)
    return ClientSpec(name=name, broker=broker, subscribe=(asked,))


def play(members: Sequence[ClientSpec], faults: Sequence[FaultSpec] = (), *, disk_delay: float = 0.0) -> RunResult:
    """A chain of three brokers; the stream is at the first, and the publisher at the last."""
    flow = PublisherSpec(
        rate_messages_per_s=RATE,
        attributes={"symbol": Recipe(choose=("IBM", "SAP"))},
        options={"stream": "orders"},
    )
    scenario = Scenario(
        name="shared",
        duration=SECONDS,
        drain=14.0,
        broker=tuple(BrokerSpec(name=name, disk_delay=disk_delay) for name in "abc"),
        link=tuple(LinkSpec(between=(a, b), delay=0.01) for a, b in pairwise("abc")),
        stream=(StreamSpec(name="orders", at=("a",)), StreamSpec(name="bad", at=("c",))),
        client=(ClientSpec(name="p", broker="c", publish=(flow,)), *members),
        fault=tuple(faults),
        check=(*STREAM_CHECKERS, *SHARED_CHECKERS),
    )
    return simulate(scenario, 1)


def a_healthy_network() -> RunResult:
    """Three members that take their time; what waits in their queues is not overdue."""
    options = {"ack_within": 2.0}
    return play(
        [member(f"m{number}", home, reads_messages_per_s=5.0, options=options) for number, home in enumerate("abc")]
    )


def test_in_a_healthy_network_each_message_goes_to_one_member_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result = a_healthy_network()
    assert result.problems == []
    delivered = {name: tally.delivered for name, tally in result.clients.items()}
    assert sum(delivered.values()) == result.clients["p"].published
    assert min(delivered[name] for name in ("m0", "m1", "m2")) > RATE * SECONDS / 6
    monkeypatch.setattr(OpenMessage, "overdue_at", lambda self, ack_within: self.given_at + 0.5)
    assert any("holds since" in problem for problem in a_healthy_network().problems)


BLOWS = {
    "a member crashes": [FaultSpec(at=3.0, kind="client_crash", client="m0")],
    "a member's broker crashes": [
        FaultSpec(at=3.0, kind="crash", broker="c"),
        FaultSpec(at=4.0, kind="restart", broker="c"),
    ],
    "the pubend's broker crashes": [
        FaultSpec(at=3.0, kind="crash", broker="a", tail="torn"),
        FaultSpec(at=3.5, kind="restart", broker="a"),
    ],
    "a member is cut off and keeps working": [
        FaultSpec(at=2.0, kind="link_down", link=("b", "c")),
        FaultSpec(at=12.0, kind="link_up", link=("b", "c")),
    ],
    "a member loses its connection for a moment": [
        FaultSpec(at=3.0, kind="link_down", link=("m0", "c")),
        FaultSpec(at=4.0, kind="link_up", link=("m0", "c")),
    ],
}


@pytest.mark.parametrize("blow", BLOWS)
def test_after_one_blow_every_message_is_done_and_none_is_tried_too_often(blow: str) -> None:
    members = [member("m0", "c", reads_messages_per_s=20.0), member("m1", "b", reads_messages_per_s=20.0)]
    result = play(members, [*BLOWS[blow], FaultSpec(at=SECONDS, kind="heal")])
    assert result.problems == []
    twice = sum(tally.delivered for tally in result.clients.values()) - result.clients["p"].published
    if "moment" in blow or "pubend" in blow:
        assert twice == 0, "whoever comes back in time has what it had"


def test_what_is_rejected_too_often_is_in_the_other_stream() -> None:
    options = {"attempts_max": 2, "failed": "bad"}
    result = play([member(f"m{number}", home, rejects=0.5, options=options) for number, home in enumerate("ab")])
    assert result.problems == []


def a_member_that_dies_when_it_was_told_that_it_is_done() -> RunResult:
    """The disk is slow, and the broker of the pubend crashes at the same moment; another member comes later."""
    faults = [
        FaultSpec(at=3.0, kind="client_crash", client="m0"),
        FaultSpec(at=3.0, kind="crash", broker="a"),
        FaultSpec(at=3.1, kind="restart", broker="a"),
        FaultSpec(at=SECONDS, kind="heal"),
    ]
    return play([member("m0", "a"), member("m1", "b", start=3.5)], faults, disk_delay=0.1)


def test_what_was_confirmed_is_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    assert a_member_that_dies_when_it_was_told_that_it_is_done().problems == []
    original = SharedName._write

    def write(self: Any, now: float) -> Any:
        return self._tell_settled(self._settled, now) + original(self, now)

    monkeypatch.setattr(SharedName, "_write", write)
    problems = a_member_that_dies_when_it_was_told_that_it_is_done().problems
    assert any("confirmed as done" in problem for problem in problems)
