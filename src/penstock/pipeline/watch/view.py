"""What a watch shows: one value of plain data for each update, from the tables that the pipeline has just written.

Numbers are those of the tables. Rates are means over the last RECENT seconds that are known completely. Where only one
in several messages is recorded, `published_per_s` and `delivered_per_s` come from the nodes' own counts of all of them,
which are exact; delays, losses and order are those of the messages that were chosen, and say so by `one_in`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.kernel.trace_files import TRACE_FOLDER
from penstock.pipeline.results import read_result
from penstock.pipeline.summary import PipelineSummary
from penstock.pipeline.watch.folder import WatchFolder

RECENT = 10  # seconds
ROWS_SHOWN = 10  # of a table
Rows = list[dict[str, Any]]


def view(folder: WatchFolder, summary: PipelineSummary) -> dict[str, Any]:
    """The state of the network as far as its records go."""
    state, (run,) = folder.state, summary.runs
    writers = state.writers
    living = [writer for writer in writers.writers.values() if not writer.closed]
    silent = {writer.node for writer in writers.writers.values() if writer.silent}
    until = max(0.0, writers.reached - state.began) if writers.writers else 0.0
    path, one_in = folder.path, writers.one_in
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "until": until,  # seconds since tracing began, of which all is known
        "brokers": len({writer.node for writer in living if writer.role == "broker"}),
        "clients": len({writer.node for writer in living if writer.role != "broker"}),
        "silent": sorted(silent - {writer.node for writer in living})[:ROWS_SHOWN],
        "records": state.records,
        "left_out": writers.left_out,
        "left_out_by": _by_node(folder),
        "lost_batches": writers.lost_batches,
        "refused": state.refused,
        "one_in": one_in,
        **_rates(path, until, one_in),
        **{name: run[name] for name in ("published", "delivered", "due", "missed", "duplicates", "fifo_violations")},
        **{name: run[name] for name in ("delay_p50", "delay_p99", "dropped")},
        "delays": _most(_of(path, "delay_percentiles", since="publish"), lambda row: row["p99"]),
        "losses": _most(_of(path, "missed"), lambda row: row["missed"]),
        "drops": _most(_of(path, "drops"), lambda row: row["packets"]),
        "order": _most(_of(path, "fifo_violations"), lambda row: row["violations"]),
        "flows": _flows(path),
        "streams": _most(_of(path, "streams"), lambda row: row["missed"]),
        "folder": str(path),
    }


def _of(path: Path, name: str, **wanted: str) -> Rows:
    return [{key: value for key, value in row.items() if key != "run"} for row in read_result(path, name, **wanted)]


def _most(rows: Rows, by: Callable[[dict[str, Any]], float | None]) -> Rows:
    return sorted(rows, key=lambda row: -(by(row) or 0.0))[:ROWS_SHOWN]


def _by_node(folder: WatchFolder) -> dict[str, int]:
    found = {writer.node: writer.left_out for writer in folder.state.writers.writers.values() if writer.left_out}
    return dict(sorted(found.items(), key=lambda item: -item[1])[:ROWS_SHOWN])


def _rates(path: Path, until: float, one_in: int) -> dict[str, float]:
    end = int(until)
    begin, names = max(0, end - RECENT), ("published", "delivered")
    if one_in == 1:
        rows = [row for row in _of(path, "rates") if begin <= row["second"] < end]
        sums = {name: sum(row[name] for row in rows) for name in names}
    else:
        sums = {name: _counted(path, f"{name} in all", begin, end) for name in names}
    return {f"{name}_per_s": total / max(1, end - begin) for name, total in sums.items()}


def _counted(path: Path, name: str, begin: float, end: float) -> int:
    """How much nodes counted in these seconds."""
    from pyarrow import parquet

    wanted = [("name", "=", name), ("time", ">=", begin), ("time", "<", end)]
    files = sorted((path / TRACE_FOLDER / "counted").glob("part-*.parquet"))
    return sum(sum(parquet.read_table(file, columns=["value"], filters=wanted)["value"].to_pylist()) for file in files)


def _flows(path: Path) -> Rows:
    """Each flow that is limited now, and what was withheld for its limiting receiver."""
    withheld = {(row["publisher"], row["limiting_receiver"]): row["withheld"] for row in _of(path, "withheld")}
    latest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted(_of(path, "flow_limits"), key=lambda row: row["time"]):
        latest[row["publisher"], row["flow"]] = row
    limited = [
        {**row, "withheld": withheld.get((row["publisher"], row["limiting_receiver"]), 0)}
        for row in latest.values()
        if row["quota"] > 0
    ]
    return _most(limited, lambda row: row["withheld"])
