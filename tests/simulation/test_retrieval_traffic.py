"""Four readers ask for everything over a slow link: what others send over it is neither dropped nor held up."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.kernel.trace import Delivered, Dropped, Published, Record
from penstock.retrieval.config import RetrievalConfig
from penstock.retrieval.records import ItemRetrieved
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate

ALL = {"all_items": True, "lifetime": "20s", "freshness": "1h"}
READERS = tuple(
    ClientSpec(name=f"r{n}", broker="b", subscribe=(SubscriptionSpec(where="old", start=1.2, options=ALL),))
    for n in range(4)
)


def a_writer(name: str, rate: float, start: float, stop: float) -> ClientSpec:
    flow = PublisherSpec(rate_messages_per_s=rate, attributes={name: True}, body_bytes=1_000, start=start, stop=stop)
    return ClientSpec(name=name, broker="a", publish=(flow,))


def a_slow_link(kind: str) -> Scenario:
    link = LinkSpec(between=("a", "b"), kind=kind, rate_bits_per_s=2e6, delay=0.01, queue_packets=100)  # type: ignore[arg-type]
    plain = ClientSpec(name="s", broker="b", subscribe=(SubscriptionSpec(where="new"),))
    return Scenario(
        name="slow link",
        duration=3.0,
        drain=8.0,
        broker=(BrokerSpec(name="a"), BrokerSpec(name="b")),
        link=(link,),
        client=(a_writer("old", 500.0, 0.0, 1.0), a_writer("new", 50.0, 1.5, 2.5), plain, *READERS),
        services={"retrieval": RetrievalConfig(keep="old")},
    )


@pytest.mark.parametrize("kind", ["shaped", "datagram"])
def test_answers_take_no_place_from_other_messages(kind: str) -> None:
    counts: Counter[str] = Counter()
    published: dict[int, float] = {}
    held_up: list[float] = []

    class Kept:
        def write(self, time: float, node: str, record: Record) -> None:
            if isinstance(record, Published) and node == "new":
                published[record.count] = time
            elif isinstance(record, Delivered):
                held_up.append(time - published[record.count])
            elif isinstance(record, Dropped | ItemRetrieved):
                counts[type(record).__name__] += 1

    simulate(a_slow_link(kind), 1, trace=Kept())
    assert counts == {"ItemRetrieved": 4 * 500}
    assert len(held_up) == len(published) == 50
    assert max(held_up) < 0.2, "32 publications of the cache may be before it, at 4 ms each"
