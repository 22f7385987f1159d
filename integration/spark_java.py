"""What Spark's Java is told in tests: most of those end before it would pay to compile them well.

Half of what is left of a start is reading classes, so they come from an archive: see
:mod:`integration.clusters.archives`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from integration.clusters import archives

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1000).selectExpr("id % 7 AS key").groupBy("key").count().collect()
spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load() \\
    .writeStream.format("noop").trigger(once=True).start().awaitTermination()
spark.stop()
"""


def hurry(home: Path) -> None:
    """Let each Spark that this process starts, or what it starts, be quick to begin; not for who measures it.

    Args:
        home: the JAVA_HOME that it is started with.
    """
    java = shutil.which("java")
    # Archives are of the Java on the PATH.
    has_archive = java is not None and os.path.samefile(java, home / "bin" / "java")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*QUICK, *(_archive() if has_archive else ())])


def _archive() -> list[str]:
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    return archives.use("spark", archives.class_path(Path(pyspark.origin).parent / "jars"), _make)


def _make(option: str) -> None:
    options = {"SPARK_SUBMIT_OPTS": " ".join([*QUICK, option]), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", _PROGRAM]
    subprocess.run(command, env=os.environ | options, capture_output=True, check=True)
