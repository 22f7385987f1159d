"""A Spark of the tests' own, and a broker that all of its processes reach."""

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
_OF_SPARK = (
    "unclosed <socket:ResourceWarning",
    "Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
)
"""pyspark before 4.3 leaves sockets to the garbage collector."""
_run = uuid.uuid4().hex[:8]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process of pytest-xdist run all tests that need the session: it is one JVM, not one a core."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for warning in _OF_SPARK:
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{warning}"))
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two threads, which all tests share: leave its settings and views as they were."""
    java_or_skip()
    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    stop_spark(session)


@pytest.fixture(scope="session")
def broker_address() -> Iterator[str]:
    """The name server of an embedded broker in a process of its own, which all tests share.

    ROCKETMQ_NAMESRV names a real one in its place.
    """
    if address := os.environ.get("ROCKETMQ_NAMESRV"):
        yield address
        return
    command = [*COMMAND, "broker", "--namesrv-port", "0", "--port", "0"]
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
    """Return names of topics that nobody has used; the broker makes a topic when it is first sent to."""
    name = "".join([letter if letter.isalnum() else "_" for letter in request.node.name])[:80]
    return lambda: f"{name}_{_run}_{next(_numbers)}"


@pytest.fixture
def topic(new_topic: Callable[[], str]) -> str:
    """The name of a topic that nobody has used."""
    return new_topic()
