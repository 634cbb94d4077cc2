"""DistanceEstimator by echo: asked sparingly, answered always, believed only when they were asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.envelope import kind_of, opened
from penstock.kernel.trace import InputRefused, LimitReached
from penstock.transport.agreement import settings_told
from penstock.transport.bearer import BearerPublish, TransportEffect
from penstock.transport.config import papers_config
from penstock.transport.recovery.distance_estimator import DISTANCE_MIN, ROUND_TRIP_MAX, DistanceEstimator
from penstock.transport.wire.control_messages import (
    ANSWER,
    ECHO,
    TO,
    ControlIdentities,
    EchoReply,
    EchoRequest,
    decode_control,
)

TOLD = settings_told(papers_config())


def made(**settings: Any) -> DistanceEstimator:
    return DistanceEstimator("me", papers_config(**settings), ControlIdentities("me", 1))


def measure(distances: DistanceEstimator, node: str, start: float, round_trip: float) -> None:
    assert distances.ask(node, start)
    assert distances.echo_reply_received(EchoReply(node, start, 123.0), start + round_trip) == []


def sent(effects: list[TransportEffect]) -> Any:
    """The one control message that was sent, its kind, and to whom."""
    (effect,) = effects
    assert isinstance(effect, BearerPublish)
    data, _ = opened(effect.message)
    kind = kind_of(effect.message)
    return kind, effect.message.attributes[TO], decode_control(data, EchoRequest if kind == ECHO else EchoReply)


def test_until_measured_a_distance_is_the_first_guess() -> None:
    distances = made(distance_first=0.25)
    assert distances.to("other") == 0.25
    assert not distances.known("other")
    assert distances.round_trip("other") is None


def test_an_echo_goes_to_the_inbox_and_its_answer_gives_half_the_round_trip() -> None:
    distances = made()
    assert sent(distances.ask("other", 10.0)) == (ECHO, "other", EchoRequest("me", 10.0, TOLD))
    assert distances.echo_reply_received(EchoReply("other", 10.0, -5_000.0), 10.5) == []
    assert distances.to("other") == pytest.approx(0.25)
    assert distances.round_trip("other") == pytest.approx(0.5)
    assert distances.known("other")


def test_whoever_asks_gets_an_answer_with_its_own_time_in_it() -> None:
    assert sent(made().echo_request_received(EchoRequest("other", 77.5), 3.0)) == (
        ANSWER,
        "other",
        EchoReply("me", 77.5, 3.0, TOLD),
    )


def test_later_round_trips_are_smoothed() -> None:
    distances = made(echo_interval=1.0)
    measure(distances, "other", 0.0, 1.0)
    measure(distances, "other", 10.0, 2.0)
    assert distances.round_trip("other") == pytest.approx(0.9 * 1.0 + 0.1 * 2.0)


def test_no_second_echo_while_one_is_under_way_and_none_while_the_estimate_is_fresh() -> None:
    distances = made(echo_interval=10.0)
    assert distances.ask("other", 0.0)
    assert distances.ask("other", 1.9) == []
    assert distances.ask("other", 2.0)  # the first is lost
    assert distances.echo_reply_received(EchoReply("other", 2.0, 0.0), 2.5) == []
    assert distances.ask("other", 12.4) == []
    assert distances.ask("other", 12.5)


def test_on_a_long_way_the_answer_to_the_echo_before_counts() -> None:
    distances = made(echo_interval=10.0)
    for second in (0.0, 2.0):
        assert distances.ask("far", second)
    assert distances.echo_reply_received(EchoReply("far", 0.0, 0.0), 3.2) == []
    assert distances.round_trip("far") == pytest.approx(3.2)


def test_an_interval_of_zero_switches_echoes_off_but_answers_go_out() -> None:
    distances = made(echo_interval=0.0)
    assert distances.ask("other", 0.0) == []
    assert distances.echo_request_received(EchoRequest("other", 1.0), 2.0)


def test_nobody_asks_itself() -> None:
    distances = made()
    assert distances.ask("me", 0.0) == []
    assert distances.echo_request_received(EchoRequest("me", 0.0), 0.0) == []
    assert distances.to("me") == DISTANCE_MIN


def test_answers_that_nobody_asked_for_change_nothing() -> None:
    distances = made()
    assert distances.echo_reply_received(EchoReply("other", 0.0, 0.0), 1.0) == []
    distances.ask("other", 5.0)
    assert distances.echo_reply_received(EchoReply("other", 4.9, 0.0), 5.1) == []  # another time
    assert distances.echo_reply_received(EchoReply("third", 5.0, 0.0), 5.1) == []  # another name
    assert not distances.known("other")
    assert distances.echo_reply_received(EchoReply("other", 5.0, 0.0), 5.2) == []
    assert distances.echo_reply_received(EchoReply("other", 5.0, 0.0), 9.0) == []  # the same once more
    assert distances.round_trip("other") == pytest.approx(0.2)


@pytest.mark.parametrize("round_trip", [-0.001, -3_600.0, ROUND_TRIP_MAX + 1.0])
def test_absurd_round_trips_are_refused_and_change_nothing(round_trip: float) -> None:
    distances = made(echo_interval=1.0)
    measure(distances, "other", 0.0, 0.5)
    distances.ask("other", 100.0)
    (record,) = distances.echo_reply_received(EchoReply("other", 100.0, 0.0), 100.0 + round_trip)
    assert isinstance(record, InputRefused)
    assert distances.round_trip("other") == 0.5


def test_names_that_nobody_has_are_refused() -> None:
    (record,) = made().echo_request_received(EchoRequest("x" * 5_000, 0.0), 0.0)
    assert isinstance(record, InputRefused)
    assert len(record.sender) <= 40
    assert made().ask("x" * 5_000, 0.0) == []


def test_a_distance_is_never_zero() -> None:
    distances = made()
    measure(distances, "other", 0.0, 0.0)
    assert distances.to("other") == DISTANCE_MIN


def test_when_the_table_is_full_the_least_recently_used_goes_with_a_record() -> None:
    distances = made(distances_max=2)
    measure(distances, "a", 0.0, 0.2)
    measure(distances, "b", 0.0, 0.2)
    distances.to("a")
    distances.ask("c", 0.0)
    assert distances.echo_reply_received(EchoReply("c", 0.0, 0.0), 0.2) == [LimitReached("distances", 2)]
    assert [distances.known(node) for node in "abc"] == [True, False, True]


def test_invented_names_push_out_nothing_that_is_known() -> None:
    distances = made(distances_max=2)
    measure(distances, "a", 0.0, 0.2)
    for number in range(10):
        effects = distances.ask(f"nobody{number}", 1.0)
    assert LimitReached("echoes", 2) in effects
    assert distances.known("a")


def test_after_a_clock_was_set_back_distances_are_asked_again() -> None:
    distances = made()
    measure(distances, "other", 1_000.0, 0.2)
    assert distances.ask("other", 10.0)
    assert distances.echo_reply_received(EchoReply("other", 10.0, 0.0), 10.4) == []
    assert distances.ask("other", 11.0) == []


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 100), st.floats(0, 5), st.booleans()), max_size=60))
def test_distances_stay_within_what_was_measured_and_tables_within_bounds(
    events: list[tuple[str, float, float, bool]],
) -> None:
    distances, now = made(distances_max=3, echo_interval=1.0), 0.0
    for node, step, round_trip, forged in events:
        now += step
        asked = distances.ask(node, now)
        distances.echo_reply_received(EchoReply(node, now + forged, 0.0), now + round_trip)
        now += round_trip
        assert len(distances) <= 3
        assert len(asked) <= 2
        assert DISTANCE_MIN <= distances.to(node) <= 2.5
