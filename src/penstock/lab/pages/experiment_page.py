"""The lab's report: a page per experiment, and the index over all of them, each one HTML file that needs no network.

A page shows the figure like the paper's, the criteria beside what came out, the set-up, the seeds and the command that
made it. Figures that are compared (with and without something) have one scale and stand side by side.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from penstock.lab.engine.experiment import Figure, Finding, Result
from penstock.lab.pages.html import counts_explained, figures_html, page, table
from penstock.lab.pages.index_page import index_page
from penstock.lab.pages.papers import with_names, with_titles
from penstock.lab.pages.style import on_one_scale
from penstock.lab.pages.thumbnail import best_thumbnail
from penstock.lab.pages.verdicts import bound_text, shown, verdict, verdict_style


def write_reports(results: Sequence[Result], folder: Path) -> Path:
    """Write a page per experiment and the index over all pages in the folder; returns the index."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        (folder / f"{result.experiment.name}.html").write_text(experiment_page(result), encoding="utf-8")
        (folder / f"{result.experiment.name}.json").write_text(json.dumps(_summary(result), indent=1), encoding="utf-8")
    index = folder / "index.html"
    index.write_text(index_page(folder), encoding="utf-8")
    return index


def _summary(result: Result) -> dict[str, Any]:
    """What the index shows of an experiment."""
    head = {"title": result.experiment.title, "source": result.experiment.source}
    return {**head, **result.as_json(), "thumbnail": best_thumbnail(figure.spec for figure in result.figures)}


def experiment_page(result: Result) -> str:
    """One experiment as a page of its own."""
    experiment = result.experiment
    figures = comparable(result.figures)
    parts = [
        "<p class=source><a href=index.html>all experiments</a></p>",
        f"<h1>{escape(experiment.title)}</h1>",
        f"<p class=source>{with_titles(escape(experiment.source))}</p>",
        f"<p>{with_names(escape(experiment.about))}</p>",
        *figures_html(figures),
        counts_explained(figures),
        "<h2>What the paper says, and what came out</h2>",
        _findings_table(result.findings),
        "<h2>Set-up</h2>",
        _parameters_table({**experiment.parameters, **_run_parameters(result)}),
        f"<p>Made with <code>{escape(result.command)}</code></p>",
    ]
    return page(experiment.title, parts, plots=bool(figures))


def comparable(figures: Sequence[Figure]) -> list[Figure]:
    """The figures, those that are compared with each other on one scale."""
    found = list(figures)
    for word in dict.fromkeys(figure.compared for figure in figures if figure.compared):
        places = [place for place, figure in enumerate(found) if figure.compared == word]
        if len(places) > 1:
            specs = on_one_scale([found[place].spec for place in places])
            for place, spec in zip(places, specs, strict=True):
                found[place] = replace(found[place], spec=spec)
    return found


def _findings_table(findings: Sequence[Finding]) -> str:
    rows = []
    for finding in findings:
        criterion = finding.criterion
        note = f"<br><span class=note>{with_names(escape(criterion.note))}</span>" if criterion.note else ""
        rows.append(
            (
                f"{escape(criterion.name)}{note}",
                f"<span class={verdict_style(finding)}>{verdict(finding)}</span>",
                shown(finding.value),
                escape(bound_text(criterion.low, criterion.high)),
                escape(criterion.paper),
            )
        )
    return table(("criterion", "verdict", "ours", "bound", "paper"), rows, numbers=[2], styles="wide - - - -")


def _parameters_table(parameters: Mapping[str, str]) -> str:
    return table(("parameter", "value"), [(escape(name), escape(value)) for name, value in parameters.items()])


def _run_parameters(result: Result) -> dict[str, str]:
    seeds = ", ".join(map(str, result.seeds))
    return {"scale": result.scale, "seeds": seeds, "runs": ", ".join(result.runs)}
