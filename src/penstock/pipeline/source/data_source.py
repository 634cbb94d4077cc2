"""The data source "penstock": what Spark asks for by name, and is handed readers and writers of a stream."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.pipeline.source.columns import check_schema, default_schema
from penstock.pipeline.source.options import SourceOptions, source_options
from penstock.pipeline.source.reading import BatchReader, FollowingReader, PushingReader


class PenstockSource(DataSource):
    """Streams of a network as tables."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return default_schema(source_options(self.options).headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._checked(schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        return FollowingReader(self._checked(schema), schema)

    def _checked(self, schema: StructType) -> SourceOptions:
        options = source_options(self.options)
        check_schema(schema, options.headers)
        return options


class PushingSource(PenstockSource):
    """The same in a session that lets sources filter: elsewhere Spark refuses a reader that could."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushingReader(self._checked(schema), schema)
