"""The report: a page per experiment and an index, each one HTML file that needs no network.

The page shows the figure like the paper's, the criteria beside what came out, the set-up, the seeds and the command
that made it. Drawings are interactive (zoom with the wheel, drag to move, hover for values). The drawing library is
written into each page, so a page can be mailed, archived, or opened on a plane. Colours follow the reader's choice of
light or dark; tables scroll on narrow screens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path

from penstock.lab.engine.experiment import Figure, Finding, Result

CSS = """
:root { color-scheme: light dark; --ground: #fdfdfb; --ink: #1d2327; --faint: #667; --line: #d9d9d2; --good: #00734f;
  --bad: #b3400a; --card: #fff; }
@media (prefers-color-scheme: dark) { :root { --ground: #14181b; --ink: #e4e6e2; --faint: #9aa3a8; --line: #333b40;
  --good: #3ecf9c; --bad: #ff9157; --card: #1b2024; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem 1rem 4rem; max-width: 60rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 1rem 0 .25rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
a { color: inherit; }
.source, figcaption, footer, .note { color: var(--faint); font-size: .9rem; }
figure { margin: 1rem 0; padding: .75rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .5rem; }
.plot { width: 100%; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.holds { color: var(--good); font-weight: 600; } .fails { color: var(--bad); font-weight: 600; }
code { background: var(--card); border: 1px solid var(--line); border-radius: .25rem; padding: .1rem .3rem;
  overflow-wrap: anywhere; }
""".strip()

DRAW = """
const dark = matchMedia("(prefers-color-scheme: dark)");
const draw = () => document.querySelectorAll(".plot").forEach(place =>
  vegaEmbed(place, JSON.parse(place.dataset.spec), {actions: false, renderer: "svg",
    theme: dark.matches ? "dark" : undefined, config: {background: "transparent"}}));
dark.addEventListener("change", draw); draw();
""".strip()


def write_reports(results: Sequence[Result], folder: Path) -> Path:
    """Write a page per experiment and the index over all pages in the folder; returns the index."""
    folder.mkdir(parents=True, exist_ok=True)
    for result in results:
        (folder / f"{result.experiment.name}.html").write_text(experiment_page(result), encoding="utf-8")
        summary = {"title": result.experiment.title, "source": result.experiment.source, **result.as_json()}
        (folder / f"{result.experiment.name}.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    index = folder / "index.html"
    index.write_text(_index_page(folder), encoding="utf-8")
    return index


def experiment_page(result: Result) -> str:
    """One experiment as a page of its own."""
    experiment = result.experiment
    parts = [
        f"<h1>{escape(experiment.title)}</h1>",
        f"<p class=source>{escape(experiment.source)} · {escape(experiment.name)}</p>",
        f"<p>{escape(experiment.about)}</p>",
        *(figure_html(figure) for figure in result.figures),
        "<h2>What the paper says, and what came out</h2>",
        _findings_table(result.findings),
        "<h2>Set-up</h2>",
        _parameters_table({**experiment.parameters, **_run_parameters(result)}),
        f"<p>Made with <code>{escape(result.command)}</code></p>",
        "<footer><a href=index.html>all experiments</a></footer>",
    ]
    return page(experiment.title, parts, plots=bool(result.figures))


def page(title: str, parts: Iterable[str], *, plots: bool) -> str:
    """A whole HTML file; with plots it carries the drawing library."""
    scripts = f'<script type="module">{_drawing_library()}</script>' if plots else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style></head>\n<body>\n"
        + "\n".join(parts)
        + scripts
        + "</body></html>\n"
    )


@cache
def _drawing_library() -> str:
    """Vega-Embed and what it needs, with our few lines that call it."""
    from vl_convert import javascript_bundle

    return javascript_bundle(DRAW).replace("</script", "<\\/script")


def figure_html(figure: Figure) -> str:
    """A place for a drawing, and its caption."""
    spec = escape(json.dumps(figure.spec, separators=(",", ":")), quote=True)
    return (
        f'<figure><div class=plot data-spec="{spec}"></div><figcaption>{escape(figure.caption)}</figcaption></figure>'
    )


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of cells that are HTML already."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _findings_table(findings: Sequence[Finding]) -> str:
    rows = []
    for finding in findings:
        criterion = finding.criterion
        note = f"<br><span class=note>{escape(criterion.note)}</span>" if criterion.note else ""
        rows.append(
            (
                f"{escape(criterion.name)}{note}",
                escape(criterion.paper),
                f"{shown(finding.value)}",
                escape(bound_text(finding)),
                verdict_html(finding),
            )
        )
    return table(("criterion", "paper", "ours", "bound", "verdict"), rows)


def verdict(finding: Finding) -> str:
    """One word: holds or fails; a goal says that it is one, and what is not gated at this scale is only reported."""
    if not finding.gated:
        return f"only at {' and '.join(finding.criterion.scales)} scale"
    word = "holds" if finding.passed else "fails"
    return word if finding.criterion.kind == "paper" else f"{word} (goal)"


def verdict_html(finding: Finding) -> str:
    """The verdict in its colour."""
    return f"<span class={verdict_style(finding)}>{verdict(finding)}</span>"


def verdict_style(finding: Finding) -> str:
    """Which of the three colours a verdict has."""
    return "note" if not finding.gated else "holds" if finding.passed else "fails"


def bound_text(finding: Finding) -> str:
    """The bound in words."""
    low, high = finding.criterion.low, finding.criterion.high
    if low is not None and high is not None:
        return shown(low) if low == high else f"{shown(low)} to {shown(high)}"
    return f"at least {shown(low)}" if low is not None else f"at most {shown(high)}" if high is not None else "report"


def shown(value: float | None) -> str:
    """A number as a person wants to read it."""
    if value is None or value != value:
        return "not measured"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _parameters_table(parameters: Mapping[str, str]) -> str:
    return table(("parameter", "value"), [(escape(name), escape(value)) for name, value in parameters.items()])


def _run_parameters(result: Result) -> dict[str, str]:
    seeds = ", ".join(map(str, result.seeds))
    return {"scale": result.scale, "seeds": seeds, "runs": ", ".join(result.runs)}


def _index_page(folder: Path) -> str:
    rows = []
    for path in sorted(folder.glob("*.json")):
        summary = json.loads(path.read_text(encoding="utf-8"))
        gated = [c for c in summary["criteria"] if c["kind"] == "paper"]
        held = sum(c["pass"] for c in gated)
        style = "holds" if held == len(gated) else "fails"
        rows.append(
            (
                f"<a href={escape(path.stem)}.html>{escape(summary['title'])}</a>",
                escape(summary["source"]),
                escape(summary["scale"]),
                f"<span class={style}>{held} of {len(gated)}</span>",
            )
        )
    parts = [
        "<h1>Penstock: the papers' experiments</h1>",
        "<p>Each page shows a figure of a paper, made again, and the paper's numbers beside ours.</p>",
        table(("experiment", "source", "scale", "criteria that hold"), rows),
    ]
    return page("Penstock: experiments", parts, plots=False)
