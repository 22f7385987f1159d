"""Write down which Python runs each part of a data source, as a batch and as a stream.

    spark-submit … interpreters.py DIRECTORY

Each part writes the path of its Python to a file of its name in DIRECTORY.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType


def note(directory: str, part: str) -> None:
    """Write the path of this Python to the file of a part."""
    (Path(directory) / part).write_text(sys.executable)


class Interpreters(DataSource):
    """A source of one row, and a sink."""

    @classmethod
    def name(cls) -> str:
        return "interpreters"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: StructType) -> DataSourceReader:
        return Source(self.options["directory"])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return StreamSource(self.options["directory"])

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Sink(self.options["directory"])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamSink(self.options["directory"])


class Source(DataSourceReader):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def partitions(self) -> list[InputPartition]:
        note(self.directory, "batch planned")
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        note(self.directory, "batch read")
        yield (1,)


class StreamSource(DataSourceStreamReader):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"end": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        note(self.directory, "stream planned")
        return {"end": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        note(self.directory, "stream read")
        yield (1,)

    def commit(self, end: dict[str, int]) -> None:
        pass


class Sink(DataSourceWriter):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        note(self.directory, "batch written")
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        note(self.directory, "batch committed")


class StreamSink(DataSourceStreamWriter):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        note(self.directory, "stream written")
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        note(self.directory, "stream committed")


def main(directory: str) -> None:
    """Run a batch and a stream."""
    note(directory, "program")
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(Interpreters)
    options = {"directory": directory}
    rows = spark.read.format("interpreters").options(**options).load()
    rows.write.format("interpreters").options(**options).mode("append").save()
    stream = spark.readStream.format("interpreters").options(**options).load()
    writer = stream.writeStream.format("interpreters").options(**options)
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    writer.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
