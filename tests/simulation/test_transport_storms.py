"""Order and recovery over many seeds: whatever was due was delivered, or is reported as lost.

`penstock storm --transport --seeds 2000 --workers 2` runs many more.
"""

import re
from types import SimpleNamespace

import pytest

from penstock.content.message import Identity, make_message
from penstock.errors import CheckFailed
from penstock.kernel.trace import Delivered, NodeStarted, Published
from penstock.scenario.spec import BrokerSpec, ClientSpec, FaultSpec, LinkSpec, Scenario, SubscriptionSpec
from penstock.scenario.transport_checkers import Accounted, LateCounted, Once
from penstock.scenario.transport_storm import EVENTS_MAX, transport_storm
from penstock.scenario.workload import PublisherSpec
from penstock.sim.run import simulate
from penstock.transport.config import TransportConfig
from penstock.transport.ledgers.number_window import NumberWindow
from penstock.transport.ledgers.ordered_queue import OrderedQueue
from penstock.transport.ledgers.recovery import Recovery
from penstock.transport.ledgers.scheme import LedgerScheme
from penstock.transport.records import LossDetected

SEEDS = 200
PER_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_nothing_is_lost_in_silence(first):
    for seed in range(first, first + PER_TEST):
        result = simulate(transport_storm(seed), seed, events_max=EVENTS_MAX)
        if result.problems:
            raise CheckFailed("\n".join(result.problems), replay=f".venv/bin/penstock storm --transport --seed {seed}")
        assert result.complete, f"seed {seed} has more than {EVENTS_MAX} events"


def test_what_a_publisher_told_while_a_broker_was_down_it_tells_again_before_it_dies():
    result = simulate(transport_storm(771353), 771353, events_max=EVENTS_MAX)
    assert result.problems == []


def test_what_is_in_doubt_is_asked_for_soon_also_if_delays_once_differed_by_seconds():
    result = simulate(transport_storm(39574526), 39574526, events_max=EVENTS_MAX)
    assert result.problems == []


def test_a_storm_replays_from_its_seed():
    assert simulate(transport_storm(11), 11).digest == simulate(transport_storm(11), 11).digest


# What the checker means.


def a_checker(faults=()):
    wanted = SubscriptionSpec(where="price < 5", options={"recover": True})
    scenario = Scenario(
        name="account",
        settle=1.0,
        broker=(BrokerSpec(name="b"),),
        client=(
            ClientSpec(name="p", broker="b", services={"transport": TransportConfig()}),
            ClientSpec(name="plain", broker="b"),
            ClientSpec(name="c", broker="b", subscribe=(wanted,)),
        ),
        fault=faults,
    )
    checker = Accounted(scenario)
    checker.subscribed(0.0, "c", 0, "price < 5")
    return checker


def a_message(count, price=1, incarnation=1):
    return make_message(Identity("p", incarnation, count), {"price": price})


def report(lost, pending=0, late=0, numbers=()):
    doubtful = len(numbers)
    return SimpleNamespace(
        known_lost=lost, pending=pending, withheld=0, late=late, unrevealed=doubtful, lost_numbers=numbers
    )


def told(checker, lost):
    checker.reported(40.0, "c", 0, "transport", report(lost))
    checker.finish()
    return checker.problems


def test_what_came_and_what_was_not_wanted_are_accounted_for():
    checker = a_checker()
    checker.published(20.0, "p", a_message(1))
    checker.published(21.0, "p", a_message(2, price=9))
    checker.delivered(20.1, "c", 0, a_message(1))
    assert told(checker, 0) == []


def test_a_loss_must_be_named_and_counted():
    checker = a_checker()
    checker.published(20.0, "p", a_message(1))
    assert len(told(checker, 0)) == 2, "by its number, and in the report"


def test_a_loss_is_named_by_its_number_which_is_not_its_count():
    checker = a_checker()
    checker.published(20.0, "p", a_message(7))
    checker.declared_lost(22.0, "c", LossDetected("p", 1, 1))
    assert told(checker, 1) == []


def test_what_was_not_lost_must_not_be_reported():
    checker = a_checker()
    checker.published(20.0, "p", a_message(1))
    checker.delivered(20.1, "c", 0, a_message(1))
    assert told(checker, 1) == ["c reports 1 as lost; missing are 0: price < 5"]


def test_what_a_publisher_without_numbers_lost_nobody_can_know():
    checker = a_checker()
    checker.published(20.0, "plain", make_message(Identity("plain", 1, 1), {"price": 1}))
    assert told(checker, 0) == []


def test_what_a_publisher_took_with_it_when_it_died_may_be_unknown():
    checker = a_checker((FaultSpec(at=25.0, kind="client_crash", client="p"),))
    checker.published(10.0, "p", a_message(1))
    checker.published(24.0, "p", a_message(2))
    checker.published(26.0, "p", a_message(1, incarnation=2))
    checker.declared_lost(27.0, "c", LossDetected("p", 1, 1))
    checker.declared_lost(28.0, "c", LossDetected("p", 2, 1))
    assert told(checker, 2) == []


def test_what_a_publisher_had_told_before_it_died_must_be_known():
    checker = a_checker((FaultSpec(at=25.0, kind="client_crash", client="p"),))
    checker.published(19.0, "p", a_message(1))
    assert len(told(checker, 0)) == 2


@pytest.mark.parametrize(("ended", "problems"), [(24.9, 0), (25.1, 2)])
def test_who_unsubscribes_need_not_know_what_nobody_has_told_yet(ended, problems):
    checker = a_checker()
    checker.published(20.0, "p", a_message(1))  # and is silent: told within five seconds
    checker.reported(ended, "c", 0, "transport", report(0))
    checker.unsubscribed(ended, "c", 0)
    assert len(told(checker, 0)) == problems


def test_what_is_gone_and_nobody_could_tell_of_must_be_in_the_report_by_number():
    checker = a_checker()
    checker.published(20.0, "p", a_message(1))
    checker.reported(40.0, "c", 0, "transport", report(0, numbers=(("p", 1, 1),)))
    checker.finish()
    assert checker.problems == []


@pytest.mark.parametrize(("reported", "problems"), [(0, 1), (1, 0), (2, 1)])
def test_a_subscription_that_is_closed_is_judged_by_its_last_report(reported, problems):
    checker = a_checker()
    checker.published(10.0, "p", a_message(1))
    checker.declared_lost(12.0, "c", LossDetected("p", 1, 1))
    checker.reported(25.0, "c", 0, "transport", report(reported))
    checker.unsubscribed(25.0, "c", 0)
    checker.reported(40.0, "c", 0, "transport", report(0))
    checker.finish()
    assert len(checker.problems) == problems


@pytest.mark.parametrize(("late", "problems"), [(0, 1), (1, 0)])
def test_what_comes_after_a_later_one_must_be_counted_as_late(late, problems):
    wanted = SubscriptionSpec(where="TRUE", options={"ordered": True})
    services = {"transport": TransportConfig()}
    publisher = ClientSpec(name="p", broker="b", services=services)
    subscriber = ClientSpec(name="c", broker="b", subscribe=(wanted,), services=services)
    checker = LateCounted(Scenario(name="order", broker=(BrokerSpec(name="b"),), client=(publisher, subscriber)))
    for count in (1, 3, 2, 4):
        checker.delivered(float(count), "c", 0, a_message(count))
    checker.delivered(5.0, "c", 0, a_message(1, incarnation=2))
    checker.reported(9.0, "c", 0, "transport", report(0, late=late))
    checker.finish()
    assert len(checker.problems) == problems


@pytest.mark.parametrize(
    ("options", "repair", "problems"), [({}, False, 0), ({}, True, 1), ({"ordered": True}, False, 1)]
)
def test_twice_is_excused_where_nobody_asked_and_no_link_repairs(options, repair, problems):
    link = LinkSpec(between=("a", "b"), delay=0.01, duplicate=0.1, repair=repair)
    client = ClientSpec(name="c", broker="b", subscribe=(SubscriptionSpec(where="TRUE", options=options),))
    brokers = (BrokerSpec(name="a"), BrokerSpec(name="b"))
    checker = Once(Scenario(name="once", broker=brokers, link=(link,), client=(client,)))
    for _ in range(2):
        checker.delivered(1.0, "c", 0, a_message(1))
    assert len(checker.problems) == problems


# A storm that finds nothing proves nothing.


def losses_are_forgotten(patch):
    patch.setattr(
        Recovery, "_give_up", lambda recovery, session, missed: recovery.settled(session, missed.number) and []
    )


def nothing_waits_for_order(patch):
    patch.setattr(OrderedQueue, "in_order", lambda queue, number: True)


def copies_are_delivered(patch):
    patch.setattr(NumberWindow, "has", lambda window, number: False)


def nobody_hears_ledgers(patch):
    patch.setattr(LedgerScheme, "_ledger", lambda scheme, content, sender, now: [])


@pytest.mark.parametrize(
    ("mistake", "complains"),
    [
        (losses_are_forgotten, "reports|nobody was told"),
        (nothing_waits_for_order, "out of order"),
        (copies_are_delivered, "twice"),
        (nobody_hears_ledgers, "nobody was told"),
    ],
)
def test_with_a_mistake_planted_some_storm_complains(monkeypatch, mistake, complains):
    mistake(monkeypatch)
    problems = (one for seed in range(40) for one in simulate(transport_storm(seed), seed).problems)
    assert any(re.search(complains, one) for one in problems)


def test_storms_are_of_all_sorts():
    storms = [transport_storm(seed) for seed in range(SEEDS)]
    unrepaired = sum(not storm.link[0].repair for storm in storms)
    assert SEEDS * 0.4 < unrepaired < SEEDS * 0.6
    assert max(len(storm.broker) for storm in storms) >= 18
    assert max(sum(bool(client.subscribe) for client in storm.client) for storm in storms) >= 80
    kept = [
        client.services["transport"].published_kept for storm in storms for client in storm.client if client.publish
    ]
    assert min(kept) < 20


# Clients that come back.


def test_a_publisher_that_restarts_counts_anew_and_goes_on():
    flow = PublisherSpec(rate_messages_per_s=10.0, start=0.5, attributes={"price": 1})
    scenario = Scenario(
        name="restart",
        duration=3.0,
        broker=(BrokerSpec(name="b"),),
        client=(
            ClientSpec(name="p", broker="b", publish=(flow,)),
            ClientSpec(name="c", broker="b", subscribe=(SubscriptionSpec(where="TRUE"),)),
        ),
        fault=(
            FaultSpec(at=1.0, kind="client_crash", client="p"),
            FaultSpec(at=2.0, kind="client_restart", client="p"),
            FaultSpec(at=2.1, kind="client_restart", client="p"),
        ),
    )
    trace = _Kept()
    assert simulate(scenario, 1, trace=trace).problems == []
    lives = [record.incarnation for node, record in trace.records if node == "p" and isinstance(record, NodeStarted)]
    sent = [(r.incarnation, r.count) for _, r in trace.records if isinstance(r, Published)]
    came = [(r.incarnation, r.count) for _, r in trace.records if isinstance(r, Delivered)]
    assert lives == [1, 2]
    assert [count for life, count in sent if life == 2] == list(range(1, 11))
    assert [one for one in came if one[0] == 2] == [one for one in sent if one[0] == 2]


class _Kept:
    def __init__(self):
        self.records = []

    def write(self, time, node, record):
        self.records.append((node, record))
