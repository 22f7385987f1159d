"""A producer's settings."""

from __future__ import annotations

import attrs

from rocketmq_py.client.config import ClientOptions, not_negative, positive
from rocketmq_py.names import check_group

DEFAULT_GROUP = "DEFAULT_PRODUCER"


@attrs.frozen(kw_only=True)
class ProducerConfig:
    """How a producer sends. Java: ``DefaultMQProducer``, whose names stand in brackets.

    Args:
        group: whom brokers take it for; matters for transactions (producerGroup).
        send_timeout: seconds for a send with all its tries together (sendMsgTimeout).
        retries: tries after the first one of an awaited send (retryTimesWhenSendFailed).
        retries_pipelined: the same for a pipelined send (retryTimesWhenSendAsyncFailed).
        max_message_size: bytes of a body (maxMessageSize); brokers refuse more than 4 MiB by default.
        max_in_flight: pipelined sends that may be under way; further ones wait.
        max_in_flight_bytes: bytes of their bodies together; a larger single body goes alone.
    """

    group: str = attrs.field(default=DEFAULT_GROUP, converter=check_group)
    send_timeout: float = attrs.field(default=3.0, validator=positive)
    retries: int = attrs.field(default=2, validator=not_negative)
    retries_pipelined: int = attrs.field(default=2, validator=not_negative)
    max_message_size: int = attrs.field(default=4 * 1024 * 1024, validator=positive)
    max_in_flight: int = attrs.field(default=1024, validator=positive)
    max_in_flight_bytes: int = attrs.field(default=32 * 1024 * 1024, validator=positive)


class ProducerOptions(ClientOptions, total=False):
    """The fields of ProducerConfig but ``group``, and those of ClientConfig, as keyword arguments."""

    send_timeout: float
    retries: int
    retries_pipelined: int
    max_message_size: int
    max_in_flight: int
    max_in_flight_bytes: int
