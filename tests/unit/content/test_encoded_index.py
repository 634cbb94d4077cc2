"""EncodingIndex finds every owner with an encoding that is a subset of the message's bits, and no other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.matching.compiled import warm_up
from penstock.content.matching.encoded_index import EncodingIndex, bits_of
from penstock.errors import InvalidEncoding

DICT_ONLY, COMPILED_ONLY = 10**9, 0
BOTH = pytest.mark.parametrize("compiled_above", [DICT_ONLY, COMPILED_ONLY])


def expected(pairs: set[tuple[int, int]], messages: list[int]) -> list[tuple[int, ...]]:
    return [tuple(sorted({owner for owner, encoding in pairs if not encoding & ~bits})) for bits in messages]


def some_bits(rng: random.Random, bits: int, count: int) -> int:
    return sum(1 << bit for bit in rng.sample(range(bits), count))


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    warm_up()


@pytest.mark.parametrize("compiled_above", [DICT_ONLY, COMPILED_ONLY, 60])
@pytest.mark.parametrize("bits", [64, 256])
@pytest.mark.parametrize("seed", range(3))
def test_random_changes_and_matches(seed: int, bits: int, compiled_above: int) -> None:
    rng = random.Random(seed)
    index = EncodingIndex(bits, compiled_above=compiled_above)
    pairs: set[tuple[int, int]] = set()
    for _ in range(500):
        choice = rng.random()
        if pairs and choice < 0.35:
            pair = rng.choice(sorted(pairs))
            pairs.remove(pair)
            index.remove(*pair)
        elif pairs and choice < 0.37:
            owner = rng.choice(sorted(pairs))[0]
            pairs = {pair for pair in pairs if pair[0] != owner}
            index.remove_owner(owner)
        else:
            pair = (rng.choice([rng.randint(-3, 30), 2**63 - 1]), some_bits(rng, bits, rng.choice([0, 1, 2, 3, 3, 6])))
            if pair not in pairs:
                pairs.add(pair)
                index.add(*pair)
        if rng.random() < 0.3:
            messages = [some_bits(rng, bits, rng.randint(0, bits)) for _ in range(rng.choice([0, 1, 1, 7]))]
            assert index.match(messages) == expected(pairs, messages)
    assert len(index) == len(pairs)


encodings = st.integers(0, 2**64 - 1) | st.sets(st.integers(0, 7)).map(lambda bits: sum(1 << bit for bit in bits))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.sets(st.tuples(st.integers(0, 5), encodings), max_size=30), st.lists(encodings, max_size=5))
def test_both_tables_agree_with_the_definition(pairs: set[tuple[int, int]], messages: list[int]) -> None:
    for compiled_above in (DICT_ONLY, COMPILED_ONLY):
        index = EncodingIndex(64, compiled_above=compiled_above)
        for pair in sorted(pairs):
            index.add(*pair)
        assert index.match(messages) == expected(pairs, messages)


@BOTH
def test_the_empty_encoding_covers_everything(compiled_above: int) -> None:
    index = EncodingIndex(128, compiled_above=compiled_above)
    index.add(7, 0)
    index.add(8, 1 << 127)
    assert index.match([0, 1 << 127, 2**128 - 1]) == [(7,), (7, 8), (7, 8)]
    index.remove(7, 0)
    assert index.match([0]) == [()]


@BOTH
def test_wrong_input_changes_nothing(compiled_above: int) -> None:
    index = EncodingIndex(64, compiled_above=compiled_above)
    index.add(1, 0b11)
    with pytest.raises(ValueError, match="already"):
        index.add(1, 0b11)
    with pytest.raises(ValueError, match="64 bits"):
        index.add(2**63, 0b1)
    for encoding in (2**64, -1):
        with pytest.raises(InvalidEncoding):
            index.add(1, encoding)
        with pytest.raises(InvalidEncoding):
            index.match([0, encoding])
    with pytest.raises(KeyError):
        index.remove(1, 0b1)
    with pytest.raises(KeyError):
        index.remove(2, 0b11)
    index.remove_owner(2)
    assert index.match([0b111]) == [(1,)]


@pytest.mark.parametrize("bits", [0, -64, 63, 100])
def test_bits_are_whole_words(bits: int) -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        EncodingIndex(bits)


def test_a_large_index_is_reused_and_shrinks() -> None:
    rng = random.Random(1)
    index = EncodingIndex(256, compiled_above=10)
    pairs = sorted({(rng.randint(0, 3000), some_bits(rng, 256, 6)) for _ in range(20000)})
    for pair in pairs:
        index.add(*pair)
    large = index._table.room
    messages = [some_bits(rng, 256, 90) for _ in range(400)]
    assert index.match(messages[:30]) == expected(set(pairs), messages[:30])
    assert index.match(messages)[:30] == expected(set(pairs), messages[:30])
    for pair in pairs[500:]:
        index.remove(*pair)
    assert index._table.room < large
    assert index.match(messages[:30]) == expected(set(pairs[:500]), messages[:30])


def test_bits_of() -> None:
    assert list(bits_of(0b1010001 | 1 << 200)) == [0, 4, 6, 200]
