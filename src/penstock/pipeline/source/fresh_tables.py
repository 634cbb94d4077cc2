"""Filters of batch reads, pushed down to the brokers.

    orders = pushing(spark.read.format("penstock").options(servers=url, stream="orders").schema("price double").load())
    orders.filter("price < 5")  # the brokers send only these
    orders                      # all of them

Why it is not the format itself: Spark 4.3 hands filters to a source in Python, but keeps what the source planned with
the table (`PythonDataSourceV2.setReadInfo`), and gives it to whoever uses the table next, without a filter or with
another one in the same query. Rows are missing then without a word, and the source is not asked again. Here the table
that Spark sees makes a new one for every scan, so that each has a plan of its own. It is an object of this process,
which Spark calls as it calls functions of `foreachBatch`; the tables that it makes are Spark's.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

from penstock.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"  # without it Spark refuses sources that could
RELATION = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
TABLE = "org.apache.spark.sql.execution.datasources.v2.python.PythonTable"


def pushing(table: DataFrame) -> DataFrame:
    """The same table, whose filters are done by the brokers as far as they can."""
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.sql import DataFrame as Table

    from penstock.pipeline.source.data_source import PenstockSource, PushingSource

    spark = table.sparkSession
    relation: Any = table._jdf.queryExecution().analyzed() if hasattr(table, "_jdf") else None
    loaded = relation is not None and relation.getClass().getName() == RELATION
    if not loaded or (relation.table().getClass().getName(), relation.table().name()) != (TABLE, PenstockSource.name()):
        raise InvalidOption(
            "table", 'is not what spark.read.format("penstock")...load() returned, in a classic session'
        )
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PushingSource)
    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # PySpark's own has no types
    fresh = _TableOfScans(context._jvm, relation.table(), PushingSource.name())
    others = relation.output(), relation.catalog(), relation.identifier(), relation.options(), relation.timeTravelSpec()
    made = context._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation.copy(fresh, *others))
    return Table(made, spark)


class _TableOfScans:
    """A table for Spark that is another one for every scan; all but that it leaves to the one that it stands for."""

    Java = SimpleNamespace(implements=["org.apache.spark.sql.connector.catalog.SupportsRead"])  # as Py4J wants it

    def __init__(self, jvm: Any, table: Any, name: str) -> None:
        self._python = jvm.org.apache.spark.sql.execution.datasources.v2.python
        self._table = table
        self._name = name
        self._identity = f"penstock {uuid4().hex}"

    def newScanBuilder(self, options: Any) -> Any:  # noqa: N802  # Spark's name
        source = self._python.PythonDataSourceV2()
        source.setShortName(self._name)
        return self._python.PythonTable(source, self._name, self._table.schema()).newScanBuilder(options)

    def toString(self) -> str:  # noqa: N802  # Java's name
        return self._identity

    def equals(self, other: Any) -> bool:
        """Spark compares plans, for what is cached; the other is seen through Java, also if it is this one."""
        return other is not None and other.toString() == self._identity

    def hashCode(self) -> int:  # noqa: N802
        return crc32(self._identity.encode()) >> 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)
