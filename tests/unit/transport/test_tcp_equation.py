"""TCP's response function and its inverse."""

from __future__ import annotations

from math import inf, isclose, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.transport.receiver.tcp_equation import allowed_rate, loss_event_rate_for

losses = st.floats(1e-9, 1.0)
round_trips = st.floats(1e-4, 10.0)


@given(losses, losses, round_trips)
def test_more_loss_never_allows_more(one: float, other: float, round_trip: float) -> None:
    assert allowed_rate(max(one, other), round_trip) <= allowed_rate(min(one, other), round_trip)


@given(losses, round_trips)
def test_the_inverse_is_the_inverse(loss: float, round_trip: float) -> None:
    assert isclose(loss_event_rate_for(allowed_rate(loss, round_trip), round_trip), loss, rel_tol=1e-9)


@given(st.floats(1e-3, 1e6), round_trips)
def test_the_rate_that_was_asked_for_is_allowed_again(rate: float, round_trip: float) -> None:
    loss = loss_event_rate_for(rate, round_trip)
    assert 0.0 < loss <= 1.0
    if loss < 1.0:
        assert isclose(allowed_rate(loss, round_trip), rate, rel_tol=1e-9)
    else:
        assert rate <= allowed_rate(1.0, round_trip) * (1.0 + 1e-9)


def test_the_inverse_at_its_ends() -> None:
    assert loss_event_rate_for(0.0, 0.1) == 1.0
    assert loss_event_rate_for(1e-300, 1e-3) == 1.0
    assert loss_event_rate_for(inf, 0.1) == 0.0
    assert loss_event_rate_for(1e200, 0.1) == 0.0


@pytest.mark.parametrize("loss", [-0.1, 1.1, nan])
def test_a_loss_event_rate_that_cannot_be_is_refused(loss: float) -> None:
    with pytest.raises(ValueError, match="loss event rate"):
        allowed_rate(loss, 0.1)


@pytest.mark.parametrize("round_trip", [0.0, -1.0, inf, nan])
def test_a_round_trip_that_cannot_be_is_refused(round_trip: float) -> None:
    with pytest.raises(ValueError, match="round trip"):
        allowed_rate(0.01, round_trip)
    with pytest.raises(ValueError, match="round trip"):
        loss_event_rate_for(10.0, round_trip)


@pytest.mark.parametrize("rate", [-1.0, nan])
def test_a_rate_that_cannot_be_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="messages/s"):
        loss_event_rate_for(rate, 0.1)
