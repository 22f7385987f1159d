"""What users write as options of the sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import attrs

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.producer.compression import Compression
from rocketmq_py.producer.config import ProducerOptions
from rocketmq_py.protocol.compression import CompressionType
from rocketmq_py.spark.options import (
    SINKS,
    ConnectionOptions,
    Given,
    Option,
    Use,
    boolean,
    duration,
    size,
    text,
)

DEFAULT_GROUP = "SPARK_SINK"
_KINDS = {kind.name.lower(): kind for kind in CompressionType}


def _compression(value: str) -> str:
    if value.strip().lower() not in {"none", *_KINDS}:
        raise ValueError(f"none, {', '.join(_KINDS)}")
    return value.strip().lower()


def _job_id(value: str) -> str:
    if "/" in value:
        raise ValueError("a text without slashes")
    return text(value)


SINK_OPTIONS: tuple[Option, ...] = (
    Option("topic", check_topic, SINKS),
    Option("producerGroup", check_group, SINKS),
    Option("sendTimeout", duration, SINKS),
    Option("retryTimeout", duration, SINKS),
    Option("maxBatchBytes", size, SINKS),
    Option("maxMessageBytes", size, SINKS),
    Option("compression", _compression, SINKS),
    Option("compressOver", size, SINKS),
    Option("stamp", boolean, SINKS),
    Option("jobId", _job_id, frozenset({Use.WRITE})),
)


@attrs.frozen(kw_only=True)
class SinkOptions:
    """How rows become messages; it travels to the workers.

    Args:
        connection: how to reach the cluster.
        topic: ``topic``: where all rows go; it stands above a column ``topic``.
        producer_group: ``producerGroup``: whom brokers take the sink for.
        send_timeout: ``sendTimeout``: seconds for one send with its tries; written as ``3s`` or as a number
            of milliseconds, like all durations here.
        retry_timeout: ``retryTimeout``: seconds for which rows are sent again that no broker takes just now,
            as when one restarts. Then the task fails.
        max_batch_bytes: ``maxBatchBytes``: bytes of the messages that go in one request.
        max_message_bytes: ``maxMessageBytes``: the largest body; brokers refuse more than 4 MiB by default.
        compression: ``compression``: none, zlib, lz4 or zstd.
        compress_over: ``compressOver``: bytes from which on a body is compressed; it then goes in a request
            of its own.
        stamp: ``stamp``: whether each message says which row it is, in the property SPARK_ROW.
        job_id: ``jobId``, of batch writes: stands in the stamps for the job; None makes one. A job that
            failed and is run again with the same id, on the same rows, writes the same stamps.
    """

    connection: ConnectionOptions
    topic: str | None = None
    producer_group: str = DEFAULT_GROUP
    send_timeout: float = 10.0
    retry_timeout: float = 60.0
    max_batch_bytes: int = 64 * 1024
    max_message_bytes: int = 4 * 1024 * 1024
    compression: str = "zlib"
    compress_over: int = 4096
    stamp: bool = True
    job_id: str | None = None

    @classmethod
    def read(cls, options: Mapping[str, str | None], use: Use, others: Sequence[Option] = ()) -> Self:
        """Return what the options say. Raises ConfigurationError with all that is wrong."""
        given = Given(options, use, SINK_OPTIONS, others)
        connection = given.connection()
        largest = given.values.get("max_message_bytes", 4 * 1024 * 1024)
        if given.values.get("max_batch_bytes", 0) > largest:
            given.mistakes.append(f"maxBatchBytes is more than maxMessageBytes, which is {largest}")
        try:
            _as_compression(given.values.get("compression", "zlib"), given.values.get("compress_over", 4096))
        except ConfigurationError as error:
            given.mistakes.append(f"compression: {error}")
        given.check()
        assert connection is not None
        return cls(connection=connection, **given.values)

    def producer_options(self) -> ProducerOptions:
        """Return the keyword arguments for a batching producer, but for its group and its batches' size."""
        return ProducerOptions(
            send_timeout=self.send_timeout,
            max_message_size=self.max_message_bytes,
            compression=_as_compression(self.compression, self.compress_over),
        )


def _as_compression(kind: str, over: int) -> Compression | None:
    return None if kind == "none" else Compression(over, _KINDS[kind])
