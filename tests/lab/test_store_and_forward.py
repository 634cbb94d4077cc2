"""The baseline of 002 section 3.1: it keeps everything and its order, and in the end it blocks its publishers."""

from collections import Counter

from penstock.kernel.trace import Counted, Delivered, Published
from penstock.lab.baselines.store_and_forward import StoreAndForward, StoreConfig
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate


class Kept:
    def __init__(self):
        self.records = []

    def write(self, time, node, record):
        self.records.append((time, node, record))

    def of(self, kind):
        return [(time, node, record) for time, node, record in self.records if type(record) is kind]


def line(rate=50.0, duration=4.0):
    names = ("a", "b", "c")
    return Scenario(
        name="line",
        duration=duration,
        broker=tuple(BrokerSpec(name=name, workers=4, service_mean=0.002) for name in names),
        link=tuple(LinkSpec(between=pair, delay=0.01) for pair in (("a", "b"), ("b", "c"))),
        client=(
            ClientSpec(
                name="talker",
                broker="a",
                publish=(
                    PublisherSpec(rate_messages_per_s=rate, start=0.5, attributes={"topic": "news"}, body_bytes=100),
                ),
            ),
            ClientSpec(name="near", broker="b", subscribe=(SubscriptionSpec(where="topic = 'news'"),)),
            ClientSpec(name="far", broker="c", subscribe=(SubscriptionSpec(where="topic = 'news'"),)),
            ClientSpec(name="deaf", broker="c", subscribe=(SubscriptionSpec(where="topic = 'sport'"),)),
        ),
    )


def run(scenario, **costs):
    trace = Kept()
    StoreAndForward(scenario, 1, trace, StoreConfig(**costs)).run()
    return trace


def test_everybody_gets_all_they_asked_for_once_and_in_order():
    trace = run(line())
    sent = [record.count for _, _, record in trace.of(Published)]
    got = {name: [r.count for _, node, r in trace.of(Delivered) if node == name] for name in ("near", "far", "deaf")}
    assert got == {"near": sent, "far": sent, "deaf": []}


def test_it_delivers_what_the_best_effort_network_delivers_when_nothing_is_lost():
    scenario = line()
    ours = simulate(scenario, 1)
    theirs = Counter(node for _, node, _ in run(scenario).of(Delivered))
    assert {name: tally.delivered for name, tally in ours.clients.items() if tally.delivered} == theirs


def test_a_full_store_blocks_its_publishers_and_loses_nothing():
    trace = run(line(rate=500.0), delivery_cost=0.01, resident_messages=20, store_bytes=100_000)
    blocked = [record.value for _, _, record in trace.of(Counted) if record.name == "blocked publishers"]
    sent = len(trace.of(Published))
    assert max(blocked) == 1
    assert sent < 500 * 3.5 / 2, "a blocked publisher publishes less than it wants to"
    far = [record.count for _, node, record in trace.of(Delivered) if node == "far"]
    assert far == list(range(1, len(far) + 1)), "in order, and none left out"
    assert len(far) > 100


def test_the_same_seed_gives_the_same_run():
    assert run(line()).records == run(line()).records
