"""The Spark session of the benchmarks: two threads, the JVM's default compiler, and no log."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from integration.java_home import java_home
from rocketmq_py.spark import connections
from tests.spark.session import stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def spark_session() -> Iterator[tuple[SparkSession, Path]]:
    """Start Spark. Yields the session and a directory for checkpoints. Raises NoJavaError without Java."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["ROCKETMQ_LOG_LEVEL"] = "WARNING"
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="spark-benchmark-") as name:
        directory = Path(name)
        log = directory / "log4j2.properties"
        log.write_text("status = error\nrootLogger.level = off\n")
        builder = SparkSession.builder.master("local[2]").appName("rocketmq-py's benchmark")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log}",
            "spark.sql.session.timeZone": "UTC",
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
        }.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        try:
            yield session, directory
        finally:
            connections.close_all()
            stop_spark(session)


def jvm_of(session: SparkSession) -> int:
    """Return the id of the session's JVM."""
    gateway = session.sparkContext._gateway
    assert gateway is not None
    process: int = gateway.proc.pid
    return process
