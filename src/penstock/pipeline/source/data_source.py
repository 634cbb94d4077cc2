"""The data source "penstock": what Spark asks for by name, and is handed readers and writers of a stream."""

from __future__ import annotations

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    SimpleDataSourceStreamReader,
)
from pyspark.sql.types import StructType

from penstock.errors import InvalidOption, PenstockError
from penstock.pipeline.source.best_effort import BestEffortReader
from penstock.pipeline.source.columns import check_schema, default_schema
from penstock.pipeline.source.one_line import RefusedReader, one_line_errors
from penstock.pipeline.source.options import (
    SinkOptions,
    SourceOptions,
    best_effort_options,
    is_best_effort,
    sink_options,
    source_options,
)
from penstock.pipeline.source.reading import BatchReader, FollowingReader, PushingReader
from penstock.pipeline.source.writing import BatchWriter, FollowingWriter, check_written_schema


@one_line_errors
class PenstockSource(DataSource):
    """Streams of a network as tables."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return default_schema(self._read_options().headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        if is_best_effort(self.options):
            raise InvalidOption(
                "subscribe", "is for queries that go on (readStream); nothing is there to be read at once"
            )
        return self._batch_reader(self._checked(schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        try:
            options = self._checked(schema)
            if not is_best_effort(self.options):
                return FollowingReader(options, schema)
        except PenstockError as error:
            return RefusedReader(error)
        # Spark asks for a simple one then.
        raise PySparkNotImplementedError(errorClass="NOT_IMPLEMENTED", messageParameters={"feature": "streamReader"})

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        return BestEffortReader(self._checked(schema), schema)

    def _batch_reader(self, options: SourceOptions, schema: StructType) -> DataSourceReader:
        return BatchReader(options, schema)

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

    def _read_options(self) -> SourceOptions:
        best_effort = is_best_effort(self.options)
        return best_effort_options(self.options) if best_effort else source_options(self.options)

    def _checked(self, schema: StructType) -> SourceOptions:
        options = self._read_options()
        check_schema(schema, options.headers)
        return options


class PushingSource(PenstockSource):
    """The same in a session that lets sources filter: see `pushing`.

    A class of its own, because Spark refuses a reader that could filter where sources may not.
    """

    @classmethod
    def name(cls) -> str:
        return "penstock_pushing"

    def _batch_reader(self, options: SourceOptions, schema: StructType) -> DataSourceReader:
        return PushingReader(options, schema)
