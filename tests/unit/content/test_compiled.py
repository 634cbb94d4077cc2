"""Compiled loops prepared beside other work: an index goes on without them, and uses them once they are there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.content.language.parser import parse_predicate
from penstock.content.matching import compiled as kernels
from penstock.content.matching.encoded_index import DictCover, EncodingIndex
from penstock.content.matching.exact_index import DictTable, PredicateIndex


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[kernels.Job]]:
    """What has been asked for and not been done."""
    jobs: list[kernels.Job] = []
    monkeypatch.setattr(kernels, "_ready", False)
    kernels.prepare_beside(jobs.append)
    yield jobs
    kernels.prepare_beside(None)


def test_an_index_answers_without_them_and_uses_them_once_they_are_ready(waiting: list[kernels.Job]) -> None:
    index = PredicateIndex(compiled_above=5)
    for number in range(20):
        index.add(number, parse_predicate(f"x >= {number}"))
    assert index.match([{"x": 2}]) == [[0, 1, 2]]
    assert type(index._table) is DictTable
    (prepare,) = waiting  # asked for once, however often it was wanted
    prepare()
    assert index.match([{"x": 2}]) == [[0, 1, 2]]
    assert type(index._table) is not DictTable


def test_the_index_over_encodings_does_the_same(waiting: list[kernels.Job]) -> None:
    index = EncodingIndex(bits=64, compiled_above=3)
    for owner in range(6):
        index.add(owner, 1 << owner)
    assert index.match([0b101]) == [(0, 2)]
    assert type(index._table) is DictCover
    waiting[0]()
    assert index.match([0b101]) == [(0, 2)]
    assert type(index._table) is not DictCover


def test_a_small_index_never_asks_for_them(waiting: list[kernels.Job]) -> None:
    index = PredicateIndex(compiled_above=5)
    for number in range(5):
        index.add(number, parse_predicate(f"x = {number}"))
    assert index.match([{"x": 2}]) == [[2]]
    assert waiting == []
