"""What 001 says about guaranteed delivery, one claim per test, with whole brokers: sections 1.1 and 4.

Three brokers in a row: b0 hosts the pubend (PHB), b1 is intermediate (IB), b2 hosts the subscribers (SHB). The tests
hand over packets and answers of disks, lose some, and crash brokers. `test_001_streams.py` has the parts.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from penstock.streams.packets import Knowledge, Nack, StreamPublished
from penstock.testing import Flight
from stream_row import StreamRow

SECOND = 1_000_000  # ticks


def knowledge(flights: list[Flight], sender: str) -> list[Knowledge]:
    return [one.packet for one in flights if one.sender == sender and isinstance(one.packet, Knowledge)]


def watched(row: StreamRow) -> list[Flight]:
    """From now on, every packet that is handed over."""
    seen: list[Flight] = []
    loses = row.pump.loses

    def watch(flight: Flight) -> bool:
        seen.append(flight)
        return loses(flight)

    row.pump.loses = watch
    return seen


def lose_next(row: StreamRow, sender: str, receiver: str) -> list[Knowledge]:
    """The next Knowledge with data from one broker to the next is lost; returns where it will be found."""
    lost: list[Knowledge] = []

    def loses(flight: Flight) -> bool:
        packet = flight.packet
        hit = (flight.sender, flight.receiver) == (sender, receiver) and isinstance(packet, Knowledge)
        if hit and isinstance(packet, Knowledge) and packet.data and not lost:
            lost.append(packet)
            return True
        return False

    row.pump.loses = loses
    return lost


# Section 1.1.


def test_1_1_a_message_is_sent_downstream_and_acknowledged_after_it_is_in_the_log() -> None:
    row = StreamRow()
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b2")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    ticket = row.publish(publisher, "pub", 1)
    row.pump.deliver()
    assert row.pump.questions, "the disk was asked"
    assert row.pump.in_flight(Knowledge, StreamPublished) == []
    row.pump.answer()
    assert {type(packet) for packet in row.pump.in_flight(Knowledge, StreamPublished)} == {Knowledge, StreamPublished}
    row.pump.run()
    assert row.stored(ticket) > 0
    assert row.got("sub") == [1]


def test_1_1_messages_of_several_publishers_have_one_order_at_all_subscribers() -> None:
    row = StreamRow()
    near, far = row.client("near", "b0"), row.client("far", "b2")
    readers = {name: row.client(name, broker) for name, broker in (("s1", "b1"), ("s2", "b2"))}
    for name, reader in readers.items():
        row.read(reader, name, "n > 0", durable=name)
    row.pump.advance(1.0)
    for count in range(1, 11):
        row.publish(far, "far", count)
        row.publish(near, "near", 100 + count)
        row.pump.advance(0.01)
    assert sorted(row.got("s1")) == [*range(1, 11), *range(101, 111)]
    assert row.got("s1") == row.got("s2")


def test_1_1_a_subscriber_hosting_broker_gets_no_messages_that_none_of_its_subscribers_wants() -> None:
    row = StreamRow()
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b2")
    row.read(reader, "sub", "price < 50")
    row.pump.advance(1.0)
    seen = watched(row)
    for count in range(1, 11):
        row.publish(publisher, "pub", count, price=count * 10)
        row.pump.advance(0.1)
    prices = [message.attributes["price"] for one in knowledge(seen, "b1") for _, message in one.data]
    assert prices == [10, 20, 30, 40]
    assert row.got("sub") == [1, 2, 3, 4]
    covered = knowledge(seen, "b1")
    assert all(one.last + 1 == other.first for one, other in pairwise(covered)), "the others are silence"


def test_1_1_an_intermediate_broker_answers_a_nack_from_its_cache() -> None:
    row = StreamRow()
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b2")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    lost = lose_next(row, "b1", "b2")
    seen = watched(row)
    row.publish(publisher, "pub", 1)
    row.pump.advance(1.0)
    assert len(lost) == 1
    assert row.got("sub") == [1]
    assert {(one.sender, one.receiver) for one in seen if isinstance(one.packet, Nack)} == {("b2", "b1")}


def test_1_1_a_nack_that_it_cannot_answer_goes_on_towards_the_pubend() -> None:
    row = StreamRow()
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b2")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    lost = lose_next(row, "b1", "b2")
    row.publish(publisher, "pub", 1)
    row.pump.run()
    assert len(lost) == 1
    row.crash("b1")  # and its cache is empty
    seen = watched(row)
    row.pump.advance(8.0)
    assert row.got("sub") == [1]
    asked = [(one.sender, one.receiver) for one in seen if isinstance(one.packet, Nack)]
    assert ("b2", "b1") in asked
    assert ("b1", "b0") in asked


@pytest.mark.parametrize("broker", ["b0", "b1", "b2"])
def test_1_1_whichever_broker_fails_all_is_delivered_in_order_and_once(broker: str) -> None:
    row = StreamRow()
    publisher, reader = row.client("pub", "b1"), row.client("sub", "b2")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    tickets = []
    for count in range(1, 31):
        tickets.append(row.publish(publisher, "pub", count))
        if count == 10:
            row.crash(broker)
        row.pump.advance(0.05)
    row.pump.advance(15.0)
    ticks = {row.stored(ticket): count for count, ticket in enumerate(tickets, 1)}
    assert len(ticks) == 30, "all are stored; one that was tried again may stand behind those published after it"
    assert row.got("sub") == [ticks[tick] for tick in sorted(ticks)]


# Section 4.


def test_4_no_two_messages_have_one_tick_and_a_tick_is_a_time() -> None:
    row = StreamRow()
    publisher = row.client("pub", "b0")
    tickets = [row.publish(publisher, "pub", count) for count in range(1, 21)]
    row.pump.run()
    ticks = [row.stored(ticket) for ticket in tickets]
    assert ticks == sorted(set(ticks))
    assert all(abs(tick / SECOND - row.pump.now) < 0.1 for tick in ticks)


def test_4_a_pubend_that_starts_again_uses_no_tick_twice() -> None:
    row = StreamRow()
    publisher, reader = row.client("pub", "b1"), row.client("sub", "b2")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    seen = watched(row)
    before = row.publish(publisher, "pub", 1)
    row.pump.advance(1.0)
    told = max(one.last for one in knowledge(seen, "b0"))
    row.crash("b0")
    row.pump.advance(3.0)
    after = row.publish(publisher, "pub", 2)
    row.pump.advance(3.0)
    assert row.stored(before) <= told < row.stored(after), "silence that was told stays silence"


def test_4_an_idle_pubend_sends_explicit_silence() -> None:
    row = StreamRow(silence_interval=0.5)
    reader = row.client("sub", "b2")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(2.0)
    seen = watched(row)
    row.pump.advance(5.0)
    silence = knowledge(seen, "b0")
    assert len(silence) == 10
    assert all(one.last + 1 == other.first for one, other in pairwise(silence))
    assert not any(one.data for one in silence)


@pytest.mark.parametrize("seed", range(8))
def test_4_every_tick_is_resolved_though_packets_get_lost(seed: int) -> None:
    row = StreamRow()
    publisher, reader = row.client("pub", "b0"), row.client("sub", "b2")
    row.read(reader, "sub", "n > 0")
    row.pump.advance(1.0)
    random = Random(seed)
    row.pump.loses = lambda flight: isinstance(flight.packet, Knowledge | Nack) and random.random() < 0.3
    for count in range(1, 61):
        row.publish(publisher, "pub", count)
        row.pump.advance(random.choice([0.0, 0.001, 0.05]))
    row.pump.advance(120.0)
    assert row.got("sub") == list(range(1, 61)), f"replay: pytest {__file__} -k 'packets_get_lost and {seed}'"


def test_4_only_ticks_in_the_nack_window_are_asked_for() -> None:
    row = StreamRow(nack_window=1.0, receive_window=2.0)
    publisher = row.client("pub", "b0")
    first = row.publish(publisher, "pub", 1)
    for count in range(2, 41):
        row.pump.advance(0.25)
        row.publish(publisher, "pub", count)
    row.pump.advance(1.0)
    reader = row.client("sub", "b2")
    seen = watched(row)
    row.read(reader, "sub", "n > 0", start_at="earliest")
    row.pump.advance(20.0)
    assert row.got("sub") == list(range(1, 41))
    ranges = [one for flight in seen if isinstance(flight.packet, Nack) for one in flight.packet.ranges]
    assert ranges[0][0] <= row.stored(first)
    assert all(end - begin < 1.0 * SECOND for begin, end in ranges)


# What 001 leaves open.


def test_a_subscription_in_the_past_gets_what_was_filtered_for_others_at_its_broker() -> None:
    row = StreamRow()
    publisher, cheap, dear = row.client("pub", "b0"), row.client("cheap", "b2"), row.client("dear", "b2")
    row.read(cheap, "cheap", "price < 50", durable="cheap")
    row.pump.advance(1.0)
    for count in range(1, 11):
        row.publish(publisher, "pub", count, price=count * 10)
        row.pump.advance(0.1)
    row.read(dear, "dear", "price > 60", durable="dear", start_at="earliest")
    row.pump.advance(10.0)
    assert row.got("cheap") == [1, 2, 3, 4]
    assert row.got("dear") == [7, 8, 9, 10]


def test_a_slow_application_slows_nobody_and_catches_up_when_it_reads() -> None:
    row = StreamRow()
    publisher, quick = row.client("pub", "b0"), row.client("quick", "b2")
    slow = row.client("slow", "b2", window=10)
    row.read(quick, "quick", "n > 0", durable="quick")
    row.read(slow, "slow", "n > 0", durable="slow")
    row.pump.advance(1.0)
    for count in range(1, 101):
        row.publish(publisher, "pub", count)
        row.pump.advance(0.01)
    assert row.got("quick") == list(range(1, 101))
    assert row.got("slow") == list(range(1, 11))
    for _ in range(30):
        row.take(slow, "slow", 5)
        row.pump.advance(0.5)
    assert row.got("slow") == list(range(1, 101))
