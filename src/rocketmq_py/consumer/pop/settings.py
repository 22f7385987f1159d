"""The settings of a pop consumer."""

from __future__ import annotations

from typing import TypedDict

import attrs

from rocketmq_py.arguments import Duration, flag, not_negative, positive, seconds
from rocketmq_py.client.settings import ClientOptions, trace_topic
from rocketmq_py.consumer.settings import DEFAULT_RECONSUME_TIMES
from rocketmq_py.names import check_group
from rocketmq_py.position import Position, PositionKind, check_position


def _to_consume_from(value: Position | str) -> Position:
    return check_position(value, "consume_from", frozenset({PositionKind.EARLIEST, PositionKind.LATEST}))


@attrs.frozen(kw_only=True)
class PopConsumerSettings:
    """Settings of a PopConsumer. The names in parentheses are Java's.

    Args:
        group: the consumer group (consumerGroup). All members must have the same subscriptions, and pop.
        max_reconsume_times: redeliveries after which an unacknowledged message becomes a dead letter
            (maxReconsumeTimes).
        orderly: receive the messages of each queue in order. The broker delivers no more messages of a queue,
            to any member, until the delivered ones are acknowledged, and redelivers from the first
            unacknowledged one when the invisible time is over (order). All members must use the same setting.
        consume_from: where the group starts in a queue that it has never consumed: ``"earliest"`` or
            ``"latest"``. While a broker still has the first message of a queue in memory, it lets new groups
            start there under ``"latest"`` too (consumeFromWhere).
        trace: True sends a trace record of each received message to RMQ_SYS_TRACE_TOPIC in the background. A
            string names another topic, or is "cloud", as in Producer.
        close_timeout: the maximum duration of closing, in seconds.
    """

    group: str = attrs.field(converter=check_group)
    max_reconsume_times: int = attrs.field(default=DEFAULT_RECONSUME_TIMES, validator=not_negative)
    orderly: bool = attrs.field(default=False, validator=flag)
    consume_from: Position = attrs.field(default=Position.latest, converter=_to_consume_from)
    trace: bool | str = attrs.field(default=False, validator=trace_topic)
    close_timeout: float = attrs.field(default=5.0, converter=seconds, validator=positive)


class PopConsumerFactoryOptions(TypedDict, total=False):
    """Settings of a PopConsumer that shares a client. Made by ``make apis``.

    Defaults: max_reconsume_times=16, orderly=False, consume_from=Position.latest, trace=False,
    close_timeout=5.0.
    """

    max_reconsume_times: int
    orderly: bool
    consume_from: Position | str
    trace: bool | str
    close_timeout: Duration


class PopConsumerOptions(PopConsumerFactoryOptions, ClientOptions, total=False):
    """Settings of a PopConsumer, with those of ClientOptions. Made by ``make apis``."""
