"""Settings of producers and batching producers."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from rocketmq_py.arguments import check_integer, flag, instance_of, not_negative, positive
from rocketmq_py.client.config import ClientOptions, trace_topic
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.producer.batch import MAX_BATCHED_MESSAGES
from rocketmq_py.producer.compression import Compression
from rocketmq_py.producer.latency_faults import LatencyFaultPolicy, latency_fault_policy

DEFAULT_GROUP = "DEFAULT_PRODUCER"

RequestForm = Literal["V1", "V2"]


def _request_form(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if value not in ("V1", "V2"):
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be 'V1' or 'V2'")


def _delay_relay(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        if not isinstance(value, str):
            raise ConfigurationError(
                f"{attribute.name} is {value!r}; it must be the name of a topic, or None"
            )
        check_topic(value)


def _positive_or_none(instance: object, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None:
        positive(instance, attribute, value)


def _batch_messages(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    check_integer(value, attribute.name, lowest=1, highest=MAX_BATCHED_MESSAGES)


@attrs.frozen(kw_only=True)
class ProducerConfig:
    """The settings of a producer. The names of Java's ``DefaultMQProducer`` are in brackets.

    Args:
        group: the producer group. Brokers use it to find the producers of a transaction (producerGroup).
        send_timeout: seconds for a send with all its retries (sendMsgTimeout).
        try_timeout: seconds for one attempt, except the last. None lets an attempt use all the remaining time
            (sendMsgMaxTimeoutPerRequest).
        retries: attempts after the first of an awaited send (retryTimesWhenSendFailed).
        retries_pipelined: attempts after the first of a pipelined send (retryTimesWhenSendAsyncFailed).
        retry_another_broker_when_not_store_ok: send a message to another broker too if the first stored it
            less safely than it is configured to (any status but SEND_OK). If the other attempts fail, the
            first result counts (retryAnotherBrokerWhenNotStoreOK).
        latency_faults: avoid brokers that answer late or fail. None or False: off. True or "4.x": the table
            of Java 4.x. "5.x": the table of Java 5.x with its detector. Or a LatencyFaultPolicy
            (sendLatencyFaultEnable).
        compression: how large bodies are compressed. None: they are not.
        trace: True: send a trace record of each message to RMQ_SYS_TRACE_TOPIC in the background, in
            RocketMQ's format. A str: the name of another topic for the records (enableMsgTrace,
            customizedTraceTopic).
        delay_relay: the buffer topic of a relay (``rocketmq-py relay``), which delivers timed messages for
            brokers older than 5.0. The message id of the SendResult cancels such a message. None: no relay.
        request_form: "V2" uses short field names. "V1" is for brokers before 3.2 (sendSmartMsg).
        max_message_size: the largest body in bytes (maxMessageSize). Brokers refuse more than 4 MiB by
            default.
        max_in_flight: pipelined sends that may be in flight. Further ones wait.
        max_in_flight_bytes: bytes of the bodies in flight. A larger body is sent alone.
        close_timeout: seconds for which closing waits for sends in flight.
    """

    group: str = attrs.field(default=DEFAULT_GROUP, converter=check_group)
    send_timeout: float = attrs.field(default=3.0, validator=positive)
    retries: int = attrs.field(default=2, validator=not_negative)
    retries_pipelined: int = attrs.field(default=2, validator=not_negative)
    try_timeout: float | None = attrs.field(default=None, validator=_positive_or_none)
    retry_another_broker_when_not_store_ok: bool = attrs.field(default=False, validator=flag)
    latency_faults: LatencyFaultPolicy | str | bool | None = attrs.field(
        default=None, converter=latency_fault_policy
    )
    compression: Compression | None = attrs.field(
        factory=Compression, validator=attrs.validators.optional(instance_of(Compression))
    )
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    delay_relay: str | None = attrs.field(default=None, validator=_delay_relay)
    request_form: RequestForm = attrs.field(default="V2", validator=_request_form)
    max_message_size: int = attrs.field(default=4 * 1024 * 1024, validator=positive)
    max_in_flight: int = attrs.field(default=1024, validator=positive)
    max_in_flight_bytes: int = attrs.field(default=32 * 1024 * 1024, validator=positive)
    close_timeout: float = attrs.field(default=5.0, validator=positive)


@attrs.frozen(kw_only=True)
class BatchingConfig:
    """How a producer collects batches. The names of Java's ``ProduceAccumulator`` are in brackets.

    Args:
        linger: seconds that a message waits for others (batchMaxDelayMs). With 0, only messages that are sent
            without a pause share a batch.
        max_batch_size: bytes of a batch including properties (batchMaxBytes). A larger message is sent alone.
        max_batch_messages: messages of a batch.
        max_buffered_bytes: bytes of all messages without a result (totalBatchMaxBytes). Further ones wait.
    """

    linger: float = attrs.field(default=0.005, validator=not_negative)
    max_batch_size: int = attrs.field(default=64 * 1024, validator=positive)
    max_batch_messages: int = attrs.field(default=1000, validator=_batch_messages)
    max_buffered_bytes: int = attrs.field(default=8 * 1024 * 1024, validator=positive)


class ProducerOptions(ClientOptions, total=False):
    """The fields of ProducerConfig except ``group``, and those of ClientConfig, as keyword arguments."""

    send_timeout: float
    retries: int
    retries_pipelined: int
    try_timeout: float | None
    retry_another_broker_when_not_store_ok: bool
    latency_faults: LatencyFaultPolicy | str | bool | None
    compression: Compression | None
    trace: bool | str
    delay_relay: str | None
    request_form: RequestForm
    max_message_size: int
    max_in_flight: int
    max_in_flight_bytes: int
    close_timeout: float


class BatchingOptions(ProducerOptions, total=False):
    """The fields of BatchingConfig, of ProducerConfig except ``group``, and of ClientConfig."""

    linger: float
    max_batch_size: int
    max_batch_messages: int
    max_buffered_bytes: int
