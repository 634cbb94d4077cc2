"""More seeds for a kept result: a lab of many hours is run in parts, on other days and machines.

Seeds that a kept result does not have join it, if it is of the code as it is: of the very same sources, or else its
shortest run is made again and must give the digest that was kept (`still_current.py`). All seeds together are then
judged as if they had run at once. The product's column is of one run, and is not joined.

A result of before digests were kept gets them when its first seed runs again and gives the very same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
from statistics import fmean

from msgspec.structs import replace

from penstock.lab.engine.experiment import Experiment
from penstock.lab.engine.kept_results import KeptCriterion, KeptResult, judged_again
from penstock.lab.engine.still_current import Repeats


def joined(kept: KeptResult, new: KeptResult, experiment: Experiment, repeats: Repeats) -> KeptResult | None:
    """Both as one; None if they share a seed, measure different things, or the kept one is of other code."""
    if not kept.digests and new.seeds[0] == kept.seeds[0] and set(new.seeds) < set(kept.seeds):
        return replace(kept, digests=new.digests, moved="") if _again(kept, new) else None
    if set(kept.seeds) & set(new.seeds) or not kept.digests or not _same_numbers(kept, new):
        return None
    if kept.code != new.code and repeats.check(experiment, kept).verdict != "as kept":
        return None
    values = {one.name: one.values for one in kept.criteria}
    order = sorted(range(len(kept.seeds) + len(new.seeds)), key=lambda i: (kept.seeds + new.seeds)[i])

    def in_order(one: KeptCriterion) -> KeptCriterion:
        both = values[one.name] + one.values
        return replace(one, values=tuple(both[i] for i in order))

    both = replace(
        new,
        seeds=tuple(sorted(kept.seeds + new.seeds)),
        criteria=tuple(in_order(one) for one in new.criteria),
        took={name: _mean(kept.took.get(name), seconds) for name, seconds in new.took.items()},
        digests=kept.digests if kept.seeds[0] < new.seeds[0] else new.digests,
        measuring=fmean([kept.measuring, new.measuring]),
    )
    return judged_again(both, experiment)


def lacking(
    chosen: Iterable[Experiment], kept: Mapping[str, KeptResult], seeds: Sequence[int], *, product: bool = False
) -> dict[tuple[int, ...], list[Experiment]]:
    """Which of these seeds the kept results lack, and of which experiments. What cannot be joined lacks all."""
    found: dict[tuple[int, ...], list[Experiment]] = {}
    for one in chosen:
        result, has = kept.get(one.name), frozenset[int]()
        if result is not None and not result.moved and (result.product_digests if product else result.digests):
            has = frozenset(result.product_seeds if product else result.seeds)
        lacks = tuple(seed for seed in seeds if seed not in has)
        if lacks:
            found.setdefault(lacks, []).append(one)
    return found


def _same_numbers(kept: KeptResult, new: KeptResult) -> bool:
    """Whether both have a value of each seed for the same criteria."""
    return all(len(one.values) == len(result.seeds) for result in (kept, new) for one in result.criteria) and (
        {one.name for one in kept.criteria} == {one.name for one in new.criteria}
    )


def _again(kept: KeptResult, new: KeptResult) -> bool:
    """Whether the seeds of `new` gave what is kept of them, but for the last digits: Spark adds up in any order."""
    before = {one.name: _by_seed(kept, one) for one in kept.criteria}
    again = {one.name: _by_seed(new, one) for one in new.criteria}
    if before.keys() != again.keys():
        return False
    both = [(before[name], again[name], before[name].keys() & again[name].keys()) for name in before]
    return all(seeds for _, _, seeds in both) and all(
        _alike(a[seed], b[seed]) for a, b, seeds in both for seed in seeds
    )


def _alike(a: float | None, b: float | None) -> bool:
    return a == b or (a is not None and b is not None and isclose(a, b, rel_tol=1e-9))


def _by_seed(result: KeptResult, one: KeptCriterion) -> dict[int, float | None]:
    """Its values; one alone is of the first seed, as at the points of a sweep that only that one ran."""
    if len(one.values) not in (1, len(result.seeds)):
        return {}
    return dict(zip(result.seeds, one.values, strict=False))


def _mean(kept: float | None, new: float) -> float:
    return fmean([kept, new]) if kept else new
