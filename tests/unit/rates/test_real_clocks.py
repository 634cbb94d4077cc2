"""Fair rates by a clock that counts from 1970: a microsecond is a few steps of a float, and must not stop anybody."""

from __future__ import annotations

from itertools import count
from random import Random

from penstock.rates.announcer import Announcer
from penstock.rates.config import RatesConfig
from penstock.rates.purse import Purse

EPOCH = 1.79e9


def test_a_purse_can_pay_when_it_says_so_however_fast_it_fills() -> None:
    """A broker hung for good here: its timer found no token, and stood at the same moment again."""
    random = Random(1)
    for _ in range(2_000):
        now = EPOCH + random.random()
        purse = Purse(10.0 ** random.uniform(0.0, 12.0), 1_000, now)
        while purse.can_pay(now):
            purse.pay(random.randrange(1, 60_000), now)
        assert purse.can_pay(purse.solvent_at())


def test_a_link_that_begins_anew_does_not_count_its_versions_again() -> None:
    versions = count(1)
    before, after = Announcer(RatesConfig(), versions), Announcer(RatesConfig(), versions)
    assert before.tells(100.0, True, 1.0)
    assert after.tells(100.0, True, 9.0)
    assert before.version < after.version
