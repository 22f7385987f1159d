"""Run SQL statements on tables of both formats, and print the rows of each as a line of JSON.

    spark-submit integration/spark_lakehouse/sql.py WAREHOUSE STATEMENT...

Delta tables are named delta.`path`, and Iceberg tables of the catalog in WAREHOUSE lake.database.table.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

MARK = "rows: "


def main(warehouse: str, *statements: str) -> None:
    """Run the statements in their order."""
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    spark = (
        SparkSession.builder.appName("sql")
        .config("spark.sql.extensions", ",".join(extensions))
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", warehouse)
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    for statement in statements:
        rows = [row.asDict(recursive=True) for row in spark.sql(statement).collect()]
        print(MARK + json.dumps(rows, default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
