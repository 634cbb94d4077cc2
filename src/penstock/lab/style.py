"""One look for all figures: who has which colour and marker, and how a plot is made.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart, on light and on dark ground.
Figures are Vega-Lite specifications as plain data. They fill the width of the page, so they can be read on a phone, and
leave the ground to the page, so they can be read in the dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

BLUE, ORANGE, GREEN, RED, SKY, PURPLE, YELLOW, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#F0E442",
    "#888888",
)

SCHEMES: Mapping[str, tuple[str, str]] = {  # name in figures -> colour, marker
    "published": (GREY, "circle"),
    "delivered": (BLUE, "circle"),
    "missed": (RED, "cross"),
    "best effort": (BLUE, "circle"),
    "best effort, missed": (RED, "cross"),
    "store and forward": (ORANGE, "square"),
    "store and forward, blocked": (PURPLE, "triangle-up"),
    "measured": (BLUE, "circle"),
    "hypoexponential": (ORANGE, "square"),
    "power law": (RED, "triangle-up"),
    "gamma": (GREEN, "diamond"),
    "two Laplace": (ORANGE, "square"),
    "delay up to the split": (BLUE, "circle"),
    "delay above the split": (ORANGE, "square"),
    "FIFO violations": (RED, "cross"),
    "deliveries": (BLUE, "circle"),
}

HEIGHT = 300
Rows = Sequence[Mapping[str, Any]]


def colour_scale(names: Sequence[str]) -> dict[str, list[str]]:
    """The colours of these series, in their order; an unknown name is a mistake in the experiment."""
    return {"domain": list(names), "range": [SCHEMES[name][0] for name in names]}


def lines(rows: Rows, *, x: str, y: str, series: Sequence[str], x_title: str, y_title: str) -> dict[str, Any]:
    """Curves over x, one per value of the column `series` of the rows."""
    return _chart(
        rows,
        {"type": "line", "interpolate": "linear", "tooltip": True},
        {
            "x": {"field": x, "type": "quantitative", "title": x_title},
            "y": {"field": y, "type": "quantitative", "title": y_title},
            "color": {"field": "series", "type": "nominal", "title": None, "scale": colour_scale(series)},
        },
    )


def over_time(curves: Mapping[str, Iterable[float]], y_title: str) -> dict[str, Any]:
    """Named rates, one value per second."""
    rows = [
        {"second": second, "rate": float(rate), "series": name}
        for name, rates in curves.items()
        for second, rate in enumerate(rates)
    ]
    return lines(rows, x="second", y="rate", series=list(curves), x_title="time (s)", y_title=y_title)


def bars(
    rows: Rows, *, x: str, y: str, x_title: str, y_title: str, colour: str = BLUE, log: bool = False
) -> dict[str, Any]:
    """A histogram whose bins have been counted already: `x` is the left edge, `x_end` the right one."""
    scale = {"type": "symlog"} if log else {}
    return _chart(
        rows,
        {"type": "bar", "tooltip": True, "color": colour},
        {
            "x": {"field": x, "type": "quantitative", "title": x_title, "bin": {"binned": True}},
            "x2": {"field": f"{x}_end"},
            "y": {"field": y, "type": "quantitative", "title": y_title, "scale": scale},
        },
    )


def points(rows: Rows, *, x: str, y: str, x_title: str, y_title: str, colour: str = BLUE) -> dict[str, Any]:
    """A cloud of points."""
    return _chart(
        rows,
        {"type": "point", "filled": True, "size": 9, "opacity": 0.35, "color": colour, "tooltip": True},
        {
            "x": {"field": x, "type": "quantitative", "title": x_title, "scale": {"zero": False}},
            "y": {"field": y, "type": "quantitative", "title": y_title, "scale": {"zero": False}},
        },
    )


def heat(rows: Rows, *, x: str, y: str, value: str, x_title: str, value_title: str) -> dict[str, Any]:
    """A row of cells for each name, the stronger the larger the value."""
    chart = _chart(
        rows,
        {"type": "rect", "tooltip": True},
        {
            "x": {"field": x, "type": "ordinal", "title": x_title, "axis": {"labelOverlap": True}},
            "y": {"field": y, "type": "nominal", "title": None},
            "color": {"field": value, "type": "quantitative", "title": value_title, "scale": {"scheme": "viridis"}},
        },
    )
    return {key: part for key, part in chart.items() if key != "params"} | {"height": {"step": 20}}


def _chart(rows: Rows, mark: dict[str, Any], encoding: dict[str, Any]) -> dict[str, Any]:
    zoom = [{"name": "zoom", "select": "interval", "bind": "scales"}]
    return {**_frame(), "data": {"values": list(rows)}, "mark": mark, "encoding": encoding, "params": zoom}


def _frame() -> dict[str, Any]:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": HEIGHT,
        "config": {"background": "transparent", "view": {"stroke": None}, "legend": {"orient": "top"}},
    }
