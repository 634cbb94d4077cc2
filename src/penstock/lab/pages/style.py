"""One look for all figures: who has which colour and marker, and how a plot is made.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart; a page makes them a little
darker on light ground and lighter on dark. Figures are Vega-Lite specifications as plain data. They fill the width of
the page, so they can be read on a phone, and leave the ground to the page, so they can be read in the dark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.lab.pages.verdicts import shown

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

# What a page writes instead, so that each colour is seen on light and on dark ground: a variable of the style sheet.
VARIABLES: Mapping[str, str] = {
    BLUE: "--blue",
    ORANGE: "--orange",
    GREEN: "--green",
    RED: "--red",
    SKY: "--sky",
    PURPLE: "--purple",
    YELLOW: "--yellow",
    GREY: "--grey",
}

SCHEMES: Mapping[str, tuple[str, str]] = {  # name in figures -> colour, marker
    "published": (GREY, "circle"),
    "e-CBN": (BLUE, "circle"),
    "EF": (GREY, "square"),
    "EON": (BLUE, "circle"),
    "PDP": (ORANGE, "square"),
    "CBF": (BLUE, "circle"),
    "FIFO": (ORANGE, "square"),
    "LFU": (PURPLE, "circle"),
    "MRU": (RED, "cross"),
    "MF": (BLUE, "circle"),
    "LF": (SKY, "diamond"),
    "DPF": (ORANGE, "square"),
    "DPFu": (YELLOW, "square"),
    "PPF": (GREEN, "triangle-up"),
    "PPFu": (GREY, "triangle-up"),
    "delivered": (BLUE, "circle"),
    "missed": (RED, "cross"),
    "withheld": (PURPLE, "diamond"),
    "not sent": (PURPLE, "diamond"),
    "late": (ORANGE, "square"),
    "capacity of the link": (GREEN, "triangle-up"),
    "quota": (ORANGE, "square"),
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
    "also wanted by the slow side": (RED, "cross"),
    "only by the fast side": (BLUE, "circle"),
    "the covering subscriber": (BLUE, "circle"),
    "the covered one": (ORANGE, "square"),
    "feedback": (ORANGE, "square"),
    "flows": (PURPLE, "diamond"),
    "PB": (GREY, "circle"),
    "SB1": (ORANGE, "square"),
    "SB2": (BLUE, "circle"),
    "SB3": (GREEN, "diamond"),
    "SB4": (SKY, "triangle-up"),
    "SB5": (RED, "cross"),
    "IB to SB1": (ORANGE, "square"),
    "PB to IB": (BLUE, "circle"),
    "edges that keep up": (BLUE, "circle"),
    "edges that recover": (ORANGE, "square"),
    "orders/0": (BLUE, "circle"),
    "orders/1": (ORANGE, "square"),
    "orders/2": (GREEN, "diamond"),
    "orders/3": (RED, "triangle-up"),
    "recovery": (BLUE, "circle"),
    "outage over threshold": (GREY, "triangle-up"),
    "as in 001": (BLUE, "circle"),
    "changed": (RED, "cross"),
    "G_ace": (BLUE, "circle"),
    "G_aef": (ORANGE, "square"),
    "A-B": (BLUE, "circle"),
    "B-C": (GREEN, "diamond"),
    "B-D": (ORANGE, "square"),
    "D-E": (PURPLE, "triangle-up"),
    "D-F": (RED, "cross"),
    "C-D": (SKY, "square"),
    "E-F": (RED, "cross"),
    "A-F": (GREY, "circle"),
    "TCP 1": (GREEN, "diamond"),
    "TCP 2": (PURPLE, "triangle-up"),
    "G1": (BLUE, "circle"),
    "G2": (ORANGE, "square"),
    "mitpc2": (BLUE, "circle"),
    "saicpc": (ORANGE, "square"),
    "udelpc": (GREEN, "diamond"),
    "isiepc3-isipc": (BLUE, "circle"),
    "isiepc3-tisepc": (ORANGE, "square"),
    "isiepc2-saicpc": (GREEN, "diamond"),
    "isiepc2-udelpc": (RED, "cross"),
    "no control": (RED, "cross"),
    "transport": (ORANGE, "square"),
    "streams": (GREEN, "diamond"),
    "pricing": (BLUE, "circle"),
    "network rates": (SKY, "diamond"),
    "near": (BLUE, "circle"),
    "far": (ORANGE, "square"),
    "with chance": (BLUE, "circle"),
    "without chance": (RED, "cross"),
    "base e": (BLUE, "circle"),
    "base 20": (ORANGE, "square"),
    "linear": (GREEN, "diamond"),
    "square": (RED, "triangle-up"),
    "a fee of 1": (BLUE, "circle"),
    "no fee": (RED, "cross"),
    "at least 1 for each link": (GREEN, "diamond"),
    "12, publishers silent": (BLUE, "circle"),
    "12, publishers answer": (SKY, "diamond"),
    "46, publishers silent": (RED, "cross"),
    "46, publishers answer": (GREEN, "diamond"),
    "12 brokers, publishers silent": (BLUE, "circle"),
    "12 brokers, publishers answer": (SKY, "diamond"),
    "46 brokers, publishers silent": (RED, "cross"),
    "46 brokers, publishers answer": (GREEN, "diamond"),
    "with recovery, publishers silent": (BLUE, "circle"),
    "with recovery, publishers answer": (SKY, "diamond"),
    "a record of 10": (RED, "cross"),
    "end to end": (BLUE, "circle"),
    "links repair": (GREEN, "diamond"),
}

HEIGHT = 300
NAMED_BAR_HEIGHT = 40  # with its name above it
Rows = Sequence[Mapping[str, Any]]


def colour_scale(names: Sequence[str]) -> dict[str, list[str]]:
    """The colours of these series, in their order; an unknown name is a mistake in the experiment."""
    return {"domain": list(names), "range": [SCHEMES[name][0] for name in names]}


def lines(
    rows: Rows, *, x: str, y: str, series: Sequence[str], x_title: str, y_title: str, top: float | None = None
) -> dict[str, Any]:
    """Curves over x, one per value of the column `series` of the rows; `top` is where the axis ends, if not by itself.

    The legend is the page's, because one in a drawing does not wrap.
    """
    colours = {"field": "series", "type": "nominal", "title": None, "scale": colour_scale(series), "legend": None}
    return _chart(
        rows,
        {"type": "line", "interpolate": "linear", "tooltip": True, "clip": True},
        {
            "x": {"field": x, "type": "quantitative", "title": x_title, "scale": {"nice": False}},
            "y": {"field": y, "type": "quantitative", "title": y_title, "scale": _up_to(top)},
            "color": colours,
        },
    )


def _up_to(top: float | None) -> dict[str, Any]:
    return {} if top is None else {"domain": [0.0, top], "nice": False}


def on_one_scale(specs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Plots of curves that are compared: both axes of all reach as far as the largest value in any of them."""
    fields = [{axis: spec["encoding"][axis]["field"] for axis in "xy"} for spec in specs]
    ends = {
        axis: [row[names[axis]] for spec, names in zip(specs, fields, strict=True) for row in spec["data"]["values"]]
        for axis in "xy"
    }
    domains = {"x": [min(ends["x"]), max(ends["x"])], "y": [min(0.0, *ends["y"]), 1.05 * max(ends["y"])]}
    return [
        {
            **spec,
            "encoding": {
                **spec["encoding"],
                **{axis: {**spec["encoding"][axis], "scale": {"domain": domains[axis]}} for axis in "xy"},
            },
        }
        for spec in specs
    ]


def with_levels(
    spec: Mapping[str, Any],
    levels: Mapping[str, float],
    steps: Mapping[str, Sequence[tuple[str, float, float | None]]],
) -> dict[str, Any]:
    """A plot of curves over seconds with more in it: dashed levels, and steps of (which, time, value)."""
    ends = [row["second"] for row in spec["data"]["values"]]
    begin, end = float(min(ends)), float(max(ends))
    names = [*spec["encoding"]["color"]["scale"]["domain"], *levels, *steps]
    encoding = {
        **spec["encoding"],
        "x": {**spec["encoding"]["x"], "scale": {"domain": [begin, end], "nice": False}},
        "color": {**spec["encoding"]["color"], "scale": colour_scale(names)},
        "strokeDash": {
            "field": "series",
            "legend": None,
            "scale": {"domain": names, "range": [[6, 4] if name in levels else [1, 0] for name in names]},
        },
    }
    rows = [{"second": at, "rate": level, "series": name} for name, level in levels.items() for at in (begin, end)]
    curves = {"data": {"values": [*spec["data"]["values"], *rows]}, "mark": spec["mark"], "params": spec["params"]}
    stepped = [
        {"second": at, "rate": value, "series": name, "which": which}
        for name, changes in steps.items()
        for which, at, value in changes
    ]
    layers: list[dict[str, Any]] = [{**curves, "encoding": encoding}]
    if stepped:
        mark = {"type": "line", "interpolate": "step-after", "clip": True, "tooltip": True}
        layers.append(
            {"data": {"values": stepped}, "mark": mark, "encoding": {**encoding, "detail": {"field": "which"}}}
        )
    return {
        **{key: part for key, part in spec.items() if key not in ("data", "mark", "encoding", "params")},
        "layer": layers,
    }


def over_time(curves: Mapping[str, Iterable[float]], y_title: str, *, top: float | None = None) -> dict[str, Any]:
    """Named rates, one value per second."""
    rows = [
        {"second": second, "rate": float(rate), "series": name}
        for name, rates in curves.items()
        for second, rate in enumerate(rates)
    ]
    return lines(rows, x="second", y="rate", series=list(curves), x_title="time (s)", y_title=y_title, top=top)


def bars(
    rows: Rows, *, x: str, y: str, x_title: str, y_title: str, colour: str = BLUE, log: bool = False
) -> dict[str, Any]:
    """A histogram whose bins have been counted already: `x` is the left edge, `x_end` the right one."""
    return _chart(
        rows,
        {"type": "bar", "tooltip": True, "color": colour},
        {
            "x": {"field": x, "type": "quantitative", "title": x_title, "bin": {"binned": True}},
            "x2": {"field": f"{x}_end"},
            "y": {"field": y, "type": "quantitative", "title": y_title, **_magnitudes(rows, y, log)},
        },
    )


def named_bars(rows: Rows, *, x: str, y: str, y_title: str, log: bool = False) -> dict[str, Any]:
    """A bar for each name, in the order of the rows, its name and number above it: long names fit a phone, too."""
    named = [{**row, "label": f"{row[x]}: {shown(row[y])}"} for row in rows]
    across = {"field": x, "type": "nominal", "sort": None, "axis": None}
    along = {"field": y, "type": "quantitative", "title": y_title, **_magnitudes(rows, y, log)}
    bar = {"type": "bar", "tooltip": True, "color": BLUE, "height": 12, "yOffset": 8}
    label = {"type": "text", "align": "left", "baseline": "middle", "yOffset": -9}
    return {
        **_frame(),
        "height": NAMED_BAR_HEIGHT * len(rows),
        "data": {"values": named},
        "layer": [
            {"mark": bar, "encoding": {"x": along, "y": across}},
            {"mark": label, "encoding": {"x": {"value": 2}, "y": across, "text": {"field": "label"}}},
        ],
    }


def _magnitudes(rows: Rows, field: str, log: bool) -> dict[str, Any]:
    """An axis of powers of ten that has room for zero; nothing for a linear one."""
    if not log:
        return {}
    largest = max((abs(row[field]) for row in rows), default=1.0)
    powers = [10**power for power in range(12) if 10**power <= largest]
    return {"scale": {"type": "symlog", "nice": False}, "axis": {"values": [0, *powers]}}


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


def _chart(rows: Rows, mark: dict[str, Any], encoding: dict[str, Any]) -> dict[str, Any]:
    zoom = [{"name": "zoom", "select": {"type": "interval", "zoom": "wheel![event.shiftKey]"}, "bind": "scales"}]
    return {**_frame(), "data": {"values": list(rows)}, "mark": mark, "encoding": encoding, "params": zoom}


def _frame() -> dict[str, Any]:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }
