"""The tree that all brokers agree on, against brute force."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.overlay.spanning_tree import Hop, SpanningTree

lines = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda ends: ends[0] < ends[1]), st.integers(1, 5)
).map(lambda found: [(cost, a, b) for (a, b), cost in found.items()])


def reachable(found, root):
    seen = {root}
    while True:
        more = {b for _, *ends in found for a, b in (ends, ends[::-1]) if a in seen} - seen
        if not more:
            return seen
        seen |= more


@settings(max_examples=200)
@given(lines, st.randoms())
def test_all_brokers_have_the_same_tree_which_reaches_all_and_has_no_circle(found, random):
    trees = {}
    for root in range(10):
        shuffled = list(found)
        random.shuffle(shuffled)
        trees[root] = SpanningTree(shuffled, root)
    for root, tree in trees.items():
        others = reachable(found, root) - {root}
        hops = tree.hops(range(10))
        assert {b for _, b in hops} == others
        assert len(hops) == len(others)
        assert {frozenset(hop) for hop in hops} == {
            frozenset(hop) for hop in trees[min(others | {root})].hops(range(10))
        }
        for destination in others:
            assert tree.first(destination) == path(tree, root, destination)[0]


def path(tree: SpanningTree, root: int, destination: int) -> list[int]:
    before = {b: a for a, b in tree.hops([destination])}
    way = [destination]
    while before[way[-1]] != root:
        way.append(before[way[-1]])
    return way[::-1]


@settings(max_examples=100)
@given(lines)
def test_what_waits_for_a_link_never_waits_for_itself(found):
    """A link waits for the links that its messages take next; on the tree these chains end (no deadlock by holding)."""
    waits: dict[Hop, set[Hop]] = {}
    for root in range(10):
        for destination in range(10):
            tree = SpanningTree(found, root)
            if tree.first(destination) is None:
                continue
            way = [root, *path(tree, root, destination)]
            hops = list(pairwise(way))
            for one, following in pairwise(hops):
                waits.setdefault(one, set()).add(following)
    done: set[Hop] = set()

    def ends(hop: Hop, above: tuple[Hop, ...]) -> bool:
        if hop in done:
            return True
        result = hop not in above and all(ends(following, (*above, hop)) for following in waits.get(hop, ()))
        done.add(hop)
        return result

    assert all(ends(hop, ()) for hop in waits)


def test_links_are_counted_once_for_all_brokers_behind_them():
    tree = SpanningTree([(1, 0, 1), (1, 1, 2), (1, 1, 3)], 0)
    assert set(tree.hops([2, 3])) == {(0, 1), (1, 2), (1, 3)}
