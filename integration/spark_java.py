"""Settings that shorten the start of Spark in tests. Most test sessions end before optimized
compilation pays off.

Reading classes takes half of the remaining start of the JVM, so the classes come from an archive:
see :mod:`integration.clusters.archives`. Spark's Python workers import PySpark from where it is
installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from integration.clusters import archives, maven

QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_PROGRAM = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.range(1000).selectExpr("id % 7 AS key").groupBy("key").count().collect()
spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load() \\
    .writeStream.format("noop").trigger(once=True).start().awaitTermination()
spark.stop()
"""


def shorten_spark_start(home: Path) -> None:
    """Shorten the start of every Spark that this process or its children start. Not for benchmarks.

    Args:
        home: the JAVA_HOME that Spark is started with.
    """
    home_of_spark = spark_home()
    os.environ["SPARK_HOME"] = str(home_of_spark)
    java = shutil.which("java")
    # Archives fit only the Java on the PATH.
    has_archive = java is not None and os.path.samefile(java, home / "bin" / "java")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join([*QUICK, *(_archive(home_of_spark) if has_archive else ())])


def spark_home() -> Path:
    """Return a copy of Spark's home without the zip of PySpark, whose modules every process would
    compile again.
    """
    home = Path(sys.prefix) / f"spark-home-{version('pyspark')}"
    if home.exists():
        return home
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    with maven.only_one("spark-home"), tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        draft = Path(scratch) / home.name
        draft.mkdir()
        for entry in Path(pyspark.origin).parent.iterdir():
            if entry.is_dir() and entry.name != "python":
                (draft / entry.name).symlink_to(entry)
        if not home.exists():  # another process may have been faster
            draft.rename(home)
    return home


def _archive(spark_home: Path) -> list[str]:
    return archives.use("spark", archives.class_path(spark_home / "jars"), _make)


def _make(option: str) -> None:
    options = {"SPARK_SUBMIT_OPTS": " ".join([*QUICK, option]), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", _PROGRAM]
    subprocess.run(command, env=os.environ | options, capture_output=True, check=True)
