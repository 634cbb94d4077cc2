"""Who sends more than its rate for long is held to it at the link, and honest homes never are."""

from __future__ import annotations

from collections import Counter, deque
from random import Random

import pytest

from penstock.kernel.trace import Delivered, Dropped, Record
from penstock.lab.setups.network_rates import rates_network
from penstock.rates.meter import PUBLISHERS_MAX
from penstock.rates.policer import SLACK, Policer
from penstock.rates.purse import SharePurse
from penstock.sim.run import simulate

STEP = 0.05
SIZE = 300


@pytest.mark.parametrize("seed", range(5))
def test_an_honest_home_that_hears_late_is_never_held_and_a_cheat_gets_its_rate(seed: int) -> None:
    random = Random(seed)
    policer, lag = Policer(), random.uniform(0.01, 0.4)
    rate, now, got = 50_000.0, 0.0, Counter[str]()
    told: deque[tuple[float, float]] = deque()
    purse = SharePurse(rate, SIZE, 0.0, used=rate)
    held_from: float | None = None
    for look in range(1_200):
        now = look * STEP
        rate = min(1e5, max(1e4, rate * random.uniform(0.7, 1.4)))
        policer.told(rate, now)
        told.append((now + lag, rate))
        policer.look(True, SIZE, 2.0 * lag, now)
        for part in range(100):
            at = now + part * STEP / 100
            while told and told[0][0] <= at:
                purse.set_share(told.popleft()[1], at)
            if purse.can_pay(at):
                purse.pay(SIZE, at)
                assert policer.admits("honest", SIZE, at)
            if policer.admits("cheat", SIZE, at):
                got["cheat"] += SIZE
            elif held_from is None:
                held_from, got["cheat"] = at, 0
        if held_from is not None:
            got["fair"] += int(rate * STEP)
    assert policer.dropped > 0
    assert got["cheat"] <= 1.01 * SLACK * got["fair"] + 1e5 * 2.0


def test_nobody_is_held_before_the_rate_was_told_for_a_while_nor_when_the_link_is_free_again() -> None:
    policer = Policer()
    policer.told(1_000.0, 0.0)
    policer.look(True, SIZE, 0.0, 0.2)
    assert all(policer.admits("p", SIZE, 0.2) for _ in range(100))
    policer.look(True, SIZE, 0.0, 0.6)
    assert not all(policer.admits("p", SIZE, 0.6) for _ in range(100))
    policer.look(False, SIZE, 0.0, 0.7)
    assert all(policer.admits("p", SIZE, 0.7) for _ in range(100))
    policer.told(1_000.0, 9.0)
    policer.look(True, SIZE, 0.0, 8.0)  # the clock was set back
    assert all(policer.admits("p", SIZE, 8.0) for _ in range(100))


def test_the_table_of_publishers_is_bounded() -> None:
    policer = Policer()
    policer.told(1_000.0, 0.0)
    policer.look(True, SIZE, 0.0, 1.0)
    for number in range(PUBLISHERS_MAX + 10):
        assert policer.admits(f"p{number}", SIZE, 1.0)
    assert len(policer._purses) == PUBLISHERS_MAX
    assert all(policer.admits("another", SIZE, 1.0) for _ in range(100)), "who is not in the table is not held"
    assert policer.admits("another", SIZE, 60.0)
    assert len(policer._purses) == 1, "full buckets are forgotten"


class _Notes:
    def __init__(self) -> None:
        self.got: Counter[str] = Counter()
        self.over: Counter[str] = Counter()

    def write(self, time: float, node: str, record: Record) -> None:
        if isinstance(record, Delivered):
            self.got[record.publisher] += 1
        elif isinstance(record, Dropped) and record.cause == "over its rate":
            self.over[record.publisher] += 1


@pytest.mark.parametrize("seed", [13, 15, 22])
def test_a_home_that_cheats_takes_nothing_from_honest_ones(seed: int) -> None:
    notes = _Notes()
    assert not simulate(rates_network("cheating", seed, seconds=20.0, controlled=True), seed, trace=notes).problems
    fair = notes.got.total() / len(notes.got)
    assert set(notes.over) == {"cheat-p"}, "and nobody else is held to anything"
    assert notes.got.pop("cheat-p") < 1.3 * fair
    assert min(notes.got.values()) > 0.9 * fair
