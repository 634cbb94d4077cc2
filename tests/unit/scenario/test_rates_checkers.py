"""The checkers of fair rates on small stories told by hand."""

from __future__ import annotations

import pytest

from penstock.content.message import Identity, make_message
from penstock.kernel.trace import Dropped
from penstock.overlay.packets import Publication
from penstock.rates.records import ReaderThinned, Thinned
from penstock.scenario.rates_checkers import NoHunger, OnTheWay, ReadersAreTold, WithheldIsCounted
from penstock.scenario.spec import BrokerSpec, ClientSpec, LinkSpec, Scenario

LINE = (("a", "b"), ("b", "c"), ("b", "d"))


def scenario(*, links=LINE, costs=()):
    return Scenario(
        name="a story",
        duration=60.0,
        settled_after=5.0,
        settle=1.0,
        broker=tuple(BrokerSpec(name=name) for name in "abcd"),
        link=tuple(LinkSpec(between=pair, cost=dict(costs).get(pair, 1)) for pair in links),
        client=(ClientSpec(name="p", broker="a"), ClientSpec(name="r", broker="c")),
    )


def record(*, origin=1, neighbour=2, destination=2, messages=1):
    return Thinned("p", origin, neighbour, destination, messages, 100 * messages, 0.0)


def message(count):
    return make_message(Identity("p", 1, count), {"x": count})


def copy(count):
    return Publication(message=message(count), destinations=(2,), hops_left=9)


@pytest.mark.parametrize(
    ("broker", "changed", "problem"),
    [
        ("a", {}, ""),
        ("a", {"origin": 0, "neighbour": 1}, ""),
        ("b", {}, "its home is a"),
        ("a", {"neighbour": 3}, "not on the way there"),
        ("a", {"origin": 2, "neighbour": 1}, "not on the way there"),
        ("a", {"origin": 0, "neighbour": 2}, "which is not there"),
    ],
)
def test_a_destination_is_thinned_by_its_home_and_for_a_link_on_its_way(broker, changed, problem):
    checker = OnTheWay(scenario())
    checker.thinned(1.0, broker, record(**changed))
    assert problem in " ".join(checker.problems)
    assert bool(checker.problems) is bool(problem)


def test_in_a_mesh_the_shortest_ways_count_once_it_has_settled():
    checker = OnTheWay(scenario(links=(*LINE, ("a", "c")), costs={("a", "c"): 2}))
    checker.thinned(6.0, "a", record(origin=0, neighbour=2))
    checker.thinned(6.0, "a", record())
    checker.thinned(1.0, "a", record(neighbour=3))
    assert not checker.problems, "both ways cost two; before it has settled nobody can say"
    checker.thinned(6.0, "a", record(neighbour=3))
    assert checker.problems


def told(*, came=(), dropped=(), thinned=0, wanted="x > 0"):
    checker = WithheldIsCounted(scenario())
    checker.subscribed(0.0, "r", 0, wanted)
    for count in range(1, 5):
        checker.published(10.0 + count, "p", message(count))
    for count in came:
        checker.arrived(20.0, 2, copy(count))
    for count in dropped:
        checker.dropped(20.0, Dropped("pipe", "queue full", "b", 5, "Publication", "p", 1, count, 1))
    if thinned:
        checker.thinned(21.0, "a", record(messages=thinned))
    checker.finish()
    return checker.problems


def test_what_was_due_came_ended_or_was_counted():
    assert not told(came=(1, 2, 3, 4))
    assert not told(came=(1, 2), dropped=(3,), thinned=1)
    assert not told(wanted="x > 4")


def test_less_or_more_than_was_withheld_is_a_problem():
    assert "2 messages of p were neither delivered nor dropped; 1 are counted" in told(came=(1, 2), thinned=1)[0]
    assert "3 messages of p are counted as withheld from broker 2; 2 did not come" in told(came=(1, 2), thinned=3)[0]
    assert told(wanted="x > 4", thinned=1), "nobody wanted any of them"


def reader_told(*, delivered=(), dropped=(), withheld=0):
    checker = ReadersAreTold(scenario())
    checker.subscribed(0.0, "r", 0, "x > 0")
    for count in range(1, 5):
        checker.published(10.0 + count, "p", message(count))
        if count < 4:
            checker.arrived(20.0, 2, copy(count))
    for count in delivered:
        checker.delivered(20.0, "r", 0, message(count))
    for count in dropped:
        checker.dropped(20.0, Dropped("egress", "queue full", "r", 5, "Delivery", "p", 1, count, 1))
    if withheld:
        checker.reader_thinned(21.0, "c", ReaderThinned("r", 0, withheld, 20.0))
    checker.finish()
    return checker.problems


def test_what_came_to_its_broker_reached_the_reader_or_was_counted():
    assert not reader_told(delivered=(1, 2, 3)), "the fourth never came to its broker"
    assert not reader_told(delivered=(1,), dropped=(2,), withheld=1)
    assert "2 messages at its broker never reached" in reader_told(delivered=(1,), withheld=1)[0]
    assert "2 messages are counted as withheld" in reader_told(delivered=(1, 2), withheld=2)[0]


def hunger(every, served, read=lambda count: True):
    checker = NoHunger(scenario())
    checker.subscribed(0.0, "r", 0, "x > 0")
    for count in range(1, int(40 / every)):
        checker.published(10.0 + count * every, "p", message(count))
        if served(count):
            checker.arrived(11.0 + count * every, 2, copy(count))
            if read(count):
                checker.delivered(11.0 + count * every, "r", 0, message(count))
    checker.finish()
    return checker.problems


def test_who_gets_something_through_now_and_then_is_not_shut_out():
    assert not hunger(1.0, lambda count: count % 9 == 0)
    assert len(hunger(1.0, lambda count: count < 10)) == 1
    assert not hunger(8.0, lambda count: False), "too few to say"


def test_a_reader_that_gets_nothing_of_what_comes_to_its_broker_is_shut_out_too():
    assert not hunger(1.0, lambda count: True, lambda count: count % 9 == 0)
    assert not hunger(1.0, lambda count: count % 9 == 0, lambda count: count % 18 == 0), "few come at all"
    [problem] = hunger(1.0, lambda count: True, lambda count: count < 10)
    assert "nothing of p reached r" in problem
