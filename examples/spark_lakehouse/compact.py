"""Merge the small files that a stream has written. Run it once a day; the stream may run meanwhile.

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0 \\
        examples/spark_lakehouse/compact.py delta TABLE
    spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 \\
        examples/spark_lakehouse/compact.py iceberg WAREHOUSE

It does not expire snapshots of Iceberg: the newest snapshot of a stream keeps its batch from being repeated.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def compact_delta(path: str) -> None:
    """Compact a table by its path."""
    spark = (
        SparkSession.builder.appName("compact a Delta table")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    spark.sql(f"OPTIMIZE delta.`{path}`").selectExpr(
        "metrics.numFilesRemoved", "metrics.numFilesAdded"
    ).show()


def compact_iceberg(warehouse: str) -> None:
    """Compact the table lake.shop.orders."""
    spark = (
        SparkSession.builder.appName("compact an Iceberg table")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", warehouse)
        # For CALL.
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .getOrCreate()
    )
    # By default, Iceberg leaves a day that has fewer than five small files as it is.
    options = "map('min-input-files', '2')"
    spark.sql(f"CALL lake.system.rewrite_data_files(table => 'shop.orders', options => {options})").show()


if __name__ == "__main__":
    compactions = {"delta": compact_delta, "iceberg": compact_iceberg}
    if len(sys.argv) != 3 or sys.argv[1] not in compactions:
        sys.exit("usage: compact.py delta TABLE, or compact.py iceberg WAREHOUSE")
    compactions[sys.argv[1]](sys.argv[2])
