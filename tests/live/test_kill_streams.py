"""`kill -9` under load: whatever dies, each message that was acknowledged is read once and in order."""

from __future__ import annotations

import logging

import pytest

from penstock.live.emulation.kill_storm import BLOWS, kill_scenario, kill_storm
from penstock.live.event_loop import run
from penstock.scenario.validate import validate

SEED, KILLS = 7, 30  # `penstock storm --kills 1000` does more


def test_nothing_is_lost_doubled_or_invented_while_brokers_are_killed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)  # that brokers die is what it is about
    result = run(kill_storm(SEED, KILLS))
    assert result.problems == [], f"replay: penstock storm --kills {KILLS} --seed {SEED}"
    assert result.kills >= KILLS
    assert set(result.blows) == set(BLOWS), "the seed should have one of each"
    assert result.stored > 100
    assert result.read > result.stored


def test_the_network_that_is_struck_is_a_valid_one() -> None:
    validate(kill_scenario())
