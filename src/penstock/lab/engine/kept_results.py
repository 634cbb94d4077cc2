"""What experiments gave at paper scale, kept as small files beside the sources: one for each experiment.

`penstock lab run ... --json` prints a line for each experiment. A line becomes a file, which says what came out for
each seed, with which code and when; a line of a run with the product's own settings becomes the product's column of
the same file. The summary of docs/papers.md is made of these files and of nothing else (`lab/pages/summary.py`).

A line of an older version has no date, code or values of each seed; it is taken as it is, and says so.

What a file says of bounds and verdicts is the registry's word, not the run's: `judged_again` holds the kept values
against the criteria of today, so that a bound that changes needs no run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from math import nan
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.lab.engine.experiment import Criterion, Experiment, measured_or_none

FOLDER = Path("docs/results")
UNKNOWN = "not recorded"


class KeptCriterion(Struct, frozen=True, kw_only=True):
    """One number of an experiment, and what it was held against."""

    name: str
    kind: str
    paper: str
    value: float | None
    bound: tuple[float | None, float | None]
    passed: bool = field(name="pass")
    values: tuple[float | None, ...] = ()  # one for each seed
    note: str = ""
    product: float | None = None  # with the product's own settings

    def was_run(self) -> bool:
        """Whether the kept run measured it at all; a criterion may be younger than the run."""
        return self.value is not None or bool(self.values)


class KeptResult(Struct, frozen=True, kw_only=True):
    """The content of a file."""

    experiment: str
    scale: str
    seeds: tuple[int, ...]
    criteria: tuple[KeptCriterion, ...]
    date: str = ""
    code: str = UNKNOWN
    environment: str = UNKNOWN
    took: dict[str, float] = {}  # processor seconds of each run, `name_of_run`; older: by the name
    digests: dict[str, str] = {}  # of each run of the first seed, `name_of_run`, and of its tasks, by their texts
    product_digests: dict[str, str] = {}
    moved: str = ""  # which run comes out otherwise by now, and by which code, as `penstock lab current` found
    measuring: float = 0.0  # seconds that Spark and `measure` took for a seed
    seconds_for_work: float = 0.0  # that its tasks took for one unit of their `work`; 0 if it has none
    no_product: str = ""  # why it says nothing of the product's settings
    product_seeds: tuple[int, ...] = ()
    product_date: str = ""
    product_code: str = ""


Join = Callable[[KeptResult, KeptResult], KeptResult | None]


def read_results(folder: Path) -> dict[str, KeptResult]:
    """All that is kept, by experiment."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = msgspec.json.decode(path.read_bytes(), type=KeptResult)
        except msgspec.DecodeError as error:
            raise PenstockError(f"{path} is no result of an experiment: {error}") from None
    return found


def keep_lines(lines: Iterable[str], folder: Path, *, date: str, join: Join | None = None) -> list[str]:
    """Keep the lines of `lab run --json`; `date` is for those that have none. Returns what was not taken, and why.

    `join` makes one of a kept result and one with other seeds, or returns None if it cannot.
    """
    refused = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
            refused += [f"line {number}: {why}" for why in _keep(found, folder, date, join)]
        except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
            refused.append(f"line {number}: no result of an experiment ({error})")
    return refused


def keep_file(path: Path, folder: Path) -> list[str]:
    """Keep all lines of a file; lines without a date are of the day when it was last written."""
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise PenstockError(f"{path} cannot be read: {error.strerror}") from None
    date = datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()
    return keep_lines(lines, folder, date=date)


def judged_again(result: KeptResult, experiment: Experiment) -> KeptResult:
    """The kept numbers held against its criteria. One without a number is there too, as not run.

    Where the experiment says nothing of the product's settings, what was kept of them before it said so is left out.
    """
    kept = {one.name: one for one in result.criteria}
    judged = [_judged(one, kept.get(one.name)) for one in experiment.criteria if result.scale in one.scales]
    result = replace(result, criteria=tuple(judged))
    return (
        replace(_with_product(result, {}, (), "", ""), no_product=experiment.product) if experiment.product else result
    )


def _judged(criterion: Criterion, kept: KeptCriterion | None) -> KeptCriterion:
    values = () if kept is None else kept.values or ((kept.value,) if kept.value is not None else ())
    value = criterion.judge([nan if one is None else one for one in values])
    return KeptCriterion(
        name=criterion.name,
        kind=criterion.kind,
        paper=criterion.paper,
        value=measured_or_none(value),
        bound=(criterion.low, criterion.high),
        passed=criterion.holds(value),
        values=() if kept is None else kept.values,
        note=criterion.note,
        product=None if kept is None else kept.product,
    )


def judged_results(folder: Path, experiments: Mapping[str, Experiment]) -> dict[str, KeptResult]:
    """All that is kept, judged by the criteria of today."""
    found = {}
    for name, result in read_results(folder).items():
        experiment = experiments.get(name)
        if experiment is None:
            raise PenstockError(f"{folder / name}.json is of no experiment that there is; take it away")
        found[name] = judged_again(result, experiment)
    return found


def judge_again(folder: Path, experiments: Mapping[str, Experiment]) -> dict[str, KeptResult]:
    """The same, and files in which that changes anything are written anew."""
    before, found = read_results(folder), judged_results(folder, experiments)
    for name, result in found.items():
        if result != before[name]:
            write_result(folder, result)
    return found


def write_result(folder: Path, result: KeptResult) -> None:
    """Write its file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{result.experiment}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")


def _keep(line: Mapping[str, Any], folder: Path, date: str, join: Join | None) -> list[str]:
    if line["scale"] != "paper":
        return [f"{line['experiment']} ran at {line['scale']} scale; only paper scale is kept"]
    file = folder / f"{line['experiment']}.json"
    new = msgspec.convert({"date": date, **line}, KeptResult)
    before = msgspec.json.decode(file.read_bytes(), type=KeptResult) if file.exists() else None
    product = line.get("settings", "paper") == "product"
    if before is not None and not product and join is not None:
        new = join(before, new) or new
    if product:
        if before is None:
            return [f"{new.experiment} has no result with the paper's settings yet; run it without --product first"]
        column = {one.name: one.value for one in new.criteria}
        timed = replace(before, took={**before.took, **new.took}, product_digests=new.digests)
        new = _with_product(timed, column, new.seeds, new.date, new.code)
    elif before is not None and len(new.seeds) < len(before.seeds):
        kept, seeds = f"{len(before.seeds)} seeds of {before.date}", len(new.seeds)
        return [f"{new.experiment} is kept with {kept}, and this has {seeds}; take as many, or take {file} away first"]
    elif before is not None:  # the product's column stays until it is run again
        column = {one.name: one.product for one in before.criteria}
        new = replace(new, took={**before.took, **new.took}, product_digests=before.product_digests)
        new = _with_product(new, column, before.product_seeds, before.product_date, before.product_code)
    write_result(folder, new)
    return []


def _with_product(
    result: KeptResult, column: Mapping[str, float | None], seeds: tuple[int, ...], date: str, code: str
) -> KeptResult:
    criteria = tuple(replace(one, product=column.get(one.name)) for one in result.criteria)
    return replace(result, criteria=criteria, product_seeds=seeds, product_date=date, product_code=code)
