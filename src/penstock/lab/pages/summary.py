"""The summary of all experiments in docs/papers.md: made of the kept results, between two marks, and of nothing else.

A row for each criterion that has a bound: what the paper says, what came out (and its range over the seeds, if there
is more than one), the bound, the verdict, and the same number with the product's own settings. Illustrations are shown
and not counted. A second table of each family has what is reported without a bound. Results of code before a change
that moves them are marked (`lab/engine/older_code.py`). An experiment without a kept result is named below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock.lab.engine.kept_results import KeptCriterion, KeptResult
from penstock.lab.engine.older_code import changes_since
from penstock.lab.pages.verdicts import bound_text, bounded, shown

BEGIN = "<!-- What follows is made by `penstock lab summary` from docs/results; change nothing here. -->"
END = "<!-- Here ends what `penstock lab summary` has made. -->"
FAMILIES = {
    "throughput": "Best effort under load (002 3.1)",
    "delays": "Delays (002 3.2, 3.5.1)",
    "ordering": "Ordering (002 3.5)",
    "detection": "Noticing losses (002 4.3)",
    "recovery": "Recovery (002 4.4)",
    "any_content": "The transport on any content (ours)",
    "congestion": "Congestion control (000; 002 chapter 5)",
    "network_rates": "Fair rates of links (ours)",
    "gryphon": "Congestion control of streams (001)",
    "spread": "Priced sending (003)",
    "retrieval": "Retrieval (004)",
    "compared": "Controllers compared",
}
HEAD = (
    "| experiment | criterion | paper | ours | bound | verdict | product | seeds | date |",
    "|---|---|---|---|---|---|---|---|---|",
)
REPORTED = ("| experiment | reported, without a bound | paper | ours | product |", "|---|---|---|---|---|")


def summary(results: Mapping[str, KeptResult], families: Mapping[str, Sequence[str]]) -> str:
    """All between the marks: a count for each family of figures, then their tables."""
    lines = ["| | experiments | run | criteria that hold | missed | goals reached | missed | illustrations |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|--:|")
    for family, names in families.items():
        kept = [results[name] for name in names if name in results]
        counts = (len(names), len(kept), *(_counted(kept, *kind) for kind in _KINDS))
        lines.append(f"| {FAMILIES.get(family, family)} | " + " | ".join(map(str, counts)) + " |")
    for family, names in families.items():
        lines += ["", f"#### {FAMILIES.get(family, family)}", ""]
        lines += _tables([results[name] for name in names if name in results])
        missing = [f"`{name}`" for name in names if name not in results]
        if missing:
            some = len(missing) < len(names)
            lines += ["", f"No result is kept of {', '.join(missing)}."] if some else [_none(missing)]
    return "\n".join(lines) + "\n"


def _tables(kept: Sequence[KeptResult]) -> list[str]:
    """Those of a family, and what changed since its oldest results."""
    if not kept:
        return []
    lines = [*HEAD, *(row for result in kept for row in _rows(result))]
    reported = [row for result in kept for row in _reported(result)]
    if reported:
        lines += ["", *REPORTED, *reported]
    since = [one.what for result in kept for one in changes_since(result)]
    if since:
        lines += ["", f"*Older*: from before {'; and '.join(dict.fromkeys(since))}."]
    return lines


def with_summary(page: str, made: str) -> str:
    """The page with this between its marks; raises if it has none."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise PenstockError(f"the page has no place for the summary; it needs the two lines '{BEGIN}' and '{END}'")
    return f"{head}{BEGIN}\n\n{made}\n{END}{tail}"


def write_summary(page: Path, made: str) -> bool:
    """Put the summary into the page; False if it was there already."""
    before = page.read_text()
    after = with_summary(before, made)
    if after != before:
        page.write_text(after)
    return after != before


_KINDS = (("paper", True), ("paper", False), ("goal", True), ("goal", False), ("illustration", None))


def _counted(kept: Sequence[KeptResult], kind: str, passed: bool | None) -> int:
    return sum(
        one.kind == kind and bounded(*one.bound) and one.was_run() and passed in (None, one.passed)
        for result in kept
        for one in result.criteria
    )


def _none(missing: Sequence[str]) -> str:
    return f"No result is kept of any: {', '.join(missing)}."


def _rows(result: KeptResult) -> list[str]:
    """One for each criterion with a bound; the experiment's name, its seeds and its date stand in the first."""
    rows: list[str] = []
    first = (f"`{result.experiment}`", str(len(result.seeds)), _date(result))
    for one in [one for one in result.criteria if bounded(*one.bound)]:
        name, seeds, date = first if not rows else ("", "", "")
        if len(one.values) == 1 < len(result.seeds):
            seeds = "1"  # a criterion on a whole curve, of which the first seed alone has every point
        cells = (name, one.name, one.paper, _ours(one), bound_text(*one.bound), _verdict(one), _product(result, one))
        rows.append(f"| {' | '.join(map(_cell, (*cells, seeds, date)))} |")
    return rows


def _date(result: KeptResult) -> str:
    since = changes_since(result)
    mark = ", product older" if all(one.product for one in since) else ", older"
    return f"{result.date}{mark}" if since else result.date


def _reported(result: KeptResult) -> list[str]:
    rows: list[str] = []
    for one in [one for one in result.criteria if not bounded(*one.bound)]:
        name = "" if rows else f"`{result.experiment}`"
        cells = (name, one.name, one.paper, _ours(one), _product(result, one))
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    return rows


def _ours(one: KeptCriterion) -> str:
    if not one.was_run():
        return ""
    measured = [value for value in one.values if value is not None]
    if one.value is None or len(measured) < 2 or shown(min(measured)) == shown(max(measured)):
        return shown(one.value)
    return f"{shown(one.value)} ({shown(min(measured))} to {shown(max(measured))})"


def _verdict(one: KeptCriterion) -> str:
    if not one.was_run():
        return "not run yet"
    if one.kind == "illustration":
        return "illustration"
    word = "holds" if one.passed else "**missed**"
    return word if one.kind == "paper" else f"goal, {word}"


def _product(result: KeptResult, one: KeptCriterion) -> str:
    if one.product is not None:
        return shown(one.product)
    return "-" if result.product_seeds or result.no_product else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
