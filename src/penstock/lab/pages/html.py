"""Pieces of pages: a whole file, a plot with its legend, a table. Each page is one HTML file that needs no network.

Drawings are interactive: hover for values, drag to move, hold shift and turn the wheel to zoom (without shift the wheel
scrolls the page). The drawing library is written into each page that has plots, so a page can be mailed, archived, or
opened on a plane. Legends are HTML, because they must wrap on a phone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from penstock.lab.engine.experiment import Figure
from penstock.lab.pages.look import CSS
from penstock.lab.pages.style import VARIABLES

BOTH_COUNTED = (
    "A message is published once and delivered to each client that wants it: delivered lies above published where many"
    " want the same, and below where few do."
)

DRAW = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const look = () => ({background: "transparent", view: {stroke: null}, font: "system-ui, sans-serif",
  axis: {labelColor: colour("--faint"), titleColor: colour("--faint"), gridColor: colour("--grid"),
    domainColor: colour("--line"), tickColor: colour("--line"), labelFontSize: 12, titleFontSize: 12,
    titleFontWeight: "normal", titlePadding: 8, labelOverlap: true},
  axisX: {labelFlush: false, tickCount: {expr: "ceil(width / 90)"}}, axisY: {tickCount: {expr: "ceil(height / 50)"}},
  text: {fill: colour("--ink"), fontSize: 12}, rule: {color: colour("--ink")}});
const spec = place => JSON.parse(place.dataset.spec.replace(/var\\((--[a-z]+)\\)/g, (_, name) => colour(name)));
const draw = () => Promise.all([...document.querySelectorAll(".plot")].map(place =>
  vegaEmbed(place, spec(place), {actions: false, renderer: "svg",
    tooltip: {theme: dark.matches ? "dark" : "light"}, config: look()})))
  .then(() => document.body.dataset.drawn = "yes");
dark.addEventListener("change", draw); draw();
""".strip()


def page(title: str, parts: Iterable[str], *, plots: bool, css: str = "") -> str:
    """A whole HTML file; with plots it carries the drawing library."""
    scripts = f'<script type="module">{_drawing_library()}</script>' if plots else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{CSS}\n{css}</style></head>\n<body>\n"
        + "\n".join(parts)
        + scripts
        + "</body></html>\n"
    )


@cache
def _drawing_library() -> str:
    """Vega-Embed and what it needs, with our few lines that call it."""
    from vl_convert import javascript_bundle

    return javascript_bundle(DRAW).replace("</script", "<\\/script")


def figure_html(figure: Figure, *, with_legend: bool = True) -> str:
    """A caption, a legend, and a place for the drawing."""
    spec = escape(_on_any_ground(json.dumps(figure.spec, separators=(",", ":"))), quote=True)
    names = legend(series_of(figure.spec)) if with_legend else ""
    return (
        f"<figure><figcaption>{escape(figure.caption)}</figcaption>{names}"
        f'<div class=plot data-spec="{spec}"></div></figure>'
    )


def figures_html(figures: Sequence[Figure]) -> list[str]:
    """All figures; those that are compared share a scale and a legend, and stand side by side where there is room."""
    parts: list[str] = []
    for together in _neighbours(figures):
        if len(together) == 1:
            parts.append(figure_html(together[0]))
        else:
            names = legend({name: look for figure in together for name, look in series_of(figure.spec).items()})
            drawn = "".join(figure_html(figure, with_legend=False) for figure in together)
            row = "'pair three'" if len(together) == 3 else "pair"
            parts.append(f"<div class=group>{names}<div class={row}>{drawn}</div></div>")
    return parts


def counts_explained(figures: Iterable[Figure]) -> str:
    """A sentence for pages whose figures have publications beside deliveries; empty for others."""
    both = any({"published", "delivered"} <= set(series_of(figure.spec)) for figure in figures)
    return f"<p class=note>{BOTH_COUNTED}</p>" if both else ""


def _on_any_ground(text: str) -> str:
    """Colours of the palette as variables of the style sheet."""
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    return text


def _neighbours(figures: Sequence[Figure]) -> list[list[Figure]]:
    found: list[list[Figure]] = []
    for figure in figures:
        if found and figure.compared and found[-1][-1].compared == figure.compared:
            found[-1].append(figure)
        else:
            found.append([figure])
    return found


def series_of(spec: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """The curves of a plot: name -> colour, whether dashed."""
    found: dict[str, tuple[str, bool]] = {}
    for layer in (spec, *spec.get("layer", ())):
        scale = layer.get("encoding", {}).get("color", {}).get("scale") or {}
        dashes = layer.get("encoding", {}).get("strokeDash", {}).get("scale") or {}
        dashed = {name for name, dash in zip(dashes.get("domain", ()), dashes.get("range", ()), strict=True) if dash[1]}
        for name, colour in zip(scale.get("domain", ()), scale.get("range", ()), strict=False):
            found.setdefault(name, (colour, name in dashed))
    return found


def legend(series: Mapping[str, tuple[str, bool]]) -> str:
    """Which colour is what; nothing where there is only one curve, which the caption names."""
    if len(series) < 2:
        return ""
    items = "".join(
        f'<li><i{" class=dashed" if dashed else ""} style="background:{colour};border-color:{colour}"></i>'
        f"{escape(name)}</li>"
        for name, (colour, dashed) in series.items()
    )
    return f"<ul class=legend>{_on_any_ground(items)}</ul>"


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[int] = (),
    styles: str = "",
    above: str = "",
) -> str:
    """Rows of cells that are HTML already, in a box that scrolls; `numbers` are columns aligned to the right.

    `styles` are the classes of the columns, one word each, where they are no numbers; `-` is none.
    """
    right = set(numbers)
    words = dict(enumerate(styles.split()))

    def kind(column: int) -> str:
        word = "number" if column in right else words.get(column, "-")
        return "" if word == "-" else f" class={word}"

    head = "".join(f"<th{kind(n) if n in right else ''}>{escape(heading)}</th>" for n, heading in enumerate(headings))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(n)}>{cell}</td>" for n, cell in enumerate(row)) + "</tr>" for row in rows
    )
    return (
        f"<div class=scroll tabindex=0><table><thead>{above}<tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
