"""The embedded broker's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rocketmq_py.arguments import check_integer, check_number, check_text, flag, text, whole, wrong_type
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_count, check_topic
from rocketmq_py.protocol.bodies import RequestMode

_SECONDS_OF_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _at_least(smallest: float) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    def check(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if check_number(value, attribute.name) < smallest:
            raise ConfigurationError(f"{attribute.name} is {value}; at least {smallest} is needed")

    return check


def _queue_count(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    check_count(value, attribute.name)


def _name(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    try:
        check_topic(value, attribute.name)
    except ConfigurationError as error:
        raise ConfigurationError(f"{attribute.name}: {error}") from None


def _delay_levels(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    parse_delay_levels(check_text(value, attribute.name))


def _permission(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if check_integer(value, attribute.name) not in range(8):
        raise ConfigurationError(f"{attribute.name} is {value}; 0 to 7 are allowed: readable 4, writable 2")


def _request_mode(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value not in list(RequestMode):
        raise ConfigurationError(f"{attribute.name} is {value!r}; there are {' and '.join(RequestMode)}")


def _access_keys(_: object, attribute: attrs.Attribute[Any], value: Mapping[str, str]) -> None:
    # No value in the text: each may be a secret.
    if not isinstance(value, Mapping):
        raise wrong_type(attribute.name, "a mapping of access keys to secret keys", value)
    if not all(isinstance(key, str) and key for pair in value.items() for key in pair):
        raise ConfigurationError(f"{attribute.name}: every access key and every secret key is a text")


def parse_delay_levels(text: str) -> tuple[float, ...]:
    """Return the seconds of each level of ``"1s 5s 1m 2h"``; level 1 is the first.

    Raises ConfigurationError for anything but numbers with the unit s, m, h or d.
    """
    levels = []
    for level in text.split():
        number, unit = level[:-1], level[-1]
        if unit not in _SECONDS_OF_UNIT or not (number.isascii() and number.isdigit()):
            raise ConfigurationError(f"message_delay_level has {level!r}; expected a number and s, m, h or d")
        levels.append(float(int(number) * _SECONDS_OF_UNIT[unit]))
    if not levels:
        raise ConfigurationError("message_delay_level names no level; the first one could be 1s")
    return tuple(levels)


@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Settings of the embedded broker; the names and defaults are those of Java's ``BrokerConfig``.

    Args:
        broker_name: what routes and queues call it (brokerName).
        cluster_name: the cluster that it is in, alone (brokerClusterName).
        broker_ip1: the address that clients are told to connect to; empty for the one that the broker is
            bound to (brokerIP1).
        default_topic_queue_nums: queues that a topic gets at most when a send creates it
            (defaultTopicQueueNums).
        auto_create_topic_enable: whether a send to an unknown topic creates it (autoCreateTopicEnable).
        auto_create_subscription_group: whether an unknown consumer group is created when it first asks
            for something (autoCreateSubscriptionGroup).
        broker_permission: bits of what all its topics are for at most: 4 readable, 2 writable
            (brokerPermission). Routes tell it, and pulls are refused by it; but as real brokers do, this
            one takes messages that come all the same, unless they are for a topic with ``order``.
        access_keys: secret keys by access keys (5.x: super users and their passwords). With any, the broker
            answers signed requests of its users only, and tools make and change users; the name server
            answers all (authenticationEnabled).
        max_message_size: bytes of one message's body, or of a whole batch (maxMessageSize).
        message_delay_level: the times of the delay levels (messageDelayLevel).
        timer_wheel_enable: whether messages may ask for the time of their delivery (timerWheelEnable).
        timer_max_delay_sec: seconds until that time at most (timerMaxDelaySec).
        recall_message_enable: whether such a message can be taken back (recallMessageEnable). On real
            brokers it is off by default; here it is on, as tests want to try it.
        reject_transaction_message: whether half messages are refused (rejectTransactionMessage).
        transaction_time_out: seconds for which nobody is asked about a half message (transactionTimeOut).
        transaction_check_interval: seconds between two looks for those to be asked about
            (transactionCheckInterval).
        transaction_check_max: how often the sender is asked before a half message is given up
            (transactionCheckMax).
        store_reply_message_enable: whether replies are kept, too (storeReplyMessageEnable).
        enable_property_filter: whether consumers may filter by SQL filters (enablePropertyFilter). On
            real brokers it is off by default; here it is on, as tests want to try it.
        enable_retry_topic_v2: whether the retry topics of pop are called ``%RETRY%group+topic``, which
            cannot be taken for another group's, instead of ``%RETRY%group_topic`` (enableRetryTopicV2).
        default_message_request_mode: PULL or POP: how consumers that leave their queues to the broker get
            messages, unless SET_MESSAGE_REQUEST_MODE said it (defaultMessageRequestMode).
        default_pop_share_queue_num: how many of the consumers that follow a consumer pop from its queues
            too; with 0 or less all pop from all queues (defaultPopShareQueueNum).
        use_server_side_reset_offset: whether the broker keeps the offsets that a tool sets a group back to,
            as 5.x does, or tells the group's members, as 4.x does (useServerSideResetOffset).
        long_polling_enable: whether a pull that finds nothing is held for as long as it asks to be
            (longPollingEnable); without it, it is held for ``short_polling_time``.
        short_polling_time: seconds (shortPollingTimeMills).
        channel_expired_timeout: seconds after which a client that sends no heartbeat is dropped
            (channelExpiredTimeout).
        max_transfer_count_on_message_in_memory: messages in one answer to a pull, whatever it asks for
            (maxTransferCountOnMessageInMemory).
        max_transfer_bytes_on_message_in_memory: bytes in one answer to a pull; a message larger than
            this comes alone (maxTransferBytesOnMessageInMemory).
        region_id: what answers and messages say in MSG_REGION (regionId).
        trace_on: what they say in TRACE_ON (traceOn).
        max_store_bytes: bytes of stored messages that are kept. Beyond it the oldest are dropped,
            consumed or not, as a real broker deletes its old files (fileReservedTime): a queue's
            smallest offset moves up, and who pulls below it is told so.
        max_store_messages: the same as a number of messages, RocketMQ's own among them; None for no such
            bound.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    broker_name: str = attrs.field(default="broker-a", validator=_name)
    cluster_name: str = attrs.field(default="DefaultCluster", validator=_name)
    broker_ip1: str = attrs.field(default="", validator=text)
    default_topic_queue_nums: int = attrs.field(default=8, validator=_queue_count)
    auto_create_topic_enable: bool = attrs.field(default=True, validator=flag)
    auto_create_subscription_group: bool = attrs.field(default=True, validator=flag)
    broker_permission: int = attrs.field(default=6, validator=_permission)
    access_keys: Mapping[str, str] = attrs.field(factory=dict, repr=False, hash=False, validator=_access_keys)
    max_message_size: int = attrs.field(default=4 * 1024 * 1024, validator=_at_least(1))
    message_delay_level: str = attrs.field(
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", validator=_delay_levels
    )
    timer_wheel_enable: bool = attrs.field(default=True, validator=flag)
    timer_max_delay_sec: int = attrs.field(default=3 * 24 * 3600, validator=_at_least(1))
    recall_message_enable: bool = attrs.field(default=True, validator=flag)
    reject_transaction_message: bool = attrs.field(default=False, validator=flag)
    transaction_time_out: float = attrs.field(default=6.0, validator=_at_least(0))
    transaction_check_interval: float = attrs.field(default=30.0, validator=_at_least(0.001))
    transaction_check_max: int = attrs.field(default=15, validator=_at_least(0))
    store_reply_message_enable: bool = attrs.field(default=True, validator=flag)
    enable_property_filter: bool = attrs.field(default=True, validator=flag)
    enable_retry_topic_v2: bool = attrs.field(default=False, validator=flag)
    default_message_request_mode: str = attrs.field(default="PULL", validator=_request_mode)
    default_pop_share_queue_num: int = attrs.field(default=-1, validator=whole)
    use_server_side_reset_offset: bool = attrs.field(default=True, validator=flag)
    long_polling_enable: bool = attrs.field(default=True, validator=flag)
    short_polling_time: float = attrs.field(default=1.0, validator=_at_least(0))
    channel_expired_timeout: float = attrs.field(default=120.0, validator=_at_least(0.001))
    max_transfer_count_on_message_in_memory: int = attrs.field(default=32, validator=_at_least(1))
    max_transfer_bytes_on_message_in_memory: int = attrs.field(default=256 * 1024, validator=_at_least(1))
    region_id: str = attrs.field(default="DefaultRegion", validator=text)
    trace_on: bool = attrs.field(default=True, validator=flag)
    max_store_bytes: int = attrs.field(default=512 * 1024 * 1024, validator=_at_least(1))
    max_store_messages: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(_at_least(1))
    )

    @property
    def delay_levels(self) -> tuple[float, ...]:
        """The seconds of each delay level; level 1 is the first."""
        return parse_delay_levels(self.message_delay_level)
