"""The report of one run: who got what, how fast, and what was lost where, as a page that needs no network.

`penstock demo` writes it for the town; any run folder will do. Nothing is computed here: the numbers are the results
that the pipeline has written beside the run's traces.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from penstock.lab.engine.experiment import Figure
from penstock.lab.pages import style
from penstock.lab.pages.experiment_page import figure_html, page, table
from penstock.pipeline.results import read_result
from penstock.scenario.spec import Scenario

Row = dict[str, Any]


def write_run_report(folder: Path, scenario: Scenario, command: str) -> Path:
    """Write `report.html` into the run's folder, in which the pipeline has been; returns its path."""
    lost = read_result(folder, "drops")
    title = f"{scenario.name}: what happened"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=source>{len(scenario.broker)} brokers, {len(scenario.client)} clients,"
        f" {scenario.duration:g} s of publishing</p>",
        figure_html(_rates_figure(read_result(folder, "rates"), int(scenario.duration))),
        figure_html(_clients_figure(read_result(folder, "delivered_per_second"))),
        "<h2>Who got what, and how fast</h2>",
        _percentiles_table(read_result(folder, "delay_percentiles_per_client")),
        "<h2>What was lost where</h2>",
        _drops_table(lost) if lost else "<p>Nothing was dropped.</p>",
        f"<p>Made with <code>{escape(command)}</code></p>",
    ]
    path = folder / "report.html"
    path.write_text(page(title, parts, plots=True), encoding="utf-8")
    return path


def _rates_figure(rates: list[Row], seconds: int) -> Figure:
    by_second = {row["second"]: row for row in rates}
    curves = {
        name: [float(by_second.get(second, {}).get(name, 0)) for second in range(seconds)]
        for name in ("published", "delivered", "missed")
    }
    spec = style.over_time(curves, "messages per second")
    return Figure(caption="Publications, deliveries, and deliveries that were due and never came.", spec=spec)


def _clients_figure(rows: list[Row]) -> Figure:
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
