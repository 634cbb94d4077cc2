"""What a metric is, and how several of them share one pass over the data.

A metric has a name, the columns of its table, the tables that it reads, and a function from Arrow tables to an Arrow
table. What it reads are kinds of records (`delivered`), or tables that other metrics make (`delays`). It says which
rows it must see together:

    nothing             any part of a table will do: work is called for each part, and the parts of the result are
                        joined; `totals` says which columns are then added up
    some columns        rows of a run that are equal in these columns come into one task

A `MetricPlan` puts metrics into *rounds*. In round 0 tasks see the rows as they come, so metrics that need nothing
together work there; for the others, rows are sent on to the task of their key, and meet in a later round. Rows that
meet already are not sent again: percentiles of each pair are computed where the delays of a publisher are. A plan for
all metrics of the pipeline has three rounds, whatever their number, and Spark runs them as one job (see `execution`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

ArrowTables = Mapping[str, "pa.Table"]


@dataclass(frozen=True)
class Metric:
    """How a table is made of others."""

    name: str
    ddl: str
    reads: Mapping[str, Sequence[str]]  # table -> the columns that are looked at, besides `run`
    work: Callable[[ArrowTables], pa.Table]
    together: Mapping[str, Sequence[str]] = field(default_factory=dict)  # table -> columns, besides `run`; see above
    totals: Mapping[str, str] = field(default_factory=dict)  # column -> sum, min or max, where all others are equal
    dear: bool = False  # worth being spread over all tasks anew

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [column.split()[0] for column in self.ddl.split(",")]


@dataclass(frozen=True)
class Shipment:
    """Rows of a table on their way to the round where those with equal keys meet."""

    table: str
    keys: tuple[str, ...]
    to_round: int
    columns: tuple[str, ...]

    @property
    def address(self) -> str:
        """Tells it from others of the same round."""
        return f"{self.table} by {' '.join(self.keys)}"


class MetricPlan:
    """Which metric works in which round, and what is sent from one to another."""

    def __init__(self, metrics: Iterable[Metric], wanted: Iterable[str], given: Mapping[str, str]) -> None:
        """`given` tables are there to begin with, each with its DDL. Metrics that nobody needs are left out."""
        self.given = dict(given)
        self.wanted = frozenset(wanted)
        self.metrics = _needed([one for one in metrics if one.name not in given], self.wanted)
        self._places: dict[str, _Place] = {name: _Place(frozenset({0}), None) for name in given}
        for metric in self.metrics:
            self._places[metric.name] = self._place(metric)
        self.last = max((max(self._places[metric.name].rounds) for metric in self.metrics), default=0)

    @cached_property
    def ddls(self) -> dict[str, str]:
        """The columns of every table."""
        return self.given | {metric.name: metric.ddl for metric in self.metrics}

    @cached_property
    def sources(self) -> dict[str, tuple[str, ...]]:
        """The given tables that somebody reads, with the columns that are looked at."""
        found: dict[str, dict[str, None]] = {}
        for metric in self.metrics:
            for table, columns in metric.reads.items():
                if table in self.given:
                    found.setdefault(table, {}).update(dict.fromkeys(columns))
        return {table: tuple(columns) for table, columns in found.items()}

    @cached_property
    def shipments(self) -> tuple[Shipment, ...]:
        """All that is sent."""
        found: dict[tuple[str, tuple[str, ...], int], dict[str, None]] = {}
        for metric in self.metrics:
            for table, keys in metric.together.items():
                if not self._meets(metric, table):
                    (to_round,) = self._places[metric.name].rounds
                    columns = found.setdefault((table, tuple(keys), to_round), {})
                    columns.update(dict.fromkeys([*keys, *metric.reads[table]]))
        return tuple(Shipment(table, keys, to, tuple(columns)) for (table, keys, to), columns in found.items())

    def working(self, in_round: int) -> list[Metric]:
        """The metrics that work in a round, in order."""
        return [metric for metric in self.metrics if in_round in self._places[metric.name].rounds]

    def shipment(self, metric: Metric, table: str) -> Shipment | None:
        """What brings together the rows that a metric reads; None where they are together already."""
        if self._meets(metric, table):
            return None
        keys, rounds = tuple(metric.together[table]), self._places[metric.name].rounds
        return next(one for one in self.shipments if (one.table, one.keys) == (table, keys) and one.to_round in rounds)

    def _meets(self, metric: Metric, table: str) -> bool:
        """Whether the rows that must be together are so where the table is made."""
        made, keys = self._places[table], metric.together[table]
        here = made.rounds == self._places[metric.name].rounds
        return here and made.grouped is not None and made.grouped <= set(keys)

    def _place(self, metric: Metric) -> _Place:
        read = {table: self._places[table] for table in metric.reads}
        rounds = frozenset(number for place in read.values() for number in place.rounds)
        if not metric.together:
            grouped = next(iter(read.values())).grouped if len(read) == 1 else None
            return _Place(rounds, _if_kept(grouped, metric))
        met = all(
            place.grouped is not None and place.grouped <= set(metric.together[table]) for table, place in read.items()
        )
        if met and len(rounds) == 1 and not metric.dear:
            grouped = frozenset().union(*(place.grouped or () for place in read.values()))
            return _Place(rounds, _if_kept(grouped, metric))
        keys = frozenset(next(iter(metric.together.values())))
        return _Place(frozenset({max(rounds) + 1}), _if_kept(keys, metric))


@dataclass(frozen=True)
class _Place:
    """Where a table is made: in which rounds, and by which columns its rows meet in one task; None: by none."""

    rounds: frozenset[int]
    grouped: frozenset[str] | None


def _if_kept(grouped: frozenset[str] | None, metric: Metric) -> frozenset[str] | None:
    """Columns that the result does not have say nothing about its rows."""
    return grouped if grouped is not None and grouped <= set(metric.columns) else None


def _needed(metrics: Sequence[Metric], wanted: frozenset[str]) -> tuple[Metric, ...]:
    """The wanted ones and those that they read, each after all that it reads."""
    by_name, found = {metric.name: metric for metric in metrics}, dict[str, Metric]()

    def add(name: str) -> None:
        if name in by_name and name not in found:
            for table in by_name[name].reads:
                add(table)
            found[name] = by_name[name]

    for metric in metrics:
        if metric.name in wanted:
            add(metric.name)
    return tuple(found.values())
