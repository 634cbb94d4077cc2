"""Where the results of a run lie: `<run>/metrics/<name>/part-00000.parquet`, one table each.

The pipeline writes them; pages and tables read them, so that a number is computed once, whoever shows it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidRun
from penstock.kernel.trace_files import write_parquet

if TYPE_CHECKING:
    import pyarrow as pa

METRICS_FOLDER = "metrics"
_FILE = "part-00000.parquet"


def write_result(run: Path, name: str, table: pa.Table) -> None:
    """Put the table in its place, in one step.

    Whether Spark can prove that a column has no nulls depends on which runs it read; the file does not say it.
    """
    import pyarrow as pa

    table = table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))
    folder = run / METRICS_FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    write_parquet(folder / _FILE, table)


def read_result(run: Path, name: str, **wanted: str) -> list[dict[str, Any]]:
    """The rows of a result, of them only those with the `wanted` values; raises InvalidRun if it is not there."""
    from pyarrow import parquet

    path = run / METRICS_FOLDER / name / _FILE
    if not path.exists():
        raise InvalidRun(str(path), f"is not there; make it with: penstock pipeline run {run}")
    filters = [(column, "=", value) for column, value in wanted.items()] or None
    rows: list[dict[str, Any]] = parquet.read_table(path, filters=filters).to_pylist()
    return rows


def of_run(table: pa.Table, run: str) -> pa.Table:
    """The rows of a result that belong to a run."""
    import pyarrow.compute as pc

    return table.filter(pc.equal(table.column("run"), run)).combine_chunks()
