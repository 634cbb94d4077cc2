"""Chance that is kept to, waiting that grows with prices, and a broker's own links as they are now."""

from __future__ import annotations

from random import Random

import pytest

from penstock.pricing.account import Account
from penstock.pricing.config import PricingConfig
from penstock.pricing.patience import COMFORTABLE, EAGER, LONGEST, SLOW, STEP, Patience, eagerness

HOP = (0, 1)
INTERVAL = 0.05


def tries_for(purchases: int, price: float, config: PricingConfig, seed: int) -> int:
    account, random, tries = Account(config, INTERVAL, 0.5, 0.0), Random(seed), 0
    for _ in range(purchases):
        tries += 1
        while not account.may_buy(price, random):
            tries += 1
    return tries


@pytest.mark.parametrize("even", [False, True])
def test_a_purchase_takes_as_many_tries_as_its_price_in_the_long_run(even):
    config = PricingConfig(even_chance=even)
    assert tries_for(5_000, 7.3, config, 1) == pytest.approx(5_000 * 7.3, rel=0.05)


def test_with_even_chance_no_sender_is_luckier_than_another():
    config = PricingConfig(even_chance=True)
    assert {tries_for(100, 7.0, config, seed) for seed in range(20)} <= set(range(693, 708))


def test_without_chance_and_for_the_fee_alone_whoever_can_pay_buys():
    account = Account(PricingConfig(randomised=False), INTERVAL, 0.5, 0.0)
    assert account.may_buy(15.0, Random(1))
    assert Account(PricingConfig(), INTERVAL, 0.0, 0.0).may_buy(1.0, Random(1))


def test_a_link_that_is_not_dear_is_tried_again_within_an_interval():
    patience = Patience()
    assert patience.wait(HOP, COMFORTABLE, INTERVAL, 0.0) == INTERVAL
    assert patience.wait(HOP, 0.0, INTERVAL, 1.0) == INTERVAL


def test_a_link_that_stays_dear_is_tried_ten_times_less_often_for_each_step():
    patience = Patience()
    assert patience.wait(HOP, COMFORTABLE + STEP, INTERVAL, 0.0) == pytest.approx(10 * INTERVAL)
    assert patience.wait((1, 2), COMFORTABLE + 20.0, INTERVAL, 0.0) == LONGEST


def test_a_price_counts_when_it_has_lasted():
    patience = Patience()
    patience.wait(HOP, 0.0, INTERVAL, 0.0)
    assert patience.wait(HOP, COMFORTABLE + 5.0, INTERVAL, 0.1) == INTERVAL
    assert patience.wait(HOP, COMFORTABLE + 5.0, INTERVAL, 10 * SLOW) > 10 * INTERVAL
    assert patience.wait(HOP, 0.0, INTERVAL, 0.0) > INTERVAL  # a clock that was set back changes nothing


def test_where_little_is_to_be_paid_the_next_try_comes_sooner():
    assert [eagerness(cost) for cost in (0.0, COMFORTABLE / 2, COMFORTABLE, 50.0)] == [EAGER, 0.5, 1.0, 1.0]
