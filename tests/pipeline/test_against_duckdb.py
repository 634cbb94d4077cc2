"""Every table of the pipeline, every column, beside a plain computation in DuckDB, on random traces.

The pipeline reads all runs at once, as it does in the laboratory; what it says of each of them is compared. A table
that nobody has written a query for fails this test, so a new one gets its own.

More seeds:

    pytest tests/pipeline/test_against_duckdb.py --trace-seeds 100:400
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import duckdb_oracle
from duckdb_oracle import Oracle, Rows
from penstock.pipeline.models import PAIR_MODEL_SCHEMA
from penstock.pipeline.run import run_pipeline
from penstock.pipeline.schema import parse_ddl
from penstock.pipeline.steps import STEPS
from random_traces import PREDICATES, write_random_run

SEEDS = (0, 12)  # from the first to the one before the last; they hit every table, which a test below asserts
AT_ONCE = (12, 1, 2, 3)  # how many runs are read together, again and again
FAMILIES = ("random", "it's 10%", "{a,b}*")
CLOSE = 1e-9  # sums of doubles depend on their order
Found = dict[str, dict[int, Rows]]  # table -> seed -> rows


def batches(first: int, end: int) -> Iterator[range]:
    while first < end:
        for many in AT_ONCE:
            yield range(first, min(first + many, end))
            first = min(first + many, end)
            if first == end:
                return


def written(root: Path, seeds: Iterable[int]) -> dict[int, Path]:
    """The runs of these seeds on disk, in folders whose names are as odd as those of their nodes."""
    folders = {seed: root / FAMILIES[seed % len(FAMILIES)] / f"{seed} ü" for seed in seeds}
    for seed, folder in folders.items():
        write_random_run(folder, seed)
    return folders


def from_pipeline(spark: SparkSession, folders: dict[int, Path]) -> Found:
    run_pipeline(spark, list(folders.values()))
    return {
        step.name: {seed: [tuple(row.values()) for row in _read(folder, step.name)] for seed, folder in folders.items()}
        for step in STEPS
    }


def _read(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(folder / "metrics" / name / "part-00000.parquet").to_pylist()
    return rows


def from_duckdb(folders: dict[int, Path]) -> Found:
    names = {f"{folder.parent.name}/{folder.name}": seed for seed, folder in folders.items()}
    oracle = Oracle({name: (folders[seed], grace_of(folders[seed])) for name, seed in names.items()}, PREDICATES)
    found: Found = {}
    for name, query in (duckdb_oracle.QUERIES | {"pair_models": duckdb_oracle.PAIR_MODELS}).items():
        found[name] = {seed: [] for seed in folders}
        for row in oracle.rows(query):
            found[name][names[row[0]]].append(row)
    oracle.close()
    return found


def grace_of(folder: Path) -> float:
    return float(json.loads((folder / "run.json").read_text())["scenario"].get("settle", 1.0))


def differences(ours: Rows, theirs: Rows) -> list[str]:
    """Rows that only one of them has; numbers may differ by what the order of a sum makes."""
    ours, theirs = sorted(ours, key=_key), sorted(theirs, key=_key)
    pairs = list(zip(ours, theirs, strict=False))
    wrong = [f"{one} and not {other}" for one, other in pairs if not all(map(_alike, one, other))]
    if len(ours) != len(theirs):
        only = [row for row in ours if row not in theirs][:3], [row for row in theirs if row not in ours][:3]
        return [f"{len(ours)} rows and not {len(theirs)}; only here {only[0]}, only there {only[1]}"]
    return wrong


def _key(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    """Doubles last, and rounded: those of equal rows may differ in the last bit."""
    first = [(value is None, value) for value in row if not isinstance(value, float)]
    return first + [(False, round(value, 6)) for value in row if isinstance(value, float)]


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)
    return type(one) is type(other) and bool(one == other)


def check_models(ours: Rows, theirs: Rows) -> list[str]:
    """The closed forms of a pair's models are those of the query; the rest has the properties that it must have."""
    names = [field.name for field in parse_ddl(PAIR_MODEL_SCHEMA)]
    models = [dict(zip(names, row, strict=True)) for row in ours]
    closed = ("run", "publisher", "client", "samples", "constant", "mean", "difference_scale", "skewness")
    closed += ("pareto_exponent",)
    wrong = differences([tuple(model[name] for name in closed) for model in models], theirs)
    for model in models:
        if sorted(model["phase_rates"]) != model["phase_rates"] or len(model["phase_rates"]) != 3:
            wrong.append(f"phases {model['phase_rates']}")
        variable = model["mean"] - model["constant"]
        phases = sum(1.0 / rate for rate in model["phase_rates"])
        for what, mean in (("gamma", model["gamma_shape"] * model["gamma_scale"]), ("phases", phases)):
            if not isclose(mean, variable, rel_tol=1e-3):
                wrong.append(f"{what}: a mean of {mean} and not {variable}")
        distances = [value for name, value in model.items() if name.endswith("_distance") and value is not None]
        if not all(0.0 < distance <= 1.0 for distance in distances) or not 0.0 <= model["hypoexponential_p"] <= 1.0:
            wrong.append(f"distances {distances}")
    return wrong


def test_there_is_a_query_for_every_table() -> None:
    assert sorted([*duckdb_oracle.QUERIES, "pair_models"]) == sorted(step.name for step in STEPS)


def test_every_table_is_that_of_duckdb(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--trace-seeds")
    first, end = map(int, given.split(":")) if given else SEEDS
    filled: dict[str, int] = defaultdict(int)
    for seeds in batches(first, end):
        folders = written(tmp_path, seeds)
        ours, theirs = from_pipeline(spark, folders), from_duckdb(folders)
        for name in ours:
            for seed in seeds:
                check = check_models if name == "pair_models" else differences
                wrong = check(ours[name][seed], theirs[name][seed])
                replay = f"pytest tests/pipeline/{Path(__file__).name} --trace-seeds {seeds.start}:{seeds.stop}"
                assert not wrong, f"{name} of seed {seed}: {len(wrong)} rows, {wrong[:3]}; again: {replay}"
                filled[name] += len(theirs[name][seed])
    if not given:
        assert not [name for name in ours if not filled[name]], "these seeds leave tables empty"
