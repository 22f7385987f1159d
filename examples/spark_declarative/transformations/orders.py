"""The tables and flows of the pipeline. ``spark-pipeline.yml`` shows how to run it."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Read the topic Orders. Without the option nameServer, NAMESRV_ADDR is used."""
    source = (
        spark.readStream.format("rocketmq").option("topic", "Orders").option("startingOffsets", "earliest")
    )
    return source.load().selectExpr("cast(body AS string) AS body", "keys", "storeTimestamp")


dp.create_sink("shouted", "rocketmq", {"topic": "ShoutedOrders"})


@dp.append_flow(target="shouted")
def shout() -> DataFrame:
    """Write each order in capitals to the topic ShoutedOrders."""
    return spark.readStream.table("orders").selectExpr("upper(body) AS body", "keys")
