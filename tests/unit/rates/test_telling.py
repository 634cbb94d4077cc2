"""Both ends are told what was withheld: publishers, and readers behind the link; and nobody where nothing is."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.kernel.trace import Counted, Record
from penstock.rates.packets import NO_SUBSCRIPTION, Note
from penstock.rates.records import ReaderThinned, Thinned, WithheldTold
from penstock.rates.told import FLOWS_MAX, SHOWN_FOR, WithheldFlows
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate
from penstock.transport.config import TransportConfig


class Told:
    """What a run's trace says was withheld, and who was told of it."""

    def __init__(self) -> None:
        self.thinned: Counter[tuple[str, int, int]] = Counter()
        self.from_readers = 0
        self.told: Counter[tuple[str, ...]] = Counter()

    def write(self, time: float, node: str, record: Record) -> None:
        match record:
            case Thinned():
                self.thinned[record.publisher, record.neighbour, record.destination] += record.messages
            case ReaderThinned():
                self.from_readers += record.messages
            case WithheldTold():
                key = (node, record.role, record.publisher, record.origin, record.neighbour, record.to)
                self.told[key] += record.messages


def line(*, narrow_bits: float, slow: bool = False, transport: bool = False, quiet: float = 6.0) -> Scenario:
    """A writer at a, readers at b and behind the narrow link at c; nothing is published in the last `quiet` seconds."""
    publishing = PublisherSpec(rate_messages_per_s=100.0, start=1.0, stop=6.0, attributes={"x": 1}, body_bytes=200)
    settings = {"transport": TransportConfig()} if transport else {}
    reading = SubscriptionSpec(where="x = 1", options={"recover": True} if transport else {})
    slowly = SubscriptionSpec(where="x = 1", reads_messages_per_s=20.0, queue_max=50)
    return Scenario(
        name="told",
        duration=6.0 + quiet,
        broker=tuple(BrokerSpec(name=name) for name in "abc"),
        link=(
            LinkSpec(between=("a", "b"), rate_bits_per_s=1e7, delay=0.005),
            LinkSpec(between=("b", "c"), rate_bits_per_s=narrow_bits, delay=0.005, queue_packets=50),
        ),
        client=(
            ClientSpec(name="writer", broker="a", publish=(publishing,), services=settings),
            ClientSpec(name="near", broker="b", subscribe=(reading,)),
            ClientSpec(name="far", broker="c", subscribe=(slowly if slow else reading,)),
            ClientSpec(name="bystander", broker="c"),
        ),
    )


def run(scenario: Scenario) -> Told:
    told = Told()
    result = simulate(scenario, 1, trace=told)
    assert result.problems == []
    return told


@pytest.mark.parametrize("transport", [False, True])
def test_the_publisher_and_who_is_behind_the_link_are_told_of_everything_and_nobody_else(transport: bool) -> None:
    told = run(line(narrow_bits=100_000.0, transport=transport))
    withheld = told.thinned["writer", 2, 2]
    assert withheld > 100
    whose = "writer" if transport else ""  # to a reader it matters only if it can ask for them
    assert told.told == {
        ("writer", "publisher", "writer", "b", "c", "c"): withheld,
        ("far", "reader", whose, "b", "c", "c"): withheld,
    }


def test_a_slow_reader_and_its_publisher_two_brokers_away_are_told() -> None:
    told = run(line(narrow_bits=1e7, slow=True))
    assert told.from_readers > 100
    assert told.told == {
        ("far", "reader", "writer", "c", "far", "far"): told.from_readers,
        ("writer", "publisher", "writer", "c", "far", "far"): told.from_readers,
    }


def test_where_nothing_is_withheld_nobody_is_told() -> None:
    assert run(line(narrow_bits=1e7)).told == {}


def note(number: int, messages: int = 1, subscription: int = NO_SUBSCRIPTION) -> Note:
    return Note("p", ("a", f"b{number}"), 10.0, "c", messages, 100, 1.0, subscription=subscription)


def test_what_a_client_was_told_is_summed_up_bounded_and_forgotten_in_reports() -> None:
    flows = WithheldFlows()
    for number in range(FLOWS_MAX + 10):
        flows.add(note(number), 5.0)
    for _ in range(3):
        flows.add(note(FLOWS_MAX), 6.0)
    assert flows.messages == FLOWS_MAX + 13
    found = flows.lately(6.0)
    assert len(found) == FLOWS_MAX
    assert (found[0].messages, found[0].since, found[0].last) == (4, 4.0, 6.0)
    assert flows.lately(6.5 + SHOWN_FOR) == []
    flows.add(note(FLOWS_MAX), 100.0)
    assert flows.lately(100.0)[0].messages == 1, "a new time begins"


def test_a_subscription_sees_its_own_and_what_its_broker_did_not_get() -> None:
    flows = WithheldFlows()
    flows.add(note(1), 0.0)
    flows.add(note(2, 5, subscription=7), 0.0)
    assert [flow.messages for flow in flows.of(7)] == [5, 1]
    assert [flow.messages for flow in flows.of(8)] == [1]


def crowd(publishers: int) -> Scenario:
    """So many publishers at one of two homes, each more than its share of 64 kbit/s, and one who recovers all."""
    publishing = PublisherSpec(rate_messages_per_s=2.0, start=1.0, stop=21.0, attributes={"x": 1}, body_bytes=100)
    transport = {"transport": TransportConfig()}
    return Scenario(
        name="crowd",
        duration=21.0,
        broker=tuple(BrokerSpec(name=name) for name in "abcd"),
        link=(
            LinkSpec(between=("a", "c"), rate_bits_per_s=1e7, delay=0.005),
            LinkSpec(between=("b", "c"), rate_bits_per_s=1e7, delay=0.005),
            LinkSpec(between=("c", "d"), rate_bits_per_s=64_000.0, delay=0.005, queue_packets=50),
        ),
        client=(
            *(
                ClientSpec(name=f"p{number}", broker="ab"[number % 2], publish=(publishing,), services=transport)
                for number in range(publishers)
            ),
            ClientSpec(
                name="far",
                broker="d",
                subscribe=(SubscriptionSpec(where="x = 1", options={"recover": True}),),
                services=transport,
            ),
        ),
    )


class Words(Told):
    """Also counts what a broker sends in the lanes of control, and in all."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def write(self, time: float, node: str, record: Record) -> None:
        super().write(time, node, record)
        if isinstance(record, Counted) and (node, record.peer) == ("c", "d"):
            self.bytes[record.name] += record.value


def test_word_of_what_was_withheld_takes_a_small_share_of_a_slow_link() -> None:
    found = Words()
    simulate(crowd(100), 1, trace=found)
    assert found.told, "who reads is told all the same"
    assert found.bytes["control bytes"] < 0.1 * found.bytes["data bytes"]
