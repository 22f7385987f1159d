"""The format ``rocketmq``, as Spark asks for its parts.

Spark imports this in every session that uses any Python data source: what is heavy is imported when it is
asked for, and nothing here fails for a Spark that is too old before this format is used.

The class travels as code, so that a Python that lacks this package can say so.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from rocketmq_py.spark.arriving import lacking, travels_as_code

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rocketmq_py.spark.batch_source import BatchSource
    from rocketmq_py.spark.refusing import RefusedStream
    from rocketmq_py.spark.sink import BatchSink, StreamSink
    from rocketmq_py.spark.stream_source import StreamSource


class RocketMQDataSource(DataSource):
    """``format("rocketmq")``: topics as tables, to read and to append to, in batches and streams.

    What comes out of it: :data:`rocketmq_py.spark.schema.SOURCE_SCHEMA`; what goes in:
    :data:`rocketmq_py.spark.sink_columns.SINK_COLUMNS`; the options: :class:`SourceOptions` and
    :class:`SinkOptions`.

    Raises:
        ConfigurationError: Spark is older than 4.1.
        ModuleNotFoundError: Spark's Python lacks this package; the text says which one that is.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        try:
            from rocketmq_py.spark.registration import check_pyspark
        except ModuleNotFoundError as error:
            raise lacking(error) from None
        check_pyspark()
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return what users write as the format."""
        return "rocketmq"

    def schema(self) -> str:
        """Return the columns of the source."""
        from rocketmq_py.spark.schema import SOURCE_SCHEMA

        return SOURCE_SCHEMA

    def reader(self, schema: StructType) -> BatchSource:
        """Return what reads ranges of topics once. Raises ConfigurationError for options or a schema."""
        from rocketmq_py.spark.batch_source import BatchSource
        from rocketmq_py.spark.logs import show_log
        from rocketmq_py.spark.options import Use
        from rocketmq_py.spark.schema import check_schema
        from rocketmq_py.spark.sink_options import SINK_OPTIONS
        from rocketmq_py.spark.source_options import SourceOptions

        show_log()
        check_schema(schema)
        return BatchSource(SourceOptions.read(self.options, Use.READ, others=SINK_OPTIONS))

    def streamReader(self, schema: StructType) -> StreamSource | RefusedStream:  # noqa: N802 - Spark's name
        """Return what reads topics on and on; where options are wrong, or a schema, what says so."""
        from rocketmq_py.errors import ConfigurationError
        from rocketmq_py.spark.logs import show_log
        from rocketmq_py.spark.options import Use
        from rocketmq_py.spark.refusing import RefusedStream
        from rocketmq_py.spark.schema import check_schema
        from rocketmq_py.spark.sink_options import SINK_OPTIONS
        from rocketmq_py.spark.source_options import SourceOptions
        from rocketmq_py.spark.stream_source import StreamSource

        show_log()
        try:
            check_schema(schema)
            options = SourceOptions.read(self.options, Use.READ_STREAM, others=SINK_OPTIONS)
        except ConfigurationError as error:
            return RefusedStream(str(error))
        return StreamSource(options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Return what appends rows to topics once.

        Raises ConfigurationError for wrong options, wrong columns, and for the save mode overwrite.
        """
        from rocketmq_py.spark.logs import show_log
        from rocketmq_py.spark.options import Use
        from rocketmq_py.spark.sink import batch_sink
        from rocketmq_py.spark.sink_options import SinkOptions
        from rocketmq_py.spark.source_options import SOURCE_OPTIONS

        show_log()
        options = SinkOptions.read(self.options, Use.WRITE, others=SOURCE_OPTIONS)
        return batch_sink(schema, options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802 - Spark's name
        """Return what appends the rows of every batch. Raises ConfigurationError for options or columns.

        In the output mode complete Spark hands over the whole result every time; all of it is sent. Spark
        has no mode update for Python sinks: a batch write within foreachBatch does that, with a ``jobId``
        made of the batch's number.
        """
        from rocketmq_py.spark.logs import show_log
        from rocketmq_py.spark.options import Use
        from rocketmq_py.spark.sink import stream_sink
        from rocketmq_py.spark.sink_options import SinkOptions
        from rocketmq_py.spark.source_options import SOURCE_OPTIONS

        show_log()
        options = SinkOptions.read(self.options, Use.WRITE_STREAM, others=SOURCE_OPTIONS)
        return stream_sink(schema, options)


travels_as_code(__name__)
