"""The data source ``rocketmq``: the class that Spark instantiates for ``format("rocketmq")``.

Spark imports this module in every session that uses any Python data source. Heavy imports therefore wait
until a reader or writer is created, and importing it works on a Spark that is too old.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rocketmq_py.spark.worker_processes import log_to_stderr, missing_module_error, pickle_by_value

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rocketmq_py.spark.sink import BatchSink, StreamSink
    from rocketmq_py.spark.source import BatchSource, InvalidStreamSource, StreamSource


class RocketMQDataSource(DataSource):
    """``format("rocketmq")``: reads topics and appends to them, in batch jobs and streaming queries.

    The source's columns are :data:`rocketmq_py.spark.arrow_schema.SOURCE_COLUMNS`, the sink's
    :data:`rocketmq_py.spark.schema.SINK_COLUMNS`. The options are described by :class:`SourceOptions` and
    :class:`SinkOptions`.

    Raises:
        ConfigurationError: Spark is older than 4.1.
        ModuleNotFoundError: the Python of Spark's workers lacks this package. The text names that Python.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        try:
            from rocketmq_py.spark.pyspark_version import check_pyspark
        except ModuleNotFoundError as error:
            raise missing_module_error(error) from None
        check_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rocketmq"

    def schema(self) -> str:
        """Return the source's columns as DDL: all, or those of the option ``columns``."""
        from rocketmq_py.spark.arrow_schema import SOURCE_COLUMNS
        from rocketmq_py.spark.schema import parse_columns, source_ddl

        columns = next((value for name, value in self.options.items() if name.lower() == "columns"), None)
        try:
            return source_ddl(SOURCE_COLUMNS if columns is None else parse_columns(columns))
        except ValueError:
            return source_ddl(SOURCE_COLUMNS)  # the reader reports the mistake, together with all others

    def reader(self, schema: StructType) -> BatchSource:
        """Return the batch source. Raises ConfigurationError for invalid options or a custom schema."""
        from rocketmq_py.spark.source import batch_source

        log_to_stderr()
        return batch_source(schema, self.options)

    def streamReader(self, schema: StructType) -> StreamSource | InvalidStreamSource:  # noqa: N802 - Spark's
        """Return the streaming source.

        Invalid options or a custom schema give a source whose every method raises the ConfigurationError.
        """
        from rocketmq_py.spark.source import stream_source

        log_to_stderr()
        return stream_source(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Return the batch sink.

        Raises ConfigurationError for invalid options, invalid columns and the save mode overwrite.
        """
        from rocketmq_py.spark.sink import batch_sink

        log_to_stderr()
        return batch_sink(schema, self.options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802 - Spark's name
        """Return the streaming sink. Raises ConfigurationError for invalid options or columns.

        In output mode ``complete`` Spark passes the whole result in every batch, and all of it is sent.
        Spark has no output mode ``update`` for Python sinks. A batch write inside ``foreachBatch`` replaces
        it, with a ``jobId`` that contains the batch id.
        """
        from rocketmq_py.spark.sink import stream_sink

        log_to_stderr()
        return stream_sink(schema, self.options)


pickle_by_value(__name__)
