"""Ledgers over a network that somebody else wrote: whatever is lost is recovered, or reported."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from foreign_bus import Bus
from penstock.content.envelope import kind_of
from penstock.content.language.parser import parse_predicate
from penstock.content.message import Message
from penstock.kernel.number_ranges import ranges_of, read_ranges, written
from penstock.kernel.randomness import generator
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.doubted_texts import TEXTS_MAX, DoubtedTexts
from penstock.transport.ledgers.number_window import SPAN, NumberWindow
from penstock.transport.ledgers.ordered_queue import OrderedQueue
from penstock.transport.ledgers.record import SketchRecord, decode_data_header
from penstock.transport.ledgers.recovery import group_back_off
from penstock.transport.ledgers.sketch import CODERS, STRING, columns_of
from penstock.transport.records import GaveUp, LossSuspected, RequestSent

WHERES = ("n > 3", "n < 120.5 AND s = 'b'", "s LIKE 'a%'", "price BETWEEN 10 AND 20", "s <> 'a'", "s = 'rare'")


def a_bus(loss: float, seed: int = 7, count: int = 400) -> tuple[Bus, dict[str, int]]:
    """A publisher of everything, and a subscriber for each filter; and how much each is due."""
    bus = Bus(seed=seed, loss=loss)
    bus.add("p", TransportConfig(), publishes=True)
    due = dict.fromkeys(WHERES, 0)
    for where in WHERES:
        bus.add(where, TransportConfig())
        bus.subscribe(where, 1, where, ordered=True, recover=True)
    random = generator(seed, "content")
    for step in range(count):
        text = random.choice(["a", "ab", "b", "c"]) if random.random() < 0.99 else "rare"
        content = {"n": random.randint(0, 200), "s": text, "price": round(random.uniform(0, 100), 2)}
        for where in WHERES:
            due[where] += parse_predicate(where).matches(content)
        bus.publish("p", content, at=1.0 + step * 0.02)
    return bus, due


def a_pair(where: str) -> Bus:
    """A publisher, and a subscriber that wants back what is lost."""
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, where, recover=True)
    return bus


@pytest.mark.parametrize("loss", [0.05, 0.15])
def test_all_is_recovered_whatever_the_filter(loss):
    bus, due = a_bus(loss)
    bus.run(120.0)
    for where in WHERES:
        report = bus.report(where, 1)
        assert len(bus.got(where, 1)) == due[where], where
        assert (report.known_lost, report.pending, report.unrevealed) == (0, 0, 0)
        assert len({message.identity for message in bus.got(where, 1)}) == due[where], "none twice"


def test_without_loss_nothing_is_declared_and_hardly_anything_said():
    bus, due = a_bus(0.0)
    bus.run(20.0)
    kinds = Counter(carried.kind for carried in bus.carried)
    assert kinds["data"] == 400
    assert kinds["ask"] == 0
    assert kinds["ledger"] <= 8
    for where in WHERES:
        assert (bus.report(where, 1).lost, len(bus.got(where, 1))) == (0, due[where])


def test_a_first_and_a_last_message_are_missed_too():
    bus = a_pair("n BETWEEN 1 AND 20")
    bus.loses = lambda sender, to, message: kind_of(message) == "data" and message.attributes["n"] in (1, 10)
    for n in range(1, 11):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.1)
    bus.run(10.0)
    assert sorted(message.attributes["n"] for message in bus.got("a", 1)) == list(range(1, 11))


@pytest.mark.parametrize("kept", [4_096, 600])
@pytest.mark.parametrize("joins", [6.0, 6.2, 6.37, 100.0])
def test_who_joins_later_misses_nothing_of_what_was_before(kept, joins):
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(published_kept=kept), publishes=True)
    bus.add("a", TransportConfig())
    for n in range(9_000):
        bus.publish("p", {"n": n % 150}, at=1.0 + n * 0.001)
    bus.run(joins)
    bus.subscribe("a", 1, "n = 1", ordered=True, recover=True)
    bus.run(200.0)
    assert sum(carried.kind == "ask" for carried in bus.carried) == 0
    report = bus.report("a", 1)
    assert (report.lost, report.unrevealed, report.lost_numbers) == (0, 0, ())


@pytest.mark.parametrize("settings", [{"published_kept": 100}, {"kept_bytes_max": 100_000}])
def test_all_is_told_before_it_leaves_a_small_ring(settings):
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(**settings), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n = 7", recover=True)
    for n in range(1_000):
        bus.publish("p", {"n": n % 150}, bytes(1_000), at=1.0 + n * 0.001)
    bus.run(20.0)
    report = bus.report("a", 1)
    assert (report.delivered, report.lost, report.unrevealed) == (7, 0, 0)
    assert sum(carried.kind == "ask" for carried in bus.carried) == 0


def test_what_left_the_ring_before_a_subscription_was_made_is_none_of_its_losses():
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(published_kept=600), publishes=True)
    bus.add("a", TransportConfig())
    for n in range(5_000):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.001)
    bus.run(100.0)
    bus.subscribe("a", 1, "n > 3", recover=True)
    bus.publish("p", {"n": 5}, at=101.0)  # its record is empty, and no ledger has come yet
    bus.run(200.0)
    report = bus.report("a", 1)
    assert (report.delivered, report.lost, report.unrevealed, report.lost_numbers) == (1, 0, 0, ())


def test_an_outage_longer_than_the_ring_is_in_the_report_also_if_the_publisher_began_in_it():
    bus = a_pair("n >= 0")
    bus.loses = lambda sender, to, message: bus.now < 11.0
    for n in range(10_100):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.001)
    bus.run(120.0)
    report = bus.report("a", 1)
    assert report.delivered > 4_000
    assert report.delivered + report.known_lost + report.unrevealed == 10_100


def test_what_a_publisher_that_died_told_nobody_of_is_in_the_report():
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig(session_idle=30.0))
    bus.subscribe("a", 1, "s LIKE 'a%'", recover=True)
    bus.loses = lambda sender, to, message: kind_of(message) == "data" and message.attributes["n"] == 5
    for n in range(10):
        bus.publish("p", {"n": n, "s": "ab"}, at=1.0 + n * 0.01)
    bus.at(1.2, lambda: bus.restart("p"))
    bus.run(60.0)
    report = bus.report("a", 1)
    assert (report.delivered, report.unrevealed) == (9, 1)


def test_a_tail_of_which_no_ledger_comes_is_told_of_by_a_reply_and_asked_for():
    bus = a_pair("n >= 0")
    lost = (3, 6, 7, 8, 9)  # one that a record shows, and all that follow the last record
    bus.loses = lambda sender, to, message: (
        kind_of(message) == "ledger" or (kind_of(message) == "data" and message.attributes["n"] in lost)
    )
    for n in range(10):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.01)
    bus.run(40.0)
    assert sorted(message.attributes["n"] for message in bus.got("a", 1)) == list(range(10))


def test_a_tail_that_only_a_reply_tells_of_after_a_long_silence_is_asked_for_within_seconds():
    bus = a_pair("n >= 0")
    bus.loses = lambda sender, to, message: (
        kind_of(message) == "ledger"
        or (kind_of(message) == "data" and message.attributes["n"] in (3, 6, 7))
        or (kind_of(message) == "reply" and bus.now < 20.0)
    )
    for n in range(8):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.01)
    bus.run(19.9)
    assert len(bus.got("a", 1)) == 5
    bus.run(29.0)
    assert sorted(message.attributes["n"] for message in bus.got("a", 1)) == list(range(8))


def test_one_request_names_what_else_is_overdue():
    bus = a_pair("n >= 0")
    bus.loses = lambda sender, to, message: (
        kind_of(message) == "ask" or (kind_of(message) == "data" and message.attributes["n"] % 10 == 5)
    )
    for n in range(60):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.1)
    bus.run(7.0)
    numbers = len(bus.records_of("a", RequestSent))
    requests = sum(carried.kind == "ask" for carried in bus.carried)
    assert numbers > 1.5 * requests, "what is asked for again waits for nobody, and no request leaves for it alone"


def test_a_closed_subscription_asks_for_nothing_any_more_and_its_losses_are_nobodys():
    bus = a_pair("n < 5")
    bus.subscribe("a", 2, "n >= 5", recover=True)
    bus.loses = lambda sender, to, message: (
        kind_of(message) == "ask" or (kind_of(message) == "data" and message.attributes["n"] in (2, 7))
    )
    for n in range(10):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.1)
    bus.run(3.0)
    assert bus.report("a", 2).pending == 2
    bus.unsubscribe("a", 1)
    before = len(bus.records_of("a", RequestSent))
    bus.run(8.0)
    assert {record.sequence for record in bus.records_of("a", RequestSent)[before:]} == {8}, "the other goes on"
    bus.unsubscribe("a", 2)
    asked = sum(carried.kind == "ask" for carried in bus.carried)
    bus.run(100.0)
    assert sum(carried.kind == "ask" for carried in bus.carried) == asked
    assert not bus.records_of("a", GaveUp)


def test_who_alone_lost_a_burst_gets_it_alone():
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(), publishes=True)
    for name in ("a", "b"):
        bus.add(name, TransportConfig())
        bus.subscribe(name, 1, "n >= 0", recover=True)
    bus.loses = lambda sender, to, message: (
        to == "a" and kind_of(message) == "data" and 100 <= message.attributes["n"] < 1_300
    )
    for n in range(1_500):
        bus.publish("p", {"n": n}, bytes(1_000), at=1.0 + n * 0.001)
    bus.run(60.0)
    assert len(bus.got("a", 1)) == 1_500
    assert sum(carried.kind == "again" for carried in bus.carried) == 0
    assert bus.report("b", 1).duplicates == 0


@pytest.mark.parametrize("crowd", [False, True])
def test_a_publisher_that_was_forgotten_meanwhile_goes_on_where_it_was(crowd):
    """Forgotten after a long silence, or for others: a session of ours is one of few."""
    bus = Bus(seed=1, loss=0.0)
    for name in ("p", "q", "r"):
        bus.add(name, TransportConfig(), publishes=True)
    bus.add("a", TransportConfig(session_idle=30.0, sessions_max=2 if crowd else 100))
    bus.subscribe("a", 1, "n >= 0", recover=True)
    bus.loses = lambda sender, to, message: not crowd and 10.0 < bus.now < 60.0
    for n in range(100):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.01)
        bus.publish("p", {"n": 100 + n}, at=70.0 + n * 0.01)
    if crowd:
        for name in ("q", "r"):
            bus.publish(name, {"n": 1_000}, at=60.0)
    bus.publish("p", {"n": 200}, at=20.0)
    bus.run(120.0)
    got = [message.attributes["n"] for message in bus.got("a", 1) if message.identity.publisher == "p"]
    assert sorted(got) == list(range(201)), "each once"


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_the_last_message_of_a_publisher_that_leaves_at_once_is_in_the_report(lost):
    """Also if the first ledgers that tell of it are lost."""
    bus = Bus(seed=1, loss=0.0)
    member = bus.add("p", TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n > 0", recover=True)
    ledgers: list[Message] = []

    def loses(sender: str, to: str, message: Message) -> bool:
        if kind_of(message) == "ledger":
            ledgers.append(message)
        return kind_of(message) == "data" or to == "p" or (kind_of(message) == "ledger" and len(ledgers) <= lost)

    bus.loses = loses
    bus.publish("p", {"n": 1}, at=1.0)
    bus.run(1.0)
    transport = member.transport
    assert transport is not None
    for _ in range(5):
        bus.apply(member, transport.leaving(now=member.local(bus.now)))
    assert sum(carried.kind == "ledger" for carried in bus.carried) == 3, "three times"
    bus.restart("p")
    bus.run(200.0)
    report = bus.report("a", 1)
    assert (report.lost, report.known_lost, len(report.lost_numbers), report.broken_off) == (1, 1, 1, 0)


def test_who_was_silent_for_long_needs_one_last_word_only():
    bus = Bus(seed=1, loss=0.0)
    member = bus.add("p", TransportConfig(), publishes=True)
    bus.publish("p", {"n": 1}, at=1.0)
    bus.run(30.0)
    before = sum(carried.kind == "ledger" for carried in bus.carried)
    for _ in range(3):
        bus.apply(member, member.transport.leaving(now=member.local(bus.now)))
    assert sum(carried.kind == "ledger" for carried in bus.carried) == before + 1


@pytest.mark.parametrize("restarts", [False, True])
def test_who_dies_without_a_last_word_is_in_the_report(restarts):
    """Nobody tells of its last message, which is lost: a silence of minutes, or its next life, says that it is gone."""
    bus = Bus(seed=1, loss=0.0)
    for name in ("p", "q"):
        bus.add(name, TransportConfig(), publishes=True)
    bus.add("a", TransportConfig())
    bus.subscribe("a", 1, "n > 0", recover=True)
    bus.loses = lambda sender, to, message: kind_of(message) == "data" and message.attributes["n"] == 2
    for n in (1, 2):
        bus.publish("p", {"n": n}, at=1.0 + 0.01 * n)
    bus.publish("q", {"n": 1}, at=1.0)
    bus.run(1.1)
    bus.restart("p")
    if restarts:
        bus.publish("p", {"n": 3}, at=5.0)
    bus.run(100.0)
    assert bus.report("a", 1).broken_off == restarts
    bus.run(400.0)
    assert bus.report("a", 1).broken_off == 1
    assert bus.report("a", 1).publishers == 2 + restarts


def test_what_nobody_answers_for_is_reported_by_number():
    bus = a_pair("n < 100")
    bus.loses = lambda sender, to, message: (
        kind_of(message) == "ask" or (kind_of(message) == "data" and message.attributes["n"] == 2)
    )
    for n in (1, 2, 3):
        bus.publish("p", {"n": n}, at=1.0 + n * 0.1)
    bus.run(200.0)
    report = bus.report("a", 1)
    assert (report.delivered, report.lost, report.known_lost, report.pending) == (2, 1, 1, 0)
    assert [number for _, _, number in report.lost_numbers] == [2]


def test_what_is_in_doubt_and_never_answered_is_in_the_report_by_number():
    bus = a_pair("n < 100")
    bus.loses = lambda sender, to, message: (
        kind_of(message) == "ask" or (kind_of(message) in ("data", "ledger") and 2.0 <= bus.now <= 20.0)
    )
    for n in range(40):
        bus.publish("p", {"n": n, "other": n}, at=1.0 + n * 0.5)
    bus.publish("p", {"n": 1}, at=30.0)
    bus.run(40.0)
    suspected = {record.sequence for record in bus.records_of("a", LossSuspected)}
    assert len(suspected) > 10, "the ledgers that told of these were lost"
    assert bus.report("a", 1).pending >= len(suspected)
    bus.run(300.0)
    report = bus.report("a", 1)
    assert report.unrevealed == len(suspected)
    assert suspected <= {number for _, _, number in report.lost_numbers}


def test_what_a_silence_tells_is_told_again_soon_and_then_ever_more_rarely():
    bus = Bus(seed=1, loss=0.0)
    bus.add("p", TransportConfig(), publishes=True)
    bus.publish("p", {"n": 1}, at=1.0)
    bus.run(300.0)
    told = [carried.time for carried in bus.carried if carried.kind == "ledger"]
    gaps = [round(later - earlier, 3) for earlier, later in pairwise(told)]
    assert told[1] - 1.0 <= 8.0, "whoever dies a few seconds after its last message has told of it twice"
    assert gaps == sorted(gaps)
    assert gaps[-1] <= 60.5


# Parts.


def test_a_text_that_did_not_come_is_not_waited_for_again_until_it_comes():
    doubted = DoubtedTexts(frozenset({"title"}))
    first, second = {"n": 1, "title": "a"}, {"n": 2, "title": "b"}
    assert doubted.places(columns_of(first)) == (1,)
    texts = (CODERS[STRING]("a"),)
    assert [doubted.worth_waiting(texts) for _ in range(3)] == [True, False, False]
    doubted.came(second)
    assert not doubted.worth_waiting(texts)
    doubted.came(first)
    assert doubted.worth_waiting(texts)
    assert all(doubted.worth_waiting(()) for _ in range(3)), "a doubt that no text is to blame for"


def test_where_no_text_comes_twice_the_waiting_ends():
    doubted = DoubtedTexts(frozenset({"title"}))
    assert sum(doubted.worth_waiting((code,)) for code in range(2 * TEXTS_MAX)) == TEXTS_MAX


def test_a_record_is_read_as_it_was_written():
    records = SketchRecord()
    contents = [{"n": 1, "s": "a"}, {"n": 2.5, "s": "b"}, {"s": "c"}, {"n": "text", "s": "d"}, {"n": 5, "s": "e"}]
    for at, content in enumerate(contents):
        data = records.header(content, 100.0 + at)
        assert records.left(content, 100.0 + at) == at + 1
    header = decode_data_header(data)
    assert (header.sequence, header.record_size, header.departure) == (5, 4, 104.0)
    entries = [header.entry(back) for back in (1, 2, 3, 4)]
    assert [departure for departure, _ in entries] == [103.0, 102.0, 101.0, 100.0]
    assert [codes[0] for _, codes in entries][:2] == [1, 0], "of another class, and missing"


def test_ranges_are_read_as_they_were_written():
    ranges = ranges_of([1, 2, 3, 7, 9, 10])
    assert ranges == [(1, 3), (7, 7), (9, 10)]
    assert read_ranges(written(ranges)) == ranges


def test_a_window_moves_and_counts_what_it_forgot():
    window = NumberWindow(1)
    window.receive(3)
    assert window.unknown_between(1, 3) == [1, 2]
    window.receive(3 * SPAN)
    assert 2 * SPAN - 8 < window.base <= 2 * SPAN, "it moves by whole bytes"
    assert window.forgotten == window.base - 2
    assert window.has(3 * SPAN)
    assert not window.has(3)


def test_messages_wait_for_a_missed_one_while_it_is_young():
    queue: OrderedQueue[str] = OrderedQueue(10)
    assert queue.in_order(1)
    queue.wait_for(2, 5.0)
    queue.put(3, "c", 1.0)
    assert queue.release(1.0) == []
    assert queue.deadline() == 5.0
    queue.wait_no_more(2)
    queue.put(2, "b", 2.0)
    assert [held.item for held in queue.release(2.0)] == ["b", "c"]
    assert queue.late(2)


def test_most_of_a_large_group_wait_long():
    waits = sorted(group_back_off(place / 200, 200, 1.0) for place in range(200))
    assert waits[0] == 0.0
    assert waits[-1] <= 1.0
    assert sum(wait < 0.5 for wait in waits) < 20
