"""A figure at the size of a stamp: the shape of its curves, bars or points, without axes, as SVG of a few kilobytes.

It is drawn from the same data as the figure itself, thinned out, and in the colours of the style sheet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import asinh
from typing import Any

from penstock.lab.pages.style import BLUE, VARIABLES

WIDTH, HEIGHT, EDGE = 280.0, 80.0, 4.0
POINTS_MAX = 70  # of a curve
CLOUD_MAX = 200
BAR_WIDTH = 30.0  # at most

_FLAT = re.compile(rf'<line[^>]*>(<polyline points="(\d+,{HEIGHT - EDGE:.1f} ?)+"[^>]*>)+</svg>')

Scale = Callable[[float], float]
Rows = Sequence[Mapping[str, Any]]


def best_thumbnail(specs: Iterable[Mapping[str, Any]]) -> str:
    """Of several figures the last one that is no flat line: where two are compared, the one with what is tried."""
    found = [stamp for spec in specs if (stamp := thumbnail(spec))]
    return next((stamp for stamp in reversed(found) if not _FLAT.search(stamp)), found[-1] if found else "")


def thumbnail(spec: Mapping[str, Any]) -> str:
    """The SVG; empty for a figure of a kind that has no curves, bars or points."""
    spec = {**spec, **spec["layer"][0]} if "layer" in spec else spec
    encoding, mark = spec.get("encoding", {}), spec.get("mark", {})
    if encoding["y"].get("type") == "nominal":  # bars that lie on their side stand up
        encoding = {**encoding, "x": encoding["y"], "y": encoding["x"]}
    rows: Rows = [row for row in spec.get("data", {}).get("values", ()) if row.get(encoding["y"]["field"]) is not None]
    kind = mark.get("type") if isinstance(mark, Mapping) else mark
    if not rows or kind not in ("line", "bar", "point"):
        return ""
    symbols = {"line": _curves, "bar": _bars, "point": _cloud}[kind](rows, encoding, mark)
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" preserveAspectRatio="none" aria-hidden="true">'
        f'<line x1="0" x2="{WIDTH:.0f}" y1="{HEIGHT - EDGE:.0f}" y2="{HEIGHT - EDGE:.0f}" stroke="var(--line)"'
        f' vector-effect="non-scaling-stroke"/>{symbols}</svg>'
    )


def _curves(rows: Rows, encoding: Mapping[str, Any], mark: Mapping[str, Any]) -> str:
    x, y = _scale(rows, encoding["x"], WIDTH, zero=False), _scale(rows, encoding["y"], HEIGHT)
    scale = encoding.get("color", {}).get("scale", {})
    colours = dict(zip(scale.get("domain", ()), scale.get("range", ()), strict=True))
    across, up = encoding["x"]["field"], encoding["y"]["field"]
    parts = []
    for name in colours or {"": BLUE}:
        own = [row for row in rows if row.get("series", "") == name or not colours]
        points = " ".join(f"{x(row[across]):.0f},{HEIGHT - y(row[up]):.1f}" for row in _thinned(own, POINTS_MAX))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{_colour(colours.get(name, BLUE))}" stroke-width="1.6"'
            ' stroke-linejoin="round" vector-effect="non-scaling-stroke"/>'
        )
    return "".join(parts)


def _bars(rows: Rows, encoding: Mapping[str, Any], mark: Mapping[str, Any]) -> str:
    field, up = encoding["x"]["field"], encoding["y"]["field"]
    y, colour = _scale(rows, encoding["y"], HEIGHT), _colour(mark.get("color", BLUE))
    if encoding["x"].get("type") == "nominal":
        step = (WIDTH - 2 * EDGE) / len(rows)
        wide = min(BAR_WIDTH, step * 0.7)
        boxes = [(EDGE + step * (n + 0.5) - wide / 2, wide, y(row[up])) for n, row in enumerate(rows)]
    else:
        x = _scale([*rows, *({field: row[f"{field}_end"]} for row in rows)], encoding["x"], WIDTH, zero=False)
        boxes = [(x(row[field]), max(0.8, x(row[f"{field}_end"]) - x(row[field])), y(row[up])) for row in rows]
    path = "".join(
        f"M{left:.1f} {HEIGHT - EDGE:.1f}v{EDGE - top:.1f}h{wide:.1f}V{HEIGHT - EDGE:.1f}z" for left, wide, top in boxes
    )
    return f'<path d="{path}" fill="{colour}"/>'


def _cloud(rows: Rows, encoding: Mapping[str, Any], mark: Mapping[str, Any]) -> str:
    across, up = encoding["x"]["field"], encoding["y"]["field"]
    x, y = _scale(rows, encoding["x"], WIDTH, zero=False), _scale(rows, encoding["y"], HEIGHT, zero=False)
    dots = "".join(f"M{x(row[across]):.1f} {HEIGHT - y(row[up]):.1f}h0" for row in _thinned(rows, CLOUD_MAX))
    return (
        f'<path d="{dots}" stroke="{_colour(mark.get("color", BLUE))}" stroke-width="3" stroke-linecap="round"'
        ' stroke-opacity=".6" vector-effect="non-scaling-stroke"/>'
    )


def _scale(rows: Rows, axis: Mapping[str, Any], size: float, *, zero: bool = True) -> Scale:
    """From values to places, as the axis has it: linear or, for `log` and `symlog`, by their order of magnitude."""
    bend: Scale = asinh if (axis.get("scale") or {}).get("type") in ("log", "symlog") else float
    values = [bend(row[axis["field"]]) for row in rows]
    low, high = min(values), max(values)
    low = min(low, 0.0) if zero else low
    factor = (size - 2 * EDGE) / ((high - low) or 1.0)
    return lambda value: EDGE + (bend(value) - low) * factor


def _thinned(rows: Rows, most: int) -> Rows:
    step = max(1, -(-len(rows) // most))
    return rows[::step]


def _colour(colour: str) -> str:
    return f"var({VARIABLES[colour]})" if colour in VARIABLES else colour
