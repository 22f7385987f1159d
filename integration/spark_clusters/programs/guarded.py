"""Copy a topic of brokers that check access, as a batch and as a stream, and print the plans.

    spark-submit … guarded.py NAMESRV SOURCE TARGET DIRECTORY

The keys come from the environment variables ACCESS_KEY, SECRET_KEY and SECURITY_TOKEN. Before the program
ends, it waits until DIRECTORY has a file named LOOKED, so that a test can read the pages of the driver.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from integration.spark_copying import has_timed_out

COPIED = "all copied"
"""The line that the program prints before it waits."""
LOOKED = "looked"


def explain(messages: DataFrame) -> None:
    """Print the plans in every form."""
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        messages.explain(mode=mode)


def main(address: str, source: str, target: str, directory: str) -> None:
    """Copy, print the plans and wait."""
    spark = SparkSession.builder.appName("guarded").getOrCreate()
    options = {
        "nameServer": address,
        "accessKey": os.environ["ACCESS_KEY"],
        "secretKey": os.environ["SECRET_KEY"],
        "securityToken": os.environ["SECURITY_TOKEN"],
    }
    reads, writes = {**options, "topic": source}, {**options, "topic": target}

    messages = spark.read.format("rocketmq").options(**reads).load()
    explain(messages)
    messages.write.format("rocketmq").options(**writes).mode("append").save()

    stream = spark.readStream.format("rocketmq").options(**reads, startingOffsets="earliest").load()
    writer = stream.writeStream.format("rocketmq").options(**writes).queryName("copying")
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True)
    query = writer.start()
    while has_timed_out(query.awaitTermination):
        query = writer.start()
    query.explain(extended=True)
    print(query.lastProgress)

    print(COPIED, flush=True)
    while not (Path(directory) / LOOKED).exists():
        time.sleep(0.1)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
