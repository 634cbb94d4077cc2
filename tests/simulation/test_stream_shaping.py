"""Publishers that are slowed down while brokers crash: all that they publish is stored once, and none gives up."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.kernel.trace import Record
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, StreamSpec, SubscriptionSpec
from penstock.scenario.stream_checkers import STREAM_CHECKERS
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate
from penstock.streams.config import StreamsClientConfig, StreamsConfig
from penstock.streams.records import PublisherSlowed, StreamConfirmed

CONTROL = StreamsConfig(
    query_interval=0.2, control_rule="paper", smoothing=0.5, lag_max=0.5, rate_floor=20.0, rate_step=10.0
)
IMPATIENT = StreamsClientConfig(give_up_after=2.0, retry_min=0.2, retry_max=1.0)


def writer(name: str, rate: float, stop: float) -> ClientSpec:
    flow = PublisherSpec(rate_messages_per_s=rate, stop=stop, body_bytes=500, options={"stream": "orders"})
    return ClientSpec(name=name, broker="home", publish=(flow,), services={"streams": IMPATIENT})


def crowd(*faults: FaultSpec) -> Scenario:
    """A flood and a trickle on their way to a pubend whose edge has 80 kbit/s: about 16 messages/s."""
    ends = [("home", "bank", None), ("bank", "edge", 80e3)]
    links = (LinkSpec(between=(a, b), delay=0.005, rate_bits_per_s=rate) for a, b, rate in ends)
    reading = SubscriptionSpec(where="TRUE", options={"stream": "orders", "durable": "all"})
    return Scenario(
        name="crowd",
        duration=8.0,
        drain=30.0,
        services={"streams": CONTROL},
        broker=tuple(BrokerSpec(name=name) for name in ("home", "bank", "edge")),
        link=tuple(links),
        stream=(StreamSpec(name="orders", at=("bank",)),),
        client=(
            writer("flood", 100.0, 5.0),
            writer("trickle", 3.0, 8.0),
            ClientSpec(name="reader", broker="edge", subscribe=(reading,)),
        ),
        fault=faults,
        check=tuple(STREAM_CHECKERS),
    )


CRASHES = {
    "nothing": (),
    "the pubend's broker": (
        FaultSpec(at=4.0, kind="crash", broker="bank"),
        FaultSpec(at=5.0, kind="restart", broker="bank"),
    ),
    "the publishers' broker": (
        FaultSpec(at=4.0, kind="crash", broker="home"),
        FaultSpec(at=4.5, kind="restart", broker="home"),
    ),
}


@pytest.mark.parametrize("crash", CRASHES)
def test_all_that_is_published_while_the_rate_is_limited_is_stored_once(crash: str) -> None:
    waited: dict[str, list[float]] = {"flood": [], "trickle": []}
    slowed: list[Any] = []

    class Kept:
        def write(self, time: float, node: str, record: Record) -> None:
            if isinstance(record, StreamConfirmed):
                waited[node].append(record.waited)
            elif isinstance(record, PublisherSlowed):
                slowed.append(record.edge)

    result = simulate(crowd(*CRASHES[crash]), 7, trace=Kept())
    assert result.problems == []
    flood, trickle = (result.clients[name].streams["orders", ""] for name in ("flood", "trickle"))
    assert (flood.stored, flood.not_stored) == (flood.offered, 0)
    assert (trickle.stored, trickle.not_stored) == (trickle.offered, 0)
    assert flood.offered > 400
    assert set(slowed) == {"edge"}
    assert max(waited["flood"]) > 2 * IMPATIENT.give_up_after
    if crash == "nothing":
        assert max(waited["trickle"]) < 1.0, "it stood behind the flood"
