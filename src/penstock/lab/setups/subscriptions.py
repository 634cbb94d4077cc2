"""What the clients of the ordering set-ups want, so that a message has as many receivers as the paper reports.

How the calibration works: messages carry ten attributes with Zipf(1.0) values, so the probability that a message
matches a filter of equalities is a product that we know. Subscriptions of one or two such constraints (and one on the
kind of publisher) are drawn, and values are made rarer or more popular until the clients want together as much as they
should. Half of them want messages of either kind of publisher, half only those of slow ones.

A heavy subscriber wants every message of a fast publisher whose grade is regular: 85 % of them.
"""

from __future__ import annotations

from random import Random

from penstock.content.message import Value
from penstock.scenario.workload import Recipe

VALUES = 24  # per attribute
ATTRIBUTES = tuple(f"a{number}" for number in range(8))  # with `kind` and `grade` a message has ten
HEAVY_MATCH = 0.85
GRADE_ZIPF = 2.5025  # two values with weights 1 and 2**-2.5025: the first comes with probability 0.85
HEAVY_SUBSCRIPTION = "kind = 'fast' AND grade = 'regular'"


def attributes(kind: str) -> dict[str, Value | Recipe]:
    """What a publisher of this kind puts into a message."""
    values = tuple(f"v{rank}" for rank in range(VALUES))
    recipes: dict[str, Value | Recipe] = {name: Recipe(choose=values, zipf=1.0) for name in ATTRIBUTES}
    return {"kind": kind, "grade": Recipe(choose=("regular", "odd"), zipf=GRADE_ZIPF), **recipes}


def thin_subscriptions(clients: int, random: Random, *, slow: float, fast: float) -> list[str]:
    """A text for each client; `slow` and `fast` are how many of them shall get a message of such a publisher."""
    either = clients // 2
    drawn = [
        {name: _zipf_rank(random.random()) for name in random.sample(ATTRIBUTES, random.randint(1, 2))}
        for _ in range(clients)
    ]
    _calibrate(drawn[:either], fast)
    _calibrate(drawn[either:], slow - fast)
    return [_text(chosen, number >= either) for number, chosen in enumerate(drawn)]


def _calibrate(drawn: list[dict[str, int]], target: float) -> None:
    """Make values rarer or more popular, one step at a time, until the expected number of receivers is right."""
    for _ in range(2_000):
        total = sum(map(_match_probability, drawn))
        if abs(total - target) <= 0.01 * target:
            return
        if total > target:
            chosen = max(drawn, key=_match_probability)
            name = min(chosen, key=lambda n: chosen[n])
            chosen[name] = min(VALUES - 1, chosen[name] + 1)
        else:
            chosen = min(drawn, key=_match_probability)
            name = max(chosen, key=lambda n: chosen[n])
            chosen[name] = max(0, chosen[name] - 1)
    raise AssertionError(f"no calibration to {target} receivers was found")


_HARMONIC = sum(1.0 / (rank + 1) for rank in range(VALUES))


def _match_probability(chosen: dict[str, int]) -> float:
    probability = 1.0
    for rank in chosen.values():
        probability /= (rank + 1) * _HARMONIC
    return probability


def _zipf_rank(draw: float) -> int:
    for rank in range(VALUES):
        draw -= 1.0 / ((rank + 1) * _HARMONIC)
        if draw < 0.0:
            return rank
    return VALUES - 1


def _text(chosen: dict[str, int], slow_only: bool) -> str:
    parts = ["kind = 'slow'"] if slow_only else []
    return " AND ".join(parts + [f"{name} = 'v{rank}'" for name, rank in chosen.items()])
