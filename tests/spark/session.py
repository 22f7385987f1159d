"""Starting and stopping Spark for tests."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.java_home import NoJavaError, java_home
from integration.spark_java import shorten_spark_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent

_QUIET = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
rootLogger.level = ${env:SPARK_TESTS_LOG:-off}
rootLogger.appenderRef.console.ref = console
"""
"""Logging is off, because Spark logs the errors that tests provoke. SPARK_TESTS_LOG=warn turns it on."""


def java_or_skip() -> Path:
    """Return the Java home for Spark. Without one, skip the test, or fail it if integration is required."""
    try:
        home = java_home()
    except NoJavaError as error:
        if os.environ.get("ROCKETMQ_INTEGRATION") == "required":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    shorten_spark_start(home)
    return home


def start_spark(
    directory: Path, master: str = "local[2]", *, python: str = sys.executable, **settings: str
) -> SparkSession:
    """Start Spark with its files in ``directory``. The workers run ``python`` and can import the tests.

    Raises NoJavaError without a suitable Java.
    """
    return _builder(directory, settings, python).master(master).getOrCreate()


def start_connect(directory: Path, _: str = "") -> SparkSession:
    """Return a Spark Connect session with its own server."""
    return _builder(directory, {}).remote("local[2]").getOrCreate()


def _builder(
    directory: Path, settings: Mapping[str, str], python: str = sys.executable
) -> SparkSession.Builder:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    shorten_spark_start(home)
    # It makes Connect take a free port, and local-cluster use a directory that it removes.
    os.environ["SPARK_TESTING"] = "1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from Spark's own imports
        from pyspark.sql import SparkSession

    log = directory / "log4j2.properties"
    log.write_text(_QUIET)
    java_options = (
        f"-Dlog4j2.configurationFile={log} -Dderby.system.home={directory} "
        f"-Dspark.test.home={os.environ['SPARK_HOME']}"
    )
    builder = SparkSession.builder.appName("rocketmq-py")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        **settings,
    }.items():
        builder = builder.config(name, value)
    return builder


def stop_spark(session: SparkSession) -> None:
    """Stop Spark and its JVM, so that the next session can have other settings."""
    from pyspark import SparkContext

    session.stop()
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()  # the JVM exits once its stdin is closed
        process.wait()
        SparkContext._gateway = SparkContext._jvm = None
