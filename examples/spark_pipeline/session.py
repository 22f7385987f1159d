"""A small Spark on this machine that keeps quiet: the settings of an example, not of a cluster.

Not run by itself: ``job`` and ``verify`` start it. On a cluster ``spark-submit`` says where and how.
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
    """Start Spark with two threads; its log of errors goes to stderr.

    Args:
        name: the application's name.
        directory: where Spark may leave its settings.
    """
    choose_java()
    # Spark's workers run the first python3 of the PATH otherwise, which may know nothing of rocketmq-py.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault(
        "ROCKETMQ_LOG_LEVEL", "WARNING"
    )  # else a line a batch, which ``progress`` prints here
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
