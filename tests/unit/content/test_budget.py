"""No text and no pair of predicates makes much work. What is counted is calls and steps, never time.

The steps that a budget counts would prove nothing if work went by without being paid for. So the interpreter counts
too: every call of a function, Python's own ones included, while a predicate is admitted, compared or matched. The worst
texts are searched for, guided by that number.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings, target
from hypothesis import strategies as st

from penstock.content.language import evaluate
from penstock.content.language.budget import Budget
from penstock.content.language.evaluate import compile_expression, gather, match_steps
from penstock.content.language.like import compile_like
from penstock.content.language.parser import DEFAULT_PREDICATE_LIMITS, parse_expression, parse_predicate
from penstock.content.predicate import Like, Predicate
from penstock.content.relations import RELATION_STEPS, covers, disjoint, overlaps, witness
from penstock.errors import PredicateTooLarge

LIMITS = DEFAULT_PREDICATE_LIMITS
CALLS_PER_STEP = 16  # a call takes some 60 ns here, a step is about a microsecond
CALLS_FREE = 3_000
CALLS_PER_MATCH_STEP = 3
MATCH_CALLS_FREE = 20

DIFFERS_25 = " AND ".join(f"a<>{i}" for i in range(25))
TWO_WAY_6 = " AND ".join(f"(b{i}=1 OR c{i}=2)" for i in range(6))


def counted(work: Callable[[], Any]) -> tuple[Any, int]:
    """What it gives, and how many calls it takes."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        result = work()
    finally:
        sys.setprofile(before)
    return result, calls


def admitted(text: str) -> tuple[Predicate | str, int, int]:
    """The predicate, or why it was refused; the steps spent; the calls made, with nothing remembered from before."""
    compile_like.cache_clear()
    evaluate._maker.cache_clear()
    budget = Budget(LIMITS.steps_max)

    def admit() -> Predicate | str:
        try:
            return parse_predicate(text, LIMITS, budget)
        except PredicateTooLarge as error:
            return str(error)

    made, calls = counted(admit)
    return made, budget.spent, calls


# The texts that were found ---------------------------------------------------------------------------------------


def test_25_differences_and_six_alternatives_cost_little() -> None:
    made, steps, calls = admitted(f"{DIFFERS_25} AND {TWO_WAY_6}")
    assert isinstance(made, Predicate)
    assert [len(one.constraints) for one in made.filters] == [31] * 64
    assert steps < 3_000
    assert calls < 30_000


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (" AND ".join([*(f"a<>{i}" for i in range(350)), TWO_WAY_6]), "values_max is 2048"),
        (" AND ".join(f"(x<{i} OR y<{60 - i})" for i in range(60)), "steps_max"),
        (" AND ".join(f"a LIKE '%a_{chr(97 + i % 26)}_{i}%'" for i in range(60)), "match_steps_max is 450"),
        ("x LIKE '%" + "a_%" * 1300 + "'", "match_steps_max is 450"),
        (f"x IN ({','.join(map(str, range(400)))}) AND ({' OR '.join(f'a{i}<1' for i in range(60))})", "values_max"),
        (" AND ".join(f"a{i} IS NULL" for i in range(200)), None),
        (" AND ".join(f"a{i % 40} LIKE '%b{i}%'" for i in range(60)), "match_steps_max"),
    ],
)
def test_larger_ones_end_with_the_limit_that_they_reach(text: str, limit: str | None) -> None:
    made, steps, calls = admitted(text)
    assert isinstance(made, Predicate) if limit is None else limit in str(made)
    assert steps <= LIMITS.steps_max + 1_000, "what is over the budget is not worked on"
    assert calls <= CALLS_PER_STEP * steps + CALLS_FREE


@pytest.mark.parametrize(
    "text",
    [
        f"x IN ({','.join(map(str, range(1000)))})",
        f"x NOT IN ({','.join(map(str, range(950)))})",
        "x IN (" + ",".join(f"'{i}'" for i in range(600)) + ") AND y < 5",
        " OR ".join(f"(symbol = 'S{i}' AND price < {i} AND volume >= {i})" for i in range(64)),
        " OR ".join(f"(a IN ({','.join(map(str, range(i, i + 10)))}) AND b > {i})" for i in range(64)),
        " OR ".join(f"(a IN ({i},{i + 1},{i + 2}) AND b IN (1,2,3,{i + 5}) AND c IN (1,{i + 3}))" for i in range(64)),
        " OR ".join(f"note LIKE '%word{i}%'" for i in range(30)),
        " AND ".join(f"note NOT LIKE '%w_rd{i}%'" for i in range(12)),
        " AND ".join(f"a{i} NOT BETWEEN 1 AND 5" for i in range(6)),
        " AND ".join(f"attribute_{i} = 'value {i}'" for i in range(100)),
        "x LIKE '" + "a long beginning " * 200 + "%'",
    ],
)
def test_long_texts_that_people_write_are_taken(text: str) -> None:
    made, steps, calls = admitted(text)
    assert isinstance(made, Predicate), made
    assert calls <= CALLS_PER_STEP * steps + CALLS_FREE


# The worst that can be found -------------------------------------------------------------------------------------

LEAVES = ("{n}={v}", "{n}<>{v}", "{n}<{v}", "{n}>={v}", "{n}<>'{v}'", "{n} NOT BETWEEN {v} AND {w}", "{n} IS NULL")
LISTS = ("{n} IN ({v},{w},{u})", "{n} NOT IN ({v},{w},{u},{t})", "{n} IN ('{v}','{w}','a{u}')")
PATTERNS = ("{n} LIKE '%a_{v}%'", "{n} NOT LIKE '{v}%'", "{n} LIKE '{v}%{w}%_'", "{n} LIKE '%{v}'")


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A hundred conditions or so of a few kinds, on a few attributes with a few values, in some regular shape."""
    kinds = draw(st.lists(st.sampled_from(LEAVES + LISTS + PATTERNS), min_size=1, max_size=3, unique=True))
    names, values = draw(st.sampled_from((1, 2, 6, 40))), draw(st.sampled_from((3, 20, 500)))
    outer, inner = draw(st.sampled_from(((" AND ", " OR "), (" OR ", " AND "))))
    width, parts = draw(st.integers(1, 4)), draw(st.integers(1, 120))
    random = draw(st.randoms(use_true_random=False))

    def condition() -> str:
        drawn = {key: random.randrange(values) for key in "vwut"}
        return random.choice(kinds).format(n=f"n{random.randrange(names)}", **drawn)

    text = f"({condition()})"
    for _ in range(parts):
        longer = f"{text}{outer}({inner.join(condition() for _ in range(width))})"
        text = longer if len(longer) <= LIMITS.characters_max else text
    return text


# Shrinking would take minutes, and a shorter text is no better a witness.
searching = settings(
    deadline=None, derandomize=True, max_examples=40, phases=(Phase.explicit, Phase.generate, Phase.target)
)


@searching
@given(texts())
def test_no_text_costs_more_than_the_budget(text: str) -> None:
    made, steps, calls = admitted(text)
    target(float(calls), label="calls")
    assert calls <= CALLS_PER_STEP * min(steps, LIMITS.steps_max) + CALLS_FREE
    if isinstance(made, Predicate):
        assert steps <= LIMITS.steps_max
        assert len(made.filters) <= LIMITS.filters_max


@searching
@given(texts(), st.sampled_from(("a" * 256, "a1" * 128, "n" * 200 + "a_1", 0, 5.5, True, None)))
def test_no_accepted_predicate_costs_more_than_its_match_steps(text: str, value: Any) -> None:
    gathered = gather(parse_expression(text))
    steps = match_steps(gathered)
    if steps > LIMITS.match_steps_max:
        return
    message = {} if value is None else {f"n{i}": value for i in range(40)}
    matches = compile_expression(gathered)
    _, calls = counted(lambda: matches(message))
    target(float(calls), label="calls")
    assert calls <= CALLS_PER_MATCH_STEP * steps + MATCH_CALLS_FREE


@settings(searching, max_examples=30)
@given(texts(), texts())
def test_relations_of_any_two_predicates_cost_no_more_than_their_budget(one: str, other: str) -> None:
    made = [parse_or_nothing(text) for text in (one, other)]
    for relation in (covers, disjoint, overlaps, witness):
        budget = Budget(RELATION_STEPS)
        _, calls = counted(lambda relation=relation, budget=budget: relation(*made, budget))
        target(float(calls), label=f"calls of {relation.__name__}")
        assert calls <= CALLS_PER_STEP * min(budget.spent, RELATION_STEPS) + CALLS_FREE


def parse_or_nothing(text: str) -> Predicate:
    try:
        return parse_predicate(text)
    except PredicateTooLarge:
        return parse_predicate("n0 < 3")


# What a budget means ---------------------------------------------------------------------------------------------


def test_a_relation_that_runs_out_of_steps_is_not_proven() -> None:
    wide, narrow = parse_predicate("a < 10 AND b < 10"), parse_predicate("a < 5 AND b < 5 AND c = 1")
    apart = parse_predicate("a > 20")
    assert covers(wide, narrow)
    assert disjoint(wide, apart)
    for steps in range(3):
        assert not covers(wide, narrow, Budget(steps))
        assert not disjoint(wide, apart, Budget(steps))
        assert witness(wide, narrow, Budget(steps)) is None
        assert not overlaps(wide, narrow, Budget(steps))


def test_a_budget_is_shared_by_all_questions_that_it_is_given_to() -> None:
    wide, narrow = parse_predicate("a < 10"), parse_predicate("a < 5")
    budget = Budget(20)
    answers = [covers(wide, narrow, budget) for _ in range(20)]
    assert answers[0]
    assert not answers[-1]
    assert answers == sorted(answers, reverse=True)


def test_many_values_of_one_attribute_are_one_lookup() -> None:
    many = " AND ".join(f"a<>{i}" for i in range(300))
    assert match_steps(gather(parse_expression(many))) == 2
    assert match_steps(gather(parse_expression("a = 1 OR a IN (2, 3) OR NOT a <> 4"))) == 2
    assert match_steps(gather(parse_expression("a AND a AND a"))) == 1


def test_the_pattern_of_a_hole_costs_by_its_literals_and_not_by_the_text() -> None:
    pattern = compile_like("%a_b%c_d%")
    costs = [counted(lambda text=text: pattern.matches(text))[1] for text in ("ab" * 100, "ab" * 2_000)]
    assert costs[0] == costs[1]
    assert pattern.searched == set("abcd")
    assert match_steps(Like("x", "%a_b%")) > match_steps(Like("x", "%ab%"))


def test_texts_that_take_turns_are_searched_once_each() -> None:
    texts = {f"n{i}": f"{'ab' * 100}{i}" for i in range(6)}
    patterns = [compile_like(f"%{a}_{b}%") for a in "abxy" for b in "abxy"]

    def ask() -> None:
        for pattern in patterns:
            for text in texts.values():
                pattern.matches(text)

    (_, first), (_, again) = counted(ask), counted(ask)
    searched = 4 * len(texts)
    assert 0 < first - again <= 12 * searched, "each of four characters in each text, and no more"
