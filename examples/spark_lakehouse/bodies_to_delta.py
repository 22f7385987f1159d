"""Store orders in JSON and Avro in a Delta table, and the bodies that are no orders in another one.

    spark-submit --packages io.delta:delta-spark_4.1_2.13:4.4.0,org.apache.spark:spark-avro_2.13:4.1.1 \
        examples/spark_lakehouse/bodies_to_delta.py NAMESRV TOPIC ORDERS DEAD_LETTERS CHECKPOINT [--drain]

The property contentType of a message says how its body is encoded. Both tables get each message exactly once:
Delta stores the number of the batch in the same commit as the rows, and ignores a batch that it has already.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.avro.functions import from_avro

from examples.spark_lakehouse.orders import POSITION, read_topic

JSON, AVRO = "application/json", "application/avro"
ORDER = "id STRING, product STRING, quantity INT, placed TIMESTAMP"
COLUMNS = ("id", "product", "quantity", "placed")
AVRO_ORDER = """
    {"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "string"},
        {"name": "product", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}
"""


def parse_bodies(messages: DataFrame) -> DataFrame:
    """Return the orders, and the reason why a message is none, or null. Invalid bodies give nulls."""
    kind = f.coalesce(f.col("properties")["contentType"], f.lit(JSON))
    order = f.when(kind == JSON, f.from_json(f.col("body").cast("string"), ORDER)).when(
        kind == AVRO, from_avro("body", AVRO_ORDER, {"mode": "PERMISSIVE"})
    )
    parsed = messages.select(*POSITION, "body", kind.alias("kind"), order.alias("order"))
    missing = f.concat_ws(", ", *[f.when(parsed["order"][name].isNull(), f.lit(name)) for name in COLUMNS])
    reason = (
        f.when(~f.col("kind").isin(JSON, AVRO), f.concat(f.lit("unknown contentType "), "kind"))
        .when(missing == ", ".join(COLUMNS), f.concat(f.lit("no order in "), "kind"))
        .when(missing != "", f.concat(f.lit("missing or invalid: "), missing))
    )
    return parsed.withColumn("reason", reason)


def store(parsed: DataFrame, batch: int, orders: str, dead_letters: str) -> None:
    """Append the rows of a batch to both tables."""
    parsed.persist()
    # The query's id is stored in its checkpoint. A new checkpoint begins with a new id and with batch 0.
    query = parsed.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    accepted = parsed.where("reason IS NULL").select(*POSITION, "order.*")
    rejected = parsed.where("reason IS NOT NULL").select(*POSITION, "body", "reason")
    for rows, table in ((accepted, orders), (rejected, dead_letters)):
        writer = rows.write.format("delta").mode("append")
        writer.option("txnAppId", query).option("txnVersion", batch).save(table)
    parsed.unpersist()


def main() -> None:
    """Run until the program is stopped, or with ``--drain`` until all existing messages are stored.

    On Spark 4.1, ``--drain`` ends after one batch, which has at most 100,000 messages.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="name servers, host:port;host:port")
    parser.add_argument("topic")
    parser.add_argument("orders", help="path of the table of orders")
    parser.add_argument("dead_letters", help="path of the table of other bodies")
    parser.add_argument("checkpoint", help="path of the checkpoint")
    parser.add_argument("--drain", action="store_true", help="end once existing messages are stored")
    arguments = parser.parse_args()

    spark = (
        SparkSession.builder.appName("bodies to Delta")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    writer = (
        parse_bodies(read_topic(spark, arguments.address, arguments.topic))
        .writeStream.foreachBatch(
            lambda parsed, batch: store(parsed, batch, arguments.orders, arguments.dead_letters)
        )
        .option("checkpointLocation", arguments.checkpoint)
    )
    if arguments.drain:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
