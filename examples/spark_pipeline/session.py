"""A Spark session for ``job`` and ``verify``: local with little output, or the one of ``spark-submit``.

This module is not a program. The settings of the local session suit an example.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from integration.java_home import choose_java

QUIET = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
"""


def start_spark(name: str, directory: Path) -> SparkSession:
    """Start Spark with two threads, and log errors to stderr. Under ``spark-submit``, its options decide.

    Args:
        name: the application's name.
        directory: the directory for Spark's log settings. Created if it is missing.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM
        directory.mkdir(parents=True, exist_ok=True)
        return SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC").getOrCreate()
    choose_java()
    # By default Spark's workers run the first python3 on the PATH, which may lack rocketmq-py.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # At the default level INFO, the format logs a line per batch. ``progress`` prints those lines here.
    os.environ.setdefault("ROCKETMQ_LOG_LEVEL", "WARNING")
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "log4j2.properties"
    log.write_text(QUIET)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log} -XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "30s",
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
