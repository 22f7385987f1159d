"""The embedded broker's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

import attrs

from rocketmq_py.arguments import (
    Duration,
    check_integer,
    check_number,
    check_text,
    flag,
    seconds,
    text,
    whole,
    wrong_type,
)
from rocketmq_py.broker.profiles import Profile, profile_of
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.names import check_count, check_topic
from rocketmq_py.protocol.bodies import RequestMode
from rocketmq_py.shown_settings import advice_for

_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _at_least(minimum: float) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    def check(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if check_number(value, attribute.name) < minimum:
            raise ConfigurationError(f"{attribute.name} is {value}; it must be at least {minimum}")

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
        raise ConfigurationError(
            f"{attribute.name} is {value}; it must be from 0 to 7: add 4 for readable and 2 for writable"
        )


def _request_mode(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value not in list(RequestMode):
        raise ConfigurationError(f"{attribute.name} is {value!r}; it must be {' or '.join(RequestMode)}")


def _access_keys(_: object, attribute: attrs.Attribute[Any], value: Mapping[str, str]) -> None:
    # The error names no key, because each may be a secret.
    if not isinstance(value, Mapping):
        raise wrong_type(attribute.name, "a mapping of access keys to secret keys", value)
    if not all(isinstance(key, str) and key for pair in value.items() for key in pair):
        raise ConfigurationError(
            f"{attribute.name}: an access key or a secret key is not a string, or is empty"
        )


def parse_delay_levels(text: str) -> tuple[float, ...]:
    """Return the seconds of each level of ``"1s 5s 1m 2h"``. Level 1 is the first.

    Raises ConfigurationError for anything other than numbers with the unit s, m, h or d.
    """
    levels = []
    for level in text.split():
        number, unit = level[:-1], level[-1]
        if unit not in _SECONDS_PER_UNIT or not (number.isascii() and number.isdigit()):
            raise ConfigurationError(
                f"message_delay_level has the level {level!r}; expected a number and s, m, h or d"
            )
        levels.append(float(int(number) * _SECONDS_PER_UNIT[unit]))
    if not levels:
        raise ConfigurationError("message_delay_level has no level; expected levels such as 1s 5s 1m")
    return tuple(levels)


@attrs.frozen(kw_only=True)
class BrokerConfig:
    """Settings of the embedded broker. Names and defaults are those of Java's ``BrokerConfig``.

    Programs pass them as keywords: see :class:`BrokerOptions`.

    Args:
        broker_name: the broker's name in routes and queues (brokerName).
        cluster_name: the name of the cluster. The broker is its only broker (brokerClusterName).
        zone_name: the broker's availability zone. Real brokers read ROCKETMQ_ZONE.
        broker_ip1: the IP address that clients connect to. If empty, the address that the broker listens on
            (brokerIP1).
        default_topic_queue_nums: maximum number of queues of a topic that a send creates
            (defaultTopicQueueNums).
        auto_create_topic_enable: whether a send to an unknown topic creates it (autoCreateTopicEnable).
        auto_create_subscription_group: whether the first request of an unknown consumer group creates it
            (autoCreateSubscriptionGroup).
        broker_permission: permission bits of all topics: 4 readable, 2 writable (brokerPermission). Routes
            contain them. Pulls need the readable bit. As on real brokers, sends that arrive without the
            writable bit are stored, except for topics with ``order``.
        access_keys: secret keys by access key (5.x: super users and their passwords). With at least one,
            the broker answers only requests signed by its users, and tools can create and change users. The
            name server answers all requests (authenticationEnabled).
        max_message_size: maximum bytes of a message body, or of a whole batch (maxMessageSize).
        message_delay_level: the delays of the delay levels (messageDelayLevel).
        timer_wheel_enable: whether messages may have a delivery time (timerWheelEnable).
        timer_max_delay_sec: maximum seconds until a delivery time (timerMaxDelaySec).
        recall_message_enable: whether messages with a delivery time can be recalled (recallMessageEnable).
            Real brokers disable this by default. It is enabled here for tests.
        reject_transaction_message: whether half messages are refused (rejectTransactionMessage).
        transaction_time_out: seconds before the first check of a half message (transactionTimeOut).
        transaction_check_interval: seconds between two scans for half messages to check
            (transactionCheckInterval).
        transaction_check_max: number of checks before a half message is discarded (transactionCheckMax).
        store_reply_message_enable: whether replies are stored (storeReplyMessageEnable).
        enable_property_filter: whether consumers may use SQL filters (enablePropertyFilter). Real brokers
            disable this by default. It is enabled here for tests.
        enable_retry_topic_v2: whether the retry topics of pop are named ``%RETRY%group+topic``, which is
            unambiguous, instead of ``%RETRY%group_topic`` (enableRetryTopicV2).
        default_message_request_mode: PULL or POP. The mode of consumers whose queues the broker assigns,
            unless SET_MESSAGE_REQUEST_MODE sets another (defaultMessageRequestMode).
        default_pop_share_queue_num: the number of consumers, following a consumer in the group, that pop
            from its queues too. With 0 or less, all consumers pop from all queues
            (defaultPopShareQueueNum).
        use_server_side_reset_offset: whether the broker keeps the offsets of a reset until the next pull, as
            5.x does, or notifies the group's members, as 4.x does (useServerSideResetOffset).
        long_polling_enable: whether the broker holds a pull that finds no message for as long as the pull
            requests. Otherwise it holds it for ``short_polling_time`` (longPollingEnable).
        short_polling_time: seconds that a pull is held without long polling (shortPollingTimeMills).
        channel_expired_timeout: seconds without a heartbeat after which the broker closes the connection of
            a client (channelExpiredTimeout).
        max_transfer_count_on_message_in_memory: maximum number of messages in the answer to a pull
            (maxTransferCountOnMessageInMemory).
        max_transfer_bytes_on_message_in_memory: maximum bytes in the answer to a pull. A larger message is
            answered alone (maxTransferBytesOnMessageInMemory).
        enable_lmq: whether messages are also stored in the queue of their lite topic, for which
            ``enable_multi_dispatch`` must be set too (enableLmq). Real brokers disable both by default. They
            are enabled here for tests.
        enable_multi_dispatch: see ``enable_lmq`` (enableMultiDispatch).
        max_lite_subscription_count: maximum number of subscriptions to lite topics, of all clients together
            (maxLiteSubscriptionCount).
        region_id: the property MSG_REGION of answers and messages (regionId).
        trace_on: the property TRACE_ON of answers and messages (traceOn).
        max_store_bytes: maximum bytes of stored messages. Beyond it the oldest messages are dropped, consumed
            or not, as a real broker deletes its old files (fileReservedTime). The queue's minimum offset then
            increases, and a pull below it is answered with the new minimum.
        max_store_messages: maximum number of stored messages, including RocketMQ's own. None for no limit.
        profile: the profile of a managed service, or its name: "alibaba-4", "alibaba-5",
            "alibaba-5-serverless", "tencent-4", "huawei" or "volcengine". The servers refuse what this
            service refuses according to its documents. Its rules replace ``auto_create_topic_enable``,
            ``max_message_size`` and ``timer_max_delay_sec``.

    Raises:
        ConfigurationError: a value is out of its range.
    """

    broker_name: str = attrs.field(default="broker-a", validator=_name)
    cluster_name: str = attrs.field(default="DefaultCluster", validator=_name)
    zone_name: str = attrs.field(default="", validator=text)
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
    transaction_time_out: float = attrs.field(default=6.0, converter=seconds, validator=_at_least(0))
    transaction_check_interval: float = attrs.field(
        default=30.0, converter=seconds, validator=_at_least(0.001)
    )
    transaction_check_max: int = attrs.field(default=15, validator=_at_least(0))
    store_reply_message_enable: bool = attrs.field(default=True, validator=flag)
    enable_property_filter: bool = attrs.field(default=True, validator=flag)
    enable_retry_topic_v2: bool = attrs.field(default=False, validator=flag)
    default_message_request_mode: str = attrs.field(default="PULL", validator=_request_mode)
    default_pop_share_queue_num: int = attrs.field(default=-1, validator=whole)
    use_server_side_reset_offset: bool = attrs.field(default=True, validator=flag)
    long_polling_enable: bool = attrs.field(default=True, validator=flag)
    short_polling_time: float = attrs.field(default=1.0, converter=seconds, validator=_at_least(0))
    channel_expired_timeout: float = attrs.field(default=120.0, converter=seconds, validator=_at_least(0.001))
    max_transfer_count_on_message_in_memory: int = attrs.field(default=32, validator=_at_least(1))
    max_transfer_bytes_on_message_in_memory: int = attrs.field(default=256 * 1024, validator=_at_least(1))
    enable_lmq: bool = attrs.field(default=True, validator=flag)
    enable_multi_dispatch: bool = attrs.field(default=True, validator=flag)
    max_lite_subscription_count: int = attrs.field(default=100_000, validator=_at_least(0))
    region_id: str = attrs.field(default="DefaultRegion", validator=text)
    trace_on: bool = attrs.field(default=True, validator=flag)
    max_store_bytes: int = attrs.field(default=512 * 1024 * 1024, validator=_at_least(1))
    max_store_messages: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(_at_least(1))
    )
    profile: Profile | None = attrs.field(default=None, converter=profile_of)

    @property
    def delay_levels(self) -> tuple[float, ...]:
        """The seconds of each delay level. Level 1 is the first."""
        return parse_delay_levels(self.message_delay_level)


def config_of(options: Mapping[str, Any]) -> BrokerConfig:
    """Return the settings that the keywords of a caller give.

    Raises ConfigurationError for an unknown setting, and for a value out of its range.
    """
    known = [field.name for field in attrs.fields(BrokerConfig)]
    for name in options:
        if name not in known:
            raise ConfigurationError(f"there is no setting {name!r}; {advice_for(name, known)}")
    return BrokerConfig(**options)


class BrokerOptions(TypedDict, total=False):
    """Settings of an EmbeddedBroker. Made by ``make apis``.

    Defaults: broker_name='broker-a', cluster_name='DefaultCluster', zone_name='', broker_ip1='',
    default_topic_queue_nums=8, auto_create_topic_enable=True, auto_create_subscription_group=True,
    broker_permission=6, access_keys={}, max_message_size=4194304, message_delay_level='1s 5s 10s 30s 1m 2m 3m
    4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h', timer_wheel_enable=True, timer_max_delay_sec=259200,
    recall_message_enable=True, reject_transaction_message=False, transaction_time_out=6.0,
    transaction_check_interval=30.0, transaction_check_max=15, store_reply_message_enable=True,
    enable_property_filter=True, enable_retry_topic_v2=False, default_message_request_mode='PULL',
    default_pop_share_queue_num=-1, use_server_side_reset_offset=True, long_polling_enable=True,
    short_polling_time=1.0, channel_expired_timeout=120.0, max_transfer_count_on_message_in_memory=32,
    max_transfer_bytes_on_message_in_memory=262144, enable_lmq=True, enable_multi_dispatch=True,
    max_lite_subscription_count=100000, region_id='DefaultRegion', trace_on=True, max_store_bytes=536870912,
    max_store_messages=None, profile=None.
    """

    broker_name: str
    cluster_name: str
    zone_name: str
    broker_ip1: str
    default_topic_queue_nums: int
    auto_create_topic_enable: bool
    auto_create_subscription_group: bool
    broker_permission: int
    access_keys: Mapping[str, str]
    max_message_size: int
    message_delay_level: str
    timer_wheel_enable: bool
    timer_max_delay_sec: int
    recall_message_enable: bool
    reject_transaction_message: bool
    transaction_time_out: Duration
    transaction_check_interval: Duration
    transaction_check_max: int
    store_reply_message_enable: bool
    enable_property_filter: bool
    enable_retry_topic_v2: bool
    default_message_request_mode: str
    default_pop_share_queue_num: int
    use_server_side_reset_offset: bool
    long_polling_enable: bool
    short_polling_time: Duration
    channel_expired_timeout: Duration
    max_transfer_count_on_message_in_memory: int
    max_transfer_bytes_on_message_in_memory: int
    enable_lmq: bool
    enable_multi_dispatch: bool
    max_lite_subscription_count: int
    region_id: str
    trace_on: bool
    max_store_bytes: int
    max_store_messages: int | None
    profile: Profile | str | None
