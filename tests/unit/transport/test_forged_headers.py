"""One forged header among a publisher's own: it costs a few messages their order, and nobody a message in silence."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Literal

import pytest

from foreign_bus import Bus
from penstock.content.envelope import DATA, kind_of, wrap
from penstock.content.message import Identity, Message, make_message
from penstock.kernel.trace import InputRefused
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.number_window import SPAN, NumberWindow
from penstock.transport.ledgers.record import SketchRecord
from penstock.transport.ledgers.unbelieved import Unbelieved

COUNT, RATE = 300, 10.0
FORGED = 999
HANDFUL = 10  # messages that one forged header may cost their order: the row of nine, and one that it delays

Late = Literal["deliver", "drop", "hold"]


def bus_with(late: Late, *, ordered: bool, recover: bool, seed: int = 1, loss: float = 0.0) -> Bus:
    bus = Bus(seed=seed)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig(late=late))
    bus.subscribe("a", 1, "n < 1000", ordered=ordered, recover=recover)
    bus.loses = lambda sender, to, message: kind_of(message) == DATA and bus.random.random() < loss
    for n in range(COUNT):
        bus.publish("p", {"n": n}, at=1.0 + n / RATE)
    return bus


def forge(bus: Bus, number: int, later: float, copies: int = 1) -> None:
    """A message under the publisher's name, as a broker elsewhere could put it onto the network."""
    record = SketchRecord()
    record.number = number - 1
    attributes = {"n": FORGED}
    header = record.header(attributes, bus.members["p"].local(bus.now) + later)
    for _ in range(copies):
        bus.hand("a", (1,), wrap(make_message(Identity("p", 1, number), attributes), header))


def judge(bus: Bus, hidden: int = 0) -> int:
    """Nothing twice, nothing missing in silence; returns how many came without order, or were dropped for it.

    But for one: where a message is lost whose number a forged one has taken, nobody can tell.
    """
    got = [message.attributes["n"] for message in bus.got("a", 1)]
    report = bus.report("a", 1)
    assert max(Counter(got).values()) == 1, f"{Counter(got).most_common(3)} came more than once"
    missing = COUNT - len(set(got) - {FORGED}) - hidden
    assert missing == report.dropped_late + report.known_lost
    assert report.pending == 0
    return report.late + report.dropped_late + report.known_lost


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("late", ["deliver", "drop", "hold"])
@pytest.mark.parametrize("later", [-0.05, 0.0, 0.15, 20.0, 59.0])
@pytest.mark.parametrize("number", [22, 23, 26, 40, 500, 9_000, 50_000, 1_000_000])
def test_one_forged_header_costs_a_row_of_messages_their_order(number: int, later: float, late: Late, recover: bool):
    bus = bus_with(late, ordered=True, recover=recover)
    bus.at(3.05, lambda: forge(bus, number, later))
    bus.run(150.0)
    assert judge(bus) <= HANDFUL


@pytest.mark.parametrize("recover", [False, True])
@pytest.mark.parametrize("later", [0.0, 20.0, 59.0])
@pytest.mark.parametrize("number", [26, 500, 50_000])
def test_the_same_without_order(number: int, later: float, recover: bool):
    bus = bus_with("deliver", ordered=False, recover=recover)
    bus.at(3.05, lambda: forge(bus, number, later))
    bus.run(150.0)
    assert judge(bus) <= HANDFUL
    assert len(bus.got("a", 1)) == COUNT + 1


@pytest.mark.parametrize("later", [0.0, 59.0])
@pytest.mark.parametrize("number", [1, 500, 50_000])
def test_a_forged_header_before_all_others(number: int, later: float):
    bus = bus_with("deliver", ordered=True, recover=True)
    bus.at(0.5, lambda: forge(bus, number, later))
    bus.run(150.0)
    assert judge(bus) <= HANDFUL
    assert len(bus.got("a", 1)) == COUNT + 1


def test_who_forged_the_number_of_a_message_does_not_keep_it_from_its_subscriber():
    """Both are delivered, and a record says that there were two."""
    bus = bus_with("deliver", ordered=True, recover=True)
    bus.at(3.05, lambda: forge(bus, 26, 0.0))
    bus.run(60.0)
    assert len(bus.got("a", 1)) == COUNT + 1
    assert "a second message 26" in [record.problem for record in bus.records_of("a", InputRefused)]


@pytest.mark.parametrize("seed", range(120))
def test_one_forged_header_of_any_number_and_time_costs_a_handful(seed: int):
    """Of any number, any departure, at any time, doubled or not; the network loses messages, or doubles them."""
    random = Random(f"forged-{seed}")
    loss = random.choice((0.0, 0.0, 0.03))
    late: Late = random.choice(("deliver", "drop", "hold"))
    ordered = random.random() < 0.7
    recover = bool(loss) or not ordered or random.random() < 0.5
    bus = bus_with(late, ordered=ordered, recover=recover, seed=seed, loss=loss)
    at = random.uniform(0.9, 1.0 + COUNT / RATE)
    sent = int(max(0.0, at - 1.0) * RATE)
    number = random.choice(
        (random.randint(1, sent + 30), sent + random.randint(1, 5), int(10 ** random.uniform(0.0, 18.0)))
    )
    later = random.choice((random.uniform(-70.0, 70.0), random.uniform(-2.0, 2.0), random.gauss(0.0, 0.1)))
    copies = random.choice((1, 2))
    bus.at(at, lambda: forge(bus, number, later, copies))
    bus.run(400.0)
    lost = {carried.attributes["n"] for name, carried in bus.lost}
    hidden = int(number - 1 in lost and number - 1 not in {one.attributes["n"] for one in bus.got("a", 1)})
    assert judge(bus, hidden) <= HANDFUL + 3 * len(lost), f"number {number}, {later:.3f} s later, at {at:.3f}"


def test_copies_of_what_came_before_the_window_was_left_behind_are_not_delivered_again():
    bus = bus_with("deliver", ordered=True, recover=False)
    bus.run(3.0)
    copies = [carried.message for carried in bus.carried if carried.kind == DATA]
    forge(bus, 50_000, 59.0)
    for copy in copies:
        bus.hand("a", (1,), copy)
    assert Counter(message.attributes["n"] for message in bus.got("a", 1)) == Counter([*range(len(copies)), FORGED])
    bus.run(60.0)
    assert judge(bus) <= HANDFUL


def test_one_message_that_overtook_many_is_not_outvoted_by_fewer_than_eight_for_each():
    """Where the first of a burst are held up and more than an eighth of it is there already, they are late, no more."""
    bus = Bus(seed=1)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig(late="drop"))
    bus.subscribe("a", 1, "n < 1000", ordered=True)
    bus.delay_of = lambda sender, to: 0.5 if 1.02 < bus.now < 1.8 else 0.010
    for n in range(100):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.01)
    bus.run(30.0)
    got = [message.attributes["n"] for message in bus.got("a", 1)]
    assert got == sorted(got)
    assert len(got) + bus.report("a", 1).dropped_late == 100


def test_a_window_that_leapt_can_be_gone_back_to():
    window = NumberWindow(1, first=True)
    for number in range(1, 21):
        window.receive(number)
    window.receive(50_000)
    assert [window.came(number) for number in (1, 20, 21, 49_999, 50_000)] == [True, True, False, False, True]
    window.receive(1_000_000)
    assert window.came(20), "a second leap does not make it forget"
    assert window.before is not None
    assert (window.before.top, window.before.forgotten) == (20, 0)
    for number in range(1_000_001, 1_000_001 + 2 * SPAN):
        window.receive(number)
    assert window.came(20) is None, "the numbers went on from there"


def test_a_window_is_cut_to_what_there_is():
    window = NumberWindow(5)
    for number in (5, 6, 30):
        window.receive(number)
    assert window.received_above(6) == 1
    window.cut(9)
    assert (window.top, window.received_above(4), window.unknown_between(1, 100)) == (9, 2, [7, 8, 9])
    window.receive(12)
    assert window.unknown_between(1, 100) == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("before", "overtake"), [(20, 2), (30, 3), (9, 1)])
def test_a_shorter_way_overtakes_many_and_nothing_comes_twice(before: int, overtake: int, ordered: bool):
    """No forger, no loss: some take a way of 10 ms, after many that took one of 100 ms, and then all is quiet."""
    bus = Bus(seed=1)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n < 1000", ordered=ordered, recover=True)
    slow_until = 1.0 + (before - 0.5) * 0.001
    bus.delay_of = lambda sender, to: 0.1 if 1.0 <= bus.now < slow_until and sender == "p" else 0.01
    bus.publish("p", {"n": 0}, at=0.5)
    for n in range(before + overtake):
        bus.publish("p", {"n": n + 1}, at=1.0 + n * 0.001)
    bus.run(60.0)
    assert sorted(message.attributes["n"] for message in bus.got("a", 1)) == list(range(before + overtake + 1))


@pytest.mark.parametrize(("count", "gap"), [(8, 20.0), (3, 70.0), (6, 1.0)])
def test_an_original_that_comes_after_its_repair_is_a_copy(count: int, gap: float):
    """Everything comes as repairs, because a ledger told of it first; then the originals come after all."""
    bus = Bus(seed=1)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n < 1000", ordered=False, recover=True)
    kept = []

    def loses(sender: str, to: str, message: Message) -> bool:
        if kind_of(message) != DATA or to != "a":
            return False
        kept.append(message)
        return True

    bus.loses = loses
    for n in range(count):
        bus.publish("p", {"n": n}, at=1.0 + n * gap)
    bus.run(71.0 + count * gap)
    for message in kept:
        bus.hand("a", (1,), message)
    assert sorted(message.attributes["n"] for message in bus.got("a", 1)) == list(range(count))


def test_what_leapt_ahead_is_remembered_in_few_bytes():
    unbelieved = Unbelieved(TransportConfig())
    large = make_message(Identity("p", 1, 7), {"n": 7}, bytes(100_000))
    unbelieved.leapt(7, 1.0, large)
    assert unbelieved.leap is not None
    assert isinstance(unbelieved.leap[2], bytes)
    unbelieved.delivered(7, unbelieved.leap[2])
    assert unbelieved.knows(7, large)
