"""One text gives three things that must agree: the exact test, the normal form, and the encoding.

Texts are made together with their meaning: a random tree of plain tuples is written as SQL in one of many spellings,
and an interpreter of a few lines, which knows nothing of the code under test, says what the tree means in three-valued
logic. Names and values come from small sets, so that matches and near misses are frequent.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content import bloom
from penstock.content.bloom import EncodingScheme
from penstock.content.filter_bytes import filter_bytes, filter_from_bytes
from penstock.content.language.evaluate import compile_expression, explain, filter_matches, holds
from penstock.content.language.expression import constraint_text
from penstock.content.language.parser import parse_expression, parse_predicate
from penstock.content.matching.filter_index import FilterIndex
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
    constraint_key,
)
from penstock.content.relations import covers, disjoint, overlaps, witness
from penstock.errors import InvalidPredicate

NAMES = {"a": "a", "b.c": "b.c", "x y": '"x y"', "not": "`not`", 'q"`': '"q""`"'}
BOOLEANS = [True, False]
NUMBERS = [0, 1, -1, 2, 15, 16, 17, -16, 255, 256, 4096, 1.0, 0.5, 15.5, -0.0, 2**53, 2**53 + 1, float(2**53), 1e300]
STRINGS = ["", "a", "ab", "abc", "abcd", "abce", "b", "a%", "it's", "1", "é\U0001f600", "abcdefgh", "abcdefghi"]
PATTERNS = ["%", "a%", "ab%", "%b", "a_", "_b%", "%b%d", "abc", "a\\%", "", "abcd%", "abcdefgh%", "%é_", "__%c%"]
VALUES = BOOLEANS + NUMBERS + STRINGS
OPERATORS = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}

names = st.sampled_from(sorted(NAMES))
values = st.sampled_from(VALUES)
messages = st.dictionaries(names, values, max_size=5)
quick = settings(deadline=None, derandomize=True, max_examples=300)


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


leaves = st.one_of(
    st.tuples(st.just("compare"), names, st.sampled_from(sorted(OPERATORS)), values, st.booleans()),
    st.tuples(st.just("in"), names, st.lists(values, min_size=1, max_size=4), st.booleans()),
    st.tuples(st.just("between"), names, values, values, st.booleans()),
    st.tuples(st.just("like"), names, st.sampled_from(PATTERNS), st.booleans()),
    st.tuples(st.just("null"), names, st.booleans()),
    st.tuples(st.just("bare"), names),
    st.tuples(st.just("constant"), st.booleans()),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3)),
    ),
    max_leaves=7,
)


def write(tree: Any) -> str:
    match tree:
        case ("compare", name, operator, value, False):
            return f"{NAMES[name]} {operator} {literal(value)}"
        case ("compare", name, operator, value, True):
            return f"{literal(value)}{MIRRORED.get(operator, operator)}{NAMES[name]}"
        case ("in", name, members, negated):
            return f"{NAMES[name]} {'not ' * negated}In ({', '.join(map(literal, members))})"
        case ("between", name, low, high, negated):
            return f"{NAMES[name]} {'NOT ' * negated}between {literal(low)} and {literal(high)}"
        case ("like", name, pattern, negated):
            return f"{NAMES[name]} {'NOT ' * negated}LIKE {literal(pattern)}"
        case ("null", name, negated):
            return f"EXISTS {NAMES[name]}" if negated else f"{NAMES[name]} IS NULL"
        case ("bare", name):
            return NAMES[name]
        case ("constant", value):
            return str(value)
        case ("not", inner):
            return f"NOT ({write(inner)})"
    return f" {tree[0]} ".join(f"({write(inner)})" for inner in tree[1])


def group(value: Any) -> type:
    return bool if isinstance(value, bool) else str if isinstance(value, str) else float


def compare(value: Any, operator: str, constant: Any) -> bool | None:
    if value is None or group(value) is not group(constant):
        return None
    return {
        "=": value == constant,
        "<>": value != constant,
        "<": value < constant,
        "<=": value <= constant,
        ">": value > constant,
        ">=": value >= constant,
    }[OPERATORS[operator]]


def negate(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def all_of(truths: list[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


def any_of(truths: list[bool | None]) -> bool | None:
    return negate(all_of([negate(truth) for truth in truths]))


def like(text: str, pattern: str) -> bool:
    """The definition, character by character; exponential, and right."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[skipped:], pattern[1:]) for skipped in range(len(text) + 1))
    if pattern[0] == "\\":
        return text[:1] == pattern[1] and like(text[1:], pattern[2:])
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


def meaning(tree: Any, message: dict[str, Any]) -> bool | None:
    match tree:
        case ("compare", name, operator, value, _):
            return compare(message.get(name), operator, value)
        case ("in", name, members, negated):
            found = any_of([compare(message.get(name), "=", member) for member in members])
            return negate(found) if negated else found
        case ("between", name, low, high, negated):
            found = all_of([compare(message.get(name), ">=", low), compare(message.get(name), "<=", high)])
            return negate(found) if negated else found
        case ("like", name, pattern, negated):
            value = message.get(name)
            return like(value, pattern) is not negated if isinstance(value, str) else None
        case ("null", name, negated):
            return (name in message) is negated
        case ("bare", name):
            return compare(message.get(name), "=", True)
        case ("constant", value):
            return bool(value)
        case ("not", inner):
            return negate(meaning(inner, message))
    combine = all_of if tree[0] == "and" else any_of
    return combine([meaning(inner, message) for inner in tree[1]])


@quick
@given(trees, st.lists(messages, min_size=8, max_size=8))
def test_exact_evaluation_and_normal_form_mean_what_the_text_means(tree: Any, drawn: list[dict[str, Any]]) -> None:
    text = write(tree)
    predicate, expression = parse_predicate(text), parse_expression(text)
    uncompiled = compile_expression(expression, compiled_max=0)  # as long texts are, and with nothing gathered
    for message in drawn:
        truth = meaning(tree, message)
        assert predicate.matches(message) is (truth is True)
        assert any(filter_matches(selected, message) for selected in predicate.filters) is (truth is True)
        assert explain(expression, message).truth is truth
        assert uncompiled(message) is (truth is True)


SCHEMES = [EncodingScheme(), EncodingScheme(bits=1024, hashes=2, key="another"), EncodingScheme(bits=64, fill_limit=1)]


@quick
@given(trees, st.lists(messages, min_size=8, max_size=8), st.sampled_from(SCHEMES))
def test_the_encoding_never_misses_a_match(tree: Any, drawn: list[dict[str, Any]], scheme: EncodingScheme) -> None:
    predicate = parse_predicate(write(tree))
    announced = scheme.routing_encodings(predicate)
    assert len(announced) <= 64
    for message in drawn:
        bits = scheme.encode_message(message)
        for selected in predicate.filters:
            if filter_matches(selected, message):
                assert bloom.matches(scheme.encode_filter(selected), bits)
        if predicate.matches(message):
            assert any(bloom.matches(encoding, bits) for encoding in announced)


@quick
@given(st.lists(trees, min_size=1, max_size=6), st.lists(messages, min_size=8, max_size=8), st.booleans())
def test_filters_survive_the_wire_and_find_exactly_those_who_want_a_message(
    wanted: list[Any], drawn: list[dict[str, Any]], compiled: bool
) -> None:
    predicates = [parse_predicate(write(tree)) for tree in wanted]
    index = FilterIndex(compiled_above=0 if compiled else 200)
    for owner, predicate in enumerate(predicates):
        for selected in predicate.filters:
            data = filter_bytes(selected)
            again = filter_from_bytes(data)
            assert constraint_keys(again) == constraint_keys(selected)
            index.add(owner, data, again)
    expected = [
        tuple(owner for owner, predicate in enumerate(predicates) if predicate.matches(message)) for message in drawn
    ]
    assert index.match(drawn) == expected
    index.remove_owner(0)
    assert index.match(drawn) == [tuple(owner for owner in owners if owner) for owners in expected]


def constraint_keys(selected: Filter) -> list[Any]:
    return [constraint_key(constraint) for constraint in selected.constraints]


def ranges_of(ends: list[Any]) -> st.SearchStrategy[Constraint]:
    end = st.one_of(st.none(), st.sampled_from(ends))
    drawn = st.builds(Range, st.just("a"), end, end, st.booleans(), st.booleans())
    return drawn.filter(lambda made: made.low is not None or made.high is not None)


constraints: st.SearchStrategy[Constraint] = st.one_of(
    st.builds(Equals, st.just("a"), values),
    st.builds(Differs, st.just("a"), values),
    st.lists(values, min_size=2, max_size=4).map(lambda members: OneOf("a", tuple(members))),
    ranges_of(NUMBERS),
    ranges_of(STRINGS),
    ranges_of(BOOLEANS),
    st.builds(Like, st.just("a"), st.sampled_from(PATTERNS), negated=st.booleans()),
    st.just(Exists("a")),
    st.just(Missing("a")),
)
# Every constant, and what lies just beside it.
NEARBY = VALUES + [n + d for n in NUMBERS for d in (1, -1, 0.25)] + [s + c for s in STRINGS for c in ("\0", "a", "z")]


def matching(constraint: Constraint) -> list[bool]:
    """Whether it is true when the attribute is missing, and for each value nearby."""
    return [isinstance(constraint, Missing)] + [holds(constraint, value) is True for value in NEARBY]


@settings(quick, max_examples=1200)
@given(constraints, constraints)
def test_relations_of_constraints_hold_for_every_value_nearby(first: Constraint, second: Constraint) -> None:
    pairs = list(zip(matching(first), matching(second), strict=True))
    if covers(first, second):
        assert all(a for a, b in pairs if b)
    if disjoint(first, second):
        assert not any(a and b for a, b in pairs)
    shown = witness(first, second)
    assert overlaps(first, second) is (shown is not None)
    if shown is not None:
        assert filter_matches(Filter((first, second)), shown)
        assert not disjoint(first, second)


@settings(quick, max_examples=400)
@given(st.lists(constraints, min_size=1, max_size=4))
def test_a_constraint_fits_its_encoding_for_every_value_nearby(group: list[Constraint]) -> None:
    selected = Filter(tuple(group))
    bits = SCHEMES[0].encode_filter(selected)
    for value in NEARBY:
        if filter_matches(selected, {"a": value}):
            assert bloom.matches(bits, SCHEMES[0].encode_message({"a": value}))


@settings(quick, max_examples=200)
@given(trees, trees, st.lists(messages, min_size=12, max_size=12))
def test_relations_of_predicates_hold(left: Any, right: Any, drawn: list[dict[str, Any]]) -> None:
    a, b = parse_predicate(write(left)), parse_predicate(write(right))
    covering, apart, shown = covers(a, b), disjoint(a, b), witness(a, b)
    for message in drawn:
        assert not (covering and b.matches(message)) or a.matches(message)
        assert not (apart and a.matches(message) and b.matches(message))
    if shown is not None:
        assert not apart
        assert a.matches(shown)
        assert b.matches(shown)


@settings(quick, max_examples=400)
@given(constraints)
def test_a_written_constraint_parses_to_itself(constraint: Constraint) -> None:
    parsed = parse_predicate(constraint_text(constraint))
    rewritten = [" AND ".join(map(constraint_text, selected.constraints)) for selected in parsed.filters]
    for value in NEARBY:
        assert parsed.matches({"a": value}) is (holds(constraint, value) is True)
    for text, selected in zip(rewritten, parsed.filters, strict=True):
        again = parse_predicate(text).filters[0].constraints
        assert [constraint_key(c) for c in again] == [constraint_key(c) for c in selected.constraints]


TOKENS = "a b x.y 'it''s' ' \" ` \"q\" 1 -2.5 1e9 = <> != < <= ( ) ( ) , AND and OR NOT IN BETWEEN LIKE ESCAPE IS NULL"
soup = st.lists(st.sampled_from([*TOKENS.split(), "EXISTS", "TRUE", "\ud800", "\0", "\U0001f600", "\n", "%"])).map(
    " ".join
)


@settings(quick, max_examples=1000)
@given(st.one_of(soup, st.text(), st.text(alphabet="()'\"`NOT aA=<>1.eE-,\\%")))
def test_any_text_is_a_predicate_or_refused_as_one(text: str) -> None:
    with suppress(InvalidPredicate):
        assert isinstance(parse_predicate(text), Predicate)
