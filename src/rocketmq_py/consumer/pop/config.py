"""A pop consumer's settings."""

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
        raise ConfigurationError(f"{attribute.name} is {value!r}; a pop can begin with the FIRST or the LAST")


@attrs.frozen(kw_only=True)
class PopConsumerConfig:
    """How a pop consumer consumes. Java's names stand in brackets.

    Args:
        group: the consumer group (consumerGroup). All its members must subscribe alike, and pop.
        max_reconsume_times: deliveries after the first one, before a message that is never acknowledged
            goes to the group's dead letters (maxReconsumeTimes).
        orderly: receive the messages of each queue in their order: nothing more of it comes, to any member,
            before all that came is acknowledged; and when its time is up, it comes again from there (order).
            All members of the group must do so.
        consume_from: where a new group begins: FIRST or LAST; see ConsumeFrom (consumeFromWhere).
        trace: True sends a record of each message that is received to RMQ_SYS_TRACE_TOPIC, in RocketMQ's own
            format, in the background; a text names another topic for them.
        close_timeout: seconds that closing may take.
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
    """The fields of PopConsumerConfig but ``group``, and those of ClientConfig, as keyword arguments."""

    max_reconsume_times: int
    orderly: bool
    consume_from: ConsumeFrom | str
    trace: bool | str
    close_timeout: float
