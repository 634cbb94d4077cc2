"""Whoever asks for much takes nothing from others: few packets under way, shares of tables, bounds on times."""

from __future__ import annotations

from penstock.content.message import Identity, make_message
from penstock.kernel.machine import Send
from penstock.retrieval.client_lines import AT_ONCE
from penstock.retrieval.contents import hash_of
from penstock.retrieval.link_recovery import RESEND_AT_ONCE, WINDOW_MAX
from penstock.retrieval.packets import (
    RetrievalAnswer,
    RetrievalInterest,
    RetrievalMulticast,
    RetrievalReceipt,
    RetrieveReply,
    RetrieveRequest,
)
from penstock.retrieval.requests import READ_BURST
from penstock.testing import Flight, Pump, attach
from retrieval_pump import NEWS, a_network, ask, drops, got, outcome, service, write

LONG = "topic = 'news' AND n IN (" + ", ".join(str(number) for number in range(500)) + ")"  # 24 * 24 + 1 places


def interests_from_b0(pump: Pump, count: int, where: str = "TRUE", first: int = 1) -> None:
    link = pump.link("b1", "b0")
    for number in range(first, first + count):
        text = where.replace("#", str(number))
        packet = RetrievalInterest(1, 1, number, 1, (0, 1, number), text, 1, 10.0, 10.0, False, None, ())
        pump.receive("b1", packet, sender=link)


def test_few_publications_are_under_way_at_a_time_and_all_of_them_come() -> None:
    pump = a_network(2)
    write(pump, *range(1, 301))
    most = 0

    def look(flight: Flight) -> bool:
        nonlocal most
        most = max(most, len(pump.in_flight(RetrievalAnswer)))
        return False

    pump.loses = look
    ask(pump, all_items=True, lifetime="1h")
    pump.advance(1.0)
    assert sorted(got(pump)) == list(range(1, 301))
    assert WINDOW_MAX // 2 < most <= WINDOW_MAX
    assert service(pump, "b0").status().unreceipted == 0


def test_interests_do_not_wait_behind_publications() -> None:
    pump = a_network(3)
    write(pump, *range(1, 101))
    ask(pump, 1, client="w", all_items=True, lifetime="1h", where="topic = 'sport'")
    pump.loses = lambda flight: isinstance(flight.packet, RetrievalAnswer)
    ask(pump, 2, all_items=True, lifetime="1h")
    ask(pump, 3, client="w", max=1, lifetime="1h", where="topic = 'weather'")
    assert service(pump, "b2").status().interests == 3


def test_a_gap_is_filled_also_when_a_neighbour_has_sent_more_than_we_keep_beyond_it() -> None:
    pump = a_network(2, unreceipted_max=3)
    link = pump.link("b1", "b0")
    known = []
    for number in (2, 3, 4, 5, 1, 5):
        packet = RetrievalInterest(1, 1, number, 1, (0, 1, number), "TRUE", 1, 10.0, 10.0, False, None, ())
        pump.receive("b1", packet, sender=link)
        known.append(service(pump, "b1").status().interests)
    assert known == [1, 2, 3, 3, 4, 5]  # the fifth was one too many at first, and is sent again


def test_receipts_that_say_the_same_at_once_are_answered_once() -> None:
    pump = a_network(2)
    ask(pump, all_items=True, lifetime="1h")
    pump.loses = lambda flight: isinstance(flight.packet, RetrievalMulticast)
    write(pump, 1, 2, 3)
    before = service(pump, "b0").status().resent
    for _ in range(5):
        pump.receive("b0", RetrievalReceipt(1, 1, 0, (1, 2, 3)), sender=pump.link("b0", "b1"))
    assert service(pump, "b0").status().resent == before + 3
    pump.loses = lambda flight: False
    pump.advance(5.0)
    assert sorted(got(pump)) == [1, 2, 3]


def test_receipts_ask_for_few_packets_again_at_a_time() -> None:
    pump = a_network(2)
    pump.loses = lambda flight: isinstance(flight.packet, RetrievalInterest)
    for number in range(1, 91):
        ask(pump, number, max=1, lifetime="1h", where=f"n = {number}")
    before = service(pump, "b1").status().resent
    for missing in (range(1, 61), range(61, 91), range(1, 91)):
        pump.receive("b1", RetrievalReceipt(1, 1, 0, tuple(missing)), sender=pump.link("b1", "b0"))
    assert service(pump, "b1").status().resent - before <= RESEND_AT_ONCE


def test_an_answer_for_which_a_line_has_no_room_stays_in_the_cache() -> None:
    pump = a_network(2, unreceipted_max=20)
    write(pump, *range(1, 31))
    ask(pump, all_items=True, lifetime="10s")
    pump.advance(1.0)
    first = got(pump)
    assert len(first) == 10
    assert "neighbour behind" not in drops(pump, "b0")
    pump.advance(10.0)  # the next lifetime
    assert len(got(pump)) == 20
    assert len(set(got(pump))) == 20


def test_a_client_gets_more_items_than_its_queue_has_places_in_turns() -> None:
    pump = a_network(1)
    write(pump, *range(1, 401))
    ask(pump, 1, all_items=True, lifetime="1h")
    ask(pump, 2, max=1, lifetime="1h")
    assert (len(got(pump)), len(got(pump, number=2))) == (AT_ONCE, 0)
    pump.advance(1.0)
    assert sorted(got(pump)) == list(range(1, 401))
    assert got(pump, number=2) == [400]


def test_items_that_wait_for_a_client_that_leaves_are_dropped_and_recorded() -> None:
    pump = a_network(1, items_max=150)
    write(pump, *range(1, 401))
    for number in (1, 2, 3):
        ask(pump, number, all_items=True, lifetime="1h")
    assert drops(pump, "b0").count("client behind") == 450 - AT_ONCE - 150
    pump.change("r", "b0", up=False)
    assert drops(pump, "b0").count("link down") == 150
    pump.advance(1.0)
    assert len(pump.got("r")) == AT_ONCE


def test_a_neighbour_that_floods_interests_leaves_room_for_clients_and_other_neighbours() -> None:
    pump = a_network(3, interests_max=40)
    attach(pump, "near", "b1")
    interests_from_b0(pump, 100)
    assert service(pump, "b1").status().interests == 20
    ask(pump, client="near", max=1, lifetime="1h")
    ask(pump, client="r", max=1, lifetime="1h")
    assert not hasattr(outcome(pump, 1, "near"), "problem")
    assert service(pump, "b1").status().interests == 22


def test_a_client_that_asks_for_much_leaves_room_for_other_clients() -> None:
    pump = a_network(1, interests_max=2_400)
    for number in (1, 2, 3):
        ask(pump, number, where=LONG + " " * number, max=1, lifetime="1h")
    assert "interests_max is 2400" in outcome(pump, 3).problem
    ask(pump, 1, client="w", max=1, lifetime="1h")
    assert not hasattr(outcome(pump, 1, "w"), "problem")


def test_long_texts_cost_a_client_as_much_as_they_cost_its_broker() -> None:
    pump = a_network(1)
    for number in range(1, 6):
        ask(pump, number, where=LONG + " " * number, max=1, lifetime="1h")
    assert [hasattr(outcome(pump, number), "problem") for number in range(1, 6)] == [False] * 3 + [True] * 2
    assert outcome(pump, 5).problem == "too many at once; ask again"


def test_a_neighbour_may_bring_so_many_new_texts_at_once() -> None:
    pump = a_network(2)
    few = int(READ_BURST) // 577
    interests_from_b0(pump, few + 5, LONG + " OR n = #")
    assert service(pump, "b1").status().interests == few
    interests_from_b0(pump, 1, LONG + " OR n = 1", first=100)  # a text that is known
    assert service(pump, "b1").status().interests == few + 1


def test_a_one_shot_request_does_not_wait_for_a_century() -> None:
    pump = a_network(1)
    packet = RetrieveRequest(7, 1, "TRUE", 0, 3e9, 3600.0, 0.0, True, False, None, None)
    effects = pump.receive("b0", packet, sender=pump.link("b0", "r"))
    replies = [one.packet for one in effects if isinstance(one, Send) and isinstance(one.packet, RetrieveReply)]
    assert ["lifetime_max" in reply.problem for reply in replies] == [True]
    assert service(pump, "b0").status().own_interests == 0


def test_no_publication_comes_from_the_future_where_it_would_be_the_freshest_for_ever() -> None:
    pump = a_network(2)
    ask(pump, max=5, lifetime="1h")
    message = make_message(Identity("w", 1, 9), NEWS)
    packet = RetrievalMulticast(1, 1, 9, 9, message, hash_of(message), -1e9, True, (0, 1, 1))
    pump.receive("b1", packet, sender=pump.link("b1", "b0"))
    assert [entry.uploaded for entry in service(pump, "b1").router.cache] == [pump.now]


def test_answers_that_nobody_waits_for_any_more_do_not_stand_in_the_way_of_others() -> None:
    pump = a_network(2)
    write(pump, *range(1, 301))
    pump.loses = lambda flight: isinstance(flight.packet, RetrievalAnswer)  # for a while nothing gets through
    ask(pump, 1, all_items=True, lifetime="0", freshness="1h")
    pump.advance(5.0)
    assert got(pump) == []
    first: list[int] = []
    pump.loses = lambda flight: bool(
        isinstance(flight.packet, RetrievalAnswer) and first.append(flight.packet.message.identity.count)  # type: ignore[func-returns-value]
    )
    ask(pump, 2, max=3, lifetime="1h")
    pump.advance(30.0)
    assert sorted(got(pump, number=2)) == [298, 299, 300]
    place = max(place for place, count in enumerate(first) if count in (298, 299, 300))
    assert place <= 2 * WINDOW_MAX, "behind what was under way, and before what stands back"
    assert service(pump, "b0").status().unreceipted == 0
