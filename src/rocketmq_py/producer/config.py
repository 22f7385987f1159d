"""A producer's settings."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from rocketmq_py.arguments import flag, instance_of, not_negative, positive
from rocketmq_py.client.config import ClientOptions, trace_topic
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.producer.compression import Compression
from rocketmq_py.producer.latency_faults import LatencyFaultPolicy, latency_fault_policy

DEFAULT_GROUP = "DEFAULT_PRODUCER"

RequestForm = Literal["V1", "V2"]


def _request_form(_: object, attribute: attrs.Attribute[Any], value: str) -> None:
    if value not in ("V1", "V2"):
        raise ConfigurationError(f"{attribute.name} is {value!r}; 'V1' and 'V2' are allowed")


def _delay_relay(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None:
        if not isinstance(value, str):
            raise ConfigurationError(f"{attribute.name} is {value!r}; it must be a topic or None")
        check_topic(value)


def _positive_or_none(instance: object, attribute: attrs.Attribute[Any], value: float | None) -> None:
    if value is not None:
        positive(instance, attribute, value)


@attrs.frozen(kw_only=True)
class ProducerConfig:
    """How a producer sends. Java: ``DefaultMQProducer``, whose names stand in brackets.

    Args:
        group: whom brokers take it for; matters for transactions (producerGroup).
        send_timeout: seconds for a send with all its tries together (sendMsgTimeout).
        try_timeout: seconds for one try, if another may follow; None lets each have all that is left
            (sendMsgMaxTimeoutPerRequest).
        retries: tries after the first one of an awaited send (retryTimesWhenSendFailed).
        retries_pipelined: the same for a pipelined send (retryTimesWhenSendAsyncFailed).
        retry_another_broker_when_not_store_ok: a message that was stored, but not as safely as the broker is
            configured for (any status but SEND_OK), is sent to another broker too; without success there,
            the first result counts (retryAnotherBrokerWhenNotStoreOK).
        latency_faults: go round brokers that answer late or not at all: None or False is off, True or
            "4.x" is the table of Java 4.x, "5.x" that of Java 5.x with its detector, and a
            LatencyFaultPolicy one of your own (sendLatencyFaultEnable).
        compression: which bodies are compressed, and how; None for none.
        trace: True sends a record of each message to RMQ_SYS_TRACE_TOPIC, in RocketMQ's own format, in the
            background; a text names another topic for them (enableMsgTrace, customizedTraceTopic).
        delay_relay: the buffer topic of a relay (``rocketmq-py relay``), to which messages with an exact time
            go that are for brokers older than 5.0; None is none. The message id of their SendResult is what
            cancels them there.
        request_form: "V2" has short field names, "V1" is for brokers before 3.2 (sendSmartMsg).
        max_message_size: bytes of a body (maxMessageSize); brokers refuse more than 4 MiB by default.
        max_in_flight: pipelined sends that may be under way; further ones wait.
        max_in_flight_bytes: bytes of their bodies together; a larger single body goes alone.
        close_timeout: seconds that closing may take, to wait for what is in flight.
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


class ProducerOptions(ClientOptions, total=False):
    """The fields of ProducerConfig but ``group``, and those of ClientConfig, as keyword arguments."""

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
