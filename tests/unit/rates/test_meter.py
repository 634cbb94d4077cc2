"""What a link can carry is measured while it is busy, and unknown otherwise."""

from __future__ import annotations

from math import exp

import pytest

from penstock.kernel.link import LinkLoad
from penstock.rates.meter import PUBLISHERS_MAX, RATE_SECONDS, LinkMeter, LinkSight

EMPTY = LinkLoad()


def looks(meter: LinkMeter, rate: float, capacity: float, seconds: float, start: float = 0.0) -> LinkSight | None:
    """Offer so many bytes per second to a link of this capacity, in messages of 100 bytes of one publisher."""
    now, offered, left, busy, sight = start, 0.0, 0.0, 0.0, None
    while now < start + seconds - 1e-9:
        now += 0.05
        for _ in range(round(rate * 0.05 / 100)):
            meter.note("p", 100, now)
            offered += 100
        sent = min(offered - left, capacity * 0.05)
        left += sent
        busy += sent / capacity
        load = LinkLoad(int(offered), int(left), int(offered - left), busy)
        sight = meter.look(load, now) or sight
    return sight


@pytest.mark.parametrize(("rate", "known"), [(20_000.0, False), (60_000.0, True), (200_000.0, True)])
def test_capacity_is_known_from_a_third_of_the_load_on(rate: float, known: bool) -> None:
    sight = looks(LinkMeter(0.05, EMPTY, 0.0), rate, 100_000.0, 2.0)
    assert (sight is not None) == known
    if sight is not None:
        assert sight.capacity == pytest.approx(100_000.0, rel=0.02)
        assert sight.offered == pytest.approx(rate, rel=0.02)
        assert sight.other == pytest.approx(0.0, abs=1.0)
        # A fading average of lumps every T seconds is (T/tau) / (1 - exp(-T/tau)) of the rate just after one.
        lump = 0.05 / RATE_SECONDS
        assert sum(sight.publishers) == pytest.approx(rate * lump / (1.0 - exp(-lump)), rel=0.01)


def test_what_publishers_do_not_send_is_other_traffic() -> None:
    meter = LinkMeter(0.05, EMPTY, 0.0)
    sight = None
    for look in range(1, 60):
        now = look * 0.05
        meter.note("p", 1_000, now)
        sight = meter.look(LinkLoad(look * 3_000, look * 3_000, 0, look * 0.025), now)
    assert sight is not None
    assert (sight.offered, sight.capacity) == (pytest.approx(20_000.0), pytest.approx(120_000.0))
    assert sight.other == pytest.approx(40_000.0, rel=0.01)


def test_a_link_that_has_become_slower_or_faster_is_noticed() -> None:
    meter = LinkMeter(0.05, EMPTY, 0.0)
    looks(meter, 200_000.0, 100_000.0, 1.0)
    meter._begin(EMPTY, 1.0)
    looks(meter, 200_000.0, 20_000.0, 0.1, 1.0)
    assert meter.capacity == pytest.approx(20_000.0, rel=0.02)
    meter._begin(EMPTY, 1.1)
    looks(meter, 20_000.0, 100_000.0, 2.0, 1.1)
    assert meter.capacity == pytest.approx(100_000.0, rel=0.1)


def test_a_look_too_early_says_nothing_and_loses_nothing() -> None:
    meter = LinkMeter(0.05, EMPTY, 0.0)
    meter.note("p", 100, 0.01)
    assert meter.look(LinkLoad(100, 100, 0, 0.01), 0.02) is None
    sight = meter.look(LinkLoad(100, 100, 0, 0.05), 0.05)
    assert sight is not None
    assert sight.offered == pytest.approx(2_000.0)


@pytest.mark.parametrize("now", [-5.0, 0.1, 100.0])
def test_clocks_that_jump_and_counters_that_begin_again_say_nothing(now: float) -> None:
    meter = LinkMeter(0.05, LinkLoad(1_000, 1_000, 0, 1.0), 0.0)
    assert meter.look(LinkLoad(0, 0, 0, 0.0), now) is None
    assert meter.capacity is None


def test_the_table_of_publishers_is_bounded_and_forgets_the_silent() -> None:
    meter = LinkMeter(0.05, EMPTY, 0.0)
    for number in range(2 * PUBLISHERS_MAX):
        meter.note(f"p{number}", 10, 0.04)
    sight = meter.look(LinkLoad(1_000, 1_000, 0, 0.05), 0.05)
    assert sight is not None
    assert len(sight.publishers) == PUBLISHERS_MAX + 1
    assert not meter.idle(0.5)
    assert meter.idle(2.0)
