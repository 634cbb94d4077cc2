"""Where the brokers of a map stand, in the terminal and on a page.

Linked brokers are pulled together and all are pushed apart, from fixed starting points on a circle, so the same network
always looks the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, hypot, pi, sin

Point = tuple[float, float]

ROUNDS = 200


def spring_layout(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> dict[str, Point]:
    """A place for each name, around the origin: steps that grow ever smaller."""
    count = len(names)
    at = {name: (cos(2 * pi * i / count), sin(2 * pi * i / count)) for i, name in enumerate(names)}
    linked = {frozenset(pair): None for pair in pairs}
    for round_number in range(ROUNDS):
        step = 0.1 * (1 - round_number / ROUNDS)
        moves = {name: _force(name, names, at, linked) for name in names}
        for name, (dx, dy) in moves.items():
            length = hypot(dx, dy) or 1.0
            x, y = at[name]
            at[name] = (x + dx / length * min(length, step), y + dy / length * min(length, step))
    return at


def _force(name: str, names: Sequence[str], at: dict[str, Point], linked: dict[frozenset[str], None]) -> Point:
    fx = fy = 0.0
    x, y = at[name]
    for other in names:
        if other == name:
            continue
        dx, dy = x - at[other][0], y - at[other][1]
        distance = max(hypot(dx, dy), 0.05)
        push = 0.3 / distance**2
        pull = distance if frozenset((name, other)) in linked else 0.1 * distance
        fx += dx / distance * (push - pull)
        fy += dy / distance * (push - pull)
    return fx, fy


def stretched(at: dict[str, Point], left: float, top: float, right: float, bottom: float) -> dict[str, Point]:
    """The same places, stretched to fill a rectangle."""
    xs, ys = [x for x, _ in at.values()], [y for _, y in at.values()]
    wide, high = max(max(xs) - min(xs), 1e-9), max(max(ys) - min(ys), 1e-9)
    return {
        name: (left + (x - min(xs)) / wide * (right - left), top + (y - min(ys)) / high * (bottom - top))
        for name, (x, y) in at.items()
    }
