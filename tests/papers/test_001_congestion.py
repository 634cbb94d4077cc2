"""What 001 says about congestion control, claim by claim: sections 3.1, 3.2 and Table 1, with the errata G1 to G8."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from penstock.streams.alert_minima import Alert, AlertMinima
from penstock.streams.config import StreamsConfig
from penstock.streams.horizon_watch import HorizonWatch
from penstock.streams.known import Known
from penstock.streams.matched_rate import MatchedRate
from penstock.streams.nack_window import NackWindow
from penstock.streams.nacks import NackSchedule
from penstock.streams.publish_rate import PublishRate
from penstock.testing import a_message

SECOND = 1_000_000  # ticks


def lowered(rate: PublishRate, sequence: int, value: float = 0.5) -> float:
    rate.alerted(Alert(sequence, value), offered=125.0, next_query=sequence + 1, now=float(sequence))
    assert rate.rate is not None
    return rate.rate


def table_1_of_section_3_2() -> dict[str, float]:
    return {
        "silence_interval": 1.0,
        "quiet": 2.0,
        "rate_step": 2.0,
        "increase": 0.05,
        "decrease": 0.5,
        "keep_of_increase": 0.25,
        "smoothing": 0.1,
        "alert_below": 0.05,
        "recovery_gain": 1.0,
        "lag_max": 4.0,
        "nack_window_first": 0.1,
        "nack_window_step": 0.1,
        "nack_gain": 0.1,
        "nack_loss": 0.3,
    }


def test_the_defaults_of_congestion_control_are_those_of_table_1():
    config = StreamsConfig()
    different = {k: v for k, v in table_1_of_section_3_2().items() if getattr(config, k) != v}
    assert list(different) == ["silence_interval"]  # ours is shorter


def test_equation_1_the_rate_grows_by_the_larger_of_a_step_and_a_share_of_what_it_has_grown_since_the_last_decrease():
    rate = PublishRate(StreamsConfig())
    assert lowered(rate, 1) == 62.5
    now, grown, expected = 1.0, [62.5], 62.5
    for _ in range(40):
        now += 2.0
        rate.raise_if_quiet(offered=inf, now=now)
        expected = max(expected + 2.0, expected + 0.05 * (expected - 62.5))
        grown.append(expected)
        assert rate.rate == pytest.approx(expected)
    steps = [b - a for a, b in pairwise(grown)]
    assert steps[0] == 2.0
    assert steps[-1] > 2.5  # it has become multiplicative


def test_equation_2_the_first_decrease_after_an_increase_keeps_a_quarter_of_the_increase():
    rate = PublishRate(StreamsConfig())
    base = lowered(rate, 1)
    for number in range(5):
        rate.raise_if_quiet(offered=inf, now=10.0 + 2.0 * number)
    assert rate.rate == base + 10.0
    assert lowered(rate, 30) == base + 2.5


def test_equation_3_and_erratum_g4_without_an_increase_between_them_the_second_decrease_halves():
    rate = PublishRate(StreamsConfig())
    base = lowered(rate, 1)
    assert lowered(rate, 2) == base / 2.0
    assert lowered(rate, 3, 0.4) == base / 4.0


def test_the_rate_has_a_floor_so_that_it_can_find_out_that_the_way_is_free_again():
    rate = PublishRate(StreamsConfig(rate_floor=1.0))
    for sequence in range(1, 40):
        lowered(rate, sequence)
    assert rate.rate == 1.0


def test_section_1_1_missing_feedback_never_throttles():
    rate = PublishRate(StreamsConfig())
    for second in range(1_000):
        rate.raise_if_quiet(offered=125.0, now=float(second))
        assert rate.rate is None


def test_figure_5_the_first_alert_with_a_new_number_goes_up_at_once_and_the_others_with_the_next():
    relay = AlertMinima()
    assert relay.add(Alert(1, 0.9)) == Alert(1, 0.9)
    assert relay.add(Alert(1, 0.7)) is None
    assert relay.add(Alert(1, inf, 1.5)) is None
    assert relay.add(Alert(2, 0.8)) == Alert(2, 0.7, 1.5)
    assert relay.add(Alert(3, 0.85)) == Alert(3, 0.85)


def test_erratum_g5_a_value_that_came_second_is_not_sent_with_an_alert_much_later():
    relay = AlertMinima()
    assert relay.add(Alert(10, 0.9)) == Alert(10, 0.9)
    assert relay.add(Alert(10, 0.3)) is None
    assert relay.add(Alert(5_000, 0.94)) == Alert(5_000, 0.94)


def test_erratum_g5_what_is_older_than_the_last_number_but_one_is_left_out():
    relay = AlertMinima()
    relay.add(Alert(10, 0.9))
    assert relay.add(Alert(8, 0.1)) is None
    assert relay.add(Alert(11, 0.94)) == Alert(11, 0.94)


def pace(*, recovering: bool, progress: float, behind: float = 0.0, settings: StreamsConfig | None = None) -> bool:
    """Whether an edge whose horizon moves at this pace alerts, in the long run."""
    watch = HorizonWatch(settings or StreamsConfig())
    alert = None
    for number in range(200):
        horizon = 1_000 * SECOND + int(number * progress * SECOND)
        alert = watch.queried(number, horizon + int(behind * SECOND), horizon, recovering=recovering, now=number * 1.0)
    return alert is not None


def test_equations_4_and_6_and_erratum_g1_an_edge_alerts_if_its_pace_is_below_real_time_and_not_if_it_is_above():
    assert pace(recovering=False, progress=0.94)
    assert not pace(recovering=False, progress=0.96)
    assert not pace(recovering=False, progress=3.0)


def test_equation_5_the_pace_is_smoothed():
    watch = HorizonWatch(StreamsConfig())
    expected, horizon = None, SECOND
    watch.queried(0, horizon, horizon, recovering=False, now=0.0)
    for number, progress in enumerate((1.0, 0.2, 1.7, 0.9, 0.0, 4.0), start=1):
        horizon += int(progress * SECOND)
        watch.queried(number, horizon, horizon, recovering=False, now=float(number))
        expected = progress if expected is None else 0.9 * expected + 0.1 * progress
        assert watch.pace == pytest.approx(expected)


def test_equation_7_and_erratum_g2_an_edge_alerts_if_it_is_more_than_four_seconds_behind_whatever_its_pace():
    assert not pace(recovering=False, progress=1.0, behind=3.9)
    assert pace(recovering=False, progress=1.0, behind=4.1)


def test_equation_8_and_erratum_g3_an_edge_that_recovers_must_be_faster_than_real_time_by_the_threshold():
    assert pace(recovering=True, progress=1.95)
    assert not pace(recovering=True, progress=2.05)
    assert not pace(recovering=True, progress=1.55, settings=StreamsConfig(recovery_gain=0.5))
    assert not pace(recovering=True, progress=2.05, behind=100.0)  # the lag counts for those who keep up


def test_section_3_2_the_nack_window_stops_growing_by_itself_at_1100_to_1200_while_the_round_trip_is_constant():
    window = NackWindow(StreamsConfig(nack_window=10.0, receive_window=10.0))
    sizes = []
    for number in range(100):
        window.decide(0.1, now=50.0 + 0.1 * number)
        sizes.append(window.ticks // 1_000)
    assert sizes[0] == 200
    assert sizes == sorted(sizes)
    assert 1_100 <= sizes[-1] <= 1_200


def test_equations_9_and_10_a_loss_of_three_tenths_closes_the_window_by_one_nack_and_a_smaller_one_does_not():
    window = NackWindow(StreamsConfig(nack_window=10.0, receive_window=10.0))
    now = 50.0
    for _ in range(5):
        now += 1.0
        window.decide(0.1, now=now)
    size = window.ticks
    window.decide(0.1 * size / (size - 100_000) * 1.2, now=now + 2.0)  # the same window, a sixth less
    assert window.ticks == size
    window.decide(0.3, now=now + 4.0)
    assert window.ticks == size - 100_000


def test_section_3_2_the_window_is_never_smaller_than_one_nack():
    window = NackWindow(StreamsConfig())
    for number in range(1, 100):
        window.decide(0.01 * 1.5**number if number < 10 else 1.0 * number, now=10.0 * number)
        assert window.ticks >= 100_000


def test_an_answer_that_takes_longer_than_the_patience_makes_the_patience_longer_for_what_is_asked_for_next():
    """Otherwise each range is asked for five times while a link is busy with the answers (see section 2)."""
    nacks = NackSchedule(StreamsConfig(nack_delay=0.0))
    asked = 0
    for number in range(1, 30):
        now, wanted = 10.0 * number, [(100 * number, 100 * number + 99)]
        answer_at = now + 3.0
        while now < answer_at:
            asked += len(nacks.due(wanted, now))
            following = nacks.next_at()
            assert following is not None
            now = max(following, now)
        nacks.answered(*wanted[0], answer_at)
        nacks.due([], answer_at)
    assert asked < 29 + 5
    assert nacks.round_trip == pytest.approx(3.0)


def test_section_5_e1_a_relay_caches_recent_ticks_while_old_ones_pass_by_for_an_edge_that_recovers():
    """Departure: an eighth of the cache is for what passes by, for a second edge that recovers."""
    message = a_message(1)
    cache = Known(bytes_max=100 * message.size_bytes, runs_max=1_000, late_share=0.125)
    for tick in range(10_000, 10_100):
        cache.learn(tick, tick, 1, [(tick, message)])
    for tick in range(1, 5_000):
        cache.learn(tick, tick, 1, [(tick, message)])
    recent = cache.known(10_000, 10_100, 1, bytes_max=1 << 30, items_max=1 << 30)
    assert sum(len(span.items) for span in recent) >= 87


def test_figure_14_after_an_outage_the_pace_is_near_0_and_rises():
    """001 does not say how often the pace is sampled; our samples go on while no query comes."""
    watch = HorizonWatch(StreamsConfig(pace_interval=0.5))
    for second in range(10):
        watch.queried(second, 0, (1_000 + second) * SECOND, recovering=False, now=float(second))
    assert watch.pace == pytest.approx(1.0)
    watch.queried(10, 0, 1_009 * SECOND, recovering=True, now=130.0)
    assert watch.pace is not None
    assert watch.pace < 0.01
    watch.queried(11, 0, 1_010 * SECOND, recovering=True, now=131.0)
    assert 0.15 < watch.pace < 0.25


def test_section_3_2_a_nack_has_a_least_size_and_names_nothing_beyond_the_window():
    window = NackWindow(StreamsConfig(nack_window=10.0, receive_window=10.0))
    for number in range(12):
        window.decide(0.1, now=50.0 + 0.1 * number)
    ends = [window.upto(position) for position in range(5 * SECOND, 6 * SECOND, 7_000)]
    assert {later - earlier for earlier, later in pairwise(ends)} == {0, 100_000}
    assert all(0 < end - 5 * SECOND - 7_000 * place <= window.ticks for place, end in enumerate(ends))


def test_section_7_the_figures_of_an_alert_say_how_severe_the_congestion_is():
    """Future work of the paper, and the product's rule: a mild alert lowers the rate a little, a severe one a lot."""
    lowered = []
    for arrives in (0.95, 0.6, 0.3):
        rate = MatchedRate(StreamsConfig())
        rate.alerted(Alert(1, arrives, lag=0.25), offered=125.0, next_query=2, now=10.0)
        assert rate.rate is not None
        lowered.append(rate.rate / 125.0)
    assert lowered[0] > 0.7
    assert lowered == sorted(lowered, reverse=True)
    assert lowered[2] < 0.3
