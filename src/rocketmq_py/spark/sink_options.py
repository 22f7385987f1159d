"""The options of the sink, batch and streaming."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Self

import attrs

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.producer.compression import Compression
from rocketmq_py.producer.settings import ProducerOptions, ProducerSettings
from rocketmq_py.protocol.compression import CompressionType
from rocketmq_py.spark.options import (
    SINKS,
    ConnectionOptions,
    Option,
    ParsedOptions,
    Role,
    boolean,
    duration,
    size,
    text,
)

DEFAULT_GROUP = "SPARK_SINK"
DEFAULT_MAX_BATCH_BYTES = ProducerSettings().max_batch_bytes
DEFAULT_MAX_MESSAGE_SIZE = ProducerSettings().max_message_size
DEFAULT_COMPRESSION = Compression().kind.name.lower()
DEFAULT_COMPRESS_OVER = Compression().over

_COMPRESSION_TYPES = {kind.name.lower(): kind for kind in CompressionType}


def _compression(value: str) -> str:
    if value.strip().lower() not in {"none", *_COMPRESSION_TYPES}:
        raise ValueError(f"none, {', '.join(_COMPRESSION_TYPES)}")
    return value.strip().lower()


def _job_id(value: str) -> str:
    if "/" in value:
        raise ValueError("a text without slashes")
    return text(value)


def _on_error(value: str) -> str:
    if value.strip().lower() not in ("fail", "deadletter"):
        raise ValueError("fail or deadLetter")
    return value.strip().lower()


SINK_OPTIONS: tuple[Option, ...] = (
    Option("topic", check_topic, SINKS),
    Option("producerGroup", check_group, SINKS),
    Option("sendTimeout", duration, SINKS),
    Option("retryTimeout", duration, SINKS),
    Option("maxBatchBytes", size, SINKS),
    Option("maxMessageSize", size, SINKS),
    Option("compression", _compression, SINKS),
    Option("compressOver", size, SINKS),
    Option("startDeliverTime", boolean, SINKS),
    Option("onError", _on_error, SINKS),
    Option("deadLetterTopic", check_topic, SINKS),
    Option("stamp", boolean, SINKS),
    Option("jobId", _job_id, frozenset({Role.BATCH_SINK})),
)


@attrs.frozen(kw_only=True)
class SinkOptions:
    """The parsed options of a sink. Spark pickles them to its workers.

    Args:
        connection: how to reach the cluster.
        topic: ``topic``: the topic of all rows. It overrides a column ``topic``.
        producer_group: ``producerGroup``: the producer group that the sink sends with.
        send_timeout: ``sendTimeout``: seconds for one send including its retries, written ``3s`` or as a
            number of milliseconds like all durations here.
        retry_timeout: ``retryTimeout``: seconds during which rows are sent again after retriable errors, such
            as a restart of their broker. Then the task fails.
        max_batch_bytes: ``maxBatchBytes``: the maximum size of one send request. Default: ``64k``, or
            ``maxMessageSize`` if that is less.
        max_message_size: ``maxMessageSize``: the maximum size of a body. Brokers refuse more than 4 MiB by
            default.
        compression: ``compression``: none, zlib, lz4 or zstd.
        compress_over: ``compressOver``: bodies of at least this size are compressed, and sent in a request of
            their own.
        start_deliver_time: ``startDeliverTime``: send delivery times also as ``__STARTDELIVERTIME``, by which
            some managed services deliver. Default: if the address is of such a service.
        dead_letter_topic: ``deadLetterTopic``: with ``onError`` deadLetter, the topic of dead letters: rows
            that are invalid, or that a broker refuses for themselves. None, with ``onError`` fail, lets them
            fail their task.
        stamp: ``stamp``: whether each message carries its row's stamp in the property SPARK_ROW.
        job_id: ``jobId``, batch only: the job's id in the stamps. Default: a random one. A failed job that is
            run again with the same id, on the same rows, writes the same stamps.
    """

    connection: ConnectionOptions
    topic: str | None = None
    producer_group: str = DEFAULT_GROUP
    send_timeout: float = 10.0
    retry_timeout: float = 60.0
    max_batch_bytes: int = DEFAULT_MAX_BATCH_BYTES
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    compression: str = DEFAULT_COMPRESSION
    compress_over: int = DEFAULT_COMPRESS_OVER
    start_deliver_time: bool | None = None
    dead_letter_topic: str | None = None
    stamp: bool = True
    job_id: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str | None], role: Role, *, others: Sequence[Option] = ()) -> Self:
        """Parse a user's options.

        Args:
            options: as Spark passes them. Names are compared without case.
            role: BATCH_SINK or STREAM_SINK.
            others: the source's options, so that a misplaced one is reported as such.

        Raises:
            ConfigurationError: the options are invalid. The text lists all mistakes.
        """
        parsed = ParsedOptions(options, role, SINK_OPTIONS, others)
        connection = parsed.pop_connection()
        values = parsed.values
        max_message_size = values.get("max_message_size", DEFAULT_MAX_MESSAGE_SIZE)
        max_batch_bytes = values.setdefault("max_batch_bytes", min(DEFAULT_MAX_BATCH_BYTES, max_message_size))
        if max_batch_bytes > max_message_size:
            parsed.mistakes.append(
                f"maxBatchBytes is {max_batch_bytes}, which is above maxMessageSize, {max_message_size}"
            )
        _check_dead_letters(parsed)
        try:
            _compression_config(
                values.get("compression", DEFAULT_COMPRESSION),
                values.get("compress_over", DEFAULT_COMPRESS_OVER),
            )
        except ConfigurationError as error:
            parsed.mistakes.append(f"compression: {error}")
        parsed.check()
        assert connection is not None
        return cls(connection=connection, **values)

    @property
    def compress_from(self) -> float:
        """The size from which on a body is compressed, infinite without compression."""
        return math.inf if self.compression == "none" else self.compress_over

    def producer_options(self) -> ProducerOptions:
        """Return the keyword arguments of a producer, except its group and those of batches."""
        return ProducerOptions(
            send_timeout=self.send_timeout,
            max_message_size=self.max_message_size,
            compression=_compression_config(self.compression, self.compress_over),
            start_deliver_time=self.start_deliver_time,
        )


def _check_dead_letters(parsed: ParsedOptions) -> None:
    """Remove ``onError`` from the values, and report a topic of dead letters that it does not go with."""
    is_wanted = parsed.values.pop("on_error", "fail") == "deadletter"
    topic = parsed.values.get("dead_letter_topic")
    if is_wanted and topic is None:
        parsed.mistakes.append("onError is deadLetter, which needs deadLetterTopic")
    elif topic is not None and not is_wanted:
        parsed.mistakes.append("deadLetterTopic needs onError deadLetter")
    elif topic is not None and topic == parsed.values.get("topic"):
        parsed.mistakes.append(f"deadLetterTopic is {topic}, which is also the topic; set another one")


def _compression_config(kind: str, over: int) -> Compression | None:
    return None if kind == "none" else Compression(over, _COMPRESSION_TYPES[kind])
