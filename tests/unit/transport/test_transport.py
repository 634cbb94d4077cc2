"""The whole transport, over a network that has nothing of ours in it and over our own.

What must hold with every seed: nothing twice, nothing unwanted, order but for late ones that are counted, and every
message that was due is delivered, or known to be lost, or was never noticed. A test that fails names its seed:
`pytest tests/unit/transport/test_transport.py -k "seed7 and foreign"` runs it again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from foreign_bus import Bus
from overlay_bus import OverlayBus
from penstock.content.envelope import DATA
from penstock.content.message import Message, Value
from penstock.transport.config import TransportConfig, papers_config
from penstock.transport.records import GaveUp, LossDetected, Recovered, RepairSent, RequestReceived, RequestSent
from penstock.transport.report import TransportReport
from penstock.transport.wire.control_messages import ANSWER, ECHO, HEARTBEAT, REPAIR, REQUEST

Net = Bus | OverlayBus
SEEDS = 20
BOTH = pytest.mark.parametrize("network", [Bus, OverlayBus], ids=["foreign", "ours"])
seeds = pytest.mark.parametrize("seed", range(SEEDS), ids=lambda seed: f"seed{seed}")
# A record so long that a third of the messages is enough to find all losses but the last, and heartbeats for those.
BASE: dict[str, Any] = {
    "record_entries": 40,
    "heartbeat_interval": 0.2,
    "heartbeat_repeats": 12,
    "heartbeat_below": 1.0,
}
FULL = papers_config(**BASE)
KIND_X = "kind = 'x'"


def a_run(
    network: type[Net],
    seed: int,
    config: TransportConfig = FULL,
    *,
    messages: int = 120,
    interval: float = 0.01,
    loss: float = 0.05,
    stage: float = 0.003,
    ordered: bool = True,
    recover: bool = True,
    publisher: TransportConfig | None = None,
    others: tuple[TransportConfig, ...] = (),
    kinds: str = "xyz",
    drain: float = 12.0,
    whole: str = "TRUE",
) -> Net:
    """A publisher, one reader of a third of its messages and one of all, and other readers of all."""
    net = network(seed, loss=loss, stage=stage)
    net.add("p", config if publisher is None else publisher, publishes=True)
    net.add("some", config)
    net.add("all", config)
    net.subscribe("some", 1, KIND_X, ordered=ordered, recover=recover)
    net.subscribe("all", 1, whole, ordered=ordered, recover=recover)
    for number, other in enumerate(others):
        net.add(f"other{number}", other)
        net.subscribe(f"other{number}", 1, whole, ordered=ordered, recover=recover)
    for number in range(messages):
        attributes: dict[str, Value] = {"n": number, "kind": net.random.choice(kinds)}
        net.publish("p", attributes, b"body", at=interval * (number + 1))
    net.run(interval * messages + drain)
    return net


def numbers(messages: list[Message]) -> list[int]:
    return [message.identity.count for message in messages]


def overtaken(messages: list[Message]) -> int:
    """How many came after a later one of the same publisher's life."""
    highest: dict[tuple[str, int], int] = {}
    late = 0
    for message in messages:
        life = message.identity.publisher, message.identity.incarnation
        late += message.identity.count < highest.get(life, 0)
        highest[life] = max(highest.get(life, 0), message.identity.count)
    return late


def detected(net: Net, name: str) -> set[int]:
    return {record.sequence for record in net.records_of(name, LossDetected)}


def given_up(net: Net, name: str) -> set[int]:
    return {record.sequence for record in net.records_of(name, GaveUp)}


def check_safety(net: Net, name: str, number: int = 1) -> None:
    """What holds whatever is switched on or off."""
    got, due = net.got(name, number), net.due(name, number)
    assert len({message.identity for message in got}) == len(got), "nothing comes twice"
    wanted = {message.identity: message for message in due}
    assert all(wanted.get(message.identity) == message for message in got), "only what was published, as it was"


def check_order(net: Net, name: str, number: int = 1) -> None:
    """In order, but for those that are counted."""
    assert overtaken(net.got(name, number)) == net.report(name, number).late


def check_account(net: Net, name: str, number: int = 1) -> set[int]:
    """Delivered, known to be lost, or never noticed; returns the last ones."""
    got, due = set(numbers(net.got(name, number))), set(numbers(net.due(name, number)))
    report, lost = net.report(name, number), detected(net, name)
    gone = given_up(net, name) - got  # one that was given up may come after all
    assert report.delivered == len(got)
    assert report.pending == 0
    assert report.lost == len(lost)
    assert report.known_lost == len(gone)
    assert report.recovered == len(net.records_of(name, Recovered))
    missing = due - got
    assert lost & missing <= gone, "what was noticed has come or is known to be lost"
    unnoticed = missing - lost
    assert report.delivered + len(gone & due) + len(unnoticed) == len(due)
    return unnoticed


# Everything switched on.


@BOTH
@seeds
def test_with_everything_on_all_is_accounted_for(network: type[Net], seed: int) -> None:
    net = a_run(network, seed)
    for name in ("some", "all"):
        check_safety(net, name)
        check_order(net, name)
        unnoticed = check_account(net, name)
        first = min(numbers(net.got(name, 1)))
        # Before the first one that came nobody could know that there was a publisher.
        assert all(number < first for number in unnoticed)


@BOTH
@pytest.mark.parametrize("late", ["hold", "drop"])
@pytest.mark.parametrize("seed", range(5), ids=lambda seed: f"seed{seed}")
def test_other_ways_with_late_ones(network: type[Net], late: Any, seed: int) -> None:
    net = a_run(network, seed, papers_config(**BASE, late=late, hold_max=5.0))
    for name in ("some", "all"):
        check_safety(net, name)
        check_order(net, name)
        report = net.report(name, 1)
        if late == "drop":
            assert report.late <= report.recovered, "an original is left out, a repair never is"
        else:
            assert report.late <= 1 + len(net.due(name, 1)) * 0.02, "a repair finds its place in nearly all cases"


@BOTH
def test_without_loss_nothing_is_missing_and_nearly_nothing_is_asked_for(network: type[Net]) -> None:
    net = a_run(network, 1, loss=0.0, stage=0.0)
    assert numbers(net.got("all", 1)) == list(range(1, 121))
    assert not detected(net, "all")
    assert not net.control_messages(REQUEST)
    assert not net.control_messages(REPAIR)


@BOTH
def test_several_publishers_and_subscriptions_do_not_disturb_each_other(network: type[Net]) -> None:
    net = network(3, loss=0.05, stage=0.003)
    for name in ("p", "q", "r"):
        net.add(name, FULL, publishes=True)
    net.add("a", FULL)
    net.subscribe("a", 1, KIND_X, ordered=True, recover=True)
    net.subscribe("a", 2, "kind = 'y' OR kind = 'x'", ordered=True)
    net.subscribe("a", 3, "TRUE", recover=True)
    net.subscribe("a", 4, "TRUE")
    for number in range(100):
        for name in ("p", "q", "r"):
            net.publish(name, {"kind": net.random.choice("xyz")}, at=0.01 * number + net.random.random())
    net.run(20.0)
    for number in (1, 2, 3, 4):
        check_safety(net, "a", number)
    assert net.report("a", 1).publishers == 3
    assert overtaken(net.got("a", 1)) <= net.report("a", 1).late
    assert overtaken(net.got("a", 2)) <= net.report("a", 2).late
    assert len(net.got("a", 3)) > len(net.got("a", 4)), "only who asked for recovery gets lost ones back"
    assert len(net.got("a", 3)) >= 0.99 * 300


# Each part by itself.


@BOTH
def test_a_plain_client_gets_the_messages_as_they_were_published_and_nothing_else(network: type[Net]) -> None:
    net = network(5, loss=0.05, stage=0.003)
    net.add("p", FULL, publishes=True)
    net.add("a", FULL)
    net.add("plain", None)
    net.subscribe("a", 1, "TRUE", ordered=True, recover=True)
    net.subscribe("plain", 1, "TRUE")
    net.subscribe("plain", 2, "EXISTS _t")
    for number in range(100):
        net.publish("p", {"n": number}, b"body", at=0.01 * number)
    net.run(10.0)
    assert {carried.kind for carried in net.carried} >= {DATA, REQUEST, REPAIR, HEARTBEAT}
    check_safety(net, "plain")
    assert 80 <= len(net.got("plain", 1)) < 100
    published = {message.identity for _, message in net.published}
    assert {message.identity for message in net.got("plain", 2)} <= published, "no talk, whatever it asks for"


@BOTH
def test_a_client_without_transport_subscriptions_gets_plain_messages_too(network: type[Net]) -> None:
    net = a_run(network, 5, ordered=False, recover=False)
    check_safety(net, "all")
    assert not net.control_messages(REQUEST)
    assert len(net.got("all", 1)) < 120


@BOTH
def test_a_publisher_without_the_transport_is_delivered_as_it_comes_and_counted(network: type[Net]) -> None:
    net = network(6, loss=0.05, stage=0.003)
    net.add("p", None)
    net.add("a", FULL)
    net.subscribe("a", 1, "TRUE", ordered=True, recover=True)
    for number in range(100):
        net.publish("p", {"n": number}, at=0.01 * number)
    net.run(10.0)
    check_safety(net, "a")
    report = net.report("a", 1)
    assert report.without_header == report.delivered == len(net.got("a", 1)) < 100


@BOTH
@pytest.mark.parametrize("seed", range(5), ids=lambda seed: f"seed{seed}")
def test_basic_mode_orders_and_finds_no_loss(network: type[Net], seed: int) -> None:
    net = a_run(network, seed, papers_config(record_entries=0))
    for name in ("some", "all"):
        check_safety(net, name)
        check_order(net, name)
        assert not detected(net, name), "without a record nobody knows what was wanted"
        assert not net.control_messages(REQUEST)


@BOTH
def test_basic_mode_with_heartbeats_recovers_all_the_same(network: type[Net]) -> None:
    net = a_run(
        network, 2, papers_config(record_entries=0, heartbeat_interval=0.2, heartbeat_below=1.0, cache_interval=0.1)
    )
    for name in ("some", "all"):
        check_safety(net, name)
        check_order(net, name)
        assert all(number < 60 for number in check_account(net, name)), "before the first heartbeat it asked for"
    assert net.report("all", 1).recovered > 0


@BOTH
@pytest.mark.parametrize("seed", range(5), ids=lambda seed: f"seed{seed}")
def test_order_alone(network: type[Net], seed: int) -> None:
    net = a_run(network, seed, recover=False, stage=0.006)
    for name in ("some", "all"):
        check_safety(net, name)
        check_order(net, name)
        assert not net.records_of(name, RequestSent)
    assert not net.control_messages(REPAIR)
    plain = a_run(network, seed, recover=False, ordered=False, stage=0.006)
    assert overtaken(net.got("all", 1)) < overtaken(plain.got("all", 1)), "it puts things in order"


@BOTH
@pytest.mark.parametrize("seed", range(5), ids=lambda seed: f"seed{seed}")
def test_recovery_alone(network: type[Net], seed: int) -> None:
    net = a_run(network, seed, ordered=False)
    for name in ("some", "all"):
        check_safety(net, name)
        assert all(number < min(numbers(net.got(name, 1))) for number in check_account(net, name))
        assert net.report(name, 1).delay_held == 0.0, "nothing waits that need not be in order"


@BOTH
def test_without_echoes_the_first_guess_is_the_distance(network: type[Net]) -> None:
    config = papers_config(**BASE, echo_interval=0.0, distance_first=0.02)
    net = a_run(network, 2, config)
    assert not net.control_messages(ECHO)
    assert not net.control_messages(ANSWER)
    check_account(net, "all")
    assert net.report("all", 1).recovered > 0


@BOTH
def test_without_answers_all_that_is_lost_is_known_to_be_lost(network: type[Net]) -> None:
    silent = papers_config(**BASE, answers=False, publisher_answers=False)
    net = a_run(network, 2, silent)
    for name in ("some", "all"):
        check_safety(net, name)
        check_order(net, name)
        check_account(net, name)
        assert net.report(name, 1).recovered == 0
    assert net.report("all", 1).known_lost > 0
    assert not net.control_messages(REPAIR)


@BOTH
def test_peers_repair_each_other_when_the_publisher_does_not(network: type[Net]) -> None:
    config = papers_config(**BASE, publisher_answers=False, cache_min=50)
    net = a_run(network, 2, config, others=(config,) * 3)
    assert not net.records_of("p", RepairSent)
    account = [net.report(name, 1) for name in ("all", "other0", "other1", "other2")]
    assert sum(report.recovered for report in account) > 0
    for name in ("all", "other0", "other1", "other2"):
        check_safety(net, name)
        check_account(net, name)


@BOTH
def test_without_heartbeats_the_end_of_a_burst_is_lost_in_silence(network: type[Net]) -> None:
    net = a_run(network, 2, papers_config())
    assert not net.control_messages(HEARTBEAT)
    for name in ("some", "all"):
        check_safety(net, name)
        check_order(net, name)
        check_account(net, name)


def test_the_last_messages_of_a_burst_are_found_missing_by_heartbeats() -> None:
    """002 section 4.3; no publication follows that could tell of them."""
    for config, expected in ((FULL, list(range(1, 41))), (papers_config(), list(range(1, 31)))):
        bus = Bus(4, stage=0.0)
        bus.add("p", config, publishes=True)
        bus.add("a", config)
        bus.subscribe("a", 1, "TRUE", ordered=True, recover=True)
        bus.loses = lambda sender, receiver, message: (
            message.attributes.get("_t") == DATA and message.attributes["n"] > 30  # type: ignore[operator]
        )
        for number in range(1, 41):
            bus.publish("p", {"n": number}, at=0.05 * number)
        bus.run(20.0)
        assert sorted(numbers(bus.got("a", 1))) == expected


# Settings.


@BOTH
def test_both_forms_of_the_record_give_the_same_results(network: type[Net]) -> None:
    runs = {}
    for form in ("whole", "shared"):
        config = papers_config(heartbeat_interval=0.2, heartbeat_below=1.0, record_form=form)
        net = a_run(network, 7, config)
        sizes = [len(carried.message.body) for carried in net.control_messages(DATA)]
        runs[form] = (net.got("all", 1), net.got("some", 1), net.report("all", 1)), sum(sizes) / len(sizes)
    assert runs["whole"][0] == runs["shared"][0]
    assert runs["shared"][1] < 0.5 * runs["whole"][1], "neighbours share most of their bits"


@BOTH
def test_with_a_span_a_slow_publisher_sends_a_short_record(network: type[Net]) -> None:
    config = papers_config(record_span=0.05, heartbeat_interval=0.2, heartbeat_below=1.0)
    fast, slow = a_run(network, 3, config), a_run(network, 3, config, interval=0.1, messages=60)
    for net in (fast, slow):
        check_safety(net, "all")
        assert all(number < min(numbers(net.got("all", 1))) for number in check_account(net, "all"))
    longest = [max(len(carried.message.body) for carried in net.control_messages(DATA)) for net in (fast, slow)]
    assert longest[0] >= longest[1] + 3 * 36, "five entries against one, of 32 bytes and an age each"


@BOTH
def test_requests_stay_in_their_domain(network: type[Net]) -> None:
    """002 section 4.2.2: who names another domain, or none, never hears them."""
    east = papers_config(**BASE, domain="east")
    west = papers_config(**BASE, domain="west")
    net = a_run(network, 2, east, others=(west, FULL))
    assert net.records_of("all", RequestSent)
    asked_west = {
        carried.sender for carried in net.control_messages(REQUEST) if carried.message.attributes["_domain"] == "west"
    }
    assert asked_west <= {"other0", "~other0"}
    for name in ("other0", "other1"):
        received = {record.requester for record in net.records_of(name, RequestReceived)}
        assert received == set(), f"{name} is alone in its domain"
    for name in ("some", "all"):
        assert all(number < min(numbers(net.got(name, 1))) for number in check_account(net, name))
    assert {record.requester for record in net.records_of("p", RequestReceived)} <= {"some", "all"}


@BOTH
def test_only_designated_caches_answer(network: type[Net]) -> None:
    """002 section 4.2.2: answers are a matter of each client's own settings."""
    base = {**BASE, "publisher_answers": False}
    reader = papers_config(**base, answers=False)
    cache = papers_config(**base, cache_fixed=True)
    net = a_run(network, 2, reader, others=(cache,))
    assert net.records_of("other0", RepairSent)
    for name in ("p", "some", "all"):
        assert not net.records_of(name, RepairSent)
        assert not net.records_of(name, RequestReceived)
    check_account(net, "all")
    assert net.report("all", 1).recovered > 0


@BOTH
def test_a_repair_to_the_requester_is_received_by_nobody_else(network: type[Net]) -> None:
    config = papers_config(**BASE, repair_to="requester")
    net = a_run(network, 2, config, others=(config,), whole="EXISTS n")
    assert net.control_messages(REPAIR)
    for carried in net.control_messages(REPAIR):
        assert set(carried.message.attributes) == {"_to", "_t"}
    if isinstance(net, Bus):
        for name, member in net.members.items():
            assert all(
                received.message.attributes["_to"] == name
                for received in member.received
                if "_to" in received.message.attributes
            )
    for name in ("some", "all", "other0"):
        check_safety(net, name)
        check_order(net, name)
        assert all(number < min(numbers(net.got(name, 1))) for number in check_account(net, name))


@BOTH
def test_a_request_to_the_publisher_is_received_and_answered_by_it_alone(network: type[Net]) -> None:
    config = papers_config(**BASE, request_to="publisher")
    net = a_run(network, 2, config, others=(config,))
    assert net.records_of("p", RepairSent)
    for name in ("some", "all", "other0"):
        assert not net.records_of(name, RequestReceived)
        assert not net.records_of(name, RepairSent)
        check_safety(net, name)
        check_order(net, name)
        assert all(number < min(numbers(net.got(name, 1))) for number in check_account(net, name))
    waits = [record.requested for record in net.records_of("all", Recovered)]
    assert waits
    assert min(waits) < 0.1, "a round trip, and no wait before the answer"


@BOTH
@pytest.mark.parametrize("seed", range(5), ids=lambda seed: f"seed{seed}")
def test_tuned_waits_change_no_result(network: type[Net], seed: int) -> None:
    config = papers_config(**BASE, adaptive_suppression=True)
    net = a_run(network, seed, config, others=(config,) * 2)
    for name in ("some", "all", "other0", "other1"):
        check_safety(net, name)
        check_order(net, name)
        check_account(net, name)


# What the report says.


@pytest.mark.parametrize(("share", "entries"), [(0.1, 3), (0.1, 10), (0.3, 2), (0.05, 10)])
def test_the_reported_detection_probability_is_the_measured_share(share: float, entries: int) -> None:
    """Equation (4.1): 1 - (1 - P_m + P_m P_l)^R, with nothing else that could find a loss."""
    config = papers_config(record_entries=entries, record_bits=1024, answers=False, publisher_answers=False)
    lost = found = 0
    reported = []
    for seed in range(3):
        bus = Bus(seed, loss=0.1, stage=0.0)
        bus.add("p", config, publishes=True)
        bus.add("a", config)
        bus.subscribe("a", 1, KIND_X, recover=True)
        for number in range(4_000):
            kind = "x" if bus.random.random() < share else "y"
            bus.publish("p", {"kind": kind}, at=0.05 * number)
        bus.run(250.0)
        gone = set(numbers(bus.due("a", 1))) - set(numbers(bus.got("a", 1)))
        lost += len(gone)
        found += len(gone & detected(bus, "a"))
        reported.append(bus.report("a", 1).detection_probability)
    measured, sent = found / lost, sum(reported) / len(reported)
    assert sent == pytest.approx(measured, abs=3.5 * (measured * (1 - measured) / lost) ** 0.5 + 0.01), (sent, measured)


def test_a_report_of_nothing() -> None:
    bus = Bus()
    bus.add("a", FULL)
    assert bus.report("a", 1) == TransportReport()


def test_what_was_counted_stays_counted_when_a_publisher_is_forgotten() -> None:
    config = papers_config(**BASE, session_idle=5.0)
    bus = a_run(Bus, 4, config, drain=4.0)
    before = bus.report("all", 1)
    bus.run(60.0)
    after = bus.report("all", 1)
    assert (before.publishers, after.publishers) == (1, 0)
    for name in ("delivered", "late", "recovered", "lost", "known_lost", "duplicates", "refused"):
        assert getattr(after, name) >= getattr(before, name), name
    assert after.lost > 0


@pytest.mark.parametrize("where", ["price < 110", "symbol = 'IBM' AND price < 110"])
def test_on_a_network_that_loses_nothing_a_range_soon_asks_for_little(where: str) -> None:
    """Half of the messages match and the others look like losses; after a few that turn out unwanted it doubts them."""
    bus = Bus(3, stage=0.0)
    bus.add("p", papers_config(), publishes=True)
    bus.add("a", papers_config())
    bus.subscribe("a", 1, where, ordered=True, recover=True)
    for number in range(1_000):
        bus.publish("p", {"symbol": "IBM", "price": bus.random.uniform(80, 140)}, at=0.02 * number)
    bus.run(60.0)
    assert bus.got("a", 1) == bus.due("a", 1)
    report = bus.report("a", 1)
    assert report.known_lost == 0
    assert report.not_asked > 0.9 * report.lost
    assert (
        len(bus.control_messages("request")) + len(bus.control_messages("repair")) <= 0.3 * report.lost
    )  # eight for each before


def test_a_publisher_does_not_repeat_a_repair_of_a_peer() -> None:
    """The peer is nearer to the requester and answers first; nobody should answer after it."""
    bus = Bus(3, stage=0.0)
    config = papers_config(**BASE, cache_min=100)
    for name in ("p", "peer", "a"):
        bus.add(name, config, publishes=name == "p")
    for name in ("peer", "a"):
        bus.subscribe(name, 1, KIND_X, recover=True)
    bus.delay_of = lambda sender, receiver: 0.1 if "p" in (sender, receiver) else 0.005
    bus.loses = lambda sender, receiver, message: (
        receiver == "a" and message.attributes.get("_t") == DATA and message.identity.count % 10 == 5
    )
    for number in range(100):
        bus.publish("p", {"kind": "x"}, at=2.0 + 0.1 * number)
    bus.run(30.0)
    assert len(bus.records_of("peer", RepairSent)) >= 8
    assert len(bus.records_of("p", RepairSent)) <= 2


@pytest.mark.parametrize("step", [0.05, 0.5, -0.5, -1000.0, 1000.0])
def test_a_publishers_clock_is_set(step: float) -> None:
    """Beyond `skew_max` some messages are refused, and counted, until the publisher is believed again."""
    bus = Bus(2, loss=0.02, stage=0.002)
    bus.add("p", FULL, publishes=True)
    bus.add("a", FULL)
    bus.subscribe("a", 1, "TRUE", ordered=True, recover=True)
    for number in range(300):
        bus.publish("p", {"n": number}, at=0.01 * number)
    bus.run(1.5)
    bus.members["p"].offset += step
    bus.run(40.0)
    check_safety(bus, "a")
    check_order(bus, "a")
    report = bus.report("a", 1)
    assert report.delivered + report.refused >= 299
    assert report.refused <= 10  # eight messages, and a heartbeat or two


# Lives.


@seeds
def test_a_publisher_that_is_started_again_is_followed_and_nothing_comes_twice(seed: int) -> None:
    bus = Bus(seed, loss=0.05, stage=0.003)
    bus.add("p", FULL, publishes=True)
    bus.add("a", FULL)
    bus.subscribe("a", 1, "TRUE", ordered=True, recover=True)
    for number in range(60):
        bus.publish("p", {"n": number}, at=0.01 * number)
    bus.at(0.3, lambda: (bus.restart("p"), None)[1])
    bus.run(15.0)
    check_safety(bus, "a")
    check_order(bus, "a")
    lives = Counter(message.identity.incarnation for message in bus.got("a", 1))
    sent = Counter(message.identity.incarnation for _, message in bus.published)
    assert lives[2] >= sent[2] - 3, "the second life is recovered but for what came before its first message"
    assert bus.report("a", 1).publishers == 2


def test_a_subscriber_that_is_started_again_begins_with_what_comes_next() -> None:
    bus = Bus(3, loss=0.05, stage=0.003)
    bus.add("p", FULL, publishes=True)
    bus.add("a", FULL)
    bus.subscribe("a", 1, "TRUE", ordered=True, recover=True)

    def again() -> None:
        bus.restart("a")
        bus.members["a"].delivered.clear()
        bus.subscribe("a", 1, "TRUE", ordered=True, recover=True)

    for number in range(100):
        bus.publish("p", {"n": number}, at=0.01 * number)
    bus.at(0.5, again)
    bus.run(15.0)
    check_safety(bus, "a")
    got = numbers(bus.got("a", 1))
    received = [
        count for time, count in ((t, m.identity.count) for t, _, m in bus.members["a"].delivered) if time < 0.6
    ]
    assert set(range(max(received), 101)) - set(got) <= given_up(bus, "a"), "from then on nothing is missing in silence"


def test_what_was_held_for_a_subscription_is_not_given_to_the_next_one_of_its_number() -> None:
    bus = Bus(0, stage=0.0)
    config = papers_config(latch="static", static_latch=1.0)
    bus.add("p", config, publishes=True)
    bus.add("a", config)
    bus.subscribe("a", 1, "TRUE", ordered=True)
    bus.loses = lambda sender, receiver, message: message.attributes.get("n") == 3
    for number in range(1, 6):
        bus.publish("p", {"n": number}, at=0.1 * number)
    bus.run(0.6)
    assert numbers(bus.got("a", 1)) == [1, 2], "4 and 5 wait for 3"
    bus.unsubscribe("a", 1)
    bus.subscribe("a", 1, "other = 1", ordered=True)
    bus.run(10.0)
    assert numbers(bus.got("a", 1)) == [1, 2]


def test_a_subscription_that_ends_leaves_nothing_behind() -> None:
    bus = Bus(3, loss=0.1, stage=0.003)
    bus.add("p", FULL, publishes=True)
    config = papers_config(heartbeat_below=1.0, session_idle=5.0)
    bus.add("a", config)
    bus.subscribe("a", 1, "TRUE", ordered=True, recover=True)
    for number in range(100):
        bus.publish("p", {"n": number}, at=0.01 * number)
    bus.at(0.7, lambda: bus.unsubscribe("a", 1))
    bus.run(60.0)
    member = bus.members["a"]
    assert member.timers.deadline() is None
    assert len(member.wheres) == 1, "only its inbox is left"
