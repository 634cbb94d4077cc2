"""The product's rule of congestion control: rates by what arrived, alerts by what waits, windows by the delay."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.content.message import MessageLimits
from penstock.errors import InvalidPacket
from penstock.streams.alert_minima import Alert
from penstock.streams.config import StreamsConfig
from penstock.streams.delay_window import DELAY, LEAST, DelayWindow, ShortestRoundTrip
from penstock.streams.lag_watch import LagWatch
from penstock.streams.matched_rate import LEAST_FLOOR, MatchedRate
from penstock.streams.nacks import NackSchedule
from penstock.streams.packets import Dcq, Uca
from penstock.streams.pdcc import RelayControl
from penstock.streams.recovery_pace import RecoveryPace
from penstock.streams.relay import Relay
from penstock.streams.sent_history import SentHistory

PUBEND, EPOCH = "orders/0", 7
SECOND = 1_000_000  # ticks
UP, DOWN = 0, 1


# What a pubend has sent.


def test_what_was_sent_is_the_integral_of_the_rates():
    sent = SentHistory()
    sent.begin(100.0, 10.0)
    sent.note(40.0, 10.0)
    sent.note(20.0, 12.0)
    assert sent.between(9.0, 10.0) == 100.0
    assert sent.between(9.5, 13.0) == 50.0 + 80.0 + 20.0
    assert sent.between(11.0, 11.5) == 20.0
    assert sent.between(5.0, 5.0) == 0.0
    assert sent.highest() == 100.0


def test_rates_of_long_ago_are_forgotten_and_so_are_all_when_the_clock_is_set_back():
    sent = SentHistory()
    for second in range(10_000):
        sent.note(float(second % 7), float(second))
    assert len(sent._rates) < 50
    sent.note(3.0, 5.0)
    assert sent.between(0.0, 5.0) == 15.0


# The rate of a pubend.


def a_rate(**settings: Any) -> MatchedRate:
    return MatchedRate(StreamsConfig(**settings))


def alert(
    rate: MatchedRate, sequence: int, now: float, *, offered: float = 100.0, late: int = 0, **values: Any
) -> bool:
    """An alert to a query after which so many others were sent."""
    return rate.alerted(Alert(sequence, **values), offered=offered, next_query=sequence + late + 1, now=now)


def test_001_section_1_1_missing_feedback_never_throttles():
    rate = a_rate()
    for second in range(100):
        assert not rate.raise_if_quiet(offered=1e6, now=float(second))
    assert rate.rate is None


def test_an_alert_sets_the_rate_to_what_arrived_less_what_drains_the_queue_and_then_to_what_arrived():
    rate = a_rate()
    assert alert(rate, 1, 10.0, keeping_up=0.4, lag=0.5)  # 40 a second arrive, 50 wait: 1.25 s of it
    assert rate.rate == pytest.approx(20.0)
    assert not alert(rate, 2, 11.0, keeping_up=0.4, lag=1.1)  # the lag grows while old ticks arrive
    assert rate.rate == pytest.approx(20.0)
    assert rate.raise_if_quiet(offered=inf, now=13.0)
    assert rate.rate == pytest.approx(40.0)


def test_near_what_the_way_carries_it_grows_slowly_and_then_ever_faster_until_it_limits_nothing():
    rate = a_rate()
    alert(rate, 1, 10.0, keeping_up=0.9, lag=0.3)
    rates: list[float] = []
    now = 12.0
    while rate.rate is not None:
        rates.append(rate.rate)
        now += 1.0
        rate.raise_if_quiet(offered=100.0, now=now)
    steps = [later / earlier for earlier, later in pairwise(rates[1:])]
    assert steps[0] < 1.02
    assert steps == sorted(steps)
    assert steps[-1] <= 1.26 + 0.01
    assert now < 40.0


def test_well_below_the_rate_at_which_alerts_came_it_grows_fast_unless_they_come_again():
    rate = a_rate()
    alert(rate, 1, 10.0, keeping_up=0.4, lag=0.3)
    for second in (12.0, 13.0, 14.0, 15.0):
        rate.raise_if_quiet(offered=100.0, now=second)
    assert rate.rate is not None
    assert rate.rate > 1.25 * 40.0


def test_an_alert_to_a_stream_that_is_idle_limits_nothing():
    rate = a_rate()
    assert not alert(rate, 1, 10.0, offered=0.0, keeping_up=0.0, recovering=0.5, lag=3.0)
    assert rate.rate is None


def test_if_the_queue_does_not_drain_the_capacity_was_too_high():
    rate = a_rate()
    alert(rate, 1, 10.0, keeping_up=0.8, lag=0.3)
    before = rate.rate
    assert before is not None
    assert alert(rate, 2, 11.0, keeping_up=0.1, lag=5.0)
    assert rate.rate is not None
    assert rate.rate < 0.8 * before


def test_an_alert_that_is_too_old_to_count_still_says_that_the_queue_has_not_drained():
    """Otherwise the next one is new congestion, at the rate that was kept low to drain it: a third of the capacity."""
    rate = a_rate()
    alert(rate, 5, 7.1, offered=120.0, late=1, keeping_up=0.67, lag=0.9)
    drains = rate.rate
    alert(rate, 6, 8.1, offered=120.0, keeping_up=0.69, lag=1.0)  # asked before the rate was lowered
    assert rate.rate == drains
    rate.raise_if_quiet(offered=120.0, now=9.0)
    alert(rate, 7, 9.1, offered=120.0, keeping_up=0.7, lag=0.8)  # of what was sent before
    assert rate.rate is not None
    assert rate.rate >= 0.67 * 120.0 / 2


def test_while_an_edge_recovers_pubends_keep_a_share_and_get_it_all_back_when_nobody_reports_any_more():
    rate = a_rate(live_share=0.15, recovery_gain=1.0)
    for number in range(5):
        alert(rate, number, 10.0 + number, recovering=0.4)
    assert rate.rate == pytest.approx(15.0)
    for number in range(5, 9):
        alert(rate, number, 10.0 + number, recovering=2.2)
    assert rate.rate is not None
    assert 20.0 < rate.rate < 30.0  # it is faster than it must be
    now = 18.0
    while rate.rate is not None:
        now += 1.0
        rate.raise_if_quiet(offered=100.0, now=now)
    assert now < 30.0


def test_a_clock_that_is_set_back_does_not_keep_the_limit_for_ever():
    rate = a_rate()
    alert(rate, 1, 10_000.0, keeping_up=0.1, recovering=0.1, lag=3.0)
    for second in range(120):
        rate.raise_if_quiet(offered=100.0, now=float(second))
    assert rate.rate is None


def test_the_floor_is_so_many_bytes_where_messages_are_large():
    for offered, message_bytes in ((2.5, 18_000.0), (20.0, 4_000.0), (1_000.0, 100.0)):
        rate = a_rate(rate_floor=10.0)
        rate.message_bytes = message_bytes
        for sequence in range(1, 10):
            alert(rate, sequence, float(sequence), offered=offered, keeping_up=0.0, lag=5.0)
        assert rate.rate is not None
        assert LEAST_FLOOR <= rate.rate <= 0.5 * offered


@pytest.mark.parametrize("seed", range(20))
def test_random_alerts_keep_the_invariants_of_the_rate(seed):
    random, rate = Random(seed), a_rate(rate_floor=2.0)
    now, lowered_before = 0.0, -1
    for sequence in range(1, 400):
        now += random.choice((0.3, 1.0, 2.5))
        before, offered = rate.rate, random.choice((0.0, 3.0, 100.0, 1e5))
        if random.random() < 0.6:
            values = {"keeping_up": random.choice((inf, 0.0, random.uniform(0.0, 3.0))), "lag": random.uniform(0, 9)}
            values["recovering"] = random.choice((inf, 0.0, random.uniform(0.0, 5.0), 1e8))
            answers = sequence - random.randrange(3)
            if alert(rate, answers, now, offered=offered, late=sequence - answers, **values):
                assert answers > lowered_before, f"two decreases without a query between them: seed {seed}"
                lowered_before = sequence
                assert before is None or (rate.rate is not None and rate.rate < before)
        elif rate.raise_if_quiet(offered=random.choice((inf, offered)), now=now):
            assert before is not None
            assert rate.rate is None or rate.rate > before
        assert rate.rate is None or LEAST_FLOOR <= rate.rate < inf
    for _ in range(200):
        now += 1.0
        rate.raise_if_quiet(offered=100.0, now=now)
    assert rate.rate is None  # without alerts nobody is limited for ever


# What an edge answers.


def standing(pubend: str, newest: int, horizon: int) -> Any:
    """As much of a relay as is looked at."""
    return SimpleNamespace(pubend=pubend, newest=newest, horizon=horizon, recovering=False)


def answers(
    waits: list[float], *, holes: float = 0.0, recovery: float = 1.0, **settings: Any
) -> list[tuple[float, float, float] | None]:
    """Queries a second apart; before each look the stream is so many seconds short of what the query named."""
    config = StreamsConfig(**settings)
    watch, pace_of_all = LagWatch(config), RecoveryPace(config)
    found: list[tuple[float, float, float] | None] = []
    for number, wait in enumerate(waits):
        now, newest = float(number), (1_000 + number) * SECOND
        watch.queried(Dcq(PUBEND, EPOCH, number, newest), now=now)
        heard = newest - int(wait * SECOND)
        horizon = int((1_000 - holes + number * recovery) * SECOND)
        pace = watch.look(heard, now=now + config.lag_alert)
        relay = standing(PUBEND, heard, min(heard, horizon))
        recovery_pace = pace_of_all.look([relay], now=now + config.lag_alert)
        alert = watch.alert(pace, recovery_pace, now=now + config.lag_alert)
        found.append(None if alert is None else (alert.keeping_up, alert.recovering, alert.lag))
    return found


def test_what_a_query_named_has_come_in_time_so_nothing_is_said():
    assert answers([0.0] * 5) == [None] * 5
    assert answers([0.0] * 5, holes=3.9) == [None] * 5  # a hole that may close soon


def test_data_that_wait_are_told_with_how_long_and_how_fast_they_come():
    assert answers([0.0, 0.5, 1.0])[1:] == [
        (pytest.approx(0.5), inf, pytest.approx(1.0)),
        (pytest.approx(0.5), inf, pytest.approx(1.5)),
    ]


def test_an_edge_with_a_hole_reports_how_fast_it_recovers_whether_that_is_enough_or_not():
    assert answers([0.0] * 3, holes=60.0, recovery=2.5)[1:] == [(inf, pytest.approx(2.5), 0.0)] * 2


def test_after_an_outage_the_first_look_measures_nothing():
    watch = LagWatch(StreamsConfig())
    for now, heard in ((0.0, 1_000), (200.0, 1_010), (201.0, 1_011)):
        watch.queried(Dcq(PUBEND, EPOCH, int(now), 2_000 * SECOND), now=now)
        pace = watch.look(heard * SECOND, now=now)
        assert (pace is None) == (now < 201.0)


def test_pubends_that_recover_over_one_link_hear_the_same_pace_whenever_they_ask():
    """001 section 5, E4: "unfairness"; with paces of different moments rates came apart by a quarter."""
    pace, heard = RecoveryPace(StreamsConfig()), list[float | None]()
    for second in range(4):
        for asker in range(4):  # one after the other; meanwhile horizons move on
            now = second + asker / 10
            relays = [standing(f"orders/{n}", 1_000 * SECOND, int((100 + now * (1 + n)) * SECOND)) for n in range(4)]
            relays.append(standing("other/0", 1_000 * SECOND, 999 * SECOND))  # keeps up
            heard.append(pace.look(relays, now=now))
    assert heard[:4] == [None] * 4
    assert heard[4:] == [pytest.approx(2.5)] * 12


# The NACK window of an edge.


def answered(window: DelayWindow, round_trip: float, horizon: int, now: float) -> None:
    nacks = NackSchedule(StreamsConfig())
    nacks._measure(round_trip)
    window.answered(nacks, horizon, now=now)


def test_the_window_doubles_while_answers_do_not_wait_and_then_stays_where_they_wait_a_little():
    window = DelayWindow(StreamsConfig(), ShortestRoundTrip())
    horizon, now, sizes = SECOND, 100.0, []
    for _ in range(200):
        round_trip = max(0.02, window.ticks / SECOND / 20.0)  # the way carries 20 seconds of ticks per second
        horizon += window.ticks
        now += round_trip
        answered(window, round_trip, horizon, now)
        sizes.append(window.ticks / SECOND)
    assert sizes[2] >= 4 * sizes[0]
    assert all(DELAY / 2 <= size / 20.0 - 0.02 <= DELAY for size in sizes[100:])


def test_answers_that_come_from_further_away_do_not_keep_the_window_shut():
    window = DelayWindow(StreamsConfig(), ShortestRoundTrip())
    horizon, now = SECOND, 100.0
    for count in range(300):
        base = 0.005 if count < 10 else 0.2  # first a relay answers, then the pubend
        round_trip = max(base, window.ticks / SECOND / 20.0)
        horizon, now = horizon + window.ticks, now + round_trip
        answered(window, round_trip, horizon, now)
    assert window.ticks > 4 * SECOND  # the way carries 20 seconds of ticks per second


def test_pubends_that_share_a_way_get_equal_windows():
    shortest = ShortestRoundTrip()
    windows = [DelayWindow(StreamsConfig(), shortest) for _ in range(3)]
    for window, ticks in zip(windows, (50_000, 400_000, 2_000_000), strict=True):
        window.ticks, window._doubling, window._answered_at = ticks, False, 100.0
    shortest.measured(0.02, now=100.0)
    horizon, now = SECOND, 100.0
    for _ in range(400):
        round_trip = max(0.02, sum(window.ticks for window in windows) / SECOND / 5.0)
        horizon, now = horizon + 5 * SECOND, now + round_trip
        for window in windows:
            answered(window, round_trip, horizon, now)
    sizes = [window.ticks for window in windows]
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.parametrize("seed", range(10))
def test_the_window_stays_within_its_bounds_and_nothing_beyond_it_is_asked_for(seed):
    random, window = Random(seed), DelayWindow(StreamsConfig(nack_window=1.0), ShortestRoundTrip())
    horizon, now = SECOND, 10.0
    for _ in range(300):
        horizon, now = horizon + random.randrange(3 * SECOND), now + random.choice((0.1, 1.0, 50.0))
        answered(window, random.uniform(1e-6, 3.0), horizon, now)
        assert LEAST * SECOND <= window.ticks <= SECOND
        assert horizon < window.upto(horizon) <= horizon + window.ticks


# Bad input changes nothing.


@pytest.mark.parametrize(
    "packet",
    [
        Uca(PUBEND, EPOCH, 1, nan, None),
        Uca(PUBEND, EPOCH, 1, -0.1, None),
        Uca(PUBEND, EPOCH, 1, None, inf),
        Uca(PUBEND, EPOCH, 1, None, None),
        Uca(PUBEND, EPOCH, 1, 0.5, None, lag=nan),
        Uca(PUBEND, EPOCH, 1, 0.5, None, lag=-1.0),
        Uca(PUBEND, EPOCH, 1, 0.5, None, lag=inf),
        Uca(PUBEND, EPOCH, -1, 0.5, None),
        Uca(PUBEND, EPOCH, 1 << 70, 0.5, None),
        Dcq(PUBEND, EPOCH, -1, 5),
        Dcq(PUBEND, EPOCH, 1, -5),
        Dcq("no pubend", EPOCH, 1, 5),
    ],
)
def test_figures_that_cannot_be_are_refused(packet):
    with pytest.raises(InvalidPacket):
        packet.checked(MessageLimits())


def test_an_alert_to_a_query_that_was_never_asked_does_not_silence_those_to_come():
    relay = Relay(PUBEND, EPOCH, 1, StreamsConfig())
    relay.upstream = UP
    control = RelayControl(relay, StreamsConfig())
    control.queried(Dcq(PUBEND, EPOCH, 5, 100), now=1.0)
    assert control.alerted(Alert(1 << 60, keeping_up=0.1)) == []
    assert len(control.alerted(Alert(5, keeping_up=0.5))) == 1
