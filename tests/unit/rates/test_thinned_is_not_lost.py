"""12.9: what a full link withheld is not asked for over that link; it is recovered when there is room, or told of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from penstock.kernel.trace import Delivered, Record
from penstock.rates.config import RatesClientConfig
from penstock.rates.records import ReaderThinned, Thinned
from penstock.scenario.rates_storm import EVENTS_MAX, recovery_storm
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate
from penstock.transport.config import TransportConfig
from penstock.transport.records import GaveUp, LossDetected, Recovered, RequestSent

STOP = 6.0


class Notes:
    """What a run's trace says of recovery."""

    def __init__(self) -> None:
        self.requests: list[float] = []
        self.kinds: Counter[type[Record]] = Counter()
        self.got: Counter[str] = Counter()
        self.withheld = 0
        self.last_withheld = 0.0

    def write(self, time: float, node: str, record: Record) -> None:
        self.kinds[type(record)] += 1
        match record:
            case RequestSent():
                self.requests.append(time)
            case Delivered():
                self.got[node] += 1
            case Thinned() | ReaderThinned():
                self.withheld += record.messages
                self.last_withheld = time


def narrow(quiet: float, *, loss: float = 0.0, **subscription: Any) -> Scenario:
    """A writer at a sends three times what the link to c carries, until STOP; far recovers, and so does near."""
    publishing = PublisherSpec(rate_messages_per_s=100.0, start=1.0, stop=STOP, attributes={"x": 1}, body_bytes=200)
    wants = SubscriptionSpec(where="x = 1", options={"recover": True, "ordered": True})
    far = SubscriptionSpec(where="x = 1", options={"recover": True, "ordered": True}, **subscription)
    transport = {"transport": TransportConfig()}
    return Scenario(
        name="thinned",
        duration=STOP,
        drain=quiet,
        broker=tuple(BrokerSpec(name=name) for name in "abc"),
        link=(
            LinkSpec(between=("a", "b"), rate_bits_per_s=1e7, delay=0.005),
            LinkSpec(between=("b", "c"), rate_bits_per_s=1e5, delay=0.005, queue_packets=50, loss=loss, repair=False),
        ),
        client=(
            ClientSpec(name="writer", broker="a", publish=(publishing,), services=transport),
            ClientSpec(name="near", broker="b", subscribe=(wants,), services=transport),
            ClientSpec(name="far", broker="c", subscribe=(far,), services=transport),
        ),
        check=("at-most-once", "only-wanted", "transport-accounted"),
    )


def run(scenario: Scenario) -> Notes:
    notes = Notes()
    result = simulate(scenario, 1, trace=notes)
    assert result.problems == []
    return notes


def test_nothing_is_asked_for_while_the_link_is_full_and_all_is_recovered_when_it_has_room() -> None:
    notes = run(narrow(quiet=25.0))
    assert notes.withheld > 200
    assert min(notes.requests) > notes.last_withheld + 2.0, "not while it is full"
    assert notes.kinds[LossDetected] == notes.kinds[GaveUp] == 0, "thinned is not lost"
    assert notes.kinds[Recovered] == notes.withheld
    assert notes.got["far"] == notes.got["near"] == 500


def test_what_there_was_no_time_to_recover_is_reported_as_withheld_and_adds_up() -> None:
    notes = run(narrow(quiet=2.0))  # the checker: of what was due, delivered + withheld + lost is all
    assert notes.requests == []
    assert notes.got["near"] == 500
    assert notes.got["far"] == 500 - notes.withheld


def test_real_losses_among_what_is_thinned_are_still_asked_for() -> None:
    notes = run(narrow(quiet=30.0, loss=0.05))
    assert notes.kinds[LossDetected] > 3
    assert notes.got["far"] == 500


@pytest.mark.parametrize("keep", ["oldest", "newest"])
def test_a_slow_reader_with_order_and_recovery_is_thinned_too_and_the_fast_one_keeps_its_rate(keep: str) -> None:
    scenario = narrow(quiet=2.0, reads_messages_per_s=20.0, queue_max=50)
    links = tuple(msgspec.structs.replace(link, rate_bits_per_s=1e7) for link in scenario.link)
    clients = [
        msgspec.structs.replace(
            client,
            services={**client.services, "rates": RatesClientConfig(keep=keep)},  # type: ignore[arg-type]  # one of two
        )
        for client in scenario.client
    ]
    notes = run(msgspec.structs.replace(scenario, link=links, client=tuple(clients)))
    assert notes.got["near"] == 500
    assert notes.withheld > 200
    assert notes.got["far"] + notes.withheld == pytest.approx(500, abs=1)
    assert len(notes.requests) <= 5, "it does not ask for what it has no time to read"


@pytest.mark.parametrize("seed", range(5))
def test_storms_of_recovery_over_narrow_links(seed: int) -> None:
    result = simulate(recovery_storm(seed), seed, events_max=EVENTS_MAX)
    assert result.problems == []
    assert result.complete
