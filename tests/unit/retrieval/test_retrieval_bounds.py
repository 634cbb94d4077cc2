"""Whoever asks for much takes nothing from others: few packets under way, shares of tables, bounds on times."""

from __future__ import annotations

from penstock.retrieval.client_lines import AT_ONCE
from penstock.retrieval.link_recovery import WINDOW_MAX
from penstock.retrieval.packets import RetrievalAnswer, RetrievalInterest
from penstock.testing import Flight
from retrieval_pump import a_network, ask, drops, got, service, write


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
