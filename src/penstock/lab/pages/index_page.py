"""The index: all experiments at a glance, family by family, each with a small figure, the paper's number and ours.

It is made from the summaries that lie beside the pages as JSON, so experiments that were run at different times stand
in one index. A card shows one criterion of the paper: one that fails, if any does; else one for which the paper has a
number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from penstock.lab.engine.registry import families
from penstock.lab.pages.html import page
from penstock.lab.pages.look import INDEX_CSS
from penstock.lab.pages.papers import cited, with_names
from penstock.lab.pages.verdicts import bound_text, bounded, shown

Summary = Mapping[str, Any]


def index_page(folder: Path) -> str:
    """The index over all summaries in the folder."""
    read = {path.stem: _summary(path) for path in sorted(folder.glob("*.json"))}
    found = {name: summary for name, summary in read.items() if summary is not None}
    unreadable = [f"{name}.json" for name in read if name not in found]
    known = {family: [name for name in names if name in found] for family, names in families().items()}
    others = [name for name in found if not any(name in names for names in known.values())]
    groups = {family: names for family, names in {**known, "other": others}.items() if names}
    parts = [
        "<h1>The papers' experiments, made again</h1>",
        "<p>Each card is a figure or table of a paper. Its page has the whole figure, every number of the paper beside"
        " ours, the set-up and the command that made it.</p>",
        _tiles(groups, found),
        *(_family(family, [found[name] for name in names]) for family, names in groups.items()),
        _papers([summary["source"] for summary in found.values()]),
        f"<p class=note>Left out, because they are no summaries of experiments: {escape(', '.join(unreadable))}</p>"
        if unreadable
        else "",
    ]
    return page("Penstock: experiments", parts, plots=False, css=INDEX_CSS)


def _summary(path: Path) -> Summary | None:
    """What the file says of an experiment; None if it cannot be shown: cut off, of an older version, or another's."""
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        _card(summary), _holds(summary), _papers([summary["source"]])
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return dict(summary)


def _tiles(groups: Mapping[str, Sequence[str]], found: Mapping[str, Summary]) -> str:
    tiles = []
    for family, names in groups.items():
        held = sum(_holds(found[name]) for name in names)
        style = "holds" if held == len(names) else "fails"
        tiles.append(
            f'<div><dt><a href="#{family}">{escape(family.capitalize())}</a></dt>'
            f"<dd><span class={style}>{held} of {len(names)}</span><small>experiments hold</small></dd></div>"
        )
    return f"<dl class=tiles>{''.join(tiles)}</dl>"


def _family(family: str, summaries: Sequence[Summary]) -> str:
    cards = "".join(map(_card, summaries))
    return f'<h2 id="{family}">{escape(family.capitalize())}</h2><ul class=cards>{cards}</ul>'


def _card(summary: Summary) -> str:
    gated = [criterion for criterion in summary["criteria"] if criterion["kind"] == "paper"]
    held = sum(criterion["pass"] for criterion in gated)
    style = "holds" if held == len(gated) else "fails"
    goals = [c for c in summary["criteria"] if c["kind"] == "goal" and (bounded(*c["bound"]) or not c["pass"])]
    more = f" · {sum(goal['pass'] for goal in goals)} of {len(goals)} goals of ours" if goals else ""
    verdict = (
        f"<span class={style}>{held} of {len(gated)} hold</span>"
        if gated
        else "<span class=note>judged at paper scale alone</span>"
    )
    return (
        f"<li>{summary.get('thumbnail', '')}"
        f"<h3><a href={escape(summary['experiment'])}.html>{escape(summary['title'])}</a></h3>"
        f"<p class=source>{with_names(escape(summary['source']))}</p>{_headline(summary)}"
        f"<p class=verdict>{verdict}<span class=note>{more} · {escape(summary['scale'])} scale</span></p></li>"
    )


def _headline(summary: Summary) -> str:
    criteria = summary["criteria"] or summary["not_gated"]
    if not criteria:
        return ""
    first = min(criteria, key=lambda c: (c["kind"] != "paper", c["pass"], not any(map(str.isdigit, c["paper"]))))
    return (
        f"<dl><dt>measured</dt><dd>{escape(first['name'])}</dd><dt>paper</dt><dd>{escape(first['paper'])}</dd>"
        f"<dt>ours</dt><dd><b>{shown(first['value'])}</b> ({escape(bound_text(*first['bound']))})</dd></dl>"
    )


def _holds(summary: Summary) -> bool:
    return all(criterion["pass"] for criterion in summary["criteria"] if criterion["kind"] == "paper")


def _papers(sources: list[str]) -> str:
    items = "".join(
        f"<li><cite>{escape(paper.title)}</cite>. {escape(paper.authors)}; {escape(paper.what)}."
        f" <span class=note>Here: {escape(paper.short)}</span></li>"
        for paper in cited(sources)
    )
    return f"<h2>The papers</h2><ul>{items}</ul>" if items else ""
