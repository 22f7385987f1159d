"""Sending the rows of a data frame as messages."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Unpack

from rocketmq_py.arguments import Duration, check_not_negative, optional, seconds
from rocketmq_py.blocking import Client, Producer
from rocketmq_py.integrations.data_frames.columns import (
    ArrowStream,
    check_columns,
    open_stream,
    plain_batches,
    spark_names,
    with_python_names,
)
from rocketmq_py.names import check_topic
from rocketmq_py.producer.settings import USUAL_LINGER, ProducerOptions
from rocketmq_py.spark.batch_encoder import BatchEncoder
from rocketmq_py.spark.batch_sender import BatchSender
from rocketmq_py.spark.piece_sender import PieceSender
from rocketmq_py.spark.rows import MessageBuilder
from rocketmq_py.spark.sink_task import PIECES_IN_FLIGHT, RowWriter, WriteError

DEFAULT_GROUP = "DATA_FRAMES"


def write_messages(
    frame: ArrowStream,
    topic: str | None = None,
    client: str | Client | None = None,
    *,
    group: str = DEFAULT_GROUP,
    retry_timeout: Duration = 60.0,
    **options: Unpack[ProducerOptions],
) -> int:
    """Send each row as a message, and return the number of rows once all are acknowledged.

    Rows with the same sharding key, or queue, stay in order. Rows may be stored twice after a failure of a
    connection.

    Args:
        frame: the rows, with a column ``body`` (a str is sent as UTF-8) and optional columns: ``topic``,
            ``tags``, ``keys`` (one text with blanks, or a list), ``properties`` (a map, dicts, or lists of
            keys and values), ``flag``, ``sharding_key``, ``queue`` (broker_name and queue_id),
            ``delay_level``, ``deliver_at`` (a time, UTC without a time zone, or epoch milliseconds),
            ``delay`` (a duration), ``priority``. A null in an optional column means none. The other columns
            of :func:`read_messages` are ignored.
        topic: the topic of all rows. None takes it from the column ``topic``.
        client: as for :func:`read_messages`.
        group: the producer group.
        retry_timeout: seconds during which rows are sent again after retriable errors.
        **options: the settings of a Producer, and those of a Client unless one is shared. ``linger`` is
            0.005 by default.

    Raises:
        ConfigurationError: columns are missing, unknown or of an unsupported type (the text lists all
            mistakes), or an option is invalid.
        WriteError: a row could not be sent. The text names the rows, the reasons, and the rows that are
            stored. No row after those in flight is sent.
    """
    optional(check_topic, topic, "topic")
    retry_seconds = check_not_negative(seconds(retry_timeout), "retry_timeout")
    stream = open_stream(frame, "frame")
    names = check_columns(stream.schema, topic)
    options.setdefault("linger", USUAL_LINGER)
    with Producer(client, group=group, **options) as producer:
        try:
            return _writer(producer, topic, names, retry_seconds).write(plain_batches(stream, names)).rows
        except WriteError as error:  # its text names an option, and columns, as Spark writes them
            text = with_python_names(str(error).replace("maxMessageSize", "max_message_size"))
            raise WriteError(text, error.acknowledged, error.rows) from error.__cause__


def _writer(producer: Producer, topic: str | None, names: Iterable[str], retry_timeout: float) -> RowWriter:
    sender = BatchSender(producer)
    compression = producer.settings.compression
    encoder = BatchEncoder(
        topic,
        None,
        max_batch_bytes=producer.settings.max_batch_bytes,
        compress_from=math.inf if compression is None else compression.over,
        new_unique_ids=sender.new_unique_ids,
        queues_of=sender.queues,
    )
    indexes = {name: index for index, name in enumerate(spark_names(names))}
    is_ordered = not indexes.keys().isdisjoint(("shardingKey", "queue"))
    return RowWriter(
        indexes,
        encoder,
        MessageBuilder(topic, None),
        PieceSender(sender, topic, retry_timeout),
        "write_messages",
        pieces_in_flight=1 if is_ordered else PIECES_IN_FLIGHT,
    )
