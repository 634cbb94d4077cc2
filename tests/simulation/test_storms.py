"""The invariants of protocols section 1 (002 section 2.7) over many seeds, with churn, crashes and cut links.

Each storm has a safety phase full of faults and, after everything has healed, a liveness phase in which nothing may
be missed. `penstock storm --seeds 2000` runs many more.
"""

import pytest

from penstock.errors import CheckFailed
from penstock.scenario.storm import storm
from penstock.sim.run import simulate

SEEDS = 200
PER_TEST = 10


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_every_invariant_holds_in_every_storm(first):
    for seed in range(first, first + PER_TEST):
        result = simulate(storm(seed), seed)
        if result.problems:
            raise CheckFailed("\n".join(result.problems), replay=f".venv/bin/penstock storm --seed {seed}")
        assert result.complete
        assert result.events >= 20_000, f"seed {seed} is too quiet to show enough: {result.events} events"


def test_a_storm_replays_from_its_seed():
    assert simulate(storm(11), 11).digest == simulate(storm(11), 11).digest
