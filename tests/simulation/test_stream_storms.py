"""Streams over many seeds: everything goes wrong, then heals, and no acknowledged message is missing.

`penstock storm --streams --seeds 100000 --workers 2` runs many more.
"""

import pytest

from penstock.errors import CheckFailed
from penstock.scenario.stream_storm import EVENTS_MAX, stream_storm
from penstock.sim.run import simulate

SEEDS = 300
PER_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_every_acknowledged_message_is_read_exactly_once(first):
    for seed in range(first, first + PER_TEST):
        result = simulate(stream_storm(seed), seed, events_max=EVENTS_MAX)
        if result.problems:
            raise CheckFailed("\n".join(result.problems), replay=f".venv/bin/penstock storm --streams --seed {seed}")
        assert result.complete, f"seed {seed} has more than {EVENTS_MAX} events"


def test_a_storm_replays_from_its_seed():
    assert simulate(stream_storm(11), 11).digest == simulate(stream_storm(11), 11).digest
