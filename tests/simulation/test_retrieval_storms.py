"""Retrieval over many seeds (protocols section 8): crashes, partitions, moves, and nobody gets an item twice (Req 1).

`penstock storm --retrieval --seeds 2000 --workers 2` runs many more.
"""

import pytest

from penstock.errors import CheckFailed
from penstock.scenario.retrieval_storm import EVENTS_MAX, retrieval_storm
from penstock.sim.run import simulate

SEEDS = 200
PER_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_retrieval_keeps_its_invariants(first):
    for seed in range(first, first + PER_TEST):
        result = simulate(retrieval_storm(seed), seed, events_max=EVENTS_MAX)
        if result.problems:
            raise CheckFailed("\n".join(result.problems), replay=f".venv/bin/penstock storm --retrieval --seed {seed}")
        assert result.complete, f"seed {seed} has more than {EVENTS_MAX} events"


def test_what_was_used_while_the_disk_was_full_is_not_new_after_a_crash():
    assert simulate(retrieval_storm(90003), 90003, events_max=EVENTS_MAX).problems == []


def test_a_storm_replays_from_its_seed():
    assert simulate(retrieval_storm(11), 11).digest == simulate(retrieval_storm(11), 11).digest
