"""Random trees of low degree whose diameter is known beforehand.

The papers give a number of brokers and a diameter, and say that degrees are low. A tree with exactly that diameter is
grown from a spine: a path of `diameter` links. Every further broker joins a random one that still has room, unless that
would make a way longer than the spine. A broker that hangs h links below place i of the spine is at most h + i and h +
(diameter - i) links away from its ends, so h may be at most the smaller of i and diameter - i; then no two brokers are
further apart than the ends of the spine are.

Brokers are numbered: 0 to `diameter` are the spine, the others follow in the order in which they joined.
"""

from __future__ import annotations

from random import Random

DEGREE_MAX = 3


def grown_tree(brokers: int, diameter: int, random: Random) -> tuple[tuple[int, int], ...]:
    """The links of a random tree with this diameter; no broker has more than three neighbours."""
    assert diameter >= 1
    assert brokers > diameter, "the spine alone needs more brokers than the diameter"
    links = [(number, number + 1) for number in range(diameter)]
    room = [0, *(min(place, diameter - place) for place in range(1, diameter)), 0]  # how deep one may still hang here
    degree = [1, *([2] * (diameter - 1)), 1]
    for number in range(diameter + 1, brokers):
        open_ends = [old for old in range(number) if room[old] > 0 and degree[old] < DEGREE_MAX]
        assert open_ends, f"no tree of diameter {diameter} and degree {DEGREE_MAX} has {brokers} brokers"
        parent = random.choice(open_ends)
        links.append((parent, number))
        degree[parent] += 1
        degree.append(1)
        room.append(room[parent] - 1)
    return tuple(links)
