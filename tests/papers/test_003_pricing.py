"""What 003 says, claim by claim: sections 4.1 to 5, with the errata F1 to F7."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from math import e, exp, log2
from random import Random
from typing import NamedTuple

import pytest

from penstock.lab.setups.spread import GROUPS, PAPER_PRICING, SCENARIO_2, spread_network
from penstock.pricing.account import Account
from penstock.pricing.benefit import BENEFITS, Worth
from penstock.pricing.costs import link_cost
from penstock.sim.run import simulate

UPDATE = 0.05


# Section 4.1: admission of permanent circuits, as a toy.


class Circuit(NamedTuple):
    """A request: which links it wants, how much of each, and what a unit of it is worth."""

    links: tuple[int, ...]
    rate: float
    value: float

    @property
    def benefit(self) -> float:
        return self.rate * self.value


def opportunity_cost(use: float, least: float, base: float) -> float:
    """Equation 1 with erratum F1: it starts at the least benefit of a link, and not at 1."""
    return least * base**use


def admitted(requests: Sequence[Circuit], links: int, *, least: float, base: float) -> list[Circuit]:
    """Accept what is worth more than its way costs, and fits."""
    used = [0.0] * links
    accepted = []
    for one in requests:
        price = sum(opportunity_cost(used[link], least, base) for link in one.links)
        if one.value >= price and all(used[link] + one.rate <= 1.0 for link in one.links):
            accepted.append(one)
            for link in one.links:
                used[link] += one.rate
    return accepted


def best_offline(requests: Sequence[Circuit], links: int) -> float:
    """The largest benefit of any set that fits."""
    subsets = chain.from_iterable(combinations(requests, size) for size in range(len(requests) + 1))
    best = 0.0
    for subset in subsets:
        used = [sum(one.rate for one in subset if link in one.links) for link in range(links)]
        if max(used) <= 1.0 + 1e-9:
            best = max(best, sum(one.benefit for one in subset))
    return best


def instance(seed: int) -> tuple[list[Circuit], int, int, float, float]:
    """Random requests on a line; rates are small beside a link, as the theorem needs."""
    random = Random(seed)
    links, highest, lowest = random.randint(2, 4), random.choice((2.0, 8.0)), 1.0
    longest = random.randint(2, links)
    rate_max = 1.0 / log2(longest * highest / lowest)
    requests = []
    for _ in range(11):
        length = random.randint(1, longest)
        first = random.randint(0, links - length)
        rate = rate_max * random.uniform(0.5, 1.0)
        requests.append(Circuit(tuple(range(first, first + length)), rate, random.uniform(lowest, highest)))
    if random.random() < 0.5:
        requests.sort(key=lambda one: one.value)  # the worst order: cheap ones first
    return requests, links, longest, lowest, highest


@pytest.mark.parametrize("seed", range(12))
def test_4_1_admission_by_opportunity_cost_is_competitive_with_the_best_that_could_be_known(seed):
    """Theorem 1 with errata F1 and F2: least benefit of a link alpha/d, base d beta/alpha.

    Accepting raises all costs together by at most log2(base) times the benefit; what the best choice has and we refused
    was worth less than its way cost in the end, or twice that where it did not fit.
    """
    requests, links, longest, lowest, highest = instance(seed)
    least, base = lowest / longest, longest * highest / lowest
    ours = sum(one.benefit for one in admitted(requests, links, least=least, base=base))
    bound = (1.0 + 2.0 * log2(base)) * ours + 2.0 * links * least
    assert best_offline(requests, links) <= bound, f"seed {seed}"


def test_4_1_with_the_printed_formulas_an_idle_network_refuses_a_long_circuit():
    """Errata F1 and F2: anybody can afford an unused way only if the costs of its links start at alpha/d."""
    long = Circuit((0, 1, 2), 0.1, 1.0)
    assert admitted([long], 3, least=1.0, base=8.0) == []
    assert admitted([long], 3, least=1.0 / 3.0, base=24.0) == [long]


def test_4_1_nobody_can_afford_a_link_that_is_full():
    assert opportunity_cost(1.0, 1.0 / 3.0, 3.0 * 8.0) == pytest.approx(8.0)


def test_4_1_a_concave_benefit_serves_many_a_little_rather_than_one_much():
    lately = [BENEFITS["concave"](Worth(1, sent, 0.0)) for sent in (0.0, 50.0, 500.0)]
    assert lately == sorted(lately, reverse=True)


# Section 4.2: costs, benefit, salaries.


def test_4_2_1_a_link_costs_nothing_when_empty_and_all_savings_at_the_soft_limit():
    assert link_cost("exponential", 0, 100, 20) == 0.0
    assert link_cost("exponential", 100, 100, 20) == pytest.approx(20.0)
    assert link_cost("exponential", 40, 100, 20) == pytest.approx(20 * (exp(0.4) - 1) / (e - 1))


def test_4_2_1_base_20_hardly_sees_the_first_twenty_packets():
    assert link_cost("exponential-20", 20, 100, 20) < 0.35 * link_cost("exponential", 20, 100, 20)


def test_4_2_2_one_unit_for_each_packet_sent_is_the_benefit_by_default():
    assert PAPER_PRICING.salary == 10.0
    assert BENEFITS["sent"](Worth(7, 100.0, 3.0)) == 1.0


def test_4_2_2_what_is_saved_above_the_cap_is_lost():
    account = Account(PAPER_PRICING, UPDATE, 1.0, 0.0)
    for salary in range(1, 6):
        account.settle(account.period * salary)
    assert account.balance == PAPER_PRICING.savings


def test_4_2_3_the_fee_bounds_what_can_be_sent_between_two_updates():
    account = Account(PAPER_PRICING, UPDATE, 1.0, 0.0)
    account.balance = 20.0
    bought = 0
    while account.can_pay(PAPER_PRICING.fee, 0.0):
        account.buy(PAPER_PRICING.fee, 0.0)
        bought += 1
    assert bought == 20


@pytest.mark.parametrize("period", [0.5, 0.1, 0.02])
def test_equations_3_and_4_are_the_window_of_tcp(period):
    """One more in T_update/T, and half of it; erratum F5: linear in the rate of salaries and not in the period."""
    account = Account(PAPER_PRICING, UPDATE, 1.0, 0.0)
    for price, expected in ((1.0, UPDATE / period + 1.0), (15.0, UPDATE / period / 2.0)):
        account.period, account.next_salary = period, 1.0
        account.block(price, 0.5)
        account.settle(1.0)
        assert UPDATE / account.period == pytest.approx(expected)


def test_4_2_3_whoever_can_pay_sends_with_probability_1_over_the_price():
    """Erratum F7: this is a probability because the fee is at least 1."""
    account, random = Account(PAPER_PRICING, UPDATE, 0.5, 0.0), Random(1)
    lucky = sum(account.may_buy(5.0, random) for _ in range(10_000))
    assert lucky == pytest.approx(2_000, rel=0.1)


# Sections 1 and 5, small.


def test_1_control_traffic_does_not_grow_with_groups():
    """Five groups of one sender, and one group of five, in a network that is not congested: the same reports."""
    found = []
    for groups, senders in ((1, 5), (5, 1)):
        ends = {f"G{number}": GROUPS["G_ace"] for number in range(groups)}
        wide = {link: 100.0 * rate for link, rate in SCENARIO_2.items()}
        scenario = spread_network("control", wide, ends, duration=4.0, senders=senders)
        counts = _Control()
        simulate(scenario, 1, trace=counts)
        found.append(counts.control_bytes)
    assert found[1] == pytest.approx(found[0], rel=0.1)


class _Control:
    def __init__(self) -> None:
        self.control_bytes = 0.0

    def write(self, time: float, node: str, record: object) -> None:
        if getattr(record, "name", "") == "control bytes":
            self.control_bytes += record.value  # type: ignore[attr-defined]
