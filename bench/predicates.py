"""What does the worst accepted predicate cost? Run: `python bench/predicates.py [--quick] [--json FILE]`.

Each family is a text that grows until it is refused. The longest that is taken is measured, and the one after it.

    admit    text -> predicate: parsing, normal form and the exact test, with nothing remembered from before
    match    one message, of several, against which the predicate works longest; its strings are new, of 256 characters
    refuse   the next longer text, up to the limit that it reaches

Times are of the processor, since on a shared machine the wall clock measures the neighbours, and the best of several
counts: the work is always the same. Steps are what the budgets count; they are the same on every machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.content.language import evaluate
from penstock.content.language.budget import Budget
from penstock.content.language.evaluate import gather, match_steps
from penstock.content.language.like import MEASURED_CHARACTERS, compile_like
from penstock.content.language.parser import DEFAULT_PREDICATE_LIMITS, parse_expression, parse_predicate
from penstock.content.message import Value
from penstock.content.predicate import Predicate
from penstock.errors import PredicateTooLarge

LIMITS = DEFAULT_PREDICATE_LIMITS
ADMIT_AIM_MS, MATCH_AIM_US = 10.0, 50.0


def listed(count: int) -> str:
    return ",".join(map(str, range(count)))


def joined(joint: str, part: Callable[[int], str]) -> Callable[[int], str]:
    return lambda size: joint.join(map(part, range(size)))


FAMILIES: dict[str, Callable[[int], str]] = {
    "n values in IN": lambda n: f"a IN ({listed(n)})",
    "n values in NOT IN": lambda n: f"a NOT IN ({listed(n)})",
    "n times a <> value": joined(" AND ", lambda i: f"a<>{i}"),
    "25 times <> and n two-way ORs": lambda n: " AND ".join(
        [*(f"a<>{i}" for i in range(25)), *(f"(b{i}=1 OR c{i}=2)" for i in range(n))]
    ),
    "n times <> and six two-way ORs": lambda n: " AND ".join(
        [*(f"a<>{i}" for i in range(n)), *(f"(b{i}=1 OR c{i}=2)" for i in range(6))]
    ),
    "OR of n ranges on four attributes": joined(" OR ", lambda i: f"(a<{i} AND b>{i} AND c<{99 - i} AND d<>{i})"),
    "OR of n lists of ten": joined(
        " OR ", lambda i: f"(a IN ({','.join(map(str, range(i, i + 10)))}) AND b>{i} AND c<{i})"
    ),
    "AND of n ORs of ranges": joined(" AND ", lambda i: f"(a<{i} OR b<{60 - i})"),
    "AND of n ORs with one part in common": joined(" AND ", lambda i: f"(a=1 OR b{i}=1)"),
    "n attributes": joined(" AND ", lambda i: f"a{i:x} IS NULL"),
    "n in parentheses": joined("OR", lambda _: "(((a)))"),
    "n LIKEs without holes": joined(" AND ", lambda i: f"s NOT LIKE '%a{i}%'"),
    "n LIKEs with one hole": joined(" AND ", lambda i: f"s NOT LIKE '%x_{i}%'"),
    "n LIKEs with holes": joined(" AND ", lambda i: f"s NOT LIKE '%a_{i % 10}_{i // 10}%'"),
    "LIKE of n segments with holes": lambda n: f"s LIKE '%{'a_%' * n}b%'",
    "LIKE of n segments": lambda n: f"s LIKE '%{'a%' * n}b%'",
    "LIKE of a segment of n": lambda n: f"s LIKE '%{'a' * n}b{'a' * n}%'",
    "n LIKEs of a segment of 61": joined(" AND ", lambda i: f"s NOT LIKE '%{'a' * 30}b{'a' * 30}{i}%'"),
    "n values, each tried with two LIKEs": lambda n: (
        f"s IN ({','.join(repr(f'a{i}') for i in range(n))}) AND s LIKE '%1_%' AND s NOT LIKE '%2_%'"
    ),
}


def messages() -> list[dict[str, Value]]:
    """Such that ANDs are not left early nor ORs: numbers beyond all constants, strings full of near misses."""
    names = ["a", "b", "c", "d"]
    texts = ["a" * MEASURED_CHARACTERS, "a1x" * (MEASURED_CHARACTERS // 3), "xyz" * (MEASURED_CHARACTERS // 3)]
    made: list[dict[str, Value]] = [{"s": text + "!"} for text in texts]
    made += [dict.fromkeys(names, value) for value in (-1, 10**6, 50.5)]
    return [*made, {}, {name: index for index, name in enumerate(names)}]


def clear() -> None:
    compile_like.cache_clear()
    evaluate._maker.cache_clear()


def seconds(work: Callable[[], object], repetitions: int, before: Callable[[], None] = clear) -> float:
    best = float("inf")
    for _ in range(repetitions):
        before()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def attempt(text: str) -> tuple[Predicate | None, int, str]:
    """The predicate, the steps that it took, and why not."""
    budget = Budget(LIMITS.steps_max)
    try:
        return parse_predicate(text, LIMITS, budget), budget.spent, ""
    except PredicateTooLarge as error:
        reason = max((name for name in vars(LIMITS) if name in str(error)), key=len)
        return None, budget.spent, reason


def largest(family: Callable[[int], str]) -> int:
    """The largest size that is taken: found by halving, since what is longer is never taken sooner."""
    taken, refused = 1, 2049
    while refused - taken > 1:
        middle = (taken + refused) // 2
        if attempt(family(middle))[0] is not None:
            taken = middle
        else:
            refused = middle
    return taken


def match_seconds(predicate: Predicate, message: dict[str, Value], rounds: int) -> float:
    """No two rounds have a string in common: what is remembered of a text helps with one message only."""
    fresh = [{name: _anew(value) for name, value in message.items()} for _ in range(rounds)]
    started = time.process_time()
    for one in fresh:
        predicate.matches(one)
    return (time.process_time() - started) / rounds


_numbers = itertools.count()
_MARKS = str.maketrans("01234567", "!#$&*+,;")


def _anew(value: Value) -> Value:
    """A text that never was before, as long as this one; its end is made of marks that no pattern here has."""
    if not isinstance(value, str):
        return value
    return value[:-8] + f"{next(_numbers):08o}".translate(_MARKS)


def measure(name: str, family: Callable[[int], str], repetitions: int) -> dict[str, Any]:
    size = largest(family)
    text, longer = family(size), family(size + 1)
    predicate, steps, _ = attempt(text)
    assert predicate is not None, "it was taken a moment ago"
    refused, _, reason = attempt(longer)
    matching = [min(match_seconds(predicate, m, 20 * repetitions) for _ in range(5)) for m in messages()]
    return {
        "family": name,
        "n": size,
        "characters": len(text),
        "filters": len(predicate.filters),
        "steps": steps,
        "admit_ms": 1e3 * seconds(lambda: attempt(text), repetitions),
        "match_steps": match_steps(gather(parse_expression(text))),
        "match_us": 1e6 * max(matching),
        "refused_for": reason,
        "refuse_ms": 1e3 * seconds(lambda: attempt(longer), repetitions) if refused is None else None,
    }


def report(results: list[dict[str, Any]]) -> None:
    header = [
        "family",
        "n",
        "characters",
        "filters",
        "steps",
        "admit ms",
        "match steps",
        "match us",
        "n + 1 refused for",
    ]
    print("| " + " | ".join([*header, "refuse ms"]) + " |\n|---|" + "--:|" * 7 + "---|--:|")
    for r in results:
        refused = "-" if r["refuse_ms"] is None else f"{r['refuse_ms']:.1f}"
        cells = [r["family"], r["n"], r["characters"], r["filters"], r["steps"], f"{r['admit_ms']:.1f}"]
        cells += [r["match_steps"], f"{r['match_us']:.1f}", r["refused_for"] or "-", refused]
        print("| " + " | ".join(map(str, cells)) + " |")
    admit, match = max(r["admit_ms"] for r in results), max(r["match_us"] for r in results)
    print(f"\nworst: {admit:.1f} ms to admit (aim {ADMIT_AIM_MS:g}), {match:.1f} us to match (aim {MATCH_AIM_US:g})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three repetitions instead of 20")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    options = parser.parse_args()
    results = [measure(name, family, 3 if options.quick else 20) for name, family in FAMILIES.items()]
    report(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
