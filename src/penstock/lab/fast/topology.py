"""Networks with power-law degrees, as Figure 11 of 004: few routers with many neighbours, many with two.

Routers join one after another, each by half the mean degree of links to routers that are chosen in proportion to their
links (preferential attachment). For the paper's size drawings are repeated until the diameter is the paper's, 6.
"""

from __future__ import annotations

from random import Random

DIAMETER = {100: 6}  # 004 section 4.2
DRAWINGS_MAX = 200


def power_law_network(routers: int, degree: int, random: Random) -> list[list[int]]:
    """The neighbours of each router, in order."""
    found = _draw(routers, degree, random)
    wanted = DIAMETER.get(routers)
    for _ in range(DRAWINGS_MAX):
        if wanted is None or diameter(found) == wanted:
            break
        found = _draw(routers, degree, random)
    return found


def _draw(routers: int, degree: int, random: Random) -> list[list[int]]:
    links = max(1, degree // 2)
    neighbours: list[list[int]] = [[] for _ in range(routers)]
    ends: list[int] = []  # each router as often as it has links
    for router in range(1, routers):
        chosen: dict[int, None] = {}
        while len(chosen) < min(links, router):
            chosen[random.choice(ends) if ends else 0] = None
        for other in chosen:
            neighbours[router].append(other)
            neighbours[other].append(router)
            ends += (router, other)
    return [sorted(those) for those in neighbours]


def distances(neighbours: list[list[int]], start: int) -> list[int]:
    """Hops from one router to each; all are reached."""
    found = [-1] * len(neighbours)
    found[start] = 0
    ring = [start]
    while ring:
        following = []
        for router in ring:
            for other in neighbours[router]:
                if found[other] < 0:
                    found[other] = found[router] + 1
                    following.append(other)
        ring = following
    return found


def diameter(neighbours: list[list[int]]) -> int:
    """The longest shortest way."""
    return max(max(distances(neighbours, start)) for start in range(len(neighbours)))


def nearest(neighbours: list[list[int]], root: int, count: int, random: Random) -> list[int]:
    """A router and those closest to it; among equals any."""
    hops = distances(neighbours, root)
    others = [(hops[router], random.random(), router) for router in range(len(neighbours))]
    return sorted(router for _, _, router in sorted(others)[:count])
