"""Cards of different sizes, joined by lines, on a map: no two overlap, and few lines run behind a card.

The spring layout says who is near whom. It is turned by several angles and stretched over the width; each time the
cards are pushed apart until there is room between them, and the turn that hides and crosses the fewest lines wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import cos, pi, sin
from typing import NamedTuple

from penstock.lab.pages.layout import Point, spring_layout, stretched

TURNS = 24
PUSHES = 300


class Box(NamedTuple):
    """A rectangle: its middle and its size."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Box, gap: float = 0.0) -> bool:
        """Whether the two are nearer than the gap in both directions."""
        return (
            abs(self.x - other.x) < (self.width + other.width) / 2 + gap
            and abs(self.y - other.y) < (self.height + other.height) / 2 + gap
        )

    def hides(self, start: Point, end: Point) -> bool:
        """Whether a line runs behind it."""
        return any(
            abs(x - self.x) < self.width / 2 and abs(y - self.y) < self.height / 2 for x, y in points_on(start, end)
        )


def place_cards(
    sizes: Mapping[str, Point], links: Sequence[tuple[str, str]], *, width: float, gap: Point
) -> tuple[dict[str, Box], float]:
    """A box for each name within this width, and the height of all; `gap` is the least distance between two boxes."""
    flat = spring_layout(list(sizes), links)
    candidates = [_placed(_turned(flat, 2 * pi * turn / TURNS), sizes, width, gap) for turn in range(TURNS)]
    best = min(candidates, key=lambda boxes: _cost(boxes, links, width))
    left = min(box.x - box.width / 2 for box in best.values())
    top = min(box.y - box.height / 2 for box in best.values())
    right = max(box.x + box.width / 2 for box in best.values())
    bottom = max(box.y + box.height / 2 for box in best.values())
    aside = left - max(0.0, (width - (right - left)) / 2)
    return {name: box._replace(x=box.x - aside, y=box.y - top) for name, box in best.items()}, bottom - top


def points_on(start: Point, end: Point, steps: int = 40) -> list[Point]:
    """Points between the ends of a line."""
    return [
        (start[0] + (end[0] - start[0]) * n / steps, start[1] + (end[1] - start[1]) * n / steps)
        for n in range(1, steps)
    ]


def _turned(at: Mapping[str, Point], angle: float) -> dict[str, Point]:
    return {name: (x * cos(angle) - y * sin(angle), x * sin(angle) + y * cos(angle)) for name, (x, y) in at.items()}


def _placed(at: dict[str, Point], sizes: Mapping[str, Point], width: float, gap: Point) -> dict[str, Box]:
    """Stretched over the width, then pushed apart, sideways only as far as the width allows."""
    widest, highest = max(w for w, _ in sizes.values()), max(h for _, h in sizes.values())
    rows = max(2.0, sum(w + gap[0] for w, _ in sizes.values()) / width + 0.5)
    spread = stretched(at, widest / 2, 0.0, width - widest / 2, rows * (highest * 0.6 + gap[1]))
    boxes = {name: Box(*spread[name], *sizes[name]) for name in sizes}
    for _ in range(PUSHES):
        moved = False
        for a, b in combinations(boxes, 2):
            first, second = boxes[a], boxes[b]
            over_x = (first.width + second.width) / 2 + gap[0] - abs(first.x - second.x)
            over_y = (first.height + second.height) / 2 + gap[1] - abs(first.y - second.y)
            if over_x <= 0.01 or over_y <= 0.01:
                continue
            moved = True
            if over_x < over_y:
                step = over_x / 2 if first.x >= second.x else -over_x / 2
                boxes[a], boxes[b] = _inside(first, step, width), _inside(second, -step, width)
            else:
                step = over_y / 2 if first.y >= second.y else -over_y / 2
                boxes[a], boxes[b] = first._replace(y=first.y + step), second._replace(y=second.y - step)
        if not moved:
            break
    return boxes


def _inside(box: Box, step: float, width: float) -> Box:
    return box._replace(x=min(max(box.x + step, box.width / 2), width - box.width / 2))


def _cost(boxes: Mapping[str, Box], links: Sequence[tuple[str, str]], width: float) -> float:
    """How bad a map is: boxes that overlap, lines behind boxes, lines that cross; and its height."""
    overlaps = sum(boxes[a].overlaps(boxes[b], 4.0) for a, b in combinations(boxes, 2))
    ends = {link: ((boxes[link[0]].x, boxes[link[0]].y), (boxes[link[1]].x, boxes[link[1]].y)) for link in links}
    hidden = sum(box.hides(*ends[link]) for link in links for name, box in boxes.items() if name not in link)
    crossed = sum(_cross(*ends[a], *ends[b]) for a, b in combinations(links, 2) if not set(a) & set(b))
    ys = [box.y for box in boxes.values()]
    return 100.0 * overlaps + 10.0 * hidden + 4.0 * crossed + 8.0 * (max(ys) - min(ys)) / width


def _cross(a: Point, b: Point, c: Point, d: Point) -> bool:
    def side(p: Point, q: Point, r: Point) -> bool:
        return (q[0] - p[0]) * (r[1] - p[1]) > (q[1] - p[1]) * (r[0] - p[0])

    return side(a, b, c) != side(a, b, d) and side(c, d, a) != side(c, d, b)
