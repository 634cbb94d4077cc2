"""Congestion control in the simulator: a dumbbell that is too narrow, and storms with control switched on.

`pytest tests/simulation/test_congestion.py -k seed3` replays a storm.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Literal

import pytest
from msgspec.structs import replace

from penstock.errors import CheckFailed
from penstock.kernel.randomness import generator
from penstock.kernel.trace import Delivered, Dropped, Published, Record
from penstock.lab.setups.paper_network import NO_RATES
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.storm import storm
from penstock.scenario.transport_checkers import TOLD
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.sim.run import simulate
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.records import FlowLimited, MessageWithheld

SECONDS = 15.0
STORMS = 3


@dataclass
class Seen:
    """A trace that counts, after the first five seconds."""

    delivered: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    published: int = 0
    withheld: Counter[str] = field(default_factory=Counter)
    limited: list[FlowLimited] = field(default_factory=list)

    def write(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, FlowLimited):
            self.limited.append(record)
        if time < 5.0:
            return
        self.delivered[node] += isinstance(record, Delivered)
        self.published += isinstance(record, Published)
        self.dropped += isinstance(record, Dropped) and record.kind == "Publication"
        if isinstance(record, MessageWithheld):
            self.withheld[record.limiting_receiver] += 1


def dumbbell(config: TransportConfig | None) -> Scenario:
    """500 kbit/s for 300 messages/s of about 280 bytes; beside it a receiver that is not behind the narrow link."""
    publish = PublisherSpec(
        rate_messages_per_s=600.0,
        stop=SECONDS,
        attributes={"far": Recipe(chance=0.5)},
        body_bytes=202 - HEADER_BYTES[config.scheme] if config else 202,
        arrivals="poisson",
    )
    services = {"transport": config} if config else {}
    return Scenario(
        name="narrow",
        duration=SECONDS,
        drain=2.0,
        services=NO_RATES,  # end-to-end control by itself
        broker=(BrokerSpec(name="left"), BrokerSpec(name="right")),
        link=(LinkSpec(between=("left", "right"), rate_bits_per_s=500e3, delay=0.02, queue_packets=50),),
        client=(
            ClientSpec(name="p", broker="left", publish=(publish,), services=services, clock_offset=300.0),
            ClientSpec(
                name="b",
                broker="right",
                subscribe=(SubscriptionSpec(where="far"),),
                services=services,
                clock_offset=-5e6,
            ),
            ClientSpec(name="c", broker="left", subscribe=(SubscriptionSpec(where="NOT far"),), services=services),
        ),
        check=("at-most-once",),
    )


def a_config(control: Literal["equation", "window"]) -> TransportConfig:
    return TransportConfig(congestion=True, when_full="drop", control=control)


PAPERS_CONFIG = papers_config(record_entries=2, congestion=True, when_full="drop", publisher_answers=False)
HEADER_BYTES = {"ledgers": 140, "papers": 112}  # on these messages, so that all are as large as without a header


@cache
def seen(control: Literal["equation", "window", "papers"] | None) -> Seen:
    found = Seen()
    config = None if control is None else PAPERS_CONFIG if control == "papers" else a_config(control)
    result = simulate(dumbbell(config), 1, trace=found)
    assert not result.problems
    return found


def test_without_control_the_narrow_link_loses_a_good_part() -> None:
    assert seen(None).dropped > 0.1 * 300.0 * 10.0


@pytest.mark.parametrize("control", ["equation", "window", "papers"])
def test_with_control_it_loses_next_to_nothing_and_stays_full(control: Literal["equation", "window", "papers"]) -> None:
    found, wild = seen(control), seen(None)
    assert found.dropped < wild.dropped / (5.0 if control == "window" else 20.0)
    assert found.delivered["b"] > (0.8 if control == "window" else 0.9) * wild.delivered["b"]


def test_who_is_not_behind_it_loses_nothing() -> None:
    assert seen("equation").delivered["c"] == pytest.approx(300.0 * 10.0, rel=0.03)


def test_the_records_say_who_slowed_whom() -> None:
    found = seen("equation")
    assert {record.limiting_receiver for record in found.limited} == {"b"}
    assert set(found.withheld) == {"b"}


def test_what_was_withheld_was_not_published() -> None:
    found = seen("equation")
    assert found.published + sum(found.withheld.values()) == pytest.approx(600.0 * 10.0, rel=0.03)


# --- Storms.


def with_control(scenario: Scenario, seed: int) -> Scenario:
    random = generator(seed, "control-storm")
    scheme: Literal["ledgers", "papers"] = "papers" if seed % 2 else "ledgers"

    def changed(client: ClientSpec) -> ClientSpec:
        subscriptions = tuple(
            replace(subscription, options={"ordered": random.random() < 0.5, "recover": random.random() < 0.5})
            for subscription in client.subscribe
        )
        return replace(
            client,
            subscribe=subscriptions,
            services={"transport": _drawn(random, scheme)},
            clock_offset=random.uniform(-1e6, 1e6),
            clock_drift=random.uniform(-1e-4, 1e-4),
        )

    checks = scenario.check
    if scheme == "papers":  # 002's scheme loses bursts, tails and first messages in silence
        checks = tuple(name for name in checks if name != "transport-accounted")
    clients = tuple(map(changed, scenario.client))
    return replace(scenario, name=f"control-{scenario.name}", client=clients, check=checks, drain=TOLD)


def _drawn(random: Random, scheme: Literal["ledgers", "papers"]) -> TransportConfig:
    return TransportConfig(
        scheme=scheme,
        record_entries=random.choice((2, 10)),
        congestion=random.random() < 0.9,
        control=random.choice(("equation", "window")),
        gap_rule=random.choice(("probable", "optimistic", "conservative")),
        feedback_exact=random.random() < 0.3,
        feedback_patience=random.choice((0.0, 6.0)),
        when_full=random.choice(("wait", "drop")),
        flow_queue=random.choice((1, 50)),
        quarantine_below=random.choice((0.0, 5.0)),
        quarantine_after=1.0,
    )


@pytest.mark.parametrize("seed", range(STORMS), ids=lambda seed: f"seed{seed}")
def test_every_invariant_holds_in_every_storm(seed: int) -> None:
    """Nothing is delivered twice, and when all has healed nobody is held back for ever."""
    result = simulate(with_control(storm(seed, rate_messages_per_s=6.0), seed), seed)
    if result.problems:
        replay = f".venv/bin/python -m pytest tests/simulation/test_congestion.py -k seed{seed}"
        raise CheckFailed("\n".join(result.problems), replay=replay)
    assert result.complete
