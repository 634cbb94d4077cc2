"""Publishing to a stream: tried until it is stored, refused, or nobody can know."""

from __future__ import annotations

import pytest

from penstock.kernel.machine import Refused, Reported, Unknown
from penstock.kernel.trace import InputRefused
from penstock.streams import client_publishing
from penstock.streams.client_publishing import IN_FLIGHT_MAX, made_id
from penstock.streams.config import StreamPublicationOptions
from penstock.streams.packets import PUBLICATION_ID_BYTES_MAX, StreamPublish, StreamPublished
from penstock.streams.records import StreamConfirmed, StreamFailed, StreamRequested
from scripted_home import ScriptedHome, a_message


def connected(**settings: float) -> ScriptedHome:
    home = ScriptedHome(**settings)
    home.up()
    return home


def sent(home: ScriptedHome) -> list[StreamPublish]:
    return home.take_sent(StreamPublish)


def counts(packets: list[StreamPublish]) -> list[int]:
    return [packet.message.identity.count for packet in packets]


def test_a_message_is_sent_with_an_id_and_its_place_is_reported() -> None:
    home = connected()
    (ticket,) = home.publish(a_message(4), key="IBM")
    (packet,) = sent(home)
    assert (packet.stream, packet.key, packet.publication_id, packet.age) == ("orders", "IBM", "c/1/4", 0.0)
    assert ticket not in home.done
    home.say(StreamPublished(packet.request, "orders/2", 77))
    place = {"stream": "orders", "pubend": "orders/2", "tick": 77, "publication_id": "c/1/4"}
    assert home.done == {ticket: Reported(place)}
    home.wait(600.0)
    assert home.sent == []
    assert len(home.timers) == 0
    assert home.records == [
        StreamRequested("orders", "IBM", "c", 1, 4, '{"n":4}', 0),
        StreamConfirmed("orders", "orders/2", 77, "c", 1, 4, 0.0, 1),
    ]


def test_without_an_answer_it_is_sent_again_under_the_same_id_with_growing_age_and_pauses() -> None:
    home = connected()
    (ticket,) = home.publish(a_message())
    home.wait(20.0)
    attempts = sent(home)
    assert [round(packet.age, 3) for packet in attempts] == [0.0, 0.5, 1.5, 3.5, 7.5, 12.5, 17.5]
    assert len({packet.publication_id for packet in attempts}) == 1
    home.say(StreamPublished(attempts[0].request, "orders/0", 5))  # the answer to the first, late
    assert isinstance(home.done[ticket], Reported)
    home.say(StreamPublished(attempts[1].request, "orders/0", 5))
    home.wait(100.0)
    assert home.sent == []


def test_again_is_tried_again_and_a_refusal_is_final() -> None:
    home = connected()
    (ticket,) = home.publish(a_message())
    (first,) = sent(home)
    home.say(StreamPublished(first.request, problem="the disk is full", again=True))
    assert home.done == {}
    home.wait(0.5)
    (second,) = sent(home)
    home.say(StreamPublished(second.request, problem="the stream was removed"))
    assert home.done == {
        ticket: Refused("stream 'orders': the stream was removed; the message was not stored"),
    }
    assert type(home.done[ticket]) is Refused
    (record,) = home.recorded(StreamFailed)
    assert (record.unknown, record.attempts) == (False, 2)


def test_a_refusal_while_another_attempt_is_open_is_no_certainty() -> None:
    home = connected()
    (ticket,) = home.publish(a_message())
    home.wait(0.5)
    _, second = sent(home)
    home.say(StreamPublished(second.request, problem="the stream was removed"))
    assert isinstance(home.done[ticket], Unknown)
    assert home.recorded(StreamFailed)[0].unknown


def test_it_is_given_up_with_an_outcome_that_says_nobody_knows() -> None:
    home = connected(give_up_after=3.0)
    (ticket,) = home.publish(a_message())
    home.wait(2.9)
    (*_, last) = sent(home)
    home.say(StreamPublished(last.request, problem="its broker 'bank' cannot be reached", again=True))
    home.wait(0.2)
    outcome = home.done[ticket]
    assert isinstance(outcome, Unknown)
    assert "not confirmed within 3 s" in outcome.problem
    assert "'bank' cannot be reached" in outcome.problem
    assert "publication_id='c/1/1'" in outcome.problem
    home.wait(100.0)
    assert home.sent == []


def test_given_up_after_nothing_but_refusals_it_is_certainly_not_stored() -> None:
    home = connected(give_up_after=3.0)
    (ticket,) = home.publish(a_message())
    while ticket not in home.done:
        for packet in sent(home):
            home.say(StreamPublished(packet.request, problem="the disk is full", again=True))
        home.wait(0.5)
    assert type(home.done[ticket]) is Refused
    assert "the disk is full; the message was not stored" in home.done[ticket].problem


def test_what_never_left_is_certainly_not_stored() -> None:
    home = ScriptedHome(give_up_after=3.0)
    (ticket,) = home.publish(a_message())
    home.wait(3.0)
    outcome = home.done[ticket]
    assert type(outcome) is Refused
    assert "there was no connection" in outcome.problem
    assert "was not stored" in outcome.problem


def test_messages_wait_for_a_connection_and_leave_in_order() -> None:
    home = ScriptedHome()
    home.publish(*map(a_message, range(1, 5)))
    assert home.sent == []
    home.wait(10.0)
    home.up()
    packets = sent(home)
    assert counts(packets) == [1, 2, 3, 4]
    assert {packet.age for packet in packets} == {0.0}  # it was never tried before


def test_after_a_reconnection_all_that_is_not_answered_goes_out_again_in_order() -> None:
    home = connected()
    tickets = home.publish(*map(a_message, range(1, 5)))
    packets = sent(home)
    home.say(StreamPublished(packets[1].request, "orders/0", 5))
    home.down()
    home.publish(a_message(9))
    home.wait(4.0)
    assert sent(home) == []
    home.up()
    again = sent(home)
    assert counts(again) == [1, 3, 4, 9]
    assert [packet.age for packet in again] == [4.0, 4.0, 4.0, 0.0]
    for packet in again:
        home.say(StreamPublished(packet.request, "orders/0", 6 + packet.message.identity.count))
    assert all(isinstance(home.done[ticket], Reported) for ticket in tickets)
    home.wait(60.0)
    assert sent(home) == []
    assert len(home.timers) == 0


def test_only_so_many_are_at_the_broker_and_one_stream_does_not_wait_for_another() -> None:
    home = connected()
    home.publish(*map(a_message, range(1, IN_FLIGHT_MAX + 11)))
    first = sent(home)
    assert counts(first) == list(range(1, IN_FLIGHT_MAX + 1))
    home.publish(a_message(900), stream="notes")
    assert counts(sent(home)) == [900]
    home.say(*[StreamPublished(packet.request, "orders/0", 9) for packet in first[:4]])
    assert counts(sent(home)) == [IN_FLIGHT_MAX + number for number in range(1, 5)]


def test_large_messages_fill_the_way_sooner_and_the_largest_passes() -> None:
    home = connected()
    home.publish(*[a_message(count, bytes(1 << 20)) for count in range(1, 7)])
    assert counts(sent(home)) == [1, 2, 3]


def test_what_waits_is_bounded_and_more_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_publishing, "UNANSWERED_MAX", 3)
    home = ScriptedHome()
    *_, over = home.publish(*map(a_message, range(1, 5)))
    assert list(home.done) == [over]
    outcome = home.done[over]
    assert type(outcome) is Refused
    assert "wait for earlier ones" in outcome.problem
    monkeypatch.setattr(client_publishing, "UNANSWERED_BYTES_MAX", 10)
    home = ScriptedHome()
    _, over = home.publish(a_message(1), a_message(2))
    assert list(home.done) == [over]


def test_who_waits_no_longer_is_answered_and_nothing_is_tried_again() -> None:
    home = connected()
    (left,) = home.publish(a_message(1))
    (packet,) = sent(home)
    home.apply(home.machine.withdraw(left, now=home.now))
    assert isinstance(home.done[left], Unknown)
    home.wait(100.0)
    home.say(StreamPublished(packet.request, "orders/0", 5))
    assert home.sent == []
    home.down()
    (kept,) = home.publish(a_message(2))
    home.apply(home.machine.withdraw(kept, now=home.now))
    assert type(home.done[kept]) is Refused
    home.up()
    assert sent(home) == []
    assert home.machine.withdraw(kept, now=home.now) == []


def test_without_tickets_it_is_tried_all_the_same_and_a_failure_is_recorded() -> None:
    home = connected()
    options = StreamPublicationOptions(stream="orders")
    home.apply(home.machine.publish([a_message()], options, tickets=(), now=home.now))
    assert len(sent(home)) == 1
    home.wait(61.0)
    assert len(home.recorded(StreamFailed)) == 1
    assert home.done == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"stream": "", "key": "k"}, "say which one"),
        ({"stream": "or ders"}, "letters, digits"),
        ({"stream": "o" * 10_000}, "the limit is 64 bytes"),
        ({"key": "k" * 257}, "a key of 257 characters"),
        ({"publication_id": "i" * 65}, "a publication_id of 65 characters"),
        ({"publication_id": "ü" * 33}, "the limit is 64 bytes"),
        ({"key": "\ud800"}, "lone surrogate"),
        ({"publication_id": "\udfff"}, "lone surrogate"),
    ],
)
def test_bad_options_are_refused_and_nothing_is_sent(options: dict[str, str], words: str) -> None:
    home = connected()
    (ticket,) = home.publish(a_message(), **options)
    outcome = home.done[ticket]
    assert type(outcome) is Refused
    assert words in outcome.problem
    assert len(outcome.problem) < 200
    assert home.sent == []
    assert home.records == []


def test_an_answer_that_cannot_be_changes_nothing() -> None:
    home = connected()
    (ticket,) = home.publish(a_message())
    (packet,) = sent(home)
    home.say(StreamPublished(packet.request, "notes/0", 5), StreamPublished(packet.request, "orders/0", 0))
    home.say(StreamPublished(packet.request + 500, "orders/0", 5))
    assert home.done == {}
    assert len(home.recorded(InputRefused)) == 2
    home.say(StreamPublished(packet.request, "orders/0", 5))
    assert isinstance(home.done[ticket], Reported)


def test_a_duplicated_answer_is_no_second_one() -> None:
    home = connected()
    (ticket,) = home.publish(a_message())
    (packet,) = sent(home)
    busy = StreamPublished(packet.request, problem="busy", again=True)
    home.say(busy, busy)
    home.wait(0.5)
    (packet,) = sent(home)
    stored = StreamPublished(packet.request, "orders/0", 5)
    home.say(stored, stored)
    assert isinstance(home.done[ticket], Reported)


def test_ids_are_the_identity_or_a_hash_of_it() -> None:
    assert made_id("c/1/2") == "c/1/2"
    long = "n" * 100 + "/1/2"
    assert len(made_id(long)) <= PUBLICATION_ID_BYTES_MAX
    assert made_id(long) != made_id(long + "3")
