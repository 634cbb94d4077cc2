"""What 004 says about its routers, claim by claim: sections 3.2, 3.3 and 4.2, Figures 3 and 6 to 10, Tables 1 and 2."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest

from penstock.lab.fast.news_workload import INTERESTS_AT, NewsWorkload
from penstock.lab.fast.setting import TICKS, NewsSetting
from penstock.retrieval.forwarding import score
from penstock.retrieval.interest import EVERYTHING, LOCAL, oldest_upload
from penstock.retrieval.rules import MediationRules
from penstock.retrieval.selection import CONFIGURATIONS, configuration
from retrieval_network import RetrievalNetwork, asks, says

ROW = ((0, 1), (1, 2))
DAY = 86_400.0


def a_row(**rules) -> RetrievalNetwork:
    """Three routers: P, Q and C in a row, 0, 1 and 2."""
    return RetrievalNetwork(ROW, rules=MediationRules(**rules))


# Section 3.2: the service model, Figure 3 and Table 1.


def test_freshness_0_selects_future_publications_alone():
    """Section 3.2, Figure 3: as with an ordinary subscription."""
    net = a_row()
    net.upload(0, says("before", 0.0))
    net.at(10.0)
    net.register(2, asks("i", 9, oldest=oldest_upload("printed", now=10.0, lifetime=20.0, freshness=0.0)))
    net.upload(0, says("after", 10.0))
    assert net.got("i") == ["after"]


def test_a_loose_subscription_selects_past_and_future_ones():
    """Section 3.2, Figure 3."""
    net = a_row()
    net.upload(0, says("before", 0.0))
    net.at(10.0)
    net.register(2, asks("i", 9, oldest=oldest_upload("printed", now=10.0, lifetime=20.0, freshness=50.0)))
    net.upload(0, says("after", 10.0))
    assert net.got("i") == ["before", "after"]


def test_a_request_without_a_lifetime_selects_what_is_there():
    """Section 3.2: an interest with lifetime 0 asks for what the network has now."""
    net = a_row()
    net.upload(0, says("before", 0.0))
    net.at(10.0)
    net.register(2, asks("i", 9, deadline=10.5))
    net.at(10.6)
    net.upload(0, says("after", 10.6))
    assert net.got("i") == ["before"]


def test_at_most_max_are_delivered_in_a_lifetime():
    """Section 3.2: max bounds what comes before the lifetime ends."""
    net = a_row()
    net.register(2, asks("i", 2))
    for number in range(5):
        net.upload(0, says(number))
    assert net.got("i") == [0, 1]


def test_a_publication_is_young_enough_at_the_end_of_the_service_period():
    """Section 3.2, the printed rule (E1): the age is less than freshness when the lifetime ends."""
    net = a_row()
    net.upload(0, says("29 old", 1.0))
    net.upload(0, says("30 old", 0.0))
    net.at(30.0)
    net.register(2, asks("i", 9, oldest=oldest_upload("printed", now=30.0, lifetime=20.0, freshness=50.0)))
    assert net.got("i") == ["29 old"]


@pytest.mark.parametrize(
    ("wanted", "lifetime", "freshness", "got"),
    [
        (EVERYTHING, 7 * DAY, 0.0, [*range(12, 24)]),  # notification services
        (10, DAY, DAY, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]),  # news alerting: the freshest of those in the cache
        (EVERYTHING, DAY, inf, [*range(11, -1, -1), *range(12, 24)]),  # content retrieval
    ],
)
def test_the_three_applications_of_table_1(wanted, lifetime, freshness, got):
    """Table 1. Twelve publications are there, and twelve come later."""
    net = a_row()
    for number in range(12):
        net.upload(0, says(number, float(number)))
    net.at(3_600.0)
    oldest = oldest_upload("before request", now=net.now, lifetime=lifetime, freshness=freshness)
    net.register(2, asks("i", wanted, deadline=net.now + lifetime, oldest=oldest))
    for number in range(12, 24):
        net.upload(0, says(number, net.now))
    assert net.got("i") == got


def test_req_1_a_refreshed_interest_gets_nothing_again():
    """Section 3.2, Req 1."""
    net = a_row()
    net.register(2, asks("first", 9))
    net.upload(0, says("p"))
    net.upload(2, says("q"))
    net.finish(2, "first")
    net.upload(1, says("r"))
    net.register(2, asks("second", 9, refreshed=True))
    net.upload(0, says("s"))
    assert net.got("first") == ["p", "q"]
    assert net.got("second") == ["r", "s"]


# Section 3.3.1: Figure 6, the life cycle, step by step in a network.


def test_figure_6_a_pending_publication_used_at_home_stays_pending():
    """Figure 6, alpha: selected by a local interest, the dispatched flag goes on."""
    net = a_row()
    net.upload(0, says("p"))
    assert net.places("p") == {0: "pending"}
    net.register(0, asks("i"))
    assert net.places("p") == {0: "pending used"}


def test_figure_6_a_pending_publication_used_elsewhere_overflows():
    """Figure 6, beta, gamma and delta."""
    net = a_row()
    net.upload(0, says("p"))
    net.register(2, asks("i"))
    assert net.places("p") == {0: "overflowing", 2: "disseminated"}
    net.register(1, asks("j"))
    assert net.places("p")[0] == "overflowing"
    net.register(0, asks("k"))
    assert net.places("p")[0] == "disseminated"


def test_figure_6_a_used_pending_publication_is_disseminated_when_it_leaves():
    """Figure 6, mu."""
    net = a_row()
    net.upload(0, says("p"))
    net.register(0, asks("i"))
    net.register(2, asks("j"))
    assert net.places("p")[0] == "disseminated"


# Figure 7: arrivals.


def test_figure_7_uploads():
    """Figure 7: alpha-beta-mu, alpha-gamma-mu and alpha-delta for uploaded publications."""
    net = a_row()
    net.upload(0, says("nobody"))
    net.register(0, asks("local", 1, oldest=1.0))
    net.upload(0, says("local only", 1.0))
    net.register(2, asks("remote", 9, oldest=2.0))
    net.upload(0, says("remote only", 2.0))
    net.register(0, asks("again", 9, oldest=3.0))
    net.upload(0, says("both", 3.0))
    found = {name: net.places(name)[0] for name in ("nobody", "local only", "remote only", "both")}
    assert found == {
        "nobody": "pending",
        "local only": "pending used",
        "remote only": "overflowing",
        "both": "disseminated",
    }


def test_figure_7_what_was_not_needed_any_more_overflows():
    """Figure 7, alpha-gamma: the pending flag is on and the local interests it fits are satisfied."""
    net = a_row()
    net.register(2, asks("i", 1))
    net.routers[0].upload(says("p"), 0.0)
    net.routers[0].upload(says("q"), 0.0)  # before the overload notification arrives
    net.settle(0)
    assert net.got("i") == ["p"]
    assert (net.places("p")[2], net.places("q")[2]) == ("disseminated", "overflowing")
    net.finish(2, "i")
    net.register(2, asks("j", 1, refreshed=True))
    assert net.got("j") == ["q"]


@pytest.mark.parametrize(("en_route", "place"), [(True, "overflowing"), (False, None)])
def test_figure_7_en_route_caching(en_route, place):
    """Figure 7 and 3.3.2: a router on the way caches what passes only with NRT."""
    net = a_row(en_route=en_route)
    net.upload(0, says("p"))
    net.register(2, asks("i"))
    assert net.places("p").get(1) == place


# Section 3.3.2: Table 2.


def test_table_2_has_eight_configurations():
    """Table 2."""
    assert len(CONFIGURATIONS) == 8
    for name in CONFIGURATIONS:
        assert configuration(name).name == name


def test_pending_publications_first_serves_what_was_never_sent():
    """Section 3.3.2: the order of PPF is pending, overflowing, disseminated."""
    for policy, first in (("PPF", "pending"), ("DPF", "sent")):
        net = a_row(policy=policy)
        net.upload(0, says("sent", 2.0))
        net.register(2, asks("i"))
        net.upload(0, says("pending", 1.0))
        net.register(1, asks("j", 1))
        assert net.got("j") == [first]


# Section 3.3.3: interests, Figure 8.


def test_figure_8_a_bad_selection_starves_an_interest():
    """Figure 8: three publications fit, the far router sends one that the near one sent already. Without PDD."""
    for duplicates, got in (("none", 2), ("proactive", 3)):
        net = a_row(duplicates=duplicates, policy="MF")
        net.upload(0, says("c5", 1.0))
        net.upload(0, says("c4", 2.0))
        net.register(1, asks("before", 1))  # router 1 holds c4 now
        net.upload(1, says("c1", 3.0))
        net.routers[1].cache.size = 2
        net.register(2, asks("i", 3))
        assert len(net.got("i")) == got


def test_max_decreases_on_the_way_and_a_satisfied_interest_goes_no_further():
    """Section 3.3.3: what was answered on the way is not asked for again."""
    net = a_row()
    net.upload(1, says("p"))
    net.upload(0, says("q", 1.0))
    net.upload(0, says("r", 2.0))
    net.register(2, asks("i", 2))
    assert sorted(net.got("i")) == ["p", "r"]
    net.register(2, asks("j", 2))
    assert net.messages["interest"] == 2


def test_an_interest_is_advertised_once_on_a_cycle():
    """Section 3.3.3: a router knows an interest again by its identifier."""
    net = RetrievalNetwork(((0, 1), (1, 2), (2, 0)), rules=MediationRules())
    net.register(0, asks("i"))
    assert net.messages["interest"] == 4  # two from home, one from each of the others
    net.upload(1, says("p"))
    assert net.got("i") == ["p"]


# Section 3.3.4: dissemination, Figure 9.


def test_figure_9_an_overload_notification_ends_the_interest_everywhere():
    """Section 3.3.4 and Figure 9: push/pull with explicit overload notification."""
    net = a_row()
    net.register(2, asks("i", 1))
    net.upload(0, says("p"))
    assert net.got("i") == ["p"]
    assert net.messages["overload"] == 2
    net.upload(0, says("q"))
    assert net.messages["multicast"] == 2  # those of p
    assert net.places("q") == {0: "pending"}


def test_pull_delayed_push_waits_and_sends_no_notification():
    """Section 3.3.4, (3): t_P = t_0 + min deadline - beta."""
    net = a_row(dissemination="delayed push", push_margin=1.0)
    net.register(2, asks("i", 1, deadline=20.0))
    net.upload(0, says("p"))
    net.at(18.9)
    assert net.got("i") == []
    net.at(19.0)
    assert net.got("i") == ["p"]
    assert "overload" not in net.messages


def test_a_delayed_push_goes_to_interests_that_are_not_yet_satisfied():
    """Section 3.3.4; no notification tells who is satisfied, so routers count what has gone towards an interest."""
    net = a_row(dissemination="delayed push", push_margin=1.0)
    net.register(2, asks("i", 2, deadline=20.0))
    for name in "pqrs":
        net.upload(0, says(name))
    net.at(20.0)
    assert len(net.got("i")) == 2
    assert [net.places(name)[0] for name in "pqrs"].count("pending") == 2


def test_a_delayed_push_that_was_pulled_is_no_news_for_refreshed_interests():
    """Section 3.3.4: its pending flag is off then, and E7: a refreshed interest refuses it."""
    net = a_row(dissemination="delayed push")
    net.register(2, asks("first", 1, deadline=5.0, oldest=1.0))
    net.upload(0, says("p", 1.0))  # scheduled for 4
    net.at(2.0)
    net.finish(2, "first")
    net.register(2, asks("second", 1, deadline=40.0))
    assert net.got("second") == ["p"]  # pulled
    net.finish(2, "second")
    net.routers[2].cache.remove("p")
    net.register(2, asks("third", 1, deadline=40.0, refreshed=True))
    net.at(10.0)
    assert net.got("third") == []


# Section 3.3.5: forwarding.


def test_an_answer_goes_back_on_the_way_of_its_interest_alone():
    """Section 3.3.5: unicast delivery takes the reverse path and no other."""
    net = RetrievalNetwork(((0, 1), (1, 2), (1, 3)), rules=MediationRules())
    net.upload(0, says("p"))
    net.register(2, asks("i", 2))
    net.register(3, asks("j", 1, oldest=1.0))
    assert net.messages["answer"] == 2


def test_a_multicast_sends_one_copy_to_each_neighbour_with_recipients():
    """Section 3.3.5: multicast delivery, duplicates found by nonce."""
    net = RetrievalNetwork(((0, 1), (1, 2), (1, 3), (2, 3), (1, 4)), rules=MediationRules())
    for number in range(3):
        net.register(2, asks(("at 2", number)))
        net.register(3, asks(("at 3", number)))
    net.upload(0, says("p"))
    assert net.messages["multicast"] == 5  # 2 and 3 send it to each other too, and know the nonce
    assert len(net.delivered) == 6


# Section 3.3.6: CBF, IDD and PDD, Figure 10.


def test_the_score_gives_priority_to_popular_and_urgent_publications():
    """(4)."""
    assert score([10.0, 20.0, 40.0], now=0.0) == pytest.approx(0.3)
    assert score([40.0], now=0.0) < score([10.0], now=0.0) < score([10.0, 20.0], now=0.0)


def test_figure_10_a_router_that_cached_nothing_cannot_detect_a_duplicate():
    """Figure 10: the router between passes c2, caches it not, and passes it again from further away."""
    net = RetrievalNetwork(((0, 1), (1, 2), (2, 3)), rules=MediationRules(duplicates="in network"))
    net.upload(0, says("c2", 1.0))
    net.register(2, asks("at 2", 1))  # routers 0 and 2 have c2, router 1 passed it
    net.routers[2].cache.remove("c2")
    net.upload(1, says("c1", 0.0))
    net.register(1, asks("at 1", 2))
    before = net.messages["answer"]
    net.register(3, asks("i", 3))
    assert sorted(net.got("i")) == ["c1", "c2"]
    assert net.messages["answer"] - before >= 4


@pytest.mark.parametrize(("duplicates", "answers"), [("none", 3), ("in network", 3), ("proactive", 1), ("both", 1)])
def test_proactive_dropping_removes_duplicates_on_a_branch(duplicates, answers):
    """Section 3.3.6: on a branch nothing comes twice."""
    net = a_row(duplicates=duplicates)
    net.upload(0, says("p"))
    net.register(1, asks("before"))
    before = net.messages["answer"]
    net.register(2, asks("i", 2))
    assert net.got("i") == ["p"]
    if duplicates == "in network":
        answers = 2  # the one of router 0 is dropped at router 1
    assert net.messages["answer"] - before == answers


def test_local_interests_have_no_interface():
    """Section 3.3.1: a local interest is one registered by a local receiver."""
    net = a_row()
    net.register(2, asks("i"))
    assert net.routers[2].pending.get("i")[1] == LOCAL
    assert net.routers[0].pending.get("i")[1] == 1


# Section 4.2: the workload.


def test_events_come_by_equal_chances_until_their_volume_is_reached():
    """4.2: for each publication or interest an event is selected at random; one whose volume is reached is removed."""
    setting = NewsSetting()
    workload = NewsWorkload(setting, 1)
    events = [[topic // setting.topics for _, topic in workload.uploads(unit * TICKS)] for unit in range(setting.units)]
    first = Counter(event for unit in events[:5] for event in unit)
    assert len(first) == setting.events
    assert max(first.values()) < 2 * 5 * 500 / setting.events
    assert set(events[-1]) == {0}
    whole = Counter(event for unit in events for event in unit)
    assert [whole[0], whole[1]] == [15_000, 5_000]


def test_a_thousand_new_interests_come_in_each_unit_and_refreshed_ones_on_top():
    """4.2: "every time unit, 500 new publications are uploaded followed by the generation of 1000 new interests"."""
    plain = NewsWorkload(NewsSetting(), 1)
    assert [len(plain.new_requests(INTERESTS_AT, renewed)) for renewed in (0, 400, 1_000)] == [1_000] * 3
    assert len(plain.uploads(0)) == 500


def test_read_otherwise_refreshed_interests_are_some_of_the_thousand():
    """4.2: S/T interests arrive, and each lifetime is one with an identifier of its own (3.3.3); told, not gated."""
    other = NewsWorkload(NewsSetting(counts_refreshed=True), 1)
    assert [len(other.new_requests(INTERESTS_AT, renewed)) for renewed in (0, 400, 1_000)] == [1_000, 600, 0]
