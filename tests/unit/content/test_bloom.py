"""The encoding: its bits, its bounds, and that every process makes the same ones."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
from typing import Any

import pytest

from penstock.content.bloom import EncodingScheme, encoding_covers, matches
from penstock.content.language.parser import parse_predicate
from penstock.content.message import DEFAULT_LIMITS, Value
from penstock.content.predicate import Equals, Filter, Like, Missing, Range
from penstock.content.tags import constraint_tags, tag_text
from penstock.errors import InvalidEncoding

SCHEME = EncodingScheme()


def tags(text: str) -> list[str]:
    return [
        tag_text(tag)
        for selected in parse_predicate(text).filters
        for c in selected.constraints
        for tag in constraint_tags(c)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", ["x = 1"]),
        ("x = 0.5", ["x = 0.5"]),
        ("x = 'IBM'", ["x = IBM"]),
        ("x = TRUE", ["x = TRUE"]),
        ("EXISTS x", ["x exists"]),
        ("x IS NULL", []),
        ("x <> 5", ["x exists"]),
        ("x NOT LIKE 'abcd%'", ["x exists"]),
        ("x < 5", ["x exists"]),
        ("x BETWEEN 17 AND 31", ["x from 16 to below 32", "x exists"]),
        ("x BETWEEN 17 AND 32", ["x from 0 to below 256", "x exists"]),
        ("x >= 16 AND x < 32", ["x from 16 to below 32", "x exists"]),
        ("x BETWEEN -5 AND -0.5", ["x from -16 to below 0", "x exists"]),
        ("x BETWEEN -1 AND 1", ["x exists"]),  # 0 is a border at every level
        ("x BETWEEN 0 AND 4096", ["x exists"]),
        ("x LIKE 'a%'", ["x exists"]),
        ("x LIKE 'abc%'", ["x begins with ab", "x exists"]),
        ("x LIKE 'abcd_f%'", ["x begins with abcd", "x exists"]),
        ("x BETWEEN 'abca' AND 'abcz'", ["x begins with ab", "x exists"]),
        ("x IN (1, 15)", ["x from 0 to below 16", "x exists"]),
        ("x IN ('ab1', 'ab2')", ["x begins with ab", "x exists"]),
        ("x IN (1, 'a')", ["x exists"]),
    ],
)
def test_what_a_constraint_asks_of_a_message(text: str, expected: list[str]) -> None:
    assert tags(text) == expected


def test_an_inbox_is_told_from_messages_without_an_address_however_many_there_are() -> None:
    """Beyond erratum B2: an equality of a reserved name asks for the name too."""
    inboxes = [SCHEME.encode_filter(Filter((Equals("_to", f"client-{number}"),))) for number in range(2_000)]
    values = "ABCDEFGHIJKLMNOPQRST"
    for turn in range(200):
        attributes: dict[str, Value] = {f"a{name}": values[(turn * (name + 3)) % len(values)] for name in range(10)}
        bits = SCHEME.encode_message({**attributes, "_t": "data"})
        assert not any(matches(inbox, bits) for inbox in inboxes)
    own = SCHEME.encode_message({"_to": "client-7", "_t": "answer"})
    assert matches(inboxes[7], own)


def test_a_range_of_booleans_asks_for_no_interval() -> None:
    bits = SCHEME.encode_filter(Filter((Range("x", False, True),)))
    assert matches(bits, SCHEME.encode_message({"x": True}))


def test_equal_numbers_have_equal_bits_and_other_classes_do_not() -> None:
    def encode(value: Any) -> int:
        return SCHEME.encode_message({"x": value})

    assert encode(1) == encode(1.0)
    assert encode(0) == encode(-0.0)
    assert encode(2**53) == encode(float(2**53))
    assert len({encode(value) for value in (1, True, "1", 2**53, 2**53 + 1)}) == 5


def test_bits_are_the_same_in_every_process_and_differ_by_key() -> None:
    message: dict[str, Any] = {"a": "b", "c": 1.5, "d": True}
    script = f"from penstock.content.bloom import EncodingScheme as E; print(E().encode_message({message}))"
    environments = [{"PYTHONHASHSEED": seed} for seed in ("1", "2")]
    runs = [
        subprocess.run([sys.executable, "-c", script], env=e, check=True, capture_output=True) for e in environments
    ]
    assert {int(run.stdout) for run in runs} == {SCHEME.encode_message(message)}
    assert EncodingScheme(key="other").encode_message(message) != SCHEME.encode_message(message)


def test_bits_are_pinned() -> None:
    """Brokers of different versions must understand each other: a change of these bits is a change of the protocol."""
    encoding = EncodingScheme(bits=64).encode_message({"price": 110, "symbol": "IBM"})
    assert f"{encoding:016x}" == PINNED


PINNED = "800240b0e694020c"


def test_wire_form_returns_and_refuses() -> None:
    encoding = SCHEME.encode_message({"a": 1, "b": "text"})
    data = SCHEME.to_bytes(encoding)
    assert len(data) == 64
    assert SCHEME.from_bytes(data) == encoding
    with pytest.raises(InvalidEncoding, match="64 bytes"):
        SCHEME.from_bytes(data[:-1])
    with pytest.raises(InvalidEncoding, match="100% full, the limit fill_limit is 90%"):
        SCHEME.from_bytes(b"\xff" * 64)


@pytest.mark.parametrize("kind", ["number", "string"])
def test_no_message_within_the_limits_is_too_full(kind: str) -> None:
    """Expected fill 0.78, standard deviation 0.013: the limit of 0.9 is nine of them away."""
    source = random.Random(4)
    fills = []
    for _ in range(150):
        drawn = [source.randrange(-(2**63), 2**63) for _ in range(DEFAULT_LIMITS.attributes_max)]
        message: dict[str, Any] = {f"n{value}": value if kind == "number" else f"{value:020}" for value in drawn}
        fills.append(SCHEME.fill(SCHEME.encode_message(message)))
    assert 0.76 < sum(fills) / len(fills) < 0.80
    assert max(fills) < 0.85


def test_a_message_that_is_too_full_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidEncoding, match="fewer attributes or a scheme with more bits"):
        EncodingScheme(bits=64).encode_message({f"name{index}": index for index in range(40)})


def test_a_filter_uses_its_most_telling_tags_only() -> None:
    many = Filter(tuple(Range(f"r{i}", 0, 1) for i in range(10)) + tuple(Equals(f"e{i}", i) for i in range(6)))
    bits = SCHEME.encode_filter(many)
    assert bits.bit_count() <= 8 * SCHEME.hashes
    assert matches(SCHEME.encode_filter(Filter(many.constraints[10:])), bits)


def test_lists_are_taken_apart_while_there_is_room() -> None:
    def count(text: str) -> int:
        return len(SCHEME.routing_encodings(parse_predicate(text)))

    assert count("x IN (1, 2, 3)") == 3
    assert count("x IN (1, 2, 3) AND y IN ('a', 'b')") == 6
    assert count(f"x IN ({', '.join(map(str, range(64)))})") == 64
    assert count(f"x IN ({', '.join(map(str, range(65)))})") == 1
    assert count(f"x IN ({', '.join(map(str, range(40)))}) AND y IN (1, 2)") == 2
    assert count(" OR ".join(f"a{i} IN (1, 2)" for i in range(64))) == 64
    assert SCHEME.routing_encodings(parse_predicate("TRUE")) == (0,)
    assert SCHEME.routing_encodings(parse_predicate("FALSE")) == ()


@pytest.mark.parametrize("hashes", [3, 5, 8])
def test_false_positives_are_as_rare_as_the_fill_promises(hashes: int) -> None:
    """Bits that depend on each other, as those of a first position and a step do, give fifteen times as many at 8."""
    scheme = EncodingScheme(bits=256, hashes=hashes, existence_hashes=1, wide_tags=False)
    draw = random.Random(hashes)
    passed, expected = 0, 0.0
    for _ in range(10_000):
        message = scheme.encode_message({f"a{number}": draw.getrandbits(40) for number in range(10)})
        wanted = scheme.encode_filter(Filter((Equals("a0", draw.getrandbits(40)),)))
        passed += matches(wanted, message)
        expected += scheme.fill(message) ** hashes
    assert abs(passed - expected) <= 4.0 * expected**0.5 + 1.0


def test_covering_of_encodings_runs_from_few_bits_to_many() -> None:
    general, specific = (SCHEME.encode_filter(parse_predicate(t).filters[0]) for t in ("a = 1", "a = 1 AND b = 2"))
    assert encoding_covers(general, specific)
    assert not encoding_covers(specific, general)
    assert SCHEME.encode_filter(Filter((Missing("x"),))) == 0
    assert SCHEME.encode_filter(Filter((Like("x", "%"),))) == SCHEME.encode_filter(
        parse_predicate("EXISTS x").filters[0]
    )


def test_the_caches_never_exceed_their_bound() -> None:
    scheme = EncodingScheme(cached_masks_max=50)
    for index in range(1000):
        scheme.encode_message({f"a{index % 7}": index * 5000, "s": "x" * index})
        assert len(scheme._values) <= 50
        assert len(scheme._tags) <= 50
    assert all(len(str(value)) <= 256 for _, _, value in scheme._values)


def test_what_is_remembered_changes_nothing() -> None:
    scheme = EncodingScheme(cached_masks_max=3)
    messages: list[dict[str, Any]] = [{"a": index % 5, "b": f"text{index % 4}"} for index in range(20)]
    assert [scheme.encode_message(m) for m in messages] == [EncodingScheme().encode_message(m) for m in messages]


def test_a_copy_is_equal_and_starts_empty() -> None:
    SCHEME.encode_message({"a": 1})
    for twin in (pickle.loads(pickle.dumps(SCHEME)), copy.deepcopy(SCHEME)):
        assert twin == SCHEME
        assert not twin._values
        assert twin.encode_message({"a": 1}) == SCHEME.encode_message({"a": 1})


@pytest.mark.parametrize(
    "wrong", [{"bits": 63}, {"bits": 100}, {"hashes": 0}, {"key": "k" * 65}, {"fill_limit": 0}, {"cached_masks_max": 0}]
)
def test_impossible_schemes_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidEncoding, match=next(iter(wrong))):
        EncodingScheme(**wrong)


@pytest.mark.parametrize("scheme", [EncodingScheme(), EncodingScheme(bits=256), EncodingScheme(bits=128, hashes=5)])
def test_so_many_attributes_always_fit(scheme: EncodingScheme) -> None:
    count = scheme.attributes_always_fit
    assert count > 0
    for start in range(0, 2000, 100):
        attributes = {f"name-{start}-{number}": f"value {start * number}" for number in range(count)}
        assert scheme.fill(scheme.encode_message(attributes)) <= scheme.fill_limit
