"""The report of one run: who got what, how fast, and what was lost where, as a page that needs no network.

`penstock demo` writes it for the town; any run folder will do.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.lab.engine.experiment import Figure
from penstock.lab.engine.view import View
from penstock.lab.pages import style
from penstock.lab.pages.experiment_page import figure_html, page, table
from penstock.pipeline import metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]


def write_run_report(view: View, command: str) -> Path:
    """Write `report.html` into the run's folder; returns its path."""
    tables = view.tables
    received = metrics.delay_percentiles(tables.delivered, tables.published, by=("client",))
    lost = _rows(metrics.drops(tables.dropped))
    title = f"{view.scenario.name}: what happened"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=source>{len(view.scenario.broker)} brokers, {len(view.scenario.client)} clients,"
        f" {view.scenario.duration:g} s of publishing</p>",
        figure_html(_rates_figure(view)),
        figure_html(_clients_figure(view)),
        "<h2>Who got what, and how fast</h2>",
        _percentiles_table(_rows(received)),
        "<h2>What was lost where</h2>",
        _drops_table(lost) if lost else "<p>Nothing was dropped.</p>",
        f"<p>Made with <code>{escape(command)}</code></p>",
    ]
    path = view.folder / "report.html"
    path.write_text(page(title, parts, plots=True), encoding="utf-8")
    return path


def _rates_figure(view: View) -> Figure:
    curves = {
        "published": view.published_per_second(),
        "delivered": view.delivered_per_second(),
        "missed": view.missed_per_second,
    }
    spec = style.over_time(curves, "messages per second")
    return Figure(caption="Publications, deliveries, and deliveries that were due and never came.", spec=spec)


def _clients_figure(view: View) -> Figure:
    rows = _rows(metrics.delivered_per_second(view.tables.delivered))
    spec = style.heat(
        rows, x="second", y="client", value="delivered", x_title="time (s)", value_title="deliveries per second"
    )
    return Figure(caption="Deliveries to each client over time.", spec=spec)


def _percentiles_table(rows: list[Row]) -> str:
    cells = [
        (
            escape(row["client"]),
            f"{row['deliveries']:,}",
            *(f"{row[name] * 1000:,.1f} ms" for name in ("p50", "p99", "maximum")),
        )
        for row in sorted(rows, key=lambda row: row["client"])
    ]
    return table(("client", "received", "median delay", "99 %", "longest"), cells)


def _drops_table(rows: list[Row]) -> str:
    names = ("node", "peer", "place", "cause", "kind")
    cells = [(*(escape(row[name]) for name in names), f"{row['packets']:,}") for row in rows]
    return table(("node", "towards", "place", "cause", "kind", "packets"), sorted(cells))


def _rows(frame: DataFrame) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows
