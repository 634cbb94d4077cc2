"""Slow start of end-to-end control (protocols 12.10): a first burst waits a moment, and nothing of it is withheld."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from narrow_bus import CONFIG, NarrowBus, Path, a_bus
from penstock.transport.config import TransportConfig, papers_config

RATE = 1_000.0


def begun(**settings: Any) -> tuple[NarrowBus, list[float]]:
    """A publisher that begins with a thousand messages a second, and when its first ones left."""
    bus = a_bus(1, replace(CONFIG, **settings))
    bus.subscriber("reader", "kind = 'bulk'", Path(100_000.0))
    bus.stream(RATE, 3.0, kind="bulk")
    bus.run(4.0)
    return bus, [time for time, _, _ in bus.members["reader"].delivered]


def test_a_first_burst_leaves_ever_faster_and_all_of_it_comes() -> None:
    bus, times = begun()
    start = times[0]
    leaving = [sum(start + step <= time < start + step + 0.1 for time in times) for step in (0.0, 0.1, 0.2, 0.3)]
    assert leaving[0] <= 20, "twenty a second, and a few that are saved up"
    assert all(later <= 2 * before + 5 for before, later in pairwise(leaving))
    assert len(times) == len(bus.published)


def test_it_can_be_switched_off_and_the_papers_have_none() -> None:
    _, times = begun(slow_start=False)
    assert sum(time < times[0] + 0.1 for time in times) == pytest.approx(RATE * 0.1, rel=0.05)
    assert not papers_config(congestion=True).slow_start
    assert TransportConfig().slow_start
