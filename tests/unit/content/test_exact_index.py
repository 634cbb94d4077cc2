"""PredicateIndex answers what `predicate.matches` says, on both tables, whatever is added and removed before.

The oracle is `truth` below: a direct reading of the header of `predicate`, constraint by constraint, with Python's
exact comparison of integers and floats.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.matching.compiled import warm_up
from penstock.content.matching.exact_index import PredicateIndex
from penstock.content.message import Attributes, Value
from penstock.content.predicate import (
    Constraint,
    Differs,
    Equals,
    Exists,
    Filter,
    Like,
    Missing,
    OneOf,
    Predicate,
    Range,
    value_class,
)

DICT_ONLY, COMPILED_ONLY = 10**9, 0
NAMES = ["a", "b", "c", "d"]
BIG = 2**53
NUMBERS: list[Value] = [0, -0.0, 1, 1.0, 2, 2.5, -7, 1000, 0.1, 1e300, -1e300, 5e-324, 2**63 - 1, -(2**63)]
NUMBERS += [BIG - 1, BIG, float(BIG), BIG + 1, BIG + 2, float(BIG + 2), -BIG - 1, float(2**62), 2**62 + 1]
STRINGS: list[Value] = ["", "x", "xy", "y", "1", "True", "é", "\U0001f600", "z%"]
VALUES: list[Value] = [True, False, *NUMBERS, *STRINGS]


@pytest.fixture(autouse=True, scope="module")
def tables_from_the_first_predicate_on() -> Iterator[None]:
    """A handful of predicates is simply asked; here the tables are what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.content.matching.exact_index.ASKED_MAX", 0)
        yield


def truth(constraint: Constraint, message: Attributes) -> bool:
    if isinstance(constraint, Missing):
        return constraint.name not in message
    if constraint.name not in message:
        return False
    value: Any = message[constraint.name]
    match constraint:
        case Exists():
            return True
        case Equals(_, wanted):
            return same(value, wanted)
        case OneOf(_, values):
            return any(same(value, wanted) for wanted in values)
        case Differs(_, wanted):
            return value_class(value) == value_class(wanted) and not same(value, wanted)
        case Like():
            return isinstance(value, str) and like(constraint, value) != constraint.negated
        case Range():
            return in_range(constraint, value)
    raise AssertionError(constraint)


def same(one: Value, other: Value) -> bool:
    return value_class(one) == value_class(other) and one == other


def like(constraint: Like, value: str) -> bool:
    pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in constraint.pattern)
    return re.fullmatch(pattern, value, re.DOTALL) is not None


def in_range(constraint: Range, value: Any) -> bool:
    low: Any = constraint.low
    high: Any = constraint.high
    if value_class(value) != value_class(high if low is None else low):
        return False
    above = low is None or (value > low if constraint.low_open else value >= low)
    return above and (high is None or (value < high if constraint.high_open else value <= high))


def predicate(*filters: Filter) -> Predicate:
    def matches(message: Attributes) -> bool:
        return any(all(truth(c, message) for c in f.constraints) for f in filters)

    return Predicate("", filters, matches)


def where(*constraints: Constraint) -> Predicate:
    return predicate(Filter(constraints))


def random_range(rng: random.Random, name: str) -> Range:
    values: list[Any] = rng.choice([NUMBERS, NUMBERS, NUMBERS, STRINGS, [False, True]])
    low, high = sorted((rng.choice(values), rng.choice(values)))
    ends = rng.choice([(low, high), (low, high), (low, None), (None, high), (high, low)])
    return Range(name, *ends, rng.random() < 0.4, rng.random() < 0.4)


def random_constraint(rng: random.Random) -> Constraint:
    name = rng.choice(NAMES)
    makers: list[Callable[[], Constraint]] = [
        lambda: Equals(name, rng.choice(VALUES)),
        lambda: OneOf(name, tuple(rng.choices(VALUES, k=rng.randint(2, 20)))),
        lambda: Differs(name, rng.choice(VALUES)),
        lambda: random_range(rng, name),
        lambda: random_range(rng, name),
        lambda: Like(name, rng.choice(["x%", "%", "_", "z_"]), negated=rng.random() < 0.3),
        lambda: Exists(name),
        lambda: Missing(name),
    ]
    return rng.choice(makers)()


def random_predicate(rng: random.Random) -> Predicate:
    sizes = rng.choice([[1], [1], [2], [3], [1, 2], [2, 2, 1], [8], [0], []])
    return predicate(*(Filter(tuple(random_constraint(rng) for _ in range(size))) for size in sizes))


def random_message(rng: random.Random) -> dict[str, Value]:
    return {name: rng.choice(VALUES) for name in rng.sample(NAMES, rng.randint(0, len(NAMES)))}


def expected(predicates: dict[int, Predicate], batch: list[dict[str, Value]]) -> list[list[int]]:
    return [sorted(key for key, one in predicates.items() if one.matches(message)) for message in batch]


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    warm_up()


@pytest.mark.parametrize("compiled_above", [DICT_ONLY, COMPILED_ONLY, 40])
@pytest.mark.parametrize("seed", range(6))
def test_random_changes_and_matches(seed: int, compiled_above: int) -> None:
    rng = random.Random(seed)
    index = PredicateIndex(compiled_above=compiled_above)
    held: dict[int, Predicate] = {}
    for _ in range(400):
        if held and rng.random() < 0.4:
            key = rng.choice(list(held))
            del held[key]
            index.remove(key)
        else:
            key = rng.choice([rng.randint(-5, 500), rng.randint(-(2**63), 2**63 - 1)])
            if key not in held:
                held[key] = random_predicate(rng)
                index.add(key, held[key])
        if rng.random() < 0.3:
            batch = [random_message(rng) for _ in range(rng.choice([1, 1, 5, 30]))]
            assert index.match(batch) == expected(held, batch)
    assert len(index) == len(held)


values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([BIG + 1, float(BIG), 0.5, -0.0, 2**62 + 1]),
    st.text(max_size=2),
)
names = st.sampled_from(NAMES)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    numbers = st.one_of(st.integers(-(2**64), 2**64), st.integers(-4, 4), st.floats(-1e308, 1e308))
    ends: Any = draw(st.sampled_from([numbers, numbers, st.text(max_size=2), st.booleans()]))
    low, high = draw(st.tuples(ends, ends))
    low, high = draw(st.sampled_from([(low, high), (low, None), (None, high)]))
    return Range(draw(names), low, high, draw(st.booleans()), draw(st.booleans()))


constraints = st.one_of(
    st.builds(Equals, names, values),
    st.builds(OneOf, names, st.lists(values, min_size=2, max_size=5).map(tuple)),
    st.builds(Differs, names, values),
    ranges(),
    st.builds(Like, names, st.sampled_from(["%", "a%", "_"]), negated=st.booleans()),
    st.builds(Exists, names),
    st.builds(Missing, names),
)
filters = st.builds(Filter, st.lists(constraints, max_size=4).map(tuple))
predicates = st.lists(filters, max_size=3).map(lambda some: predicate(*some))
messages = st.dictionaries(names, values)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(predicates, max_size=12), st.lists(messages, max_size=6), st.data())
def test_both_tables_tell_the_truth(some: list[Predicate], batch: list[dict[str, Value]], data: st.DataObject) -> None:
    ends = [v for p in some for f in p.filters for c in f.constraints for v in mentioned(c)]
    if ends:  # values that filters mention make the borders
        batch += [{name: data.draw(st.sampled_from(ends)) for name in NAMES} for _ in range(3)]
    held = dict(enumerate(some))
    for compiled_above in (DICT_ONLY, COMPILED_ONLY):
        index = PredicateIndex(compiled_above=compiled_above)
        for key, one in held.items():
            index.add(key, one)
        assert index.match(batch) == expected(held, batch)


def mentioned(constraint: Constraint) -> list[Value]:
    found: list[Any] = []
    match constraint:
        case Equals(_, value) | Differs(_, value):
            found = [value]
        case OneOf(_, several):
            found = list(several)
        case Range(_, low, high):
            found = [low, high]
    return [v for v in found if v is not None and (isinstance(v, bool | str | float) or -(2**63) <= v < 2**63)]


@pytest.mark.parametrize("compiled_above", [DICT_ONLY, COMPILED_ONLY])
class TestExamples:
    def keys(self, compiled_above: int, message: dict[str, Value], *some: Predicate) -> list[int]:
        index = PredicateIndex(compiled_above=compiled_above)
        for key, one in enumerate(some):
            index.add(key, one)
        return index.match([message])[0]

    def test_true_is_not_one(self, compiled_above: int) -> None:
        some = [where(Equals("a", 1)), where(Equals("a", True)), where(Equals("a", 1.0))]
        assert self.keys(compiled_above, {"a": True}, *some) == [1]
        assert self.keys(compiled_above, {"a": 1}, *some) == [0, 2]

    def test_integers_beyond_the_floats(self, compiled_above: int) -> None:
        some = [where(Equals("a", BIG + 1)), where(Equals("a", float(BIG))), where(Range("a", float(BIG), None, True))]
        some += [where(Range("a", None, BIG + 1, high_open=True)), where(Range("a", BIG + 1, BIG + 1))]
        assert self.keys(compiled_above, {"a": BIG + 1}, *some) == [0, 2, 4]
        assert self.keys(compiled_above, {"a": BIG}, *some) == [1, 3]

    def test_zero_has_one_value(self, compiled_above: int) -> None:
        some = [where(Equals("a", 0)), where(Range("a", 0, 5)), where(Range("a", 0, 5, low_open=True))]
        assert self.keys(compiled_above, {"a": -0.0}, *some) == [0, 1]

    def test_no_filter_never_and_empty_filter_always(self, compiled_above: int) -> None:
        assert self.keys(compiled_above, {}, predicate(), where()) == [1]

    def test_a_repeated_alternative_gives_the_key_once(self, compiled_above: int) -> None:
        some = [where(OneOf("a", ("x", "x", "y"))), predicate(Filter((Exists("a"),)), Filter((Equals("a", "x"),)))]
        assert self.keys(compiled_above, {"a": "x"}, *some) == [0, 1]

    def test_long_lists_and_many_constraints(self, compiled_above: int) -> None:
        numbers = OneOf("a", tuple(range(100)))
        some = [where(numbers), where(numbers, OneOf("b", tuple("abcdefghij")), OneOf("c", (True, "t")))]
        some += [where(*(Range(name, low, 50) for name in NAMES for low in (1, 2, 3)))]
        assert self.keys(compiled_above, {"a": 7, "b": "j", "c": "t", "d": 9}, *some) == [0, 1]
        assert self.keys(compiled_above, {"a": 7, "b": 7, "c": 7, "d": 9.5}, *some) == [0, 2]

    def test_keys_are_checked(self, compiled_above: int) -> None:
        index = PredicateIndex(compiled_above=compiled_above)
        index.add(3, where(Exists("a")))
        with pytest.raises(ValueError, match="in use"):
            index.add(3, where())
        with pytest.raises(ValueError, match="64 bits"):
            index.add(2**63, where())
        with pytest.raises(KeyError):
            index.remove(4)
        assert index.match([{"a": 1}, {}]) == [[3], []]
        assert index.match([]) == []


@pytest.mark.parametrize("compiled_above", [DICT_ONLY, COMPILED_ONLY])
def test_what_is_removed_is_forgotten(compiled_above: int) -> None:
    rng = random.Random(5)
    index = PredicateIndex(compiled_above=compiled_above)
    for turn in range(20):
        for key in range(50):
            some: list[Constraint] = [Equals("a", f"{turn} {key}"), Range("b", key, key + turn), Like(f"n{turn}", "%")]
            index.add(key, where(*rng.sample(some, 2)))
        index.match([{"a": "0 0", "b": 7}])
        for key in range(50):
            index.remove(key)
    vocabulary = index._vocabulary
    assert not any([vocabulary.strings, vocabulary.booleans, vocabulary.present, vocabulary.numbers])
    assert vocabulary.atoms_size < 400
    assert vocabulary.columns_size < 10
    assert index._table.room < 1000
    assert index.match([{"a": "0 0", "b": 7}]) == [[]]


def test_a_large_index_shrinks() -> None:
    index = PredicateIndex(compiled_above=10)
    for key in range(3000):
        index.add(key, where(Equals("a", key)))
    large = index._table.room
    for key in range(2990):
        index.remove(key)
    assert index._table.room < large / 4
    assert index.match([{"a": 2995}, {"a": 5}]) == [[2995], []]


def test_answers_larger_than_the_buffers() -> None:
    rng = random.Random(3)
    keys = [*range(-2000, 0), *(rng.randint(-(2**63), 2**63 - 1) for _ in range(1000))]
    index = PredicateIndex(compiled_above=0)
    for key in rng.sample(keys, len(keys)):
        index.add(key, where(Exists("a"), *rng.choice([(), (Missing("b"),)])))
    assert index.match([{"a": 1}, {}, {"a": "x"}, {"a": 2**62 + 1}]) == [sorted(keys), [], sorted(keys), sorted(keys)]


def test_columns_beyond_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.content.matching.exact_table.COLUMN_MAX", 3)
    rng = random.Random(4)
    index = PredicateIndex(compiled_above=0)
    held = {key: random_predicate(rng) for key in range(100)}
    for key, one in held.items():
        index.add(key, one)
    batch = [random_message(rng) for _ in range(50)]
    assert index.match(batch) == expected(held, batch)
