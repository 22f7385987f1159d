"""Spark queries over one topic, for tests: their rows, their warnings and their errors."""

from __future__ import annotations

import re
import shlex
import sys
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
    """A Spark session, with the log of its Python processes.

    Their stderr is the log file itself. Spark would forward it through a pipe that it closes when it stops a
    process, and on a busy machine it loses the lines that it has not read by then.

    Attributes:
        spark: the session.
    """

    def __init__(self, directory: Path) -> None:
        self._log = directory / "log"
        self._log.touch()
        python = directory / "python"
        python.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@" 2>> {shlex.quote(str(self._log))}\n'
        )
        python.chmod(0o755)
        self.spark: SparkSession = start_spark(directory, python=str(python))

    def logged(self, topic: str) -> list[str]:
        """Return the warnings about a topic, without the time and the logger."""
        lines = re.findall(r" WARNING rocketmq_py\.spark: (.*)", self._log.read_text())
        return [line for line in lines if repr(topic) in line]

    def wait_for_warnings(self, topic: str, *warnings: str) -> None:
        """Wait until the warnings about a topic are exactly these.

        Raises AssertionError after two minutes, with the lines that name the topic.
        """
        try:
            until(lambda: self.logged(topic) == [*warnings], "the warnings")
        except AssertionError as error:
            for line in self._log.read_text().splitlines():
                if topic in line:
                    error.add_note(line)
            raise


def error_text(error: BaseException | None) -> str:
    """Return the text of the RocketMQError that failed a query."""
    found = re.search(r"^rocketmq_py\.\S+: (.*)$", str(error), re.MULTILINE)
    assert found, error
    return found[1]


class Reads:
    """Queries over one topic: a stream with a checkpoint, and batches.

    Attributes:
        numbers: the numbers in the stream's rows, sorted.
        broken: makes the stream's sink fail.
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
        """Start the stream from its checkpoint, and return Spark's query once it is initialized."""
        rows = self._session.spark.readStream.format("rocketmq").options(**self._options | options).load()
        writer = rows.writeStream.foreachBatch(self._collect)
        writer = writer.option("checkpointLocation", str(self._directory))
        if available_now:
            writer = writer.trigger(availableNow=True)
        query = writer.start()
        while _has_timed_out(query):
            query = writer.start()
        return query

    def _collect(self, batch: DataFrame, _: int) -> None:
        if self.broken:
            raise OSError("the sink is broken")
        self._rows += numbers_of(batch)

    def run(self, **options: str) -> list[int]:
        """Read all existing messages with the stream, and return their numbers. Raises Spark's errors."""
        known = len(self._rows)
        query = self.start(available_now=True, **options)
        query.awaitTermination()
        return sorted(self._rows[known:])

    def failure(self, **options: str) -> str:
        """Run the stream, which must fail, and return the error's text."""
        with pytest.raises(Exception, match="STREAM_FAILED") as raised:
            self.run(**options)
        return error_text(raised.value)

    def batch(self, **options: str) -> list[int]:
        """Read a batch, and return its numbers."""
        rows = self._session.spark.read.format("rocketmq").options(**self._options | options).load()
        return sorted(numbers_of(rows))

    def failure_of_batch(self, **options: str) -> str:
        """Read a batch, which must fail, and return the error's text."""
        with pytest.raises(Exception, match="rocketmq_py") as raised:
            self.batch(**options)
        return error_text(raised.value)

    def until(self, query: Any, count: int) -> None:
        """Wait until the stream has ``count`` rows."""
        until(lambda: len(self._rows) >= count or not query.isActive, f"{count} rows: {self.numbers}")
        assert query.isActive, query.exception()


def _has_timed_out(query: Any) -> bool:
    """Wait until a stream is initialized, and return whether its Python process started too slowly."""
    until(lambda: not (query.isActive and query.status["message"].startswith(INITIALIZING)), "it starts")
    return not query.isActive and LATE in str(query.exception())


def numbers_of(rows: DataFrame) -> list[int]:
    return [int(row.body) for row in rows.select("body").collect()]


def until_failed(query: Any) -> str:
    """Wait until a query has failed, and return the error's text."""
    until(lambda: not query.isActive, "the query fails")
    return error_text(query.exception())
