"""All constraints on an attribute at once are covered as each pair is by itself."""

from __future__ import annotations

from itertools import product

from penstock.content.language.budget import Budget
from penstock.content.language.conjoin import settle
from penstock.content.language.covering import CoverTable
from penstock.content.message import Value
from penstock.content.predicate import (
    Constraint,
    Differs,
    Equals,
    Exists,
    Like,
    Missing,
    OneOf,
    Range,
    constraint_key,
)
from penstock.content.relations import constraint_covers

VALUES: tuple[Value, ...] = (0, 1, 1.5, 2, "", "a", "ab", "b", True)


def canonical_constraints() -> list[Constraint]:
    """As the normal form has them: settled, no two alike."""
    made: list[Constraint] = [Exists("x"), Missing("x"), OneOf("x", (0, "a")), OneOf("x", (True, 1, 2))]
    made += [kind("x", value) for kind in (Equals, Differs) for value in VALUES]
    for few in ((0, 1, 2), ("", "a", "b")):
        made += [OneOf("x", pair) for pair in (few, few[:2], few[1:], (few[0], few[2]))]
        for low, high, low_open, high_open in product((None, *few), (None, *few), (False, True), (False, True)):
            if (low, high) != (None, None):
                made.append(Range("x", low, high, low_open, high_open))  # type: ignore[arg-type]
    for pattern, negated in product(("%", "a%", "ab%", "%b", "_", "a_%"), (False, True)):
        made.append(Like("x", pattern, negated=negated))
    settled = (settle("x", [constraint], Budget(100)) for constraint in made)
    return list({constraint_key(one): one for some in settled if some for one in some}.values())


def test_a_table_says_of_each_pair_what_the_relation_says() -> None:
    numbered = list(enumerate(canonical_constraints()))
    table = CoverTable(numbered, Budget(100_000))
    for number, general in numbered:
        covered = table.covered_by(number, general)
        for other, specific in numbered:
            assert bool(covered >> other & 1) is constraint_covers(general, specific), (general, specific)
