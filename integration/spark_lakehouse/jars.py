"""Spark 4.1 with Delta Lake, Iceberg and Avro: an environment and jars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from integration.clusters import maven
from integration.spark_matrix import python_with

SPARK = "4.1.4"
"""The newest release of the only line that both table formats support."""
DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
AVRO = "org.apache.spark:spark-avro_2.13:4.1.1"
"""The newest of the line 4.1 that could be had. The tests of bodies use it with Spark 4.1.4."""

_DELTA_PARTS = ("delta-storage", "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog")


def spark_python() -> Path:
    """Return the Python of the environment with Spark. Create it if it is missing, which takes minutes."""
    return python_with(SPARK)


def table_jars() -> Sequence[Path]:
    """Return the jars of all formats, without those that Spark has.

    Raises:
        ClusterUnavailableError: they are not cached and cannot be downloaded.
    """
    parts = [f"io.delta:{part}:{DELTA.rpartition(':')[2]}" for part in _DELTA_PARTS]
    folder = maven.jars("tables-spark-4.1", [DELTA, *parts, ICEBERG, AVRO], dependencies=False)
    return sorted(folder.glob("*.jar"))
