"""Trees of a given diameter."""

from random import Random

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lab.setups.trees import DEGREE_MAX, grown_tree


@given(st.integers(1, 20), st.integers(0, 60), st.integers(0, 1_000))
def test_a_tree_has_exactly_the_diameter_and_low_degrees(diameter, more, seed):
    room = sum(2 ** min(place, diameter - place) - 1 for place in range(diameter + 1))
    brokers = diameter + 1 + min(more, room)
    graph = networkx.Graph(grown_tree(brokers, diameter, Random(seed)))
    assert networkx.is_tree(graph)
    assert graph.number_of_nodes() == brokers
    assert networkx.diameter(graph) == diameter
    assert max(degree for _, degree in graph.degree) <= DEGREE_MAX


def test_the_same_seed_grows_the_same_tree():
    assert grown_tree(46, 15, Random(1)) == grown_tree(46, 15, Random(1))
    assert grown_tree(46, 15, Random(1)) != grown_tree(46, 15, Random(2))


def test_a_tree_that_cannot_be_is_not_grown():
    with pytest.raises(AssertionError, match="spine"):
        grown_tree(5, 5, Random(1))
    with pytest.raises(AssertionError, match="no tree of diameter 2"):
        grown_tree(6, 2, Random(1))
