"""What 002 says about congestion control beyond 000, one claim per test: chapter 5, sections 1.2 and 6.2."""

from __future__ import annotations

from functools import cache

import pytest

from narrow_bus import PAPERS_CONFIG, NarrowBus, Path, a_bus
from penstock.transport.config import papers_config
from penstock.transport.records import RepairSent
from penstock.transport.wire.control_messages import FEEDBACK


@cache
def many_equal(count: int) -> tuple[NarrowBus, Path]:
    bus, path = a_bus(3, PAPERS_CONFIG), Path(100.0)
    for number in range(count):
        bus.subscriber(f"s{number}", "kind = 'bulk'", path)
    bus.stream(200.0, 6.0, kind="bulk")
    bus.run(6.0)
    return bus, path


def test_once_a_limiting_receiver_is_selected_the_others_stop_sending_feedback() -> None:
    """Section 6.2, feedback suppression: the implosion does not last."""
    bus, _ = many_equal(20)
    begun = [carried.time for carried in bus.control_messages(FEEDBACK)]
    senders = {carried.sender for carried in bus.control_messages(FEEDBACK) if carried.time > 3.0}
    assert len(senders) <= 5
    assert len([time for time in begun if time > 3.0]) / 3.0 < 25.0


def test_suppression_does_not_change_what_the_flow_gets() -> None:
    """Section 6.2: it is there for scalability and robustness."""
    for count in (1, 20):
        bus, path = many_equal(count)
        assert bus.rate_at("s0", 2.0, 6.0) == pytest.approx(100.0, rel=0.08)
        assert len([time for time in path.drops if time > 2.0]) < 20


def test_a_covered_subscriber_needs_no_control_of_its_own() -> None:
    """Section 5.2, Figure 5.3: C's interest lies within B's, whose way is the slower."""
    bus = a_bus(4, PAPERS_CONFIG)
    bus.subscriber("B", "kind = 'bulk'", Path(80.0))
    bus.subscriber("C", "kind = 'bulk' AND urgent", Path(90.0))
    bus.stream(150.0, 12.0, kind="bulk", urgent=False)
    bus.stream(150.0, 12.0, kind="bulk", urgent=True)
    bus.run(12.0)
    assert [flow.limiting_receiver for flow in bus.flows()] == ["B"]
    assert not bus.paths["C"].drops[-1:] or bus.paths["C"].drops[-1] < 4.0


def test_recovery_and_congestion_control_work_together() -> None:
    """Sections 1.2 and 5.3.6: repairs take tokens, so asking for what was lost does not keep the way full."""
    both = papers_config(congestion=True, record_entries=2, when_full="drop")
    bus, path = a_bus(5, both), Path(100.0)
    bus.add("B", both)
    bus.subscribe("B", 1, "kind = 'bulk'", recover=True)
    bus.paths["B"] = path
    bus.stream(300.0, 10.0, kind="bulk")
    bus.run(10.0)
    assert bus.rate_at("B", 3.0, 10.0) == pytest.approx(100.0, rel=0.2)
    assert len([time for time in path.drops if time > 3.0]) < 0.05 * 200.0 * 7.0
    assert bus.records_of("p", RepairSent)


def test_limiting_receivers_see_every_loss() -> None:
    """Section 6.2, alternative loss detection: "only for CLRs". Here by a count on messages, without acknowledgements.

    With a record of two and one message in ten wanted, records tell of one loss in five, and of fewer still once the
    flow is paced.
    """
    bus, path = a_bus(6, PAPERS_CONFIG), Path(40.0)
    bus.subscriber("B", "wanted", path)
    for number in range(12_000):
        bus.publish("p", {"wanted" if bus.random.random() < 0.1 else "other": True}, at=number / 1000.0)
    bus.run(12.0)
    assert bus.rate_at("B", 4.0, 12.0) == pytest.approx(40.0, rel=0.15)
    assert len([time for time in path.drops if time > 4.0]) < 0.08 * 60.0 * 8.0
