"""In the town news is retrieved: late readers get today's headlines, each once, and no more than they asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyarrow import parquet

from penstock.sim.run import RunResult

PER_LIFETIME = {"late-reader": 5, "evening": 10}  # `max` in networks/town.toml


def test_late_readers_of_the_town_get_the_headlines_once(town: tuple[Path, RunResult]) -> None:
    rows = parquet.read_table(town[0] / "trace" / "item_retrieved").to_pylist()
    items = Counter((row["node"], row["publisher"], row["incarnation"], row["count"]) for row in rows)
    assert set(items.values()) == {1}
    lifetimes = Counter((row["node"], row["lifetime"]) for row in rows)
    assert {node for node, _ in lifetimes} == set(PER_LIFETIME)
    assert max(lifetimes[node, number] - PER_LIFETIME[node] for node, number in lifetimes) == 0
    assert sum(node == "late-reader" for node, _ in lifetimes) >= 3  # lifetimes that brought something
    assert not town[1].problems
