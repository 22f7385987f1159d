"""Settings of producers."""

from __future__ import annotations

from typing import Any, TypedDict

import attrs

from rocketmq_py.arguments import (
    BYTES,
    Duration,
    flag,
    instance_of,
    not_negative,
    positive,
    seconds,
    seconds_or_none,
)
from rocketmq_py.client.settings import ClientOptions, trace_topic
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.producer.compression import Compression
from rocketmq_py.producer.latency_faults import LatencyFaultPolicy

DEFAULT_GROUP = "DEFAULT_PRODUCER"
USUAL_LINGER = 0.005
"""Seconds. The ``linger`` of integrations and commands that send many messages."""


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


@attrs.frozen(kw_only=True)
class ProducerSettings:
    """The settings of a producer. The names of Java's ``DefaultMQProducer`` are in brackets.

    Args:
        group: the producer group. Brokers use it to find the producers of a transaction (producerGroup).
        send_timeout: seconds for a send with all its retries (sendMsgTimeout).
        try_timeout: seconds for one attempt, except the last. None lets an attempt use all the remaining time
            (sendMsgMaxTimeoutPerRequest).
        retries: attempts after the first of a send (retryTimesWhenSendFailed,
            retryTimesWhenSendAsyncFailed).
        latency_faults: avoid brokers that answer late or fail, by this policy, such as
            ``LatencyFaultPolicy.JAVA_5``. None: do not (sendLatencyFaultEnable).
        compression: how large bodies are compressed. None: they are not.
        trace: True: send a trace record of each message to RMQ_SYS_TRACE_TOPIC in the background, in
            RocketMQ's format (enableMsgTrace). "cloud": to the topics of a managed service,
            ``rmq_sys_TRACE_DATA_`` and the region that the broker names (accessChannel). Another str: the
            name of the topic for the records, which cannot be "cloud" (customizedTraceTopic).
        delay_relay: the buffer topic of a relay (``rocketmq-py relay``), which delivers timed messages for
            brokers older than 5.0. The message id of the SendResult cancels such a message. None: no relay.
        start_deliver_time: send the time of timed messages also as the property ``__STARTDELIVERTIME``, by
            which some managed services deliver them, whatever the version of their brokers. The relay is not
            used then. None: if the address is of such a service (``*.aliyuncs.com``, ``*.tencenttdmq.com``).
        max_message_size: the largest body in bytes (maxMessageSize). Brokers refuse more than 4 MiB by
            default.
        max_in_flight: pipelined sends that may be in flight. Further ones wait. Not for messages in batches.
        max_in_flight_bytes: bytes of the bodies in flight, and of all messages that were collected for
            batches and have no result (totalBatchMaxBytes). Further ones wait. A larger one is sent alone.
        close_timeout: seconds without a result after which closing gives up the sends in flight. It waits for
            as long as results arrive.
        linger: seconds that a message waits for others in a batch (batchMaxDelayMs). None: each message is
            sent at once, in a request of its own (autoBatch). 0: only messages that are sent without a pause
            share a batch.
        max_batch_bytes: bytes of a batch including properties (batchMaxBytes). A larger message is sent
            alone. Only with ``linger``.
    """

    group: str = attrs.field(default=DEFAULT_GROUP, converter=check_group)
    send_timeout: float = attrs.field(default=3.0, converter=seconds, validator=positive)
    retries: int = attrs.field(default=2, validator=not_negative)
    try_timeout: float | None = attrs.field(
        default=None, converter=seconds_or_none, validator=_positive_or_none
    )
    latency_faults: LatencyFaultPolicy | None = attrs.field(
        default=None, validator=attrs.validators.optional(instance_of(LatencyFaultPolicy))
    )
    compression: Compression | None = attrs.field(
        factory=Compression, validator=attrs.validators.optional(instance_of(Compression))
    )
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    delay_relay: str | None = attrs.field(default=None, validator=_delay_relay)
    start_deliver_time: bool | None = attrs.field(default=None, validator=attrs.validators.optional(flag))
    max_message_size: int = attrs.field(default=4 * 1024 * 1024, validator=positive, metadata=BYTES)
    max_in_flight: int = attrs.field(default=1024, validator=positive)
    max_in_flight_bytes: int = attrs.field(default=32 * 1024 * 1024, validator=positive, metadata=BYTES)
    close_timeout: float = attrs.field(default=5.0, converter=seconds, validator=positive)
    linger: float | None = attrs.field(
        default=None, converter=seconds_or_none, validator=attrs.validators.optional(not_negative)
    )
    max_batch_bytes: int = attrs.field(default=64 * 1024, validator=positive, metadata=BYTES)

    def __attrs_post_init__(self) -> None:
        """Check settings that depend on others. Raises ConfigurationError."""
        if self.linger is not None:
            if self.max_batch_bytes > self.max_message_size:
                raise ConfigurationError(
                    f"max_batch_bytes is {self.max_batch_bytes}; it must be at most max_message_size, which "
                    f"is {self.max_message_size}"
                )
            return
        if self.max_batch_bytes != attrs.fields(ProducerSettings).max_batch_bytes.default:
            raise ConfigurationError(
                "max_batch_bytes has no effect without linger, which lets the producer collect batches; set "
                "linger, for example to 0.005"
            )


class ProducerFactoryOptions(TypedDict, total=False):
    """Settings of a Producer that shares a client. Made by ``make apis``.

    Defaults: send_timeout=3.0, retries=2, try_timeout=None, latency_faults=None, compression=Compression(),
    trace=False, delay_relay=None, start_deliver_time=None, max_message_size=4194304, max_in_flight=1024,
    max_in_flight_bytes=33554432, close_timeout=5.0, linger=None, max_batch_bytes=65536.
    """

    send_timeout: Duration
    retries: int
    try_timeout: Duration | None
    latency_faults: LatencyFaultPolicy | None
    compression: Compression | None
    trace: bool | str
    delay_relay: str | None
    start_deliver_time: bool | None
    max_message_size: int
    max_in_flight: int
    max_in_flight_bytes: int
    close_timeout: Duration
    linger: Duration | None
    max_batch_bytes: int


class ProducerOptions(ProducerFactoryOptions, ClientOptions, total=False):
    """Settings of a Producer, with those of ClientOptions. Made by ``make apis``."""
