"""Spark queries over one topic, with the numbers of their rows, what they log, and why they fail."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.clusters.cluster import Cluster
from integration.operating import until
from integration.spark_copying import LATE
from tests.spark.session import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


INITIALIZING = "Initializing"


class Session:
    """A Spark session, and what it and its processes have logged.

    Attributes:
        spark: the session.
    """

    def __init__(self, directory: Path) -> None:
        self._log = directory / "log"
        before = os.dup(2)
        with self._log.open("wb") as log:
            os.dup2(log.fileno(), 2)  # the JVM takes it for its own, and hands on what Python says
            try:
                self.spark: SparkSession = start_spark(directory)
            finally:
                os.dup2(before, 2)
                os.close(before)

    def logged(self, topic: str) -> list[str]:
        """Return the warnings about a topic, without when and where."""
        lines = re.findall(r" WARNING rocketmq_py\.spark: (.*)", self._log.read_text())
        return [line for line in lines if repr(topic) in line]

    def wait_for_warnings(self, topic: str, *warnings: str) -> None:
        """Wait until these, and no others, have been logged about a topic: Spark brings them a while later.

        Raises AssertionError after two minutes, with the lines that name the topic.
        """
        try:
            until(lambda: self.logged(topic) == [*warnings], "the warnings")
        except AssertionError as error:
            for line in self._log.read_text().splitlines():
                if topic in line:
                    error.add_note(line)
            raise


def why(error: BaseException | None) -> str:
    """Return the line of a failed query that tells its user why: what this package has raised."""
    found = re.search(r"^rocketmq_py\.\S+: (.*)$", str(error), re.MULTILINE)
    assert found, error
    return found[1]


class Reads:
    """Queries over one topic: streams, which go on from their checkpoint, and batches.

    Attributes:
        numbers: of the rows that streams have brought, sorted.
        broken: whether what takes the rows fails.
    """

    def __init__(self, session: Session, cluster: Cluster, topic: str, directory: Path) -> None:
        self._session = session
        self._options = {"nameServer": cluster.name_servers, "topic": topic, "startingOffsets": "earliest"}
        self._options |= {"routeRefreshInterval": "500ms"}
        self._directory = directory
        self._rows: list[int] = []
        self.broken = False

    @property
    def numbers(self) -> list[int]:
        return sorted(self._rows)

    def start(self, *, available_now: bool = False, **options: str) -> Any:
        """Start the stream, or go on with it, and return Spark's query, which has its Python."""
        rows = self._session.spark.readStream.format("rocketmq").options(**self._options | options).load()
        writer = rows.writeStream.foreachBatch(self._keep)
        writer = writer.option("checkpointLocation", str(self._directory))
        if available_now:
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        while _is_late(query):
            query = writer.start()
        return query

    def _keep(self, batch: DataFrame, _: int) -> None:
        if self.broken:
            raise OSError("the sink is broken")
        self._rows += numbers_of(batch)

    def run(self, **options: str) -> list[int]:
        """Read what is there, and return its numbers. Raises what Spark does."""
        known = len(self._rows)
        query = self.start(available_now=True, **options)
        query.awaitTermination()
        return sorted(self._rows[known:])

    def failure(self, **options: str) -> str:
        """Do the same, and return why it fails."""
        with pytest.raises(Exception, match="STREAM_FAILED") as raised:
            self.run(**options)
        return why(raised.value)

    def batch(self, **options: str) -> list[int]:
        """Read once, and return the numbers."""
        rows = self._session.spark.read.format("rocketmq").options(**self._options | options).load()
        return sorted(numbers_of(rows))

    def failure_of_batch(self, **options: str) -> str:
        """Do the same, and return why it fails."""
        with pytest.raises(Exception, match="rocketmq_py") as raised:
            self.batch(**options)
        return why(raised.value)

    def until(self, query: Any, count: int) -> None:
        """Wait until there are so many rows."""
        until(lambda: len(self._rows) >= count or not query.isActive, f"{count} rows: {self.numbers}")
        assert query.isActive, query.exception()


def _is_late(query: Any) -> bool:
    """Wait until a stream has begun or failed, and return whether it is to be started again."""
    until(lambda: not (query.isActive and query.status["message"].startswith(INITIALIZING)), "it begins")
    return not query.isActive and LATE in str(query.exception())


def numbers_of(rows: DataFrame) -> list[int]:
    return [int(row.body) for row in rows.select("body").collect()]


def until_failed(query: Any) -> str:
    """Wait until a query has failed, and return why."""
    until(lambda: not query.isActive, "the query fails")
    return why(query.exception())
