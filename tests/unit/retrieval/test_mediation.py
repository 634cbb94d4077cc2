"""One router, input by input; then random networks, in which no chain may get anything twice (Req 1)."""

from __future__ import annotations

from collections import Counter
from random import Random
from unittest.mock import ANY

import pytest

from penstock.retrieval.interest import LOCAL, oldest_upload
from penstock.retrieval.mediation import MediationRouter
from penstock.retrieval.outlet import AddressedNonce
from penstock.retrieval.rules import MediationRules
from penstock.retrieval.selection import CONFIGURATIONS
from retrieval_network import ROW, RetrievalNetwork, Sent, asks, says


def a_router(**settings) -> tuple[MediationRouter, Sent]:
    sent = Sent()
    return MediationRouter(MediationRules(**settings), sent, nonces=lambda: "nonce"), sent


def kinds(sent: Sent) -> list[str]:
    return [one[0] for one in sent.take()]


def test_a_new_interest_is_served_from_every_table_and_the_rest_is_asked_of_others():
    router, sent = a_router()
    router.upload(says("p", 1.0), 1.0)
    router.multicast(says("q", 0.5), True, "n", 3, 1.0)
    sent.take()
    router.register(asks("i", 3), 2.0)
    deliver_p, deliver_q, advertise = sent.take()
    assert [one[2].id for one in (deliver_p, deliver_q)] == ["p", "q"]
    assert (advertise[1].max, advertise[1].listed, advertise[2]) == (1, ("p", "q"), LOCAL)


def test_without_proactive_dropping_nothing_is_listed():
    router, sent = a_router(duplicates="in network")
    router.upload(says("p"), 1.0)
    router.register(asks("i", 3), 2.0)
    assert sent.take()[-1][1].listed == ()


def test_an_interest_that_the_cache_satisfies_goes_no_further():
    router, sent = a_router()
    router.upload(says("p", 1.0), 1.0)
    router.upload(says("q", 2.0), 2.0)
    router.interest(asks("i", 1), 4)
    (answer,) = sent.take()
    assert (answer[0], answer[1], answer[3].id, answer[4]) == ("answer", 4, "q", True)


def delivered(sent: Sent) -> list[tuple[object, object]]:
    return [(one[1].id, one[2].id) for one in sent.take() if one[0] == "deliver"]


def test_a_late_copy_of_what_was_used_and_has_left_the_cache_is_not_new_to_chains_of_this_home():
    router, sent = a_router(cache_size=1, cursors=True, left_max=10)
    router.register(asks("i1", 9), 0.0)
    router.multicast(says("p"), False, "n1", 3, 1.0)  # a copy overtakes the wave
    router.multicast(says("q"), True, "n2", 3, 1.0)  # and leaves the cache
    box = router.finish("i1", 2.0)
    assert delivered(sent) == [("i1", "p"), ("i1", "q")]
    router.register(asks("i2", 9, refreshed=True, cursor=box.cursor), 2.0)
    router.multicast(says("p"), True, "n3", 4, 3.0)
    router.finish("i2", 4.0)
    router.register(asks("i3", 9, refreshed=True, cursor=box.cursor), 4.0)
    assert delivered(sent) == []
    router.register(asks("new", 9), 4.0)
    router.multicast(says("p"), True, "n4", 4, 5.0)
    assert ("new", "p") in delivered(sent)


def test_what_is_older_than_the_names_a_router_has_forgotten_is_not_new_unless_it_was_asked_for():
    router, sent = a_router(cache_size=1, left_max=1, age_slack=0.5)
    router.register(asks("i1", 9), 0.0)
    for number, name in enumerate("pqrs"):  # p and q leave the cache, and the names that it remembers
        router.multicast(says(name, 1.0 + number), False, name, 3, 5.0)
    router.finish("i1", 6.0)
    router.register(asks("i2", 9, refreshed=True), 6.0)
    sent.take()
    for name, uploaded in (("p", 1.3), ("q", 2.3), ("later", 3.0)):
        router.multicast(says(name, uploaded), True, f"late {name}", 4, 7.0)
    router.answer(says("asked", 1.0), True, "i2", 7.0)
    assert delivered(sent) == [("i2", "later"), ("i2", "asked")]


def test_no_more_is_answered_than_an_interface_has_room_for():
    router, sent = a_router()
    for name in "pqr":
        router.upload(says(name), 1.0)
    sent.takes = 2
    router.interest(asks("i", 3), 4)
    assert kinds(sent) == ["answer", "answer", "advertise"]
    assert len(router.cache.pending[0]) == 1


def test_a_late_copy_goes_on_with_its_flag():
    router, sent = a_router(cache_size=1, left_max=10)
    router.register(asks("i", 9), 0.0)
    router.multicast(says("p"), False, "n1", 3, 1.0)
    router.multicast(says("q"), True, "n2", 3, 1.0)
    router.interest(asks("elsewhere", 9, refreshed=True), 5)
    sent.take()
    router.multicast(says("p"), True, "n3", 4, 1.0)
    assert [one[1:] for one in sent.take() if one[0] == "multicast"] == [((5,), ANY, True, "n3")]


def test_with_a_cache_of_a_former_life_only_what_was_uploaded_later_or_asked_for_is_new():
    router, sent = a_router()
    router.began = 10.0
    router.register(asks("i", 9, refreshed=True), 10.0)
    router.multicast(says("before", 9.0), True, "n1", 3, 11.0)
    router.multicast(says("after", 11.0), True, "n2", 3, 11.0)
    router.answer(says("asked", 8.0), True, "i", 11.0)
    router.answer(says("of another", 8.0), True, "gone", 11.0)
    assert delivered(sent) == [("i", "after"), ("i", "asked")]


def test_the_pending_flag_is_on_once():
    router, sent = a_router()
    router.upload(says("p"), 1.0)
    router.interest(asks("i"), 4)
    router.interest(asks("j"), 5)
    assert [one[4] for one in sent.take()] == [True, False]


def test_what_is_listed_or_too_old_is_not_selected():
    router, sent = a_router()
    router.upload(says("p", 1.0), 1.0)
    router.upload(says("q", 5.0), 5.0)
    router.interest(asks("i", 2, listed=("q",), oldest=2.0), 4)
    assert kinds(sent) == ["advertise"]


def test_a_known_interest_is_dropped():
    router, sent = a_router()
    router.interest(asks("i"), 4)
    sent.take()
    router.interest(asks("i"), 5)
    assert router.register(asks("i"), 1.0) is None
    assert sent.take() == []


def test_an_upload_goes_to_all_who_wait_once():
    router, sent = a_router()
    for name, interface in (("a", 1), ("b", 2), ("c", 2), ("d", LOCAL)):
        if interface == LOCAL:
            router.register(asks(name), 0.0)
        else:
            router.interest(asks(name), interface)
    sent.take()
    router.upload(says("p"), 1.0)
    deliver, overload, multicast = sent.take()
    assert (deliver[0], overload) == ("deliver", ("overload", "d", LOCAL))
    assert multicast[1] == (1, 2)
    router.upload(says("p"), 2.0)
    assert kinds(sent) == ["drop"]


def test_a_multicast_passes_once_and_not_back():
    router, sent = a_router()
    router.interest(asks("a", 5), 1)
    router.interest(asks("b", 5), 2)
    sent.take()
    router.multicast(says("p"), True, "n", 1, 1.0)
    router.multicast(says("p"), True, "n", 2, 1.0)
    (only,) = sent.take()
    assert only[:2] == ("multicast", (2,))


def test_an_answer_for_nobody_is_kept_if_it_is_its_first_way_out():
    router, sent = a_router()
    router.answer(says("p"), True, "gone", 1.0)
    router.answer(says("q"), False, "gone", 1.0)
    assert router.cache.get("p").place.table.name == "OVERFLOWING"
    assert [(one[0], one[1].id) for one in sent.take()] == [("drop", "q")]


def test_in_network_dropping_looks_at_answers_alone():
    router, sent = a_router()
    router.upload(says("p"), 1.0)
    router.interest(asks("a"), 1)
    router.interest(asks("b"), 2)
    sent.take()
    router.answer(says("p"), False, "a", 1.0)
    assert kinds(sent) == ["drop"]
    router.multicast(says("p"), False, "n", 1, 1.0)
    assert kinds(sent) == ["multicast"]


def test_an_overload_ends_the_state_and_goes_on_once():
    router, sent = a_router()
    router.interest(asks("a"), 1)
    sent.take()
    router.overload("a", 1, 1.0)
    router.overload("a", 2, 1.0)
    router.overload("unknown", 2, 1.0)
    assert sent.take() == [("overload", "a", 1)]
    router.upload(says("p"), 1.0)
    assert sent.take() == []


def test_an_overload_counts_on_the_way_of_its_interest_alone():
    router, sent = a_router()
    router.interest(asks("a"), 1)
    sent.take()
    router.overload("a", 2, 1.0)
    assert sent.take() == []
    router.upload(says("p"), 1.0)
    assert kinds(sent) == ["multicast"]


def test_nobody_else_can_end_a_receivers_interest():
    router, sent = a_router()
    router.register(asks("a"), 1.0)
    sent.take()
    router.overload("a", 1, 1.0)
    assert sent.take() == []
    router.upload(says("p"), 1.0)
    assert kinds(sent) == ["deliver", "overload"]


def test_a_receiver_that_leaves_early_says_so():
    router, sent = a_router()
    router.register(asks("a", deadline=10.0), 1.0)
    router.register(asks("b", deadline=10.0), 1.0)
    sent.take()
    assert router.finish("a", 5.0).missing == 1
    assert sent.take() == [("overload", "a", LOCAL)]
    router.finish("b", 10.0)
    assert sent.take() == []
    assert router.finish("b", 10.0) is None


def test_interests_beyond_the_bound_are_refused():
    router, sent = a_router(interests_max=1)
    router.interest(asks("a"), 1)
    router.interest(asks("b"), 1)
    assert kinds(sent) == ["advertise"]
    assert router.register(asks("c"), 1.0) is None
    assert router.pending.refused == 2


def test_nonces_are_bounded():
    router, sent = a_router(nonces_max=2)
    router.interest(asks("a", 9), 1)
    for nonce in ("n1", "n2", "n3", "n1"):
        router.multicast(says(nonce), True, nonce, 2, 1.0)
    assert kinds(sent) == ["advertise"] + 4 * ["multicast"]


# Delayed push.


def test_a_push_waits_for_the_nearest_deadline():
    router, sent = a_router(dissemination="delayed push", push_margin=1.0)
    router.interest(asks("a", deadline=30.0), 1)
    router.interest(asks("b", deadline=20.0), 2)
    sent.take()
    router.upload(says("p"), 5.0)
    assert sent.take() == [("schedule", "p", 19.0)]
    router.push("p", 19.0)
    (multicast,) = sent.take()
    assert (multicast[1], multicast[3]) == ((1, 2), True)
    router.push("p", 20.0)
    assert sent.take() == []


def test_a_push_that_was_pulled_before_has_the_flag_off():
    router, sent = a_router(dissemination="delayed push")
    router.interest(asks("a", deadline=20.0), 1)
    router.upload(says("p"), 5.0)
    router.interest(asks("b"), 2)
    sent.take()
    router.push("p", 19.0)
    assert sent.take()[0][3] is False


def test_a_push_whose_time_has_passed_is_now_and_one_that_is_evicted_too():
    router, sent = a_router(dissemination="delayed push", cache_size=1)
    router.interest(asks("a", 2, deadline=5.5), 1)
    sent.take()
    router.upload(says("p", 5.0), 5.0)
    assert sent.take() == [("schedule", "p", 5.0)]
    router.upload(says("q", 5.1), 5.1)
    assert [one[0] for one in sent.take()] == ["multicast", "schedule"]


def test_flushing_hands_what_was_never_sent_to_a_neighbour():
    router, sent = a_router(cache_size=1, flushing=True)
    router.upload(says("p", 1.0), 1.0)
    router.upload(says("q", 2.0), 2.0)
    assert [(one[0], one[1].id) for one in sent.take()] == [("flush", "p")]
    other, there = a_router(cache_size=1)
    other.flushed(says("p", 1.0))
    other.flushed(says("r", 1.0))
    assert [one.publication.id for one in other.cache] == ["p"]
    assert kinds(there) == ["drop"]


@pytest.mark.parametrize(
    "wrong", [{"cache_size": -1}, {"interests_max": 0}, {"nonces_max": 0}, {"linger": -1.0}, {"probes": -1}]
)
def test_rules_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        MediationRules(**wrong)


def test_an_index_of_ones_own_is_used_even_while_it_is_empty():
    class Index(dict):
        def add(self, interest, interface):
            self[interest.id] = (interface, interest)

        def remove(self, interest, interface):
            del self[interest.id]

        def matching(self, publication):
            return [(interface, [interest]) for interface, interest in self.values()]

    sent, index = Sent(), Index()
    router = MediationRouter(MediationRules(), sent, index=index)
    router.interest(asks("a"), 1)
    router.interest(asks("b"), 1)
    assert list(index) == ["a", "b"]
    router.upload(says("p"), 1.0)
    assert sent.take()[-1][:2] == ("multicast", (1,))


# Freshness (E1).


def test_the_two_rules_of_freshness():
    rule = {"now": 100.0, "lifetime": 20.0}
    assert oldest_upload("before request", freshness=50.0, **rule) == 50.0
    assert oldest_upload("printed", freshness=50.0, **rule) == pytest.approx(70.0)
    assert oldest_upload("printed", freshness=50.0, **rule) > 70.0
    for name in ("before request", "printed"):
        assert oldest_upload(name, freshness=0.0, **rule) == 100.0


# A chain that moves to another home.


def test_after_a_move_only_what_the_old_home_cannot_have_delivered_counts():
    net = RetrievalNetwork(ROW, rules=MediationRules())
    net.register(0, asks("first", 2))
    net.register(3, asks("other", 1))
    net.upload(1, says("p", 0.0))  # goes to both homes
    net.upload(3, says("q", 0.0))
    assert net.got("first") == ["p", "q"]
    net.finish(0, "first")
    net.upload(2, says("seen here", 0.0))
    net.register(2, asks("full", 1))
    net.upload(2, says("unseen", 0.0))
    net.register(3, asks("moved", 9, refreshed=True, moved_at=1.0))
    assert net.got("moved") == ["unseen"]
    net.upload(1, says("later", 2.0))
    net.upload(0, says("too late for an old one", 0.5))
    assert net.got("moved") == ["unseen", "later"]


# Cursors.


def test_a_cursor_makes_what_others_used_readable_once():
    for cursors, got in ((True, ["p", "q"]), (False, [])):
        net = RetrievalNetwork(ROW, rules=MediationRules(cursors=cursors))
        net.register(0, asks("first", 1))
        net.upload(1, says("o"))
        box = net.finish(0, "first")
        net.register(0, asks("other", 2, oldest=1.0))
        net.upload(1, says("p", 1.0))
        net.upload(0, says("q", 1.0))
        net.register(0, asks("second", 9, refreshed=True, cursor=box.cursor))
        assert net.got("second") == got
        assert net.got("first") == ["o"]


def test_what_came_with_the_flag_off_may_have_been_here_before():
    net = RetrievalNetwork(ROW, rules=MediationRules(cursors=True))
    net.register(0, asks("first", 1))
    net.upload(1, says("p"))
    box = net.finish(0, "first")
    net.routers[0].cache.remove("p")
    net.register(0, asks("other", 1))  # brings it back
    net.register(0, asks("second", 9, refreshed=True, cursor=box.cursor))
    assert (net.got("other"), net.got("second")) == (["p"], [])


# Probes.


def test_neighbours_are_asked_one_by_one_before_all():
    net = RetrievalNetwork(((0, 1), (0, 2), (0, 3)), rules=MediationRules(probes=2, probe_wait=0.2))
    net.upload(1, says("p"))
    net.upload(2, says("q"))
    net.upload(3, says("r"))
    net.register(0, asks("i", 3))
    assert net.got("i") == ["p"]
    net.at(0.2)
    assert net.got("i") == ["p", "q"]
    assert net.messages["interest"] == 2
    net.at(0.4)
    assert net.got("i") == ["p", "q", "r"]
    net.register(0, asks("j", 9, oldest=1.0))
    assert net.messages["interest"] == 6  # three in the flood, and one probe


def test_a_budgeted_flood_asks_each_branch_for_its_share():
    net = RetrievalNetwork(((0, 1), (0, 2)), rules=MediationRules(budgeted=True))
    for router in (1, 2):
        for number in range(4):
            net.upload(router, says((router, number)))
    net.register(0, asks("i", 4))
    assert sorted(router for router, _ in net.got("i")) == [1, 1, 2, 2]


RING = ((0, 1), (1, 2), (2, 3), (3, 0))


@pytest.mark.parametrize(("addressed", "copies"), [(False, 5), (True, 3)])
def test_an_addressed_multicast_brings_each_home_one_copy(addressed, copies):
    """By nonces alone the copies of both ways round the ring meet (004 section 3.3.5)."""
    net = RetrievalNetwork(RING, rules=MediationRules(addressed=addressed))
    for home in (1, 2, 3):
        net.register(home, asks(home, 2))
    net.upload(0, says("p"))
    assert [net.got(home) for home in (1, 2, 3)] == [["p"]] * 3
    assert net.messages["multicast"] == copies


def test_an_addressed_copy_goes_to_those_alone_whom_it_names():
    net = RetrievalNetwork(ROW, rules=MediationRules(addressed=True))
    net.register(3, asks("far", 2))
    net.routers[0].upload(says("p"), 0.0)
    net.start(0)
    net.routers[2].register(asks("late", 2), 0.0)  # its interest has not reached the first router
    net.homes["late"] = 2
    while net.flying:
        net.step()
    assert (net.got("far"), net.got("late")) == (["p"], ["p"])  # it passes there
    assert net.messages["multicast"] == 3


def test_an_addressed_multicast_that_comes_back_to_its_first_router_ends_there():
    """Ways that faults bent may go round: an interest that a former life passed on is heard from the other side."""
    sent = Sent()
    rules = MediationRules(addressed=True)
    router = MediationRouter(rules, sent, nonces=lambda: "nonce", home_of=lambda interest: "home")
    router.interest(asks("far", 2), 1)
    router.upload(says("p"), 0.0)
    assert ("multicast", (1,), ANY, ANY, AddressedNonce("nonce", ("home",))) in sent.take()
    router.multicast(says("p"), False, AddressedNonce("nonce", ("home",)), 2, 0.0)
    assert "multicast" not in kinds(sent)


def test_whoever_answered_before_is_asked_first():
    net = RetrievalNetwork(((0, 1), (0, 2)), rules=MediationRules(probes=1, probe_wait=0.2, cache_size=1))
    net.upload(2, says("p"))
    net.register(0, asks("i", 1))
    net.at(0.2)
    assert net.got("i") == ["p"]
    net.upload(2, says("q", 1.0))
    net.register(0, asks("j", 1, oldest=1.0))
    assert net.got("j") == ["q"]


# Req 1 on random networks, links that deliver in any order, moves.


SHAPES = [
    {"dissemination": "overload notification"},
    {"dissemination": "delayed push"},
    {"dissemination": "delayed push", "en_route": True, "cache_size": 3},
    {"en_route": True, "duplicates": "none"},
    {"cache_size": 4, "flushing": True},
    {"cursors": True, "cache_size": 4},
    {"cursors": True, "probes": 2, "budgeted": True},
    {"remembers": True, "left_max": 100, "cache_size": 4},
    {"remembers": True, "left_max": 5, "cursors": True, "cache_size": 3, "together": True, "flood_wait": 0.4},
    {
        "remembers": True,
        "left_max": 50,
        "cursors": True,
        "patience": 0.5,
        "together": True,
        "probes": 2,
        "budgeted": True,
    },
    {"remembers": True, "left_max": 50, "addressed": True, "together": True, "cache_size": 0, "had_max": 3},
    {"cursors": True, "dissemination": "delayed push"},
    {"addressed": True, "cache_size": 4},
    {"addressed": True, "cursors": True, "cache_size": 6},
    {"addressed": True, "dissemination": "delayed push", "en_route": True},
]


@pytest.mark.parametrize("seed", range(60))
def test_no_chain_gets_anything_twice(seed):
    random = Random(f"Req 1 {seed}")
    names = range(random.randrange(2, 7))
    links = [(random.randrange(name), name) for name in names if name]
    links += [pair for pair in ((random.choice(names), random.choice(names)) for _ in names) if pair[0] != pair[1]]
    policy = random.choice(list(CONFIGURATIONS))
    rules = MediationRules(policy=policy, **({"cache_size": 10} | random.choice(SHAPES)))
    net = RetrievalNetwork(links, rules=rules, seed=seed)
    chains = {chain: Chain(chain, random.randrange(len(net.routers)), random) for chain in range(4)}
    for step in range(150):
        net.at(net.now + random.random())
        for chain in chains.values():
            chain.step(net)
        net.upload(random.randrange(len(net.routers)), says(step, net.now, random.randrange(2)))
    counted = Counter((interest[0], publication) for interest, publication in net.delivered)
    assert counted, f"nothing was delivered; replay: pytest -k 'twice and {seed}'"
    assert max(counted.values()) == 1, f"replay: pytest tests/unit/retrieval/test_mediation.py -k 'twice and {seed}'"
    per_lifetime = Counter(interest for interest, _ in net.delivered)
    assert all(number <= chains[chain].max for (chain, _), number in per_lifetime.items())
    assert all(len(router.cache) <= rules.cache_size for router in net.routers.values())


class Chain:
    """A receiver that refreshes its interest, and sometimes moves."""

    def __init__(self, name: int, home: int, random: Random) -> None:
        self.name, self.home, self.random = name, home, random
        self.lifetime = 0
        self.ends = 0.0
        self.max = random.randrange(1, 6)
        self.shelf = random.randrange(2)
        self.moved_at = float("-inf")
        self.cursor = 0

    def step(self, net: RetrievalNetwork) -> None:
        moves = self.lifetime and self.random.random() < 0.03
        if net.now < self.ends and not moves:
            return
        if self.lifetime:
            self.cursor = net.finish(self.home, (self.name, self.lifetime)).cursor
        if moves:
            self.home = self.random.randrange(len(net.routers))
            self.moved_at = net.now
            self.cursor = 0
        self.lifetime += 1
        self.ends = net.now + 1.0 + 5.0 * self.random.random()
        freshness = self.random.choice((0.0, 3.0, 20.0))
        net.register(
            self.home,
            asks(
                (self.name, self.lifetime),
                self.max,
                deadline=self.ends,
                oldest=oldest_upload("before request", now=net.now, lifetime=1.0, freshness=freshness),
                refreshed=self.lifetime > 1,
                moved_at=self.moved_at,
                shelf=self.shelf,
                cursor=self.cursor,
            ),
        )


def test_a_push_that_makes_room_for_a_publication_may_satisfy_those_it_was_for():
    router, sent = a_router(cache_size=1, dissemination="delayed push")
    router.interest(asks("i", 1, deadline=20.0), 4)
    router.upload(says("p"), 1.0)
    router.upload(says("q"), 1.0)  # p leaves the cache, and goes to the interest
    assert [one[0] for one in sent.take() if one[0] in ("schedule", "multicast")] == ["schedule", "multicast"]
    assert "q" in router.cache
