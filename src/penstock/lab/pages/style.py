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
    "P-0.05-0": (RED, "circle"),
    "P-0.05-5": (ORANGE, "square"),
    "P-0.05-25": (BLUE, "diamond"),
    "CST-30": (GREY, "triangle-up"),
    "CST, optimal": (GREEN, "cross"),
    "without recovery": (RED, "cross"),
    "with recovery": (BLUE, "circle"),
    "12 brokers": (BLUE, "circle"),
    "46 brokers": (ORANGE, "square"),
    "12 brokers, all": (BLUE, "circle"),
    "12 brokers, caches alone": (SKY, "diamond"),
    "46 brokers, all": (ORANGE, "square"),
    "46 brokers, caches alone": (YELLOW, "triangle-up"),
    "original messages": (BLUE, "circle"),
    "requests": (ORANGE, "square"),
    "repairs": (GREEN, "diamond"),
    "request to repair": (ORANGE, "square"),
    "smallest cache": (GREY, "circle"),
    "mean cache": (BLUE, "square"),
    "largest cache": (ORANGE, "triangle-up"),
    "with heartbeats": (BLUE, "circle"),
    "without heartbeats": (RED, "cross"),
    "record of 10": (RED, "cross"),
    "our best setting": (BLUE, "circle"),
    "match 0.001": (GREY, "circle"),
    "match 0.01": (BLUE, "square"),
    "match 0.05": (ORANGE, "diamond"),
    "match 0.1": (GREEN, "triangle-up"),
    "match 0.001, formula": (GREY, "circle"),
    "match 0.01, formula": (BLUE, "square"),
    "match 0.05, formula": (ORANGE, "diamond"),
    "match 0.1, formula": (GREEN, "triangle-up"),
    "match 0.01, 2 share a loss": (SKY, "circle"),
    "match 0.01, 3 share a loss": (BLUE, "square"),
    "match 0.01, 5 share a loss": (PURPLE, "diamond"),
    "match 0.05, 2 share a loss": (YELLOW, "circle"),
    "match 0.05, 3 share a loss": (ORANGE, "square"),
    "match 0.05, 5 share a loss": (RED, "diamond"),
    "without control": (RED, "cross"),
    "with control": (BLUE, "circle"),
    "content": (BLUE, "circle"),
    "TCP": (ORANGE, "square"),
    "fair share": (GREY, "triangle-up"),
    "s1": (BLUE, "circle"),
    "s2": (ORANGE, "square"),
    "s3": (GREEN, "diamond"),
    "RTT 10 ms": (BLUE, "circle"),
    "RTT 20 ms": (ORANGE, "square"),
    "RTT 100 ms": (GREEN, "diamond"),
    "RTT 200 ms": (RED, "triangle-up"),
    "loss 0.001": (BLUE, "circle"),
    "loss 0.01": (ORANGE, "square"),
    "loss 0.1": (GREEN, "diamond"),
    "all known": (GREY, "circle"),
    "record of 5": (BLUE, "square"),
    "record of 2": (ORANGE, "diamond"),
    "congested": (RED, "cross"),
    "not congested": (BLUE, "circle"),
    "feedback": (ORANGE, "square"),
    "flows": (PURPLE, "diamond"),
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


def named_bars(rows: Rows, *, x: str, y: str, y_title: str, log: bool = False) -> dict[str, Any]:
    """A bar for each name, in the order of the rows."""
    chart = _chart(
        rows,
        {"type": "bar", "tooltip": True, "color": BLUE},
        {
            "x": {"field": x, "type": "nominal", "title": None, "sort": None, "axis": {"labelAngle": -45}},
            "y": {"field": y, "type": "quantitative", "title": y_title, "scale": {"type": "symlog"} if log else {}},
        },
    )
    return {key: part for key, part in chart.items() if key != "params"}


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
