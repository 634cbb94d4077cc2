"""Congestion control of streams, policy by policy: rates, minima of alerts, paces, windows, and how they are joined."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Any

import pytest

from penstock.kernel.machine import Effect, Send
from penstock.kernel.packet import Lane
from penstock.streams.alert_minima import Alert, AlertMinima
from penstock.streams.config import StreamsConfig
from penstock.streams.horizon_watch import HorizonWatch
from penstock.streams.nack_window import NackWindow
from penstock.streams.packets import Dcq, Join, Knowledge, Uca
from penstock.streams.pdcc import PubendControl, RelayControl
from penstock.streams.publish_rate import PublishRate
from penstock.streams.records import AlertReceived, HorizonMeasured, PublishRateChanged
from penstock.streams.relay import Relay

PUBEND, EPOCH = "orders/0", 7
UP, DOWN, OTHER = 0, 1, 2  # links of a relay
SECOND = 1_000_000  # ticks


def a_rate(**settings: Any) -> PublishRate:
    return PublishRate(StreamsConfig(**{"rate_floor": 1.0, **settings}))


def alert(rate: PublishRate, sequence: int, value: float, now: float, *, kind: str = "keeping_up") -> bool:
    return rate.alerted(Alert(sequence, **{kind: value}), offered=100.0, next_query=sequence + 1, now=now)


# What 001 argues against, for experiments.


def test_with_a_step_an_alert_takes_that_much_and_never_a_share():
    rate = a_rate(decrease_step=2.0)
    assert alert(rate, 1, 0.5, 10.0)
    assert rate.rate == 98.0
    assert alert(rate, 2, 0.4, 11.0)
    assert rate.rate == 96.0


def test_without_control_first_queries_and_alerts_travel_with_data():
    one = relay(readers=True)
    one.join(Join(PUBEND, 1, 1, ()), DOWN, now=0.0)
    one.learn(Knowledge(PUBEND, EPOCH, 1, 0, 1, 10 * SECOND), UP, now=0.0)
    control = RelayControl(one, StreamsConfig(control_first=False, control_rule="paper"))
    effects = [
        effect
        for number in (1, 2)
        for effect in control.queried(Dcq(PUBEND, EPOCH, number, 10 * SECOND), now=10.0 + number)
    ]
    sent = [effect for effect in effects if isinstance(effect, Send)]
    assert [type(one.packet) for one in sent] == [Dcq, Dcq, Uca]
    assert all(one.lane is Lane.STREAM for one in sent)


def test_an_edge_that_is_recovering_by_nacks_is_so_from_one_nack_to_the_next_query():
    one = relay(readers=True)
    one.learn(Knowledge(PUBEND, EPOCH, 1, 0, 1, 10 * SECOND), UP, now=0.0)
    control = RelayControl(one, StreamsConfig(recovering_by_nacks=True))
    recovering = []
    for number in range(1, 5):
        one.nacked += number == 3
        effects = control.queried(Dcq(PUBEND, EPOCH, number, 10 * SECOND), now=10.0 + number)
        recovering += [effect.recovering for effect in effects if isinstance(effect, HorizonMeasured)]
    assert recovering == [False, True, False]


# The rate of a pubend.


def test_without_alerts_there_is_no_limit():
    rate = a_rate()
    assert not rate.raise_if_quiet(offered=100.0, now=50.0)
    assert rate.rate is None


def test_the_first_alert_halves_what_is_offered_and_quiet_raises_it_step_by_step_until_it_limits_nothing():
    rate = a_rate()
    assert alert(rate, 1, 0.9, 10.0)
    assert rate.rate == 50.0
    assert not rate.raise_if_quiet(offered=inf, now=11.9)
    assert rate.raise_if_quiet(offered=inf, now=12.0)
    assert rate.rate == 52.0
    assert not rate.raise_if_quiet(offered=inf, now=13.0)
    now = 12.0
    while rate.rate is not None:
        now += 2.0
        assert rate.raise_if_quiet(offered=100.0, now=now)
    assert now > 50.0


def test_an_alert_that_answers_a_query_from_before_the_decrease_changes_nothing():
    rate = a_rate()
    assert rate.alerted(Alert(5, 0.9), offered=100.0, next_query=8, now=1.0)
    for sequence in (6, 7):
        assert not alert(rate, sequence, 0.1, 2.0)
    assert alert(rate, 8, 0.1, 3.0)
    assert rate.rate == 25.0


def test_an_alert_that_tells_of_more_than_the_one_before_it_changes_nothing_in_its_own_class():
    rate = a_rate()
    assert alert(rate, 1, 0.5, 1.0)
    assert not alert(rate, 2, 0.6, 2.0)
    assert alert(rate, 3, 1.4, 3.0, kind="recovering")
    assert alert(rate, 4, 0.6, 4.0)  # no better than the last of its class


def test_an_increase_forgets_the_values_before_it():
    rate = a_rate()
    assert alert(rate, 1, 0.5, 1.0)
    assert rate.raise_if_quiet(offered=inf, now=3.0)
    assert alert(rate, 2, 0.9, 4.0)


def test_a_clock_that_is_set_back_does_not_keep_the_limit_for_ever():
    rate = a_rate()
    alert(rate, 1, 0.5, 1_000.0)
    assert not rate.raise_if_quiet(offered=inf, now=5.0)
    assert rate.raise_if_quiet(offered=inf, now=7.0)


@pytest.mark.parametrize("seed", range(20))
def test_random_alerts_keep_the_invariants_of_the_rate(seed):
    random, rate = Random(seed), a_rate()
    now, decreased_before = 0.0, -1
    for sequence in range(1, 400):
        now += random.choice((0.3, 1.0, 2.5))
        before = rate.rate
        if random.random() < 0.6:
            value = random.uniform(0.0, 2.0)
            answers = sequence - random.randrange(3)
            if rate.alerted(Alert(answers, value), offered=100.0, next_query=sequence + 1, now=now):
                assert answers > decreased_before, f"two decreases without a query between them: seed {seed}"
                assert rate.rate == rate._decreased
                decreased_before = sequence
                assert before is None or rate.rate <= before
            else:
                assert rate.rate == before
        elif rate.raise_if_quiet(offered=random.choice((inf, 100.0)), now=now):
            assert before is not None
            assert rate.rate is None or rate.rate >= before + 2.0
        assert rate.rate is None or rate.rate >= 1.0


# Alerts gathered.


def brute_force(alerts: list[Alert]) -> list[Alert]:
    """What goes up, from all that came: for a new highest number, the lowest of what was not sent of it and the one
    before."""
    sent: list[Alert] = []
    highest, since = 0, 0
    for at, one in enumerate(alerts):
        if one.sequence > highest:
            fresh = [a for a in alerts[since : at + 1] if a.sequence in (one.sequence - 1, one.sequence)]
            sent.append(Alert(one.sequence, min(a.keeping_up for a in fresh), min(a.recovering for a in fresh)))
            highest, since = one.sequence, at + 1
    return sent


@pytest.mark.parametrize("seed", range(30))
def test_gathered_alerts_are_those_of_brute_force_and_at_most_one_goes_up_for_each_query(seed):
    random, minima = Random(seed), AlertMinima()
    alerts: list[Alert] = []
    sequence = 1
    for _ in range(200):
        sequence += random.choice((0, 0, 0, 1, 1, 5))
        value = random.choice((random.random(), inf))
        kind = {"keeping_up": value} if random.random() < 0.5 else {"recovering": value}
        alerts.append(Alert(max(1, sequence - random.choice((0, 0, 1, 2, 3))), **kind))
    sent = [up for one in alerts if (up := minima.add(one)) is not None]
    assert sent == brute_force(alerts)
    numbers = [one.sequence for one in sent]
    assert numbers == sorted(set(numbers))


# The pace of the doubt horizon.


def watched(paces: list[float], *, recovering: bool = False, lag: float = 0.0, **settings: Any) -> list[Alert | None]:
    """Queries a second apart, between which the horizon moves on by so many seconds of ticks."""
    watch = HorizonWatch(StreamsConfig(**settings))
    horizon = 1_000 * SECOND
    watch.queried(0, horizon, horizon, recovering=recovering, now=0.0)
    alerts = []
    for number, pace in enumerate(paces, start=1):
        horizon += int(pace * SECOND)
        newest = horizon + int(lag * SECOND)
        alerts.append(watch.queried(number, newest, horizon, recovering=recovering, now=float(number)))
    return alerts


def test_the_pace_is_smoothed_and_an_alert_names_it():
    alerts = watched([1.0, 0.0, 0.0])
    assert alerts[0] is None
    assert alerts[1] == Alert(2, pytest.approx(0.9), inf)
    assert alerts[2] == Alert(3, pytest.approx(0.81), inf)


def test_an_edge_that_recovers_alerts_unless_it_is_faster_than_real_time_by_what_is_wanted():
    assert watched([1.9], recovering=True) == [Alert(1, inf, pytest.approx(1.9))]
    assert watched([2.1], recovering=True) == [None]
    assert watched([1.6], recovering=True, recovery_gain=0.5) == [None]


def test_the_first_query_measures_nothing_and_neither_does_one_at_the_same_moment():
    watch = HorizonWatch(StreamsConfig())
    assert watch.queried(1, 100, 10, recovering=False, now=5.0) is None
    assert watch.queried(2, 100, 10, recovering=False, now=5.0) is None
    assert watch.pace is None


# The NACK window.


def test_another_recovery_begins_with_a_small_window():
    window = NackWindow(StreamsConfig())
    for number in range(5):
        window.decide(0.1, now=100.0 + number * 0.1)
    assert window.ticks > 300_000
    window.decide(0.1, now=200.0)
    assert window.ticks == 200_000


@pytest.mark.parametrize("seed", range(10))
def test_the_window_stays_within_its_bounds_and_moves_by_one_step_for_each_round_trip(seed):
    random, window = Random(seed), NackWindow(StreamsConfig(nack_window=1.0))
    now, decided = 10.0, -1.0
    for _ in range(500):
        now += random.uniform(0.0, 0.3)
        round_trip, before = random.uniform(0.01, 1.0), window.ticks
        window.decide(round_trip, now=now)
        assert 100_000 <= window.ticks <= 1_000_000
        if window.ticks != before:
            assert abs(window.ticks - before) == 100_000
            assert now - decided >= 0.0
            decided = now


# Joined.


def relay(*, readers: bool) -> Relay:
    one = Relay(PUBEND, EPOCH, 1, StreamsConfig())
    one.upstream = UP
    if readers:
        one.read_here()
    return one


def packets(effects: list[Effect], kind: type[Any]) -> list[tuple[tuple[int, ...], Any]]:
    return [(one.to, one.packet) for one in effects if isinstance(one, Send) and isinstance(one.packet, kind)]


def test_a_relay_passes_queries_down_and_one_alert_up_both_as_control():
    one = relay(readers=False)
    control = RelayControl(one, StreamsConfig())
    for link in (DOWN, OTHER):
        one.join(Join(PUBEND, 1, 1, ()), link, now=0.0)
    effects = control.queried(Dcq(PUBEND, EPOCH, 3, 100), now=1.0)
    assert packets(effects, Dcq) == [((DOWN, OTHER), Dcq(PUBEND, EPOCH, 3, 100))]
    up = control.alerted(Alert(3, keeping_up=0.8)) + control.alerted(Alert(3, recovering=1.2))
    assert packets(up, Uca) == [((UP,), Uca(PUBEND, EPOCH, 3, 0.8, None))]
    assert control.alerted(Alert(4, keeping_up=0.7)) == []  # nobody has asked that yet
    control.queried(Dcq(PUBEND, EPOCH, 4, 200), now=2.0)
    later = control.alerted(Alert(4, keeping_up=0.7))
    assert packets(later, Uca) == [((UP,), Uca(PUBEND, EPOCH, 4, 0.7, 1.2))]
    assert all(one.lane is Lane.CONTROL for one in [*effects, *up, *later] if isinstance(one, Send))


def test_an_edge_whose_horizon_stands_still_alerts_and_says_what_it_measured():
    one = relay(readers=True)
    one.learn(Knowledge(PUBEND, EPOCH, 1, 0, 1, 10 * SECOND), UP, now=0.0)
    control = RelayControl(one, StreamsConfig(control_rule="paper"))
    assert control.queried(Dcq(PUBEND, EPOCH, 1, 10 * SECOND), now=10.0) == []
    effects = control.queried(Dcq(PUBEND, EPOCH, 2, 11 * SECOND), now=11.0)
    assert [type(effect) for effect in effects] == [HorizonMeasured, Send]
    assert packets(effects, Uca) == [((UP,), Uca(PUBEND, EPOCH, 2, 0.0, None))]


def test_a_pubend_hears_no_alert_to_a_query_that_it_did_not_send_and_goes_on_above_its_life_before():
    control = PubendControl(PUBEND, EPOCH, StreamsConfig(), 5 * SECOND)
    first = control.query(5 * SECOND)
    assert (first.sequence, first.newest) == (5_001, 5 * SECOND)
    assert control.alerted(Uca(PUBEND, EPOCH, 5_002, 0.5, None), offered=100.0, message_bytes=100.0, now=1.0) == []
    assert control.rate is None
    effects = control.alerted(Uca(PUBEND, EPOCH, 5_001, 0.5, None), offered=100.0, message_bytes=100.0, now=1.0)
    assert effects == [AlertReceived(PUBEND, 5_001, 0.5, -1.0), PublishRateChanged(PUBEND, 50.0, "alert")]
    later = PubendControl(PUBEND, EPOCH, StreamsConfig(), 65 * SECOND)  # a minute later, after a crash
    assert later.query(65 * SECOND).sequence > first.sequence + 60
