"""Different settings at the two ends: both learn of it, once, where there is a way."""

from __future__ import annotations

import pytest

from foreign_bus import Bus
from penstock.kernel.trace import Counted
from penstock.transport.agreement import NAMED_MAX, Agreement, settings_told
from penstock.transport.config import TransportConfig, papers_config


def named(publisher: TransportConfig, subscriber: TransportConfig) -> tuple[list[str], list[str]]:
    """What publisher and subscriber name, after a minute in which messages were lost."""
    bus = Bus(seed=1, loss=0.05)
    bus.add("p", publisher, publishes=True)
    bus.add("a", subscriber)
    bus.subscribe("a", 1, "n < 1000 and k = 'x'", ordered=True, recover=True)
    for n in range(300):
        bus.publish("p", {"n": n, "k": "x" if n % 3 else "y"}, at=1.0 + n / 20)
    bus.run(60.0)
    found = []
    for name, other in (("p", "a"), ("a", "p")):
        records = [one for one in bus.records_of(name, Counted) if one.name.startswith("settings differ: ")]
        assert all((one.peer, one.value) == (other, 1) for one in records)
        found.append([one.name.removeprefix("settings differ: ") for one in records])
    return found[0], found[1]


@pytest.mark.parametrize(
    "setting", [{"record_hashes": 3}, {"record_entries": 0}, {"domain": "x"}, {"congestion": True}]
)
@pytest.mark.parametrize("at_publisher", [False, True])
def test_the_papers_settings_are_named_at_both_ends(setting: dict[str, object], at_publisher: bool):
    ends = [papers_config(**setting), papers_config()]
    publisher, subscriber = ends if at_publisher else ends[::-1]
    assert named(publisher, subscriber) == (list(setting), list(setting))


@pytest.mark.parametrize("at_publisher", [False, True])
def test_congestion_control_at_one_end_is_named_at_both(at_publisher: bool):
    ends = [TransportConfig(congestion=True), TransportConfig()]
    publisher, subscriber = ends if at_publisher else ends[::-1]
    assert named(publisher, subscriber) == (["congestion"], ["congestion"])


@pytest.mark.parametrize("make", [TransportConfig, papers_config])
@pytest.mark.parametrize("congestion", [False, True])
def test_who_agrees_names_nothing(make, congestion: bool):
    assert named(make(congestion=congestion), make(congestion=congestion, late="hold")) == ([], [])


def test_other_lengths_of_records_go_together():
    assert named(papers_config(record_entries=4), papers_config()) == ([], [])


def test_settings_that_cannot_be_read_say_nothing_and_the_table_is_bounded():
    agreement = Agreement(papers_config())
    assert agreement.told("p", b"\x00") == agreement.told("p", b"") == []
    other = settings_told(papers_config(domain="x"))
    for number in range(NAMED_MAX + 1):
        assert len(agreement.told(f"p{number}", other)) == 1
    assert agreement.told("p1", other) == []
    assert len(agreement.told("p0", other)) == 1, "the oldest was forgotten"
