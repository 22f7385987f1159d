"""A batching producer's settings."""

from __future__ import annotations

from typing import Any

import attrs

from rocketmq_py.arguments import check_integer, not_negative, positive
from rocketmq_py.producer.batch import MAX_BATCHED_MESSAGES
from rocketmq_py.producer.config import ProducerOptions


def _countable(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Accept a number of messages that brokers can count."""
    check_integer(value, attribute.name, lowest=1, highest=MAX_BATCHED_MESSAGES)


@attrs.frozen(kw_only=True)
class BatchingConfig:
    """How a producer makes batches. Java: ``ProduceAccumulator``, whose names stand in brackets.

    Args:
        linger: seconds that a message waits for others (batchMaxDelayMs); with 0, only what is sent without
            a pause goes together.
        max_batch_size: bytes of a batch with the messages' properties (batchMaxBytes). A larger message goes
            alone.
        max_batch_messages: messages of a batch.
        max_buffered_bytes: bytes of all messages that have no result yet (totalBatchMaxBytes); further ones
            wait.
    """

    linger: float = attrs.field(default=0.005, validator=not_negative)
    max_batch_size: int = attrs.field(default=64 * 1024, validator=positive)
    max_batch_messages: int = attrs.field(default=1000, validator=_countable)
    max_buffered_bytes: int = attrs.field(default=8 * 1024 * 1024, validator=positive)


class BatchingOptions(ProducerOptions, total=False):
    """The fields of BatchingConfig, of ProducerConfig but ``group``, and of ClientConfig."""

    linger: float
    max_batch_size: int
    max_batch_messages: int
    max_buffered_bytes: int
