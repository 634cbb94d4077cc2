"""The law of rates against a fluid model of publishers, a queue and a delay; the level against bisection."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest

from penstock.rates.fair_rate import FairRate, backlog_wanted, fair_level
from penstock.rates.meter import LinkSight

STEP = 0.05


def max_min(demands: list[float], capacity: float) -> float:
    """The rate at which these demands fill the capacity, by bisection."""
    low, high = 0.0, capacity
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(min(one, middle) for one in demands) < capacity else (low, middle)
    return low


class Fluid:
    """Publishers that want `demands` and obey the rate one delay later, before a link with a queue."""

    def __init__(self, demands: list[float], capacity: float, delay: float, response: float) -> None:
        self.demands, self.capacity = demands, capacity
        self.fair = FairRate(response, 200)
        self.queue = self.lost = self.sent = 0.0
        self.queue_max = 200 * 250.0
        self._told = deque([capacity / len(demands)] * max(1, round(delay / STEP)))

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            rate = self._told.popleft()
            sends = tuple(min(one, rate) for one in self.demands)
            offered = sum(sends) * STEP
            queue = max(0.0, self.queue + offered - self.capacity * STEP)
            self.sent += self.queue + offered - queue
            self.lost += max(0.0, queue - self.queue_max)
            self.queue = min(queue, self.queue_max)
            sight = LinkSight(STEP, sum(sends), 0.0, self.capacity, self.queue / self.capacity, sends, 250.0)
            self._told.append(self.fair.update(sight))


@pytest.mark.parametrize("seed", range(12))
def test_the_rate_finds_the_max_min_share_and_a_short_queue(seed: int) -> None:
    random = Random(seed)
    demands = [random.uniform(1_000.0, 100_000.0) for _ in range(random.randint(2, 40))]
    capacity = sum(demands) * random.uniform(0.2, 0.8)
    delay = random.choice([0.05, 0.1, 0.4])
    fluid = Fluid(demands, capacity, delay, max(0.2, 1.5 * delay))
    fluid.run(30.0)
    before = fluid.sent
    fluid.run(10.0)
    assert fluid.fair.rate == pytest.approx(max_min(demands, capacity), rel=0.1), f"seed {seed}"
    assert (fluid.sent - before) / (10.0 * capacity) > 0.97, f"seed {seed}"
    assert fluid.queue / capacity < 0.3, f"seed {seed}"


def test_a_link_that_slows_down_lowers_the_rate_at_once() -> None:
    fluid = Fluid([50_000.0] * 5, 125_000.0, 0.05, 0.2)
    fluid.run(10.0)
    rate = fluid.fair.rate
    assert rate is not None
    fluid.capacity /= 5.0
    fluid.run(STEP)
    assert fluid.fair.rate is not None
    assert fluid.fair.rate < 0.25 * rate


def test_nobody_starves_and_nobody_gets_more_than_the_link() -> None:
    fair = FairRate(0.2, 50)
    full = LinkSight(STEP, 500_000.0, 0.0, 100_000.0, 5.0, (50_000.0,) * 10, 250.0)
    idle = LinkSight(STEP, 1_000.0, 0.0, 100_000.0, 0.0, (1_000.0,), 250.0)
    assert [fair.update(full) for _ in range(100)][-1] == pytest.approx(7_000.0)
    assert [fair.update(idle) for _ in range(100)][-1] == pytest.approx(100_000.0, rel=0.01)


def test_unregulated_traffic_is_subtracted_but_leaves_something() -> None:
    sight = LinkSight(STEP, 10_000.0, 60_000.0, 100_000.0, 0.0, (5_000.0, 5_000.0), 250.0)
    assert FairRate(0.2, 50).update(sight) == pytest.approx(20_000.0)
    assert FairRate(0.2, 50).update(sight._replace(other=1e9)) == pytest.approx(50_000.0 / 3)


@pytest.mark.parametrize("seed", range(20))
def test_the_level_is_that_of_bisection(seed: int) -> None:
    random = Random(seed)
    rate, capacity = random.uniform(10.0, 100.0), random.uniform(100.0, 1_000.0)
    sent = [random.uniform(0.0, rate) for _ in range(random.randint(1, 30))]
    level = fair_level(sent, rate, capacity)
    wants = [1e9 if one >= 0.75 * rate else one for one in sent]
    if max(wants) < 1e9 and sum(wants) < capacity:
        assert level == pytest.approx(max(wants) + capacity - sum(wants))
    else:
        assert level == pytest.approx(max_min(wants, capacity))


def test_the_wanted_backlog_is_short_and_never_most_of_the_queue() -> None:
    fast = LinkSight(STEP, 0.0, 0.0, 1e7, 0.0, (), 250.0)
    slow = fast._replace(capacity=1_000.0)
    assert backlog_wanted(fast, 1.0) == 0.02
    assert backlog_wanted(slow, 100.0) == 2.0
    assert backlog_wanted(slow, 2.0) == 0.5


@pytest.mark.parametrize("capacity", [0.125, 12.5e9])
def test_any_capacity_gives_a_rate_between_its_bounds(capacity: float) -> None:
    fair = FairRate(0.2, 1)
    for backlog in (0.0, 1e9, 0.0):
        rate = fair.update(LinkSight(STEP, 10 * capacity, 0.0, capacity, backlog, (capacity, capacity), 250.0))
        assert 0.0 < rate <= capacity


def test_foreign_traffic_gets_half_at_most_and_its_queue_does_not_count() -> None:
    fair = FairRate(0.2, 50)
    beside = LinkSight(STEP, 50_000.0, 0.0, 100_000.0, 0.5, (25_000.0, 25_000.0), 250.0, 100_000.0)
    assert [fair.update(beside) for _ in range(50)][-1] == pytest.approx(25_000.0)
