"""Dropping the messages that a Spark sink sent twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.stamps import STAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDED = ("properties", "topic", "brokerName", "queueId", "queueOffset")
_KEY = "__rocketmq_stamp"
_SEEN = "__rocketmq_seen"


def deduplicate(messages: DataFrame, *, within: str | None = None) -> DataFrame:
    """Keep one message of each stamp that a Spark sink wrote; all messages without a stamp are kept.

    Two messages have the same stamp if they hold the same row of the same batch of the same query: one was
    sent again by a task that failed and ran again, or by a query that was restarted. Which of them is kept
    is open. Rows that are numbered have to come in the same order when a batch is replayed: that is so from
    a source to a sink without a shuffle between. Behind a shuffle (groupBy, join, repartition) their order
    may change, and the sink needs a column ``rowId``, which is unique in its batch.

    In a stream the stamps are state. ``within`` bounds it: a stamp is forgotten that long after its first
    message was read. So it must be longer than the query that writes may be down between a failure and its
    restart, and no message is dropped for being late. Batches of ``foreachBatch`` are batches: there each
    one is deduplicated by itself.

    Args:
        messages: what the source gives, with at least its columns properties, topic, brokerName, queueId
            and queueOffset; a batch or a stream.
        within: how long a stream remembers a stamp, as Spark writes it: ``"2 hours"``. None remembers each
            for ever, and the state grows with the stream. Batches do not look at it.

    Returns:
        the same columns.

    Raises:
        ConfigurationError: one of these columns is missing.
    """
    from pyspark.sql import functions as f

    missing = [name for name in _NEEDED if name not in messages.columns]
    if missing:
        raise ConfigurationError(
            f"deduplicate needs the source's columns {', '.join(_NEEDED)}; there is no {', '.join(missing)}"
        )
    place = f.concat_ws("/", *[f.col(name).cast("string") for name in _NEEDED[1:]])
    stamped = messages.withColumn(_KEY, f.coalesce(f.col("properties")[STAMP], place))
    if within is None or not messages.isStreaming:
        return stamped.dropDuplicates([_KEY]).drop(_KEY)
    # The time of reading and not that of storing: a queue that lags would be later than the watermark.
    seen = stamped.withColumn(_SEEN, f.current_timestamp()).withWatermark(_SEEN, within)
    return seen.dropDuplicatesWithinWatermark([_KEY]).drop(_KEY, _SEEN)
