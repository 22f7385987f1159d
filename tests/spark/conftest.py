"""Fixtures of the Spark tests: a local Spark session, and a broker that all of its processes can reach."""

from __future__ import annotations

import itertools
import os
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.command import COMMAND, ENVIRONMENT
from tests.spark.session import java_or_skip, start_spark, stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()
_SPARK_WARNINGS = (
    "unclosed <socket:ResourceWarning",
    "Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
)
"""pyspark before 4.3 leaves closing its sockets to the garbage collector."""
_run = uuid.uuid4().hex[:8]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests that need the session in one process of pytest-xdist, which starts a single JVM."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for warning in _SPARK_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{warning}"))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two threads, shared by all tests. Restore the settings and views you change."""
    java_or_skip()
    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    stop_spark(session)


@pytest.fixture(scope="session")
def broker_address() -> Iterator[str]:
    """The name server address of an embedded broker that runs in a separate process, shared by all tests.

    ROCKETMQ_NAMESRV replaces it by a real one.
    """
    if address := os.environ.get("ROCKETMQ_NAMESRV"):
        yield address
        return
    command = [*COMMAND, "server", "--namesrv-port", "0", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("ready: name server "), line
            yield line.split()[3].rstrip(",")
        finally:
            process.terminate()


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Return a factory of unused topic names. The broker creates a topic on the first send."""
    name = "".join([letter if letter.isalnum() else "_" for letter in request.node.name])[:80]
    return lambda: f"{name}_{_run}_{next(_numbers)}"


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    """An unused topic name."""
    return new_topic()
