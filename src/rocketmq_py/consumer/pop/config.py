"""The settings of a pop consumer."""

from __future__ import annotations

from typing import Any

import attrs

from rocketmq_py.arguments import flag, not_negative, positive
from rocketmq_py.client.config import ClientOptions, trace_topic
from rocketmq_py.consumer.config import DEFAULT_RECONSUME_TIMES, ConsumeFrom, to_consume_from
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_group


def _first_or_last(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value not in (ConsumeFrom.FIRST, ConsumeFrom.LAST):
        raise ConfigurationError(f"{attribute.name} is {value!r}; a PopConsumer accepts FIRST or LAST")


@attrs.frozen(kw_only=True)
class PopConsumerConfig:
    """Settings of a PopConsumer. The names in parentheses are Java's.

    Args:
        group: the consumer group (consumerGroup). All members must have the same subscriptions, and pop.
        max_reconsume_times: redeliveries after which an unacknowledged message becomes a dead letter
            (maxReconsumeTimes).
        orderly: receive the messages of each queue in order. The broker delivers no more messages of a queue,
            to any member, until the delivered ones are acknowledged, and redelivers from the first
            unacknowledged one when the invisible time is over (order). All members must use the same setting.
        consume_from: the position at which a new group starts, FIRST or LAST. See ConsumeFrom
            (consumeFromWhere).
        trace: True sends a trace record of each received message to RMQ_SYS_TRACE_TOPIC in the background. A
            string names another topic.
        close_timeout: the maximum duration of closing, in seconds.
    """

    group: str = attrs.field(converter=check_group)
    max_reconsume_times: int = attrs.field(default=DEFAULT_RECONSUME_TIMES, validator=not_negative)
    orderly: bool = attrs.field(default=False, validator=flag)
    consume_from: ConsumeFrom = attrs.field(
        default=ConsumeFrom.LAST, converter=to_consume_from, validator=_first_or_last
    )
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = attrs.field(default=5.0, validator=positive)


class PopConsumerOptions(ClientOptions, total=False):
    """The fields of PopConsumerConfig except ``group``, and those of ClientConfig, as keyword arguments."""

    max_reconsume_times: int
    orderly: bool
    consume_from: ConsumeFrom | str
    trace: bool | str
    close_timeout: float
