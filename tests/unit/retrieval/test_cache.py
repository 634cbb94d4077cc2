"""The cache: its bound, its tables, and which order each configuration has."""

from __future__ import annotations

from random import Random

import pytest

from penstock.retrieval.cache import Cache
from penstock.retrieval.interest import PublishedItem
from penstock.retrieval.life_cycle import DISSEMINATED, OVERFLOWING, PENDING, Selector, Table
from penstock.retrieval.selection import CONFIGURATIONS, configuration


def a_cache(size: int, policy: str = "MF") -> Cache:
    return Cache(size, configuration(policy))


def test_the_one_that_must_leave_is_given_back():
    cache = a_cache(2)
    cache.add(PublishedItem("old", 1.0), PENDING)
    cache.add(PublishedItem("new", 2.0), PENDING)
    entry, out = cache.add(PublishedItem("newer", 3.0), PENDING)
    assert (entry.publication.id, out.publication.id) == ("newer", "old")
    assert [one.publication.id for one in cache] == ["new", "newer"]


def test_a_newcomer_comes_in_even_if_it_is_the_oldest():
    cache = a_cache(1)
    cache.add(PublishedItem("new", 2.0), PENDING)
    cache.add(PublishedItem("old", 1.0), PENDING)
    assert "old" in cache


def test_no_room_at_all_and_known_already():
    assert a_cache(0).add(PublishedItem("one", 1.0), PENDING) is None
    cache = a_cache(1)
    cache.add(PublishedItem("one", 1.0), PENDING)
    assert cache.add(PublishedItem("one", 1.0), OVERFLOWING) is None
    assert cache.get("one").place == PENDING


def test_use_moves_it_to_another_table():
    cache = a_cache(3)
    entry, _ = cache.add(PublishedItem("one", 1.0, shelf=7), PENDING)
    assert cache.use(entry, Selector.REMOTE) == PENDING
    assert cache.on_shelf(Table.PENDING, 7) is None
    assert list(cache.on_shelf(Table.OVERFLOWING, 7)) == ["one"]
    cache.remove("one")
    assert cache.on_shelf(Table.OVERFLOWING, 7) is None
    assert len(cache) == 0


SELECTED = {  # the order in which each configuration serves the four of `filled`
    "LFU": "abcd",
    "MRU": "dcba",
    "MF": "badc",
    "LF": "cdab",
    "DPF": "dcba",
    "DPFu": "dcba",
    "PPF": "bacd",
    "PPFu": "bacd",
}
FIRST_OUT = {"LFU": "d", "MRU": "a", "MF": "c", "LF": "c", "DPF": "d", "DPFu": "d", "PPF": "d", "PPFu": "d"}


def filled(policy: str) -> Cache:
    """b is the freshest, c the oldest; a was never used, d twice; d is disseminated, c overflowing."""
    cache = a_cache(4, policy)
    entries = {
        name: cache.add(PublishedItem(name, uploaded), place)[0]
        for name, uploaded, place in (
            ("a", 3.0, PENDING),
            ("b", 4.0, PENDING),
            ("c", 1.0, OVERFLOWING),
            ("d", 2.0, DISSEMINATED),
        )
    }
    for name, by in (("b", 0), ("c", 1), ("d", 0), ("d", 0)):
        cache.use(entries[name], Selector(by))
    return cache


@pytest.mark.parametrize("policy", CONFIGURATIONS)
def test_the_order_of_each_configuration(policy):
    cache = filled(policy)
    assert "".join(entry.publication.id for entry in cache.first(list(cache), 4)) == SELECTED[policy]
    _, out = cache.add(PublishedItem("e", 5.0), PENDING)
    assert out.publication.id == FIRST_OUT[policy]


@pytest.mark.parametrize("name", ["XYZ", "MF", "ABC-MF/LF", "MF/LF/LF"])
def test_an_unknown_configuration_is_refused(name):
    if name in CONFIGURATIONS:
        assert configuration(name).name == name
        return
    with pytest.raises(ValueError, match="none of"):
        configuration(name)


@pytest.mark.parametrize("policy", CONFIGURATIONS)
def test_at_random_each_is_in_one_table_and_the_first_in_order_leaves(policy):
    random = Random(f"cache {policy}")
    cache = a_cache(20, policy)
    key = configuration(policy).replacement.key
    for number in range(400):
        if len(cache) and random.random() < 0.6:
            cache.use(random.choice(list(cache)), random.choice(list(Selector)))
            continue
        first = min(cache, key=key, default=None) if len(cache) == 20 else None
        place = random.choice((PENDING, OVERFLOWING, DISSEMINATED))
        _, out = cache.add(PublishedItem(number, random.random(), random.randrange(3)), place)
        assert out is first
    listed = [name for table in Table for shelf in range(3) for name in cache.on_shelf(table, shelf) or ()]
    assert sorted(listed) == sorted(entry.publication.id for entry in cache)
    assert len(cache) == 20
