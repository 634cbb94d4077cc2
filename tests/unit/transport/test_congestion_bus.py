"""Congestion control from end to end over a network that is not ours and has narrow places (`narrow_bus`)."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest
from msgspec.structs import replace

from narrow_bus import CONFIG, DELAY, PAPERS_CONFIG, NarrowBus, Path, a_bus
from penstock.content.envelope import control_message
from penstock.content.message import Identity, Value
from penstock.kernel.machine import SERVICE_SUBSCRIPTIONS
from penstock.kernel.trace import InputRefused
from penstock.transport.config import TransportConfig
from penstock.transport.records import FlowLimited, MessageWithheld, RepairSent
from penstock.transport.wire.control_messages import FEEDBACK, TO, Feedback, FlowQuota

both_schemes = pytest.mark.parametrize("config", [CONFIG, PAPERS_CONFIG], ids=["ledgers", "papers"])


@cache
def disjoint(config: TransportConfig) -> tuple[NarrowBus, Path]:
    bus, path = a_bus(1, config), Path(100.0)
    bus.subscriber("slow", "kind = 'bulk'", path)
    bus.subscriber("free", "kind = 'news'")
    bus.stream(300.0, 20.0, kind="bulk")
    bus.stream(300.0, 20.0, kind="news")
    bus.run(19.0)
    return bus, path


@both_schemes
def test_only_the_congested_content_slows_down(config: TransportConfig) -> None:
    """000 section II-B, Figure 1."""
    bus, _ = disjoint(config)
    assert bus.rate_at("slow", 5.0, 19.0) == pytest.approx(100.0, rel=0.15)
    assert bus.rate_at("free", 5.0, 19.0) == pytest.approx(300.0, rel=0.02)
    assert not [name for name, _ in bus.lost if name == "free"]
    sent = {message.identity: time for time, message in bus.published}
    delays = [time - sent[message.identity] for time, _, message in bus.members["free"].delivered]
    begun = len(delays) // 10 if config.slow_start else 0  # slow start, which no paper has, may delay these
    assert max(delays[begun:]) == pytest.approx(DELAY)  # messages of no limited flow are never held back


@both_schemes
def test_losses_nearly_end(config: TransportConfig) -> None:
    _, path = disjoint(config)
    overload = 200.0 * 14.0
    assert len([time for time in path.drops if time >= 5.0]) < 0.03 * overload


def test_who_slows_whom_is_reported() -> None:
    bus, _ = disjoint(CONFIG)
    (flow,) = bus.flows()
    assert flow.limiting_receiver == "slow"
    assert flow.quota == pytest.approx(100.0, rel=0.4)
    limited = bus.records_of("p", FlowLimited)
    assert {record.limiting_receiver for record in limited} == {"slow"}
    withheld = bus.records_of("p", MessageWithheld)
    assert withheld
    assert {record.limiting_receiver for record in withheld} == {"slow"}


def test_when_the_congested_receiver_leaves_the_flow_is_free_again() -> None:
    bus, path = a_bus(), Path(100.0)
    bus.subscriber("slow", "kind = 'bulk'", path)
    bus.subscriber("fast", "kind = 'bulk'")
    bus.stream(300.0, 14.0, kind="bulk")
    bus.run(6.0)
    assert bus.rate_at("fast", 3.0, 6.0) < 150.0
    bus.unsubscribe("slow", 1)
    bus.run(13.0)
    assert bus.flows() == []
    assert bus.rate_at("fast", 10.0, 13.0) == pytest.approx(300.0, rel=0.05)


def test_a_way_that_widens_is_used_and_one_that_narrows_is_not_flooded() -> None:
    bus, path = a_bus(), Path(100.0)
    bus.subscriber("slow", "kind = 'bulk'", path)
    bus.stream(300.0, 40.0, kind="bulk")
    bus.at(12.0, lambda: setattr(path, "rate", 200.0))
    bus.at(24.0, lambda: setattr(path, "rate", 60.0))
    bus.run(36.0)
    assert bus.rate_at("slow", 4.0, 12.0) == pytest.approx(100.0, rel=0.2)
    assert bus.rate_at("slow", 15.0, 24.0) > 140.0
    assert bus.rate_at("slow", 27.0, 36.0) == pytest.approx(60.0, rel=0.2)
    assert len([time for time in path.drops if time > 28.0]) < 0.05 * 240.0 * 8.0


def test_the_slowest_of_several_receivers_is_followed() -> None:
    """000 section III-A: one of them sends feedback for all who want the same."""
    bus = a_bus()
    for name, rate in (("half", 150.0), ("third", 100.0), ("fifth", 60.0)):
        bus.subscriber(name, "kind = 'bulk'", Path(rate))
    bus.stream(300.0, 20.0, kind="bulk")
    bus.run(19.0)
    (flow,) = bus.flows()
    assert flow.limiting_receiver == "fifth"
    for name in ("half", "third", "fifth"):
        assert bus.rate_at(name, 5.0, 19.0) == pytest.approx(60.0, rel=0.2)


def test_a_narrower_subscription_behind_a_slower_way_leaves_the_rest_alone() -> None:
    """002 Figure 5.3: the flow of a wider subscription is limited by its own receiver, the narrower one on top of
    that."""
    bus = a_bus()
    bus.subscriber("wide", "kind = 'bulk'", Path(200.0))
    bus.subscriber("narrow", "kind = 'bulk' AND urgent", Path(40.0))
    bus.stream(200.0, 20.0, kind="bulk", urgent=True)
    bus.stream(150.0, 20.0, kind="bulk", urgent=False)
    bus.run(19.0)
    assert bus.rate_at("narrow", 5.0, 19.0) == pytest.approx(40.0, rel=0.25)
    assert bus.rate_at("wide", 5.0, 19.0) == pytest.approx(40.0 + 150.0, rel=0.2)


def test_two_flows_that_one_receiver_limits_are_both_watched_for_losses() -> None:
    """Their messages come mixed; each flow is counted by itself."""
    bus, path = a_bus(), Path(100.0)
    bus.subscriber("slow", "bulk OR logs", path)
    bus.stream(150.0, 20.0, bulk=True)
    bus.stream(150.0, 20.0, logs=True)
    bus.run(19.0)
    assert len(bus.flows()) == 2
    assert bus.rate_at("slow", 5.0, 19.0) == pytest.approx(100.0, rel=0.15)
    assert len([time for time in path.drops if time >= 5.0]) < 0.03 * 200.0 * 14.0


def test_a_range_is_a_flow_of_its_own_and_gets_what_the_way_can_carry() -> None:
    """Errata B1 and C8: by bits alone the flow would hold all prices, and the quota would starve it."""
    bus, path = a_bus(), Path(100.0)
    bus.subscriber("slow", "price < 10", path)
    bus.stream(200.0, 20.0, price=5)
    bus.stream(200.0, 20.0, price=30)
    bus.subscriber("dear", "price > 20")
    bus.run(19.0)
    assert bus.rate_at("slow", 5.0, 19.0) == pytest.approx(100.0, rel=0.15)
    assert bus.rate_at("dear", 5.0, 19.0) == pytest.approx(200.0, rel=0.02)


def test_a_slow_application_slows_its_publisher() -> None:
    """A drop in the client's own queue is a loss as any other."""
    bus = a_bus()
    bus.subscriber("busy", "kind = 'bulk'")
    bus.stream(200.0, 15.0, kind="bulk")
    queue, busy, place = [0.0], bus.members["busy"], [0]

    def work() -> None:
        """50 messages per second are done; at most 20 wait."""
        queue[0] = max(0.0, queue[0] - 1.0)
        for _, _, message in busy.delivered[place[0] :]:
            if queue[0] >= 20.0:
                assert busy.transport is not None
                busy.transport.dropped_here(message, now=busy.local(bus.now))
            else:
                queue[0] += 1.0
        place[0] = len(busy.delivered)
        bus.at(bus.now + 0.02, work)

    bus.at(0.0, work)
    bus.run(15.0)
    assert bus.rate_at("busy", 5.0, 15.0) == pytest.approx(50.0, rel=0.25)


@both_schemes
def test_one_that_is_hopelessly_slow_holds_the_others_up_for_a_while_only_if_the_publisher_says_so(
    config: TransportConfig,
) -> None:
    rates = []
    for settings in (config, replace(config, quarantine_below=30.0, quarantine_after=3.0)):
        bus = a_bus(2, settings)
        bus.subscriber("snail", "kind = 'bulk'", Path(10.0))
        bus.subscriber("fast", "kind = 'bulk'")
        bus.stream(200.0, 13.0, kind="bulk")
        bus.run(13.0)
        rates.append(bus.rate_at("fast", 9.0, 13.0))  # the queue before the snail takes it five seconds by itself
    assert rates[0] < 20.0
    assert rates[1] == pytest.approx(200.0, rel=0.05)
    assert "too slow" in bus.records_of("p", InputRefused)[-1].problem


@both_schemes
def test_who_sits_behind_a_queue_longer_than_the_publisher_s_patience_is_not_forgotten(config: TransportConfig) -> None:
    """Messages wait in it for two seconds; echoes do not, so the publisher takes the way for a short one."""
    for seed in (2, 4):
        bus, path = a_bus(seed, config), Path(10.0)
        bus.subscriber("snail", "kind = 'bulk'", path)
        bus.stream(200.0, 30.0, kind="bulk")
        bus.run(30.0)
        assert len([time for time in path.drops if time >= 5.0]) < 0.03 * 190.0 * 25.0


def test_recovery_does_not_keep_a_narrow_way_full() -> None:
    """Repairs take tokens; those of the papers' scheme are tested with 002."""
    bus, path = a_bus(5), Path(100.0)
    bus.add("slow", CONFIG)
    bus.subscribe("slow", 1, "kind = 'bulk'", recover=True)
    bus.paths["slow"] = path
    bus.stream(300.0, 10.0, kind="bulk")
    bus.run(10.0)
    assert bus.rate_at("slow", 3.0, 10.0) == pytest.approx(100.0, rel=0.2)
    assert len([time for time in path.drops if time > 3.0]) < 0.05 * 200.0 * 7.0
    assert bus.records_of("p", RepairSent)


# --- Forgery.


@pytest.mark.parametrize(
    ("sender", "header"),
    [
        ("~liar", Feedback("slow", 0.0, (FlowQuota(0.0, bytes(32)),))),  # in another's name
        ("liar", Feedback("liar", 0.0, (FlowQuota(0.0, bytes(32)),))),  # not as a control message
        ("~liar", Feedback("liar", 0.0, (FlowQuota(float("nan"), bytes(32)),))),
        ("~liar", Feedback("liar", 0.0, (FlowQuota(-5.0, bytes(32)),))),
        ("~liar", Feedback("liar", 0.0, (FlowQuota(1e30, bytes(32)),))),
        ("~liar", Feedback("liar", float("inf"), (FlowQuota(1.0, bytes(32)),))),
        ("~liar", Feedback("liar", 0.0, tuple(FlowQuota(1.0, bytes(32)) for _ in range(1000)))),
        ("~liar", Feedback("liar", 0.0, (FlowQuota(1.0, bytes(5)),))),
        ("~liar", Feedback("liar", 0.0, (FlowQuota(1.0, bytes(32), "kind = = 'bulk'"),))),
        ("~liar", b"garbage"),
        ("~liar", b""),
    ],
)
def test_forged_feedback_is_refused_with_a_record_and_changes_nothing(sender: str, header: Feedback | bytes) -> None:
    bus, path = a_bus(), Path(100.0)
    bus.subscriber("slow", "kind = 'bulk'", path)
    bus.stream(300.0, 3.0, kind="bulk")
    bus.run(3.0)
    before = [(flow.flow, flow.quota, flow.limiting_receiver, flow.since) for flow in bus.flows()]
    assert before
    data = header if isinstance(header, bytes) else msgspec.msgpack.encode(header)
    bus.hand("p", (SERVICE_SUBSCRIPTIONS,), control_message(Identity(sender, 1, 1), FEEDBACK, {TO: "p"}, data))
    # What waits may have become fewer: any feedback is an occasion to send what has tokens.
    assert [(flow.flow, flow.quota, flow.limiting_receiver, flow.since) for flow in bus.flows()] == before
    assert len(bus.records_of("p", InputRefused)) == 1


# --- Feedback suppression (002 section 6.2).


@cache
def equal_subscribers(count: int, patience: float, seconds: float = 8.0) -> tuple[float, float, int]:
    """FeedbackScheduler per second at the publisher, rate of one receiver, losses on the path; all after the first 2
    s."""
    bus, path = a_bus(3, replace(CONFIG, feedback_patience=patience)), Path(100.0, 10)
    for number in range(count):
        bus.subscriber(f"s{number}", "kind = 'bulk'", path)
    bus.stream(200.0, seconds, kind="bulk")
    bus.run(seconds)
    feedbacks = [carried for carried in bus.control_messages(FEEDBACK) if carried.time >= 2.0]
    drops = len([time for time in path.drops if time >= 2.0])
    return len(feedbacks) / (seconds - 2.0), bus.rate_at("s0", 2.0, seconds), drops


def test_the_feedback_of_many_equal_subscribers_grows_far_slower_than_their_number() -> None:
    alone, few, many = (equal_subscribers(count, 6.0)[0] for count in (1, 8, 25))
    assert few < 2.0 * alone
    assert many < 3.0 * alone
    assert equal_subscribers(25, 0.0)[0] > 3.0 * many


def test_feedback_suppression_costs_neither_throughput_nor_losses() -> None:
    for count in (1, 8, 25):
        _, rate, drops = equal_subscribers(count, 6.0)
        assert rate == pytest.approx(100.0, rel=0.05)
        assert drops < 0.05 * 100.0 * 6.0


def test_who_is_alone_never_waits() -> None:
    assert equal_subscribers(1, 6.0) == equal_subscribers(1, 0.0)


# --- What bits cannot tell: nothing is lost, and nobody is slowed down.


def also_wants(bus: NarrowBus, name: str, number: int, where: str, priority: float = 1.0) -> None:
    """Another subscription of a client."""
    member = bus.members[name]
    assert member.transport is not None
    bus.subscribe(name, number, where)
    now = member.local(bus.now)
    predicate = member.wheres[number]
    more = member.transport.subscribe(number, predicate, ordered=False, recover=False, now=now, priority=priority)
    bus.apply(member, more)


@pytest.mark.parametrize(
    "wheres",
    [
        ["price < 10"],
        ["price < 10"] * 5,
        [f"price < {price}" for price in (10, 20, 30, 40, 50, 60)],
        ["price < 10", "price = 5", "price > 1 AND price < 40"],
    ],
    ids=["one", "equal", "nested", "mixed"],
)
def test_ranges_on_a_network_that_loses_nothing_hold_nobody_up(wheres: list[str]) -> None:
    """Errata B1 and C8."""
    bus = a_bus()
    for number, where in enumerate(wheres):
        bus.subscriber(f"s{number}", where)
    for price in (5, 15, 35, 65):
        bus.stream(100.0, 6.0, price=price)
    bus.run(7.0)
    assert bus.records_of("p", MessageWithheld) == []
    for number in range(len(wheres)):
        assert bus.got(f"s{number}", 1) == bus.due(f"s{number}", 1)
    assert len(bus.control_messages(FEEDBACK)) <= 4 * 7 * len(wheres)


def test_a_range_behind_a_narrow_place_is_slowed_down_though_others_want_it_too() -> None:
    bus, path = a_bus(), Path(60.0)
    bus.subscriber("wide", "price < 10")
    bus.subscriber("narrow", "price < 10", path)
    bus.stream(150.0, 12.0, price=5)
    bus.stream(150.0, 12.0, price=30)
    bus.run(12.0)
    assert bus.rate_at("narrow", 4.0, 12.0) == pytest.approx(60.0, rel=0.1)
    assert len([time for time in path.drops if time >= 4.0]) < 0.05 * 90.0 * 8.0
    assert [flow.limiting_receiver for flow in bus.flows()] == ["narrow"]


@both_schemes
@pytest.mark.parametrize("count", [1, 8])
def test_messages_with_many_attributes_hold_nobody_up(count: int, config: TransportConfig) -> None:
    """The papers' entries have 4 of 10 bits set with thirty attributes, so something looks lost; sketches tell."""
    bus = a_bus(1, config)
    for number in range(count):
        bus.subscriber(f"s{number}", "kind = 'hot'")
    now = 0.0
    while now < 5.0:
        attributes: dict[str, Value] = {f"attribute{place}": bus.random.randrange(1000) for place in range(30)}
        bus.publish("p", {**attributes, "kind": "hot" if bus.random.random() < 0.15 else "cold"}, at=now)
        now += bus.random.uniform(0.5, 1.5) / 800.0
    bus.run(6.0)
    assert bus.records_of("p", MessageWithheld) == []
    assert bus.got("s0", 1) == bus.due("s0", 1)
    assert bool(bus.control_messages(FEEDBACK)) == (config is PAPERS_CONFIG)


# --- Several subscriptions of one client.


def test_a_slow_reader_holds_up_its_own_subscription_alone_and_only_while_it_is_open() -> None:
    bus = a_bus()
    bus.subscriber("c", "kind = 'slow'")
    also_wants(bus, "c", 2, "kind = 'fast'")
    bus.stream(100.0, 8.0, kind="slow")
    bus.stream(300.0, 8.0, kind="fast")

    def tell() -> None:
        if bus.now < 4.0:
            bus.reader_takes("c", 20.0)
            bus.at(bus.now + 0.05, tell)

    bus.at(1.0, tell)
    bus.at(4.0, lambda: bus.unsubscribe("c", 1))
    bus.run(4.0)
    slow = [time for time, number, _ in bus.members["c"].delivered if number == 1 and time > 2.0]
    assert len(slow) / 2.0 == pytest.approx(20.0, rel=0.1)
    reported = len(bus.control_messages(FEEDBACK))
    bus.run(9.0)
    assert bus.got("c", 2) == bus.due("c", 2)
    assert len(bus.control_messages(FEEDBACK)) <= reported + 1
    assert bus.flows() == []


def test_more_filters_than_a_feedback_may_name_are_all_controlled() -> None:
    bus, path = a_bus(), Path(100.0)
    bus.subscriber("s", "topic = 'idle 0'", path)
    for number in range(2, 100):
        also_wants(bus, "s", number, f"topic = 'idle {number}'")
    also_wants(bus, "s", 100, "topic = 'heavy'")
    bus.stream(400.0, 8.0, topic="heavy")
    bus.run(8.0)
    assert len([time for time in path.drops if time > 4.0]) < 0.05 * 300.0 * 4.0
    assert [flow.limiting_receiver for flow in bus.flows()] == ["s"]


def test_priority_two_gets_twice_as_much_as_one() -> None:
    """002 section 5.3."""
    bus, path = a_bus(), Path(120.0)
    bus.subscriber("s", "kind = 'plain'", path)
    also_wants(bus, "s", 2, "kind = 'dear'", priority=2.0)
    bus.stream(200.0, 30.0, kind="plain")
    bus.stream(200.0, 30.0, kind="dear")
    bus.run(30.0)
    got = {
        number: len([time for time, to, _ in bus.members["s"].delivered if to == number and time >= 10.0])
        for number in (1, 2)
    }
    assert got[2] / got[1] == pytest.approx(2.0, rel=0.15)
    assert (got[1] + got[2]) / 20.0 == pytest.approx(120.0, rel=0.15)


def test_unsubscribing_for_a_while_is_no_loss() -> None:
    """The flow's count went on, because another wants it too."""
    bus, path = a_bus(), Path(1000.0)
    bus.subscriber("s", "kind = 'bulk'", path)
    bus.subscriber("t", "kind = 'bulk'")
    bus.stream(300.0, 6.0, kind="bulk")
    bus.at(1.0, lambda: setattr(path, "queue_max", 0))
    bus.at(1.02, lambda: setattr(path, "queue_max", 20))
    bus.at(3.0, lambda: bus.unsubscribe("s", 1))
    bus.at(4.0, lambda: also_wants(bus, "s", 1, "kind = 'bulk'"))
    rates: list[float | None] = []
    for time in (2.9, 5.5):
        bus.at(time, lambda: rates.append(bus.control("s").loss_event_rate))
    bus.run(6.0)
    before, after = rates
    assert before is not None
    assert after is not None
    assert 0.0 < after < before
