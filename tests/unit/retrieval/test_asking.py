"""When a home asks other routers, and for what: rules of ours beside the paper's flood (asking.py)."""

from __future__ import annotations

import pytest

from penstock.retrieval.mediation import MediationRouter
from penstock.retrieval.packets import RetrievalMulticast
from penstock.retrieval.rules import MediationRules
from retrieval_network import RetrievalNetwork, Sent, asks, says
from retrieval_pump import a_network, ask, got, write

PAIR = ((0, 1),)
REMEMBERS = {"remembers": True, "left_max": 10}


def network(links=PAIR, **rules) -> RetrievalNetwork:
    return RetrievalNetwork(links, rules=MediationRules(**rules))


def a_home(**rules) -> tuple[MediationRouter, Sent]:
    sent = Sent()
    return MediationRouter(MediationRules(**rules), sent), sent


def asked(sent: Sent) -> list:
    return [one[1] for one in sent.take() if one[0] == "advertise"]


def test_a_patient_home_asks_when_part_of_a_lifetime_is_over():
    router, sent = a_home(patience=0.75)
    router.register(asks("i", 2, deadline=20.0), 0.0)
    assert sent.take() == [("proceed_at", "i", 15.0)]
    router.proceed("i", 15.0)
    assert [one.max for one in asked(sent)] == [2]


def test_whoever_has_got_all_meanwhile_asks_nobody():
    router, sent = a_home(patience=0.75)
    router.register(asks("i", 1, deadline=20.0), 0.0)
    router.upload(says("p", 5.0), 5.0)
    router.proceed("i", 15.0)
    assert asked(sent) == []


def test_nobody_is_asked_when_no_answer_can_come_in_time():
    router, sent = a_home(patience=0.75, flood_wait=1.2)
    router.register(asks("i", 1, deadline=4.0), 0.0)
    router.proceed("i", 3.0)
    assert asked(sent) == []


def test_one_asks_for_all_who_look_for_the_same_and_the_others_ask_later_for_what_they_miss():
    router, sent = a_home(together=True, flood_wait=1.0)
    router.register(asks("first", 3, deadline=20.0), 0.0)
    assert [one.id for one in asked(sent)] == ["first"]
    router.register(asks("second", 2, deadline=20.0), 0.5)
    assert sent.take() == [("proceed_at", "second", 1.0)]
    router.proceed("second", 1.0)
    assert [one.id for one in asked(sent)] == ["second"]


def test_nobody_waits_for_others_twice():
    router, sent = a_home(together=True, flood_wait=0.5)
    for number in range(5):
        router.register(asks(number, 3, deadline=1.0), 0.0)
    sent.take()
    for number in range(1, 5):
        router.proceed(number, 0.5)
    assert [one.id for one in asked(sent)] == [1, 2, 3, 4]


@pytest.mark.parametrize("more", [{"max": 4}, {"oldest": -5.0}, {"shelf": "other"}])
def test_whoever_wants_more_than_was_asked_for_asks_at_once(more):
    router, sent = a_home(together=True)
    router.register(asks("first", 3, oldest=0.0, deadline=20.0), 0.0)
    sent.take()
    wanted = {"max": 2, "oldest": 0.0, "deadline": 20.0} | more
    router.register(asks("second", wanted.pop("max"), **wanted), 0.1)
    assert [one.id for one in asked(sent)] == ["second"]


@pytest.mark.parametrize(("rules", "brings"), [({}, []), (REMEMBERS, ["p"])])
def test_a_refreshed_interest_gets_from_anywhere_what_its_home_never_used(rules, brings):
    """By 004 3.3.2 it is sent pending ones alone: what somebody else was sent before is lost for it."""
    net = network(((0, 1), (1, 2)), **rules)
    net.upload(1, says("p"))
    net.register(2, asks("other", 1))
    assert net.got("other") == ["p"]  # no longer pending
    net.register(0, asks("i", 1, refreshed=True))
    assert net.got("i") == brings


def test_a_home_that_remembers_asks_as_for_a_new_interest_and_names_what_it_has_had():
    router, sent = a_home(cache_size=1, **REMEMBERS)
    router.register(asks("i1", 2), 0.0)
    router.multicast(says("p"), False, "n1", 3, 1.0)
    router.multicast(says("q"), False, "n2", 3, 1.0)  # p leaves the cache
    router.finish("i1", 2.0)
    sent.take()
    router.register(asks("i2", 2, refreshed=True), 2.0)
    (interest,) = asked(sent)
    assert (interest.refreshed, sorted(interest.listed)) == (False, ["p", "q"])
    router.answer(says("r"), False, "i2", 3.0)
    router.answer(says("p"), False, "i2", 3.0)
    assert [one[2].id for one in sent.take() if one[0] == "deliver"] == ["r"]


@pytest.mark.parametrize("rules", [{"had_max": 0}, {"left_max": 1}, {"duplicates": "none"}])
def test_a_home_that_cannot_say_what_it_has_had_asks_as_the_paper_does(rules):
    router, sent = a_home(**({"cache_size": 1} | REMEMBERS | rules))
    router.register(asks("i1", 9), 0.0)
    for number in range(4):
        router.multicast(says(number, float(number)), False, number, 3, 4.0)
    router.finish("i1", 5.0)
    sent.take()
    router.register(asks("i2", 2, refreshed=True, oldest=0.0), 5.0)
    assert [one.refreshed for one in asked(sent)] == [True]


def test_a_chain_that_has_moved_goes_by_the_flag():
    router, sent = a_home(**REMEMBERS)
    router.register(asks("i", 2, refreshed=True, moved_at=5.0), 5.0)
    assert [one.refreshed for one in asked(sent)] == [True]
    router.answer(says("old", 1.0), False, "i", 6.0)
    assert not [one for one in sent.take() if one[0] == "deliver"]
    router.multicast(says("young", 6.0), False, "n", 3, 6.0)
    assert [one[2].id for one in sent.take() if one[0] == "deliver"] == ["young"]


def test_what_is_taken_out_of_the_cache_stays_known_as_used():
    router, sent = a_home(**REMEMBERS)
    router.register(asks("i1", 2), 0.0)
    router.multicast(says("p"), True, "n1", 3, 1.0)
    router.forget("p")
    router.finish("i1", 2.0)
    sent.take()
    router.register(asks("i2", 2, refreshed=True), 2.0)
    router.multicast(says("p"), True, "n2", 3, 3.0)
    assert not [one for one in sent.take() if one[0] == "deliver"]


def test_a_router_that_answers_shares_the_rest_among_its_branches():
    net = network(((0, 1), (1, 2), (1, 3)), budgeted=True)
    for router in (1, 2, 3):
        for number in range(4):
            net.upload(router, says((router, number)))
    net.register(0, asks("i", 8))
    assert sorted(router for router, _ in net.got("i")) == [1, 1, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("wrong", [{"patience": 1.0}, {"patience": -0.1}, {"remembers": True}])
def test_rules_that_cannot_be(wrong):
    with pytest.raises(ValueError, match=r"patience|left_max"):
        MediationRules(**wrong)


@pytest.mark.parametrize("seed", range(20))
def test_an_addressed_copy_comes_however_the_floods_of_its_home_went(seed):
    """Interests of one home that took different ways must not send a copy in a circle."""
    links = ((0, 1), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3))
    net = RetrievalNetwork(links, rules=MediationRules(addressed=True), seed=seed)
    for one in ("i1", "i2", "i3"):
        net.homes[one] = 3
        net.routers[3].register(asks(one, 5), 0.0)
    net.settle(3)
    net.upload(0, says("p"))
    assert [net.got(one) for one in ("i1", "i2", "i3")] == [["p"]] * 3


# Brokers.


def test_a_broker_addresses_what_it_multicasts_and_a_copy_for_all_is_taken_too():
    pump = a_network(3)
    ask(pump, all_items=True, lifetime="1h")
    seen = []
    pump.loses = lambda flight: seen.append(flight.packet) or False
    write(pump, 1)
    assert [packet.homes for packet in seen if isinstance(packet, RetrievalMulticast)] == [(2,), (2,)]
    assert got(pump) == [1]
    plain = a_network(3, addressed=False)
    ask(plain, all_items=True, lifetime="1h")
    write(plain, 1)
    assert got(plain) == [1]


def test_two_clients_of_a_broker_that_ask_for_the_same_send_one_interest():
    pump = a_network(2)
    write(pump, 1, 2)
    seen = []
    pump.loses = lambda flight: seen.append(type(flight.packet).__name__) or False
    ask(pump, 1, max=2, lifetime="1h")
    ask(pump, 2, max=2, lifetime="1h")
    assert (got(pump), got(pump, number=2)) == ([2, 1], [2, 1])
    assert seen.count("RetrievalInterest") == 1
