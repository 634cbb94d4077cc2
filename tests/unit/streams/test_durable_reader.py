"""A durable subscription of a client: once, in order, across reconnections, within its credit."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.kernel.machine import Accepted, Refused
from penstock.kernel.packet import Packet
from penstock.kernel.trace import InputRefused
from penstock.streams import client_service
from penstock.streams.durable_reader import QUIET_AFTER
from penstock.streams.packets import (
    Acknowledge,
    Acknowledged,
    DurableAnswer,
    DurableEnded,
    DurableLeave,
    DurableSubscribe,
    Resume,
    StreamDelivery,
    Take,
)
from penstock.streams.records import DurableBegan, DurableDelayed, DurableStopped, GapNoticed, StreamDelivered
from scripted_home import ScriptedHome, a_message, in_force


def report(home: ScriptedHome) -> Any:
    found = home.machine.report(1)
    assert found is not None
    return found


# Being in force.


def test_it_is_asked_for_and_the_ticket_answered_when_it_is_in_force() -> None:
    home = ScriptedHome()
    ticket = home.subscribe(start_at="10m", takeover=True)
    assert home.sent == []
    home.up()
    (asked,) = home.take_sent(DurableSubscribe)
    assert asked == DurableSubscribe(1, 1, "orders", "billing", "n > 0", "ago:600.0", (), True, 2_000, 1, False)
    assert ticket not in home.done
    home.say(DurableAnswer(1, 1, (("orders/0", 7, 100), ("orders/1", 8, 50))))
    assert home.done == {ticket: Accepted()}
    assert home.recorded(DurableBegan) == [
        DurableBegan(1, "orders", "billing", "orders/0", 7, 100, "n > 0"),
        DurableBegan(1, "orders", "billing", "orders/1", 8, 50, "n > 0"),
    ]
    assert report(home).in_force
    assert home.machine.positions(1) == (("orders/0", 7, 100), ("orders/1", 8, 50))


def test_without_an_answer_it_is_asked_for_again_and_again() -> None:
    home = ScriptedHome()
    home.up()
    home.subscribe()
    home.wait(14.0)
    requests = [asked.request for asked in home.take_sent(DurableSubscribe)]
    assert requests == [1, 1, 1, 1, 1, 1]  # at 0, 0.5, 1.5, 3.5, 7.5 and 12.5 s
    home.say(DurableAnswer(1, 1, (("orders/0", 7, 100),)))
    assert report(home).in_force


def test_again_goes_on_and_its_reason_is_told_once() -> None:
    home = ScriptedHome()
    home.up()
    ticket = home.subscribe()
    for _ in range(3):
        (asked,) = home.take_sent(DurableSubscribe)
        home.say(DurableAnswer(asked.request, 1, (), "its broker 'bank' cannot be reached", True))
        home.wait(5.0)
        home.sent = home.sent[-1:]
    assert ticket not in home.done
    assert report(home).problem == "its broker 'bank' cannot be reached"
    assert home.recorded(DurableDelayed) == [
        DurableDelayed(1, "orders", "billing", "its broker 'bank' cannot be reached")
    ]
    home.answer()
    assert home.done[ticket] == Accepted()
    assert report(home).problem == ""


def test_a_refusal_ends_it_and_frees_its_number() -> None:
    home = ScriptedHome()
    home.up()
    ticket = home.subscribe()
    (asked,) = home.take_sent(DurableSubscribe)
    home.say(DurableAnswer(asked.request, 1, (), "somebody reads as 'billing'; use takeover=True"))
    assert home.done[ticket] == Refused("somebody reads as 'billing'; use takeover=True")
    assert home.machine.report(1) is None
    home.wait(100.0)
    assert home.sent == []
    assert len(home.timers) == 0
    home.subscribe()
    assert len(home.take_sent(DurableSubscribe)) == 1


def test_after_a_reconnection_it_goes_on_from_its_positions_and_does_not_take_over_again() -> None:
    home = ScriptedHome()
    home.up()
    home.subscribe(takeover=True)
    home.answer()
    home.deliver(100, 150, 120, 150)
    home.down()
    assert not report(home).in_force
    home.wait(30.0)
    assert home.sent == []
    home.up()
    asked = home.answer(("orders/0", 7, 150))
    assert (asked.positions, asked.takeover, asked.rewind) == ((("orders/0", 7, 150),), False, False)
    assert asked.request > 1
    home.deliver(150, 180, 170)
    assert home.got() == [120, 150, 170]
    assert len(home.recorded(DurableBegan)) == 1


def test_a_broker_may_deliver_before_its_answer_where_the_client_knows_its_place() -> None:
    home = in_force()
    home.down()
    home.up()
    home.deliver(100, 130, 120)
    assert home.got() == [120]
    home.deliver(140, 150, 145)  # a hole, but what the answer will say is not known yet
    assert home.take_sent(Resume) == []
    home.answer(("orders/0", 7, 100))
    home.deliver(130, 150, 145)
    assert home.got() == [120, 145]


def test_what_the_name_is_done_with_is_not_read_again() -> None:
    home = in_force()
    home.down()
    home.up()
    home.answer(("orders/0", 7, 900))  # somebody else has read under the name meanwhile
    assert home.machine.positions(1) == (("orders/0", 7, 900),)
    assert home.recorded(DurableBegan)[-1].tick == 900
    home.deliver(900, 950, 910)
    assert home.got() == [910]


def test_positions_that_the_application_has_kept_are_presented_once_and_count() -> None:
    home = ScriptedHome()
    home.machine.present(1, [("orders/0", 7, 400), ("orders/1", 9, 3)])
    home.up()
    home.subscribe()
    (asked,) = home.take_sent(DurableSubscribe)
    assert asked.positions == (("orders/0", 7, 400), ("orders/1", 9, 3))
    assert asked.rewind
    home.say(DurableAnswer(asked.request, 1, asked.positions))
    home.deliver(400, 450, 420)
    home.down()
    home.up()
    (asked,) = home.take_sent(DurableSubscribe)
    assert asked.positions == (("orders/0", 7, 450), ("orders/1", 9, 3))
    assert not asked.rewind


def test_a_pubend_that_was_made_anew_begins_anew() -> None:
    home = in_force()
    home.deliver(100, 120, 110)
    waiting = home.acknowledge(110)
    home.down()
    home.up()
    home.answer(("orders/0", 8, 5))
    outcome = home.done[waiting]
    assert isinstance(outcome, Refused)
    assert "made anew" in outcome.problem
    home.deliver(5, 9, 7, epoch=8)
    assert home.got() == [110, 7]


def test_the_broker_ends_it_and_the_application_is_told() -> None:
    home = in_force()
    home.deliver(100, 120, 110)
    waiting = home.acknowledge(110)
    home.say(DurableEnded(1, "another reader has taken over 'billing'"))
    assert home.recorded(DurableStopped) == [
        DurableStopped(1, "orders", "billing", "another reader has taken over 'billing'")
    ]
    assert isinstance(home.done[waiting], Refused)
    found = report(home)
    assert (found.ended, found.in_force, found.problem) == (True, False, "another reader has taken over 'billing'")
    home.sent.clear()
    home.deliver(120, 140, 130)
    home.down()
    home.up()
    home.wait(100.0)
    home.take(5)
    assert home.sent == []
    assert home.got() == [110]
    late = home.acknowledge(110)
    assert isinstance(home.done[late], Refused)


def test_of_those_that_were_ended_a_few_stay_for_their_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_service, "ENDED_MAX", 2)
    home = ScriptedHome()
    home.up()
    for number in range(1, 5):
        home.subscribe(number, durable=f"name{number}")
        home.answer(("orders/0", 7, 1))
        home.say(DurableEnded(number, "removed"))
    assert [number for number in range(1, 5) if home.machine.report(number)] == [3, 4]


def test_unsubscribe_tells_the_broker_what_is_done_and_leaves() -> None:
    home = in_force()
    home.deliver(100, 120, 110, 120)
    home.acknowledge(110)
    last = home.acknowledge(120)  # the one before is under way
    home.sent.clear()
    home.apply(home.machine.unsubscribe(1, ticket=99, now=home.now))
    assert home.sent == [Acknowledge(1, "orders/0", 7, 120), DurableLeave(1)]
    assert home.done[99] == Accepted()
    assert isinstance(home.done[last], Refused)
    assert len(home.timers) == 0
    home.deliver(120, 140, 130)
    assert home.got() == [110, 120]
    assert home.machine.report(1) is None


def test_unsubscribed_before_the_answer_nobody_waits() -> None:
    home = ScriptedHome()
    home.up()
    ticket = home.subscribe()
    home.apply(home.machine.unsubscribe(1, ticket=99, now=home.now))
    assert isinstance(home.done[ticket], Refused)
    assert home.take_sent(DurableLeave) == [DurableLeave(1)]
    home.wait(100.0)
    assert len(home.take_sent(DurableSubscribe)) == 1
    home.apply(home.machine.unsubscribe(1, ticket=100, now=home.now))
    assert home.done[100] == Refused("there is no durable subscription 1")


# What comes.


def test_a_message_comes_with_its_place() -> None:
    home = in_force()
    home.deliver(100, 130, 110)
    (message,) = home.messages
    assert (message.stream, message.pubend, message.epoch, message.tick) == ("orders", "orders/0", 7, 110)
    assert message.position == ("orders/0", 7, 110)
    published = a_message(110, publisher="p")
    assert (message.identity, message.attributes, message.body) == (published.identity, {"n": 110}, b"")
    assert home.recorded(StreamDelivered) == [StreamDelivered(1, "orders/0", 7, 110, "p", 1, 110)]


def test_duplicates_and_overlaps_are_dropped() -> None:
    home = in_force()
    home.deliver(100, 130, 110, 120)
    home.deliver(100, 130, 110, 120)
    home.deliver(90, 150, 110, 120, 140)
    home.deliver(110, 140, 120, 140)
    assert home.got() == [110, 120, 140]
    found = report(home)
    assert (found.received, found.duplicates, found.holes) == (3, 6, 0)


def test_a_hole_is_asked_for_at_once_then_seldom_and_nothing_is_skipped() -> None:
    home = in_force()
    home.deliver(120, 140, 130)
    home.deliver(140, 160, 150)
    assert home.got() == []
    assert home.take_sent(Resume) == [Resume(1, "orders/0", 7, 100, 1)]
    assert report(home).holes == 1
    home.wait(1.6)
    assert home.take_sent(Resume) == [Resume(1, "orders/0", 7, 100, 2)] * 2
    home.deliver(100, 140, 110, 130)
    home.deliver(140, 160, 150)
    home.wait(5.0)
    assert home.take_sent(Resume) == []
    assert home.got() == [110, 130, 150]


def test_a_hole_that_does_not_close_makes_it_ask_anew() -> None:
    home = in_force()
    home.deliver(120, 140, 130)
    home.wait(12.5)
    (asked,) = home.take_sent(DurableSubscribe)[:1]
    assert asked.positions == (("orders/0", 7, 100),)
    assert len(home.take_sent(Resume)) == 5
    home.say(DurableAnswer(asked.request, 1, asked.positions))
    home.deliver(100, 140, 110)
    assert home.got() == [110]


def test_word_from_where_we_stand_closes_a_hole_that_never_was() -> None:
    home = in_force()
    home.deliver(120, 140)
    home.deliver(100, 100)  # the broker has gone back
    home.take_sent(Resume)
    home.wait(5.0)
    assert home.take_sent(Resume) == []


def test_pubends_have_places_of_their_own() -> None:
    home = ScriptedHome()
    home.up()
    home.subscribe()
    home.answer(("orders/0", 7, 100), ("orders/1", 8, 50))
    home.deliver(50, 90, 60, pubend="orders/1", epoch=8)
    home.deliver(120, 140, 130)
    home.deliver(90, 100, 95, pubend="orders/1", epoch=8)
    assert home.got() == [60, 95]
    assert home.take_sent(Resume) == [Resume(1, "orders/0", 7, 100, 2)]


def test_a_gap_is_told_and_passed_over() -> None:
    home = in_force()
    home.deliver(100, 500, gap=True)
    home.deliver(500, 600, 550)
    assert home.recorded(GapNoticed) == [GapNoticed(1, "orders", "orders/0", 101, 500)]
    assert home.got() == [550]
    assert report(home).gaps == 1
    home.deliver(100, 500, gap=True)
    assert len(home.recorded(GapNoticed)) == 1


def test_silence_moves_the_position() -> None:
    home = in_force()
    home.deliver(100, 900)
    assert home.machine.positions(1) == (("orders/0", 7, 900),)
    assert home.messages == []


def test_if_nothing_is_heard_for_long_it_asks_anew_and_not_while_silence_comes() -> None:
    home = in_force()
    for second in range(40):
        home.wait(1.0)
        home.deliver(100 + second, 101 + second)
    assert home.take_sent(DurableSubscribe) == []
    home.wait(QUIET_AFTER + 0.1)
    (asked,) = home.take_sent(DurableSubscribe)
    assert asked.positions == (("orders/0", 7, 140),)


@pytest.mark.parametrize(
    "packet",
    [
        StreamDelivery(1, "orders/0", 6, 100, 130, ((110, a_message()),)),
        StreamDelivery(1, "orders/9", 7, 100, 130, ((110, a_message()),)),
        StreamDelivery(5, "orders/0", 7, 100, 130, ((110, a_message()),)),
        Acknowledged(1, "orders/9", 7, 110),
        Acknowledged(1, "orders/0", 6, 110),
        DurableAnswer(50, 1, (), "who are you?"),
        DurableAnswer(1, 1, (("orders/0", 7, 5_000),)),
        DurableEnded(5, "somebody else's"),
    ],
)
def test_what_a_broker_should_not_say_changes_nothing(packet: Packet) -> None:
    home = in_force()
    home.deliver(100, 110, 105)
    before = (report(home).positions, report(home).acknowledged, report(home).in_force)
    home.say(packet)
    assert (report(home).positions, report(home).acknowledged, report(home).in_force) == before
    assert home.got() == [105]


@pytest.mark.parametrize(
    "positions",
    [
        (),
        (("notes/0", 7, 1),),
        (("orders/0", 7, 1), ("orders/0", 7, 2)),
        (("orders/0", 0, 1),),
        (("orders/0", 7, 1 << 62),),
        tuple((f"orders/{number}", 7, 1) for number in range(65)),
    ],
)
def test_an_answer_that_makes_no_sense_is_no_answer(positions: tuple[tuple[str, int, int], ...]) -> None:
    home = ScriptedHome()
    home.up()
    ticket = home.subscribe()
    (asked,) = home.take_sent(DurableSubscribe)
    home.say(DurableAnswer(asked.request, 1, positions))
    assert ticket not in home.done
    assert len(home.recorded(InputRefused)) == 1
    home.wait(0.5)
    home.answer()
    assert home.done[ticket] == Accepted()


# Credit.


def test_more_is_taken_when_half_a_window_was() -> None:
    home = in_force(window=10)
    home.deliver(100, 110, *range(101, 111))
    assert report(home).credit == 0
    home.take(4)
    assert home.take_sent(Take) == []
    home.take(1)
    assert home.take_sent(Take) == [Take(1, 15, 10)]
    home.take(5)
    assert home.take_sent(Take) == [Take(1, 20, 10)]
    home.take(500)
    assert home.take_sent(Take) == []
    found = report(home)
    assert (found.waiting, found.credit) == (0, 10)


def test_what_is_dropped_costs_no_credit() -> None:
    home = in_force(window=4)
    home.deliver(100, 102, 101, 102)
    home.take(2)
    home.take_sent(Take)
    home.deliver(100, 102, 101, 102)  # again, and the broker has counted four
    assert home.take_sent(Take) == [Take(1, 8, 4)]


def test_a_new_connection_begins_with_what_is_free() -> None:
    home = in_force(window=10)
    home.deliver(100, 110, *range(101, 111))
    home.take(3)
    home.down()
    home.take(1)
    assert home.take_sent(Take) == []
    home.up()
    asked = home.answer(("orders/0", 7, 110))
    assert asked.credit == 4
    home.take(5)
    assert home.take_sent(Take) == [Take(1, 9, 0)]


def test_a_broker_that_sends_far_too_much_is_not_listened_to_until_there_is_room() -> None:
    home = in_force(window=2)
    home.deliver(100, 110, *range(101, 111))
    home.deliver(110, 112, 111, 112)
    home.deliver(110, 112, 111, 112)
    assert len(home.messages) == 10
    home.wait(3.0)
    assert home.take_sent(Resume) == []
    home.take(10)
    home.wait(0.5)
    assert home.take_sent(Resume) == [Resume(1, "orders/0", 7, 110, 14)]
    home.deliver(110, 112, 111, 112)
    assert home.got() == list(range(101, 113))


def test_what_the_application_may_keep_follows_what_it_has_taken() -> None:
    home = in_force()
    home.deliver(100, 200, 120, 150)
    assert home.machine.positions(1) == (("orders/0", 7, 100),)
    home.take(1)
    assert home.machine.positions(1) == (("orders/0", 7, 120),)
    home.take(1)
    assert home.machine.positions(1) == (("orders/0", 7, 200),)
    home.deliver(200, 300, 250)
    assert home.machine.positions(1) == (("orders/0", 7, 200),)


# Acknowledgements.


def test_the_first_goes_at_once_and_those_that_come_meanwhile_together() -> None:
    home = in_force()
    home.deliver(100, 140, *range(101, 141))
    tickets = [home.acknowledge(tick) for tick in range(101, 141)]
    assert home.take_sent(Acknowledge) == [Acknowledge(1, "orders/0", 7, 101)]
    home.say(Acknowledged(1, "orders/0", 7, 101))
    assert [ticket for ticket in tickets if ticket in home.done] == tickets[:1]
    assert home.take_sent(Acknowledge) == [Acknowledge(1, "orders/0", 7, 140)]
    home.say(Acknowledged(1, "orders/0", 7, 140))
    assert all(home.done[ticket] == Accepted() for ticket in tickets)
    assert report(home).acknowledged == (("orders/0", 7, 140),)
    home.wait(5.0)
    assert home.take_sent(Acknowledge) == []


def test_what_gathers_waits_no_longer_than_a_moment_for_the_one_before() -> None:
    home = in_force()
    home.deliver(100, 140, *range(101, 141))
    home.acknowledge(101)
    home.acknowledge(102)
    home.take_sent(Acknowledge)
    home.wait(0.05)
    assert home.take_sent(Acknowledge) == [Acknowledge(1, "orders/0", 7, 102)]


def test_one_that_is_not_answered_is_sent_again() -> None:
    home = in_force()
    home.deliver(100, 140, 120)
    ticket = home.acknowledge(120)
    home.wait(1.2)
    assert home.take_sent(Acknowledge) == [Acknowledge(1, "orders/0", 7, 120)] * 3
    home.say(Acknowledged(1, "orders/0", 7, 120))
    assert home.done[ticket] == Accepted()


def test_over_a_new_connection_it_is_sent_when_that_is_in_force() -> None:
    home = in_force()
    home.deliver(100, 140, 120, 130)
    first = home.acknowledge(120)
    home.down()
    second = home.acknowledge(130)
    home.wait(3.0)
    home.up()
    home.wait(0.2)
    home.sent = [packet for packet in home.sent if isinstance(packet, DurableSubscribe)]
    home.answer(("orders/0", 7, 140))
    assert home.take_sent(Acknowledge) == [Acknowledge(1, "orders/0", 7, 140)]  # nothing but silence came after 130
    home.say(Acknowledged(1, "orders/0", 7, 130))
    assert home.done[first] == home.done[second] == Accepted()


def test_over_a_new_connection_silence_is_acknowledged_only_after_all_that_came() -> None:
    home = in_force()
    home.deliver(100, 140, 120, 130)
    home.acknowledge(120)
    home.down()
    home.up()
    home.answer(("orders/0", 7, 140))
    assert home.take_sent(Acknowledge)[-1] == Acknowledge(1, "orders/0", 7, 120)


def test_they_only_grow_and_one_that_is_stored_is_answered_at_once() -> None:
    home = in_force()
    home.deliver(100, 140, 120, 130)
    home.acknowledge(130)
    home.say(Acknowledged(1, "orders/0", 7, 130))
    home.take_sent(Acknowledge)
    again = home.acknowledge(120)
    assert home.done[again] == Accepted()
    home.say(Acknowledged(1, "orders/0", 7, 110))
    assert report(home).acknowledged == (("orders/0", 7, 130),)
    assert home.take_sent(Acknowledge) == []


@pytest.mark.parametrize(
    ("pubend", "tick", "words"),
    [
        ("orders/0", 141, "tick 141 has not come yet"),
        ("orders/1", 120, "is no pubend that 'billing' reads"),
        ("notes/0", 120, "is no pubend that 'billing' reads"),
    ],
)
def test_a_tick_that_did_not_come_cannot_be_acknowledged(pubend: str, tick: int, words: str) -> None:
    home = in_force()
    home.deliver(100, 140, 120)
    ticket = home.acknowledge(tick, pubend=pubend)
    outcome = home.done[ticket]
    assert isinstance(outcome, Refused)
    assert words in outcome.problem
    assert home.take_sent(Acknowledge) == []
    home.apply(home.machine.acknowledge(1, pubend, tick, ticket=0, now=home.now))
    assert words in home.recorded(InputRefused)[-1].problem


def test_who_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.streams.pubend_place.WAITERS_MAX", 2)
    home = in_force()
    home.deliver(100, 140, 120)
    *_, over = [home.acknowledge(120) for _ in range(3)]
    assert list(home.done)[-1] == over
    assert isinstance(home.done[over], Refused)


# Bad input.


@pytest.mark.parametrize(
    ("where", "options", "words"),
    [
        ("n > 0", {"durable": ""}, "durable: is missing"),
        ("n > 0", {"stream": ""}, "stream: is missing"),
        ("n > 0", {"durable": "b" * 10_000}, "10000 characters; the limit is 128 bytes"),
        ("n > 0", {"stream": "a/b"}, "may have letters, digits"),
        ("n > 0", {"ack": "sometimes"}, "choose one of 'auto', 'manual'"),
        ("n > 0", {"start_at": "yesterday"}, "write earliest, latest"),
        ("n > > 0", {}, "^"),
        ("n > 0 OR " * 5_000 + "n > 0", {}, "the limit is 16384"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_sent(where: str, options: dict[str, str], words: str) -> None:
    home = ScriptedHome()
    home.up()
    ticket = home.subscribe(1, where, **options)
    outcome = home.done[ticket]
    assert isinstance(outcome, Refused)
    assert words in outcome.problem
    assert home.sent == []
    assert home.machine.report(1) is None


@pytest.mark.parametrize(
    "positions",
    [
        [("notes/0", 7, 5)],
        [("orders/0", 7, 5), ("orders/0", 7, 6)],
        [("orders/0", 0, 5)],
        [("orders/0", 7, -1)],
        [("orders/0", 7, 1 << 62)],
        [("orders/x", 7, 5)],
    ],
)
def test_positions_of_something_else_are_refused(positions: list[tuple[str, int, int]]) -> None:
    home = ScriptedHome()
    home.up()
    home.machine.present(1, positions)
    ticket = home.subscribe()
    outcome = home.done[ticket]
    assert isinstance(outcome, Refused)
    assert outcome.problem.startswith("positions: ")
    assert home.sent == []
    home.subscribe()
    assert len(home.take_sent(DurableSubscribe)) == 1


def test_one_name_is_read_once_by_a_client_unless_it_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    home = in_force()
    second = home.subscribe(2)
    outcome = home.done[second]
    assert isinstance(outcome, Refused)
    assert "takeover=True" in outcome.problem
    same = home.subscribe(1, durable="other")
    assert home.done[same] == Refused("subscription 1 exists; choose another number")
    home.subscribe(2, takeover=True)
    assert [asked.subscription for asked in home.take_sent(DurableSubscribe)] == [2]
    monkeypatch.setattr(client_service, "READERS_MAX", 2)
    over = home.subscribe(3, durable="third")
    assert isinstance(home.done[over], Refused)
