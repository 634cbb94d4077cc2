"""A whole run: the same seed gives the same digest, in any process; limits, tallies and progress."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from penstock.errors import InvalidScenario
from penstock.kernel.trace import Counted, Digest, Dropped, NodeStopped, Published, Record
from penstock.lab.setups.paper_network import NO_RATES
from penstock.scenario.reader import read_scenario
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.workload import PublisherSpec, Recipe
from penstock.sim.run import simulate

ROOT = Path(__file__).parents[3]
SMALL = Scenario(
    name="small",
    duration=5.0,
    settled_after=2.0,
    broker=(BrokerSpec(name="a", workers=3, service_mean=0.002), BrokerSpec(name="b"), BrokerSpec(name="c")),
    link=(
        LinkSpec(between=("a", "b"), delay=0.01, jitter=0.005, loss=0.05),
        LinkSpec(between=("b", "c"), kind="shaped", rate_bits_per_s=200e3),
        LinkSpec(between=("a", "c"), kind="reliable", rate_bits_per_s=400e3, cost=2),
    ),
    client=(
        ClientSpec(
            name="p",
            broker="a",
            publish=(
                PublisherSpec(
                    rate_messages_per_s=50.0,
                    arrivals="poisson",
                    start=1.0,
                    attributes={"s": Recipe(choose=("x", "y", "z")), "n": Recipe(integer=(0, 9))},
                    body_bytes=100,
                ),
            ),
        ),
        ClientSpec(name="near", broker="a", subscribe=(SubscriptionSpec(where="s = 'x'"),)),
        ClientSpec(
            name="far", broker="c", subscribe=(SubscriptionSpec(where="n < 5"), SubscriptionSpec(where="n = 1"))
        ),
    ),
)


class Lines:
    """A trace that keeps every line."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str, Record]] = []

    def write(self, time: float, node: str, record: Record) -> None:
        self.lines.append((time, node, record))


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = simulate(SMALL, 7), simulate(SMALL, 7), simulate(SMALL, 8)
    assert first.digest == again.digest
    assert replace_wall(first) == replace_wall(again)
    assert first.digest != other.digest


def replace_wall(result: object) -> dict[str, object]:
    return {name: value for name, value in vars(result).items() if name != "wall_seconds"}


def test_the_digest_is_the_same_in_another_process_with_another_hash_seed() -> None:
    code = (
        "from pathlib import Path; from msgspec.structs import replace;"
        "from penstock.scenario.reader import read_scenario; from penstock.sim.run import simulate;"
        f"s = replace(read_scenario(Path({str(ROOT / 'networks/town.toml')!r})), duration=4.0, fault=());"
        "print(simulate(s, 7).digest)"
    )
    digests = set()
    for hash_seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        digests.add(run.stdout.strip())
    town = replace(read_scenario(ROOT / "networks/town.toml"), duration=4.0, fault=())
    assert digests == {simulate(town, 7).digest}


def test_the_digest_is_that_of_the_trace() -> None:
    lines, digest = Lines(), Digest()
    result = simulate(SMALL, 7, trace=lines)
    for line in lines.lines:
        digest.write(*line)
    assert result.digest == digest.hexdigest()
    assert [line[0] for line in lines.lines] == sorted(line[0] for line in lines.lines)


def test_watching_changes_nothing() -> None:
    watched = simulate(SMALL, 7, trace=Lines(), progress=lambda share: None)
    unwatched = simulate(replace(SMALL, check=()), 7)
    assert watched.digest == unwatched.digest


def test_tallies_agree_with_the_trace() -> None:
    lines = Lines()
    result = simulate(SMALL, 7, trace=lines)
    records = [record for _, _, record in lines.lines]
    assert result.clients["p"].published == sum(isinstance(record, Published) for record in records)
    assert sum(result.drops.values()) == sum(isinstance(record, Dropped) for record in records)
    assert result.records == {
        kind: sum(type(record).__name__ == kind for record in records)
        for kind in sorted({type(record).__name__ for record in records})
    }
    assert sum(isinstance(record, NodeStopped) for record in records) == 6
    assert result.clients["near"].delivered == len(result.clients["near"].delays)
    assert all(delay >= 0 for delay in result.clients["far"].delays)


def test_what_links_carry_is_counted_once_per_second() -> None:
    lines = Lines()
    result = simulate(SMALL, 7, trace=lines)
    counted = [record for _, _, record in lines.lines if isinstance(record, Counted) and record.name == "link packets"]
    assert 0 < sum(record.value for record in counted) <= result.link_packets


def test_progress_goes_from_nothing_to_all() -> None:
    shares: list[float] = []
    simulate(SMALL, 7, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_limit_on_events_ends_the_run_early_and_says_so() -> None:
    result = simulate(SMALL, 7, events_max=500)
    assert not result.complete
    assert result.events == 500
    assert simulate(SMALL, 7).complete


def test_a_scenario_built_in_python_is_checked_too() -> None:
    with pytest.raises(InvalidScenario, match="duration"):
        simulate(replace(SMALL, duration=float("nan")), 1)
    with pytest.raises(InvalidScenario, match=r"check\[0\]"):
        simulate(replace(SMALL, check=("nonsense",)), 1)


def test_a_broken_promise_is_reported() -> None:
    lossy = replace(SMALL, check=("nothing-missed",), link=(LinkSpec(between=("a", "c"), loss=0.3),))
    assert "never reached far" in simulate(lossy, 7).problems[0]


def test_a_reliable_link_that_is_sent_a_burst_larger_than_its_socket_does_not_stall() -> None:
    burst = PublisherSpec(rate_messages_per_s=1000.0, start=1.0, stop=1.2, attributes={"n": 1}, body_bytes=2000)
    scenario = Scenario(
        name="burst",
        duration=20.0,
        settled_after=1.0,
        settle=0.5,
        services=NO_RATES,
        broker=(BrokerSpec(name="a"), BrokerSpec(name="b")),
        link=(LinkSpec(between=("a", "b"), kind="reliable", rate_bits_per_s=500e3),),
        client=(
            ClientSpec(name="p", broker="a", publish=(burst, burst)),
            ClientSpec(name="r", broker="b", subscribe=(SubscriptionSpec(where="n = 1"),)),
        ),
        check=("nothing-missed", "nothing-silent"),
    )
    result = simulate(scenario, 1)
    assert result.problems == []
    assert result.clients["r"].delivered == result.clients["p"].published == 400
