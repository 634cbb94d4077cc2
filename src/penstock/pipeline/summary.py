"""What the pipeline says when it is done: a row of numbers for each run, what the checks found, and what is left out.

Every number is looked up in a result or summed up over one, so it is the number that a page or a notebook finds there.
Under the table stand notes, for what a heading cannot say: which publications `due` leaves out, and what the two pairs
of percentiles of the delay are measured from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from penstock.pipeline.extent import UNWANTED, seconds
from penstock.pipeline.read import RunFolder, Tables
from penstock.pipeline.results import METRICS_FOLDER, of_run
from penstock.pipeline.session import java_in_use

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PipelineSummary:
    """What came of it: for each run a row of numbers (None where it was not asked for), and what the checks found."""

    runs: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    warnings: list[str]
    java: str
    metrics: list[str]
    notes: list[str]  # what the numbers leave out, and what they are measured from

    @property
    def failed(self) -> bool:
        """Whether a check says that the numbers are not to be believed."""
        return any(found["level"] == "fail" for found in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for --json."""
        return {**asdict(self), "failed": self.failed}


# Numbers that are sums: the result, and the column.
_SUMS = {
    "published": ("rates", "published"),
    "delivered": ("rates", "delivered"),
    "due": ("missed", "due"),
    "missed": ("missed", "missed"),
    "duplicates": ("duplicates", "duplicates"),
    "fifo_violations": ("fifo_violations", "violations"),
    "dropped": ("drops", "packets"),
}
# Delays that are looked up: where they begin, and the column.
_DELAYS = {
    "delay_p50": ("publish", "p50"),
    "delay_p99": ("publish", "p99"),
    "delay_sent_p50": ("sent", "p50"),
    "delay_sent_p99": ("sent", "p99"),
}
_HEADINGS = {
    "published": "published",
    "delivered": "delivered",
    "due": "due",
    "missed": "missed",
    "false_positives": "unwanted",
    "fifo_violations": "late",
    "delay_p50": "p50",
    "delay_p99": "p99",
    "delay_sent_p50": "p50 after sending",
    "delay_sent_p99": "p99 after sending",
    "dropped": "dropped",
}


def summarize(tables: Tables, results: dict[str, pa.Table]) -> PipelineSummary:
    """The numbers of all runs, as far as they were asked for."""
    rows = [_row(run, {name: of_run(table, run.run) for name, table in results.items()}) for run in tables.runs]
    found = results["checks"].to_pylist() if "checks" in results else []
    notes = [*(_due_notes(tables.runs) if "missed" in results else []), *(_delay_notes(rows))]
    return PipelineSummary(rows, found, list(tables.warnings), java_in_use(), list(results), notes)


def _row(run: RunFolder, own: dict[str, pa.Table]) -> dict[str, Any]:
    row: dict[str, Any] = {"run": run.run, "complete": run.head.complete, "until": _plain(run.until)}
    for name, (result, column) in _SUMS.items():
        row[name] = sum(own[result].column(column).to_pylist()) if result in own else None
    judged = "false_positives" in own and UNWANTED not in run.unjudged_checks
    row["false_positives"] = len(own["false_positives"]) if judged else None
    delays = own["delay_percentiles_per_run"].to_pylist() if "delay_percentiles_per_run" in own else []
    since = {delay["since"]: delay for delay in delays}
    for name, (begin, column) in _DELAYS.items():
        row[name] = since[begin][column] if begin in since else None
    return {**row, "grace": run.grace, "folder": str(run.folder / METRICS_FOLDER)}


def _plain(time: float) -> float | None:
    """A time as JSON can have it; None where the run is read to its end."""
    return None if time == inf else max(0.0, time)


def _due_notes(runs: Sequence[RunFolder]) -> list[str]:
    """What is not counted as due."""
    graces = sorted({run.grace for run in runs})
    within = " or ".join(f"{grace:g} s" for grace in graces) + (", as each run says," if len(graces) > 1 else "")
    notes = [f"due: without what was published within {within} of a subscription's beginning or end"]
    for run in runs:
        stretches = [_stretch(max(0.0, begin), end) for begin, end in run.unjudged]
        if stretches:
            lacks = "records that would tell are not there"
            notes.append(f"due of {run.run}: also without what was published {', '.join(stretches)}; {lacks}")
    return notes


def _stretch(begin: float, end: float) -> str:
    return f"after {seconds(begin)}" if end == inf else f"from {seconds(begin)} to {seconds(end)}"


def _delay_notes(rows: list[dict[str, Any]]) -> list[str]:
    if all(row["delay_p50"] is None for row in rows):
        return []
    return ["p50, p99: delay from publish() to the delivery; after sending: from where the message left the publisher"]


# For people.


def as_text(summary: PipelineSummary) -> str:
    """A row for each run, the notes, then what the checks found."""
    rows = [("run", *_HEADINGS.values())]
    for run in summary.runs:
        mark = "" if run["complete"] else f" (incomplete: read up to {seconds(run['until'])})"
        rows.append((run["run"] + mark, *(_cell(run[name]) for name in _HEADINGS)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in list(zip(row, widths, strict=True))[1:])]
        )
        for row in rows
    ]
    lines += [*summary.notes, ""]
    found = [f"{c['level']}: {c['run']}: {c['check']}, {c['count']:,} times; {c['example']}" for c in summary.checks]
    lines += found or (["all checks hold"] if "checks" in summary.metrics else [])
    lines.append(f"{len(summary.metrics)} tables under {' '.join(run['folder'] for run in summary.runs)}")
    return "\n".join(lines)


def _cell(value: float | int | None) -> str:
    """A count, or a delay in milliseconds."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value * 1000:,.1f} ms"
