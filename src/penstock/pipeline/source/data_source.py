"""The data source "penstock": what Spark asks for by name, and is handed readers and writers of a stream."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidOption
from penstock.pipeline.source.columns import check_schema, default_schema
from penstock.pipeline.source.options import SinkOptions, SourceOptions, sink_options, source_options
from penstock.pipeline.source.reading import BatchReader, FollowingReader, PushingReader
from penstock.pipeline.source.writing import BatchWriter, FollowingWriter, check_written_schema


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

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise InvalidOption("mode", "is overwrite; a stream is only added to: say .mode('append')")
        return BatchWriter(self._written(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return FollowingWriter(self._written(schema))

    def _written(self, schema: StructType) -> SinkOptions:
        options = sink_options(self.options)
        check_written_schema(schema, options)
        return options

    def _checked(self, schema: StructType) -> SourceOptions:
        options = source_options(self.options)
        check_schema(schema, options.headers)
        return options


class PushingSource(PenstockSource):
    """The same in a session that lets sources filter: elsewhere Spark refuses a reader that could."""

    def reader(self, schema: StructType) -> DataSourceReader:
        return PushingReader(self._checked(schema), schema)
