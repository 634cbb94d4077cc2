"""Accounts and prices, against the formulas of 003 section 4.2 as corrected (errata F4 to F6)."""

from __future__ import annotations

from math import e, exp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pricing.account import Account
from penstock.pricing.benefit import BENEFITS, Worth
from penstock.pricing.config import PricingConfig
from penstock.pricing.costs import SHAPES, link_cost

UPDATE = 0.05
PAPER = PricingConfig(first_balance=0.0)


def account(config: PricingConfig = PAPER, *, period: float = 1.0, phase: float = 1.0) -> Account:
    made = Account(config, UPDATE, phase, 0.0)
    made.period = period
    made.next_salary = period * phase
    return made


def test_the_values_of_003_4_2_1():
    assert link_cost("exponential", 0, 100, 20) == 0.0
    assert link_cost("exponential", 50, 100, 20) == pytest.approx(7.55, abs=0.005)
    assert link_cost("exponential", 97, 100, 20) == pytest.approx(19.06, abs=0.005)
    assert link_cost("exponential", 100, 100, 20) == pytest.approx(20.0)
    for x in (3.0, 80.0):
        assert link_cost("exponential", x, 100, 20) == pytest.approx(20 * (exp(x / 100) - 1) / (e - 1))
        assert link_cost("exponential-20", x, 100, 20) == pytest.approx(20 * (20 ** (x / 100) - 1) / 19)
        assert link_cost("linear", x, 100, 20) == pytest.approx(20 * x / 100)
        assert link_cost("square", x, 100, 20) == pytest.approx(20 * (x / 100) ** 2)


@pytest.mark.parametrize("name", list(SHAPES))
def test_every_cost_function_is_0_when_empty_and_the_savings_at_the_soft_limit_and_grows(name):
    costs = [link_cost(name, x, 100, 20) for x in range(0, 1_500, 10)]
    assert costs[0] == 0.0
    assert costs[10] == pytest.approx(20.0)
    assert costs == sorted(costs)


def test_nobody_can_buy_a_way_over_a_link_with_more_than_96_8_in_its_buffer():
    """Protocols section 7: with the cap after the salary, and a fee of 1."""
    assert 1.0 + link_cost("exponential", 96.7, 100, 20) <= 20.0 < 1.0 + link_cost("exponential", 96.9, 100, 20)


def test_a_salary_is_capped_after_or_before_it_was_paid():
    """Erratum F4: the switch between the two readings."""
    for cap, expected in (("after", 20.0), ("before", 30.0)):
        made = account(PricingConfig(first_balance=20.0, cap=cap))
        made.settle(1.0)
        assert made.balance == expected


def test_the_period_of_003_equation_3_adds_one_salary_per_update_interval_and_equation_4_halves_their_rate():
    made = account(period=0.8)
    made.block(2.0, 0.5)
    made.settle(0.8)
    assert 1 / made.period == pytest.approx(1 / 0.8 + 1 / UPDATE)
    made.block(16.0, made.next_salary)
    before = made.period
    made.settle(made.next_salary)
    assert made.period == pytest.approx(2 * before)


def test_whoever_was_not_blocked_keeps_its_period():
    made = account(period=0.4)
    made.balance = 5.0
    made.buy(1.0, 0.1)
    made.settle(0.4)
    assert made.period == 0.4


def test_a_dear_purchase_counts_more_than_the_price_that_could_not_be_paid_and_that_only_if_nothing_was_bought():
    """Erratum F6."""
    made = account(period=0.1)
    made.balance = 18.0
    made.buy(16.0, 0.01)
    made.block(3.0, 0.02)
    made.settle(0.1)
    assert made.period == pytest.approx(0.2)
    made.block(17.0, 0.15)
    made.settle(0.301)
    assert made.period == pytest.approx(0.4)


def test_an_account_that_rests_is_full_afterwards_and_pays_at_the_same_times():
    made = account(period=0.25)
    made.settle(100.1)
    assert made.balance == 20.0
    assert made.next_salary == pytest.approx(100.25)


def test_a_clock_that_is_set_back_does_not_stop_salaries():
    made = account()
    made.settle(1_000.0)
    made.settle(10.0)
    assert made.next_salary <= 10.0 + made.period


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(1.0, 30.0), st.booleans()), max_size=60),
    st.sampled_from(["after", "before"]),
)
def test_balances_and_periods_stay_within_their_bounds(steps, cap):
    config = PricingConfig(cap=cap)
    made = Account(config, UPDATE, 0.3, 0.0)
    now = 0.0
    for passed, price, wants in steps:
        now += passed
        made.settle(now)
        if wants and made.can_pay(price, now):
            made.buy(price, now)
        assert 0.0 <= made.balance <= 20.0 + (10.0 if cap == "before" else 0.0)
        assert 0.005 <= made.period <= 1.0
        assert made.next_salary > now


def test_benefits():
    one = Worth(brokers=3, sent_lately=0.0, link_cost=0.0)
    assert BENEFITS["sent"](one) == 1.0
    assert BENEFITS["received"](one) == 3.0
    assert BENEFITS["concave"](one) == 1.0 > BENEFITS["concave"](one._replace(sent_lately=100.0))
    assert BENEFITS["latency"](one) == 1.0 > BENEFITS["latency"](one._replace(link_cost=2.0))
