"""Retrieval between clients and brokers, by hand: numbered packets, forged names, damaged contents, moves, stores."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.content.message import Identity, make_message
from penstock.errors import InvalidOption
from penstock.kernel.machine import Refused
from penstock.kernel.storage import Put, StorageFailed
from penstock.kernel.trace import InputRefused
from penstock.retrieval.client_service import RetrievalClient
from penstock.retrieval.config import RetrievalConfig, seconds_of, terms_of
from penstock.retrieval.contents import ItemContent, content_of, hash_of
from penstock.retrieval.packets import (
    RetrievalAnswer,
    RetrievalInterest,
    RetrievalMulticast,
    RetrievalReceipt,
    RetrieveReply,
    RetrieveRequest,
)
from penstock.retrieval.records import CacheStoreFailed, LifetimeBegan, LifetimeEnded
from penstock.services import options
from penstock.testing import ClientMachine, Flight, a_broker, publish
from retrieval_pump import NEWS, a_network, ask, drops, got, outcome, retriever, service, write

# What is asked for.


def test_a_late_reader_gets_the_freshest_and_then_each_lifetime_the_next() -> None:
    pump = a_network(3)
    write(pump, 1, 2, 3, 4, 5)
    ask(pump, max=2, lifetime="10s", freshness="1h")
    assert got(pump) == [5, 4]
    pump.advance(10.0)
    assert got(pump) == [5, 4, 3, 2]
    write(pump, 6)
    assert got(pump) == [5, 4, 3, 2]  # this lifetime has all it asked for
    pump.advance(10.0)
    assert got(pump) == [5, 4, 3, 2, 6, 1]


def test_freshness_0_asks_for_what_comes_and_lifetime_0_for_what_is_there() -> None:
    pump = a_network()
    write(pump, 1)
    pump.advance(0.5)
    ask(pump, 1, freshness="0", lifetime="1h")
    ask(pump, 2, lifetime="0", freshness="1h")
    assert (got(pump, number=1), got(pump, number=2)) == ([], [1])
    pump.advance(2.0)
    write(pump, 2)
    assert (got(pump, number=1), got(pump, number=2)) == ([2], [1])
    assert [one.last for one in pump.records_of("r", LifetimeEnded)] == [True]  # type: ignore[attr-defined]


def test_old_items_are_not_fresh_enough_whatever_the_clocks_say() -> None:
    pump = a_network()
    write(pump, 1)
    pump.advance(60.0)
    write(pump, 2)
    ask(pump, freshness="30s", lifetime="1h")
    assert got(pump) == [2]


def test_items_come_at_the_end_of_the_lifetime_if_that_is_asked_for() -> None:
    pump = a_network(1)
    write(pump, 1)
    ask(pump, at_end=True, one_lifetime=True, lifetime="5s")
    write(pump, 2)
    assert got(pump) == []
    pump.advance(5.0)
    assert got(pump) == [1, 2]


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"lifetime": "0", "freshness": "0"}, "one must be above 0"),
        ({"lifetime": "100d"}, "lifetime_max"),
        ({"lifetime": "1s"}, "lifetime_min"),
        ({"max": 20_000}, "items_max"),
        ({"max": 1, "where": "_to = 'w'"}, "inbox"),
        ({"max": 1, "where": "topic ="}, ""),
    ],
)
def test_what_a_broker_does_not_take_it_refuses_with_the_reason(terms: dict[str, Any], problem: str) -> None:
    pump = a_network(1)
    ask(pump, **terms)
    refused = outcome(pump, 1)
    assert isinstance(refused, Refused)
    assert problem in refused.problem
    assert service(pump, "b0").status().own_interests == 0
    ask(pump)  # the number is free again
    assert not isinstance(outcome(pump, 1), Refused) or len(pump.done) > 1


def test_a_client_has_so_many_interests_and_a_broker_knows_so_many() -> None:
    pump = a_network(2, interests_per_client_max=2, interests_max=1)
    ask(pump, 1, max=1)
    ask(pump, 2, max=1)
    assert "interests_max is 1" in outcome(pump, 2).problem
    assert service(pump, "b1").status().refused == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"lifetime_min": 0.0},
        {"lifetime_max": 1.0},
        {"lifetime_max": 1e12},
        {"moved_slack": -1.0},
        {"cache_size": -1},
        {"policy": "best"},
        {"stored": True, "cache_size": 6_000},
        {"duplicates": "some"},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        RetrievalConfig(**wrong)


def test_times_are_written_with_units() -> None:
    assert [seconds_of(text, "") for text in ("0", "90", "90s", "1.5m", "24h", "7d")] == [
        0,
        90,
        90,
        90,
        86_400,
        604_800,
    ]
    for text in ("", "-1s", "1y", "99999d", "1e3"):
        with pytest.raises(InvalidOption):
            seconds_of(text, "lifetime")
    for wrong in (-1, 10**30):
        with pytest.raises(InvalidOption):
            terms_of(options({"max": wrong}))


# Between brokers.


def test_what_a_link_loses_is_sent_again_and_comes_once() -> None:
    pump = a_network(2)
    write(pump, 1, 2, 3)
    lost: list[Flight] = []

    def loses(flight: Flight) -> bool:
        first = isinstance(flight.packet, RetrievalInterest | RetrievalAnswer) and len(lost) < 4
        lost.extend([flight] if first else [])
        return first

    pump.loses = loses
    ask(pump, all_items=True, lifetime="1h")
    pump.advance(10.0)
    assert len(lost) == 4
    assert sorted(got(pump)) == [1, 2, 3]
    assert service(pump, "b0").status().unreceipted == 0


def test_a_packet_that_comes_twice_is_left_out_and_one_for_a_former_life_too() -> None:
    pump = a_network(2)
    write(pump, 1)
    seen: list[Flight] = []
    pump.loses = lambda flight: bool(seen.append(flight))  # type: ignore[func-returns-value]
    ask(pump, max=5, lifetime="1h")
    answer = next(flight.packet for flight in seen if isinstance(flight.packet, RetrievalAnswer))
    link = pump.link("b1", "b0")
    for packet in (
        answer,
        replace(answer, number=answer.number + 1, receiver=99),
        replace(answer, sender=99, number=9),
    ):
        pump.receive("b1", packet, sender=link)
    pump.run()
    assert got(pump) == [1]


def test_forged_names_and_damaged_contents_change_nothing() -> None:
    pump = a_network(2)
    write(pump, 1)
    ask(pump, max=5, lifetime="1h")
    link = pump.link("b1", "b0")
    interest = RetrievalInterest(1, 1, 50, 50, (1, 1, 77), "TRUE", 1, 10.0, 10.0, False, None, ())
    before = service(pump, "b1").status()
    pump.receive("b1", interest, sender=link)  # in the name of b1 itself
    pump.receive("b1", replace(interest, number=51, name=(0, 1, 900), left=1e9), sender=link)
    pump.receive("b1", replace(interest, number=52, name=(0, 1, 901), where="topic ="), sender=link)
    message = make_message(Identity("w", 1, 9), NEWS)
    answer = RetrievalAnswer(1, 1, 53, 53, message, bytes(16), 1.0, True, (1, 1, 1))
    pump.receive("b1", answer, sender=link)
    other = make_message(Identity("w", 1, 1), {**NEWS, "n": 2})
    pump.receive("b1", replace(answer, number=54, message=other, content_hash=hash_of(other)), sender=link)
    secret = make_message(Identity("w", 1, 10), {**NEWS, "_to": "x"}, reserved=True)
    pump.receive("b1", replace(answer, number=55, message=secret, content_hash=hash_of(secret)), sender=link)
    pump.run()
    after = service(pump, "b1").status()
    assert (after.interests, after.cached) == (before.interests, before.cached)
    assert got(pump) == [1]
    assert len(pump.records_of("b1", InputRefused)) == 3
    assert {"content does not fit its hash", "another content under this identity", "not for everybody"} <= set(
        drops(pump, "b1")
    )


def test_a_cached_copy_that_does_not_fit_its_hash_is_dropped_and_counted() -> None:
    pump = a_network(1)
    write(pump, 1, 2)
    ask(pump, 1, max=1, lifetime="0")
    cache = service(pump, "b0").router.cache
    entry = cache.get(Identity("w", 1, 2))
    assert entry is not None
    content = content_of(entry.publication)
    entry.publication.content = ItemContent(content.message, bytes(16))
    ask(pump, 2, max=2, lifetime="0")
    assert got(pump, number=2) == [1]
    assert Identity("w", 1, 2) not in cache
    assert drops(pump, "b0") == ["content does not fit its hash"]


def test_interests_are_asked_for_anew_when_the_map_changes() -> None:
    pump = a_network(2)
    ask(pump, max=5, lifetime="1h")
    pump.change("b0", "b1", up=False)
    pump.advance(5.0)
    write(pump, 1)
    assert got(pump) == []
    pump.change("b0", "b1", up=True)
    pump.advance(5.0)
    write(pump, 2)
    assert sorted(got(pump)) == [1, 2]


def test_a_neighbour_that_confirms_nothing_gets_so_much_and_the_rest_is_dropped_and_counted() -> None:
    pump = a_network(2, unreceipted_max=3)
    ask(pump, all_items=True, lifetime="1h")
    pump.loses = lambda flight: isinstance(flight.packet, RetrievalMulticast)
    write(pump, *range(1, 6))
    assert service(pump, "b0").status().unreceipted == 3
    assert drops(pump, "b0") == ["neighbour behind", "neighbour behind"]
    pump.loses = lambda flight: False
    pump.advance(10.0)
    assert sorted(got(pump)) == [1, 2, 3]


def test_what_was_meant_for_a_former_life_of_a_neighbour_is_dropped() -> None:
    pump = a_network(2)
    ask(pump, all_items=True, lifetime="1h")
    pump.loses = lambda flight: isinstance(flight.packet, RetrievalMulticast)
    write(pump, 1)
    pump.loses = lambda flight: False
    pump.change("b0", "b1", up=False)
    pump.machines["b1"] = a_broker(1, 2)
    pump.change("b0", "b1", up=True)
    pump.advance(5.0)
    assert drops(pump, "b0") == ["neighbour restarted"]
    assert service(pump, "b0").status().interests == 0  # its clients' interests of that life are forgotten


# Chains.


def test_a_client_that_moves_gets_nothing_again_and_only_what_never_left_its_broker() -> None:
    pump = a_network(3)
    write(pump, 1, 2, 3)
    ask(pump, max=2, lifetime="10s", freshness="1h")
    assert got(pump) == [3, 2]
    pump.change("r", "b2", up=False)
    pump.connect("r", "b1")
    pump.run()
    pump.advance(10.0)
    assert got(pump) == [3, 2, 1]
    began = pump.records_of("r", LifetimeBegan)
    assert [one.refreshed for one in began] == [False, True]  # type: ignore[attr-defined]
    pump.advance(2.0)
    write(pump, 4)
    assert got(pump) == [3, 2, 1, 4]


def test_a_chain_that_got_nothing_begins_anew_after_its_connection_is_gone() -> None:
    pump = a_network(2)
    write(pump, 1)
    pump.loses = lambda flight: isinstance(flight.packet, RetrieveReply) or flight.receiver == "r"
    ask(pump, max=2, lifetime="1h")
    pump.loses = lambda flight: False
    pump.change("r", "b1", up=False)
    pump.change("r", "b1", up=True)
    pump.run()
    assert got(pump) == [1]


def test_a_request_that_is_repeated_on_its_connection_is_answered_and_brings_nothing_again() -> None:
    pump = a_network(1)
    write(pump, 1)
    sent: list[RetrieveRequest] = []
    pump.loses = lambda flight: bool(isinstance(flight.packet, RetrieveRequest) and sent.append(flight.packet))  # type: ignore[func-returns-value]
    ask(pump, max=2, lifetime="1h")
    pump.receive("b0", sent[0], sender=pump.link("b0", "r"))
    pump.run()
    assert got(pump) == [1]


def test_a_reply_that_comes_twice_is_one_move() -> None:
    pump = a_network(1)
    ask(pump, max=2, lifetime="1h")
    home = retriever(pump)
    moved = RetrieveReply(1, 1, (7, 7), True)
    link = pump.link("r", "b0")
    for at in (1.0, 2.0):
        home.receive([moved], sender=link, now=at)
    report = home.report(1)
    assert report is not None
    assert report.moved == 1


def test_a_later_lifetime_that_is_refused_says_why_until_it_is_not() -> None:
    pump = a_network(1)
    ask(pump, all_items=True, lifetime="10s")
    client = retriever(pump)
    assert _told(client) == (10_000, "")
    refused = RetrieveReply(1, 2, (0, 1), False, "no room")
    pump.loses = lambda flight: isinstance(flight.packet, RetrieveRequest)
    pump.advance(10.0)
    client.receive([refused], sender=pump.link("r", "b0"), now=pump.now)
    assert _told(client) == (10_000, "no room")
    pump.loses = lambda flight: False
    pump.advance(5.0)
    assert _told(client) == (10_000, "")


def _told(client: RetrievalClient) -> tuple[int, str]:
    report = client.report(1)
    assert report is not None
    return report.max, report.problem


def test_a_chain_also_gets_what_another_client_of_its_broker_got_first() -> None:
    pump = a_network(1)
    write(pump, 1)
    ask(pump, max=1, lifetime="10s")
    write(pump, 2)
    ask(pump, 2, client="w", max=5, lifetime="0")
    assert (got(pump), sorted(got(pump, "w", 2))) == ([1], [1, 2])
    pump.advance(10.0)
    assert got(pump) == [1, 2]


def test_over_a_new_connection_nobody_knows_what_a_chain_got_so_it_gets_nothing_that_was_used() -> None:
    pump = a_network(1)
    write(pump, 1, 2)
    ask(pump, max=2, lifetime="10s")
    write(pump, 3)
    ask(pump, 2, client="w", max=5, lifetime="0")
    pump.change("r", "b0", up=False)
    pump.change("r", "b0", up=True)
    pump.advance(10.0)
    write(pump, 4)
    pump.advance(10.0)
    assert got(pump) == [2, 1, 4]


# The store.


def test_nothing_leaves_before_its_place_is_on_disk_and_a_restart_repeats_nothing() -> None:
    pump = a_network(1, stored=True)
    write(pump, 1, 2, 3)
    node = pump.machines["r"]
    assert isinstance(node, ClientMachine)
    pump.apply("r", node.subscribe(1, "TRUE", options({"max": 2, "lifetime": "10s"}), ticket=1, now=pump.now))
    while pump.flights:
        pump.deliver()
    assert any(isinstance(asked.operation, Put) for _, asked in pump.questions)
    assert got(pump) == []
    pump.run()
    assert got(pump) == [3, 2]


def test_a_store_that_fails_makes_another_life_of_the_cache() -> None:
    pump = a_network(1, stored=True)
    ask(pump, max=2, lifetime="1h")
    before = service(pump, "b0").home
    publish(pump, "w", make_message(Identity("w", 1, 1), NEWS), ticket=5)
    while pump.flights:
        pump.deliver()
    name, asked = pump.questions.pop(0)
    pump.apply(name, pump.machines[name].completed(asked.ticket, StorageFailed("disk full"), now=pump.now))
    pump.questions.clear()
    replies = pump.in_flight(RetrieveReply)
    assert [reply.home for reply in replies] == [service(pump, "b0").home]  # type: ignore[attr-defined]
    assert service(pump, "b0").home != before
    assert len(pump.records_of("b0", CacheStoreFailed)) == 1
    pump.run()
    assert got(pump) == []  # after a restart the disk may have it as never used
    publish(pump, "w", make_message(Identity("w", 1, 2), NEWS), ticket=6)
    while pump.flights:
        pump.deliver()
    assert got(pump) == [2]


def test_an_item_that_a_failing_store_held_back_does_not_count_as_delivered() -> None:
    """Seed 900162: of three items one was held back, and the lifetime brought two though there were more."""
    pump = a_network(1, stored=True)
    ask(pump, max=2, lifetime="1h")
    publish(pump, "w", make_message(Identity("w", 1, 1), NEWS), ticket=5)
    publish(pump, "w", make_message(Identity("w", 1, 2), NEWS), ticket=6)
    while pump.flights:
        pump.deliver()
    while pump.questions:
        name, asked = pump.questions.pop(0)
        failed = StorageFailed("disk full")
        pump.apply(name, pump.machines[name].completed(asked.ticket, failed, now=pump.now))
    pump.run()
    assert got(pump) == []
    for count in (3, 4, 5):
        publish(pump, "w", make_message(Identity("w", 1, count), NEWS), ticket=4 + count)
        while pump.flights:
            pump.deliver()
    assert got(pump) == [3, 4]


def test_what_is_pending_on_a_disk_that_fails_is_used_by_nobody_until_a_restart() -> None:
    pump = a_network(1, stored=True)
    write(pump, 1, 2)
    ask(pump, max=1, lifetime="1h")
    assert got(pump) == [2]
    publish(pump, "w", make_message(Identity("w", 1, 3), NEWS), ticket=5)
    while pump.flights:
        pump.deliver()
    name, asked = pump.questions.pop(0)
    pump.apply(name, pump.machines[name].completed(asked.ticket, StorageFailed("disk full"), now=pump.now))
    pump.questions.clear()
    cache = service(pump, "b0").router.cache
    assert [entry.publication.id.count for entry in cache] == []  # type: ignore[attr-defined]
    assert service(pump, "b0").status().counts["set aside when the store failed"] == 3


def test_receipts_say_what_is_missing() -> None:
    receipt = RetrievalReceipt(1, 1, 4, (6, 9))
    assert receipt.checked(None) is receipt  # type: ignore[arg-type]
    with pytest.raises(Exception, match="increase"):
        RetrievalReceipt(1, 1, 6, (6,)).checked(None)  # type: ignore[arg-type]
