"""PULL_MESSAGE and LITE_PULL_MESSAGE (Java: ``PullMessageProcessor``, ``DefaultMessageStore.getMessage``)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler, answer_with
from rocketmq_py.broker.filtering import (
    SqlFilters,
    Wanted,
    is_tag_expression,
    sql_filter_of,
    wanted_by,
    wanted_by_tags,
)
from rocketmq_py.broker.groups import ConsumerGroups
from rocketmq_py.broker.holding import HeldPull, HeldPulls
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.sql92 import SqlFilterError
from rocketmq_py.broker.store import ConsumeQueue, MessageStore, StoredMessage
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import PERM_READ, TopicConfig, TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import SubscriptionData, SubscriptionGroupConfig
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PullMessageRequest
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting import Connection

COMMIT_FLAG = 1
SUSPEND_FLAG = 2
SUBSCRIPTION_FLAG = 4

SCANNED_MESSAGES = 800
"""Messages that one pull's filter looks at (maxFilterMessageSize, over the 20 bytes of an entry)."""
MAX_SCANNED_MESSAGES = 10_000
"""The same for a pull that asks for more than that."""


class _Forbidden(enum.IntEnum):
    """Why a pull may not be; the answer's field ``forbiddenType``. Java: ``ForbiddenType``."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4


class Found(NamedTuple):
    """What a look into a queue found.

    Attributes:
        code: the answer's code.
        status: the answer's remark: a name of Java's ``GetMessageStatus``.
        next_offset: where the next pull begins.
        messages: what was found.
    """

    code: int
    status: str
    next_offset: int
    messages: list[StoredMessage]


def look(queue: ConsumeQueue, offset: int, max_count: int, wanted: Wanted, config: BrokerConfig) -> Found:
    """Look for messages of a queue from ``offset`` on. Java: ``DefaultMessageStore.getMessage``.

    Args:
        queue: the queue.
        offset: the first one wanted.
        max_count: how many are wanted; at least one is found if there is one.
        wanted: the filter.
        config: has the bounds on one answer.
    """
    start, end = queue.start, queue.end
    if end == 0:
        code = ResponseCode.PULL_NOT_FOUND if offset == 0 else ResponseCode.PULL_OFFSET_MOVED
        return Found(code, "NO_MESSAGE_IN_QUEUE", 0, [])
    if offset < start:
        return Found(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", start, [])
    if offset == end:
        return Found(ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", offset, [])
    if offset > end:
        return Found(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", end, [])
    count = max(1, min(max_count, config.max_transfer_count_on_message_in_memory))
    scanned = count if wanted is None else max(SCANNED_MESSAGES, min(max_count, MAX_SCANNED_MESSAGES))
    size = 0
    messages: list[StoredMessage] = []
    for message in queue.slice(offset, min(end, offset + scanned)):
        size += len(message.data)
        if messages and (len(messages) == count or size > config.max_transfer_bytes_on_message_in_memory):
            break
        offset += 1
        if wanted is None or wanted(message):
            messages.append(message)
        else:
            size -= len(message.data)
    if messages:
        return Found(ResponseCode.SUCCESS, "FOUND", offset, messages)
    return Found(ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", offset, [])


class Pulling:
    """Answers pulls, at once or when messages come."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        offsets: OffsetTable,
        groups: ConsumerGroups,
        subscription_groups: SubscriptionGroupTable,
        sql_filters: SqlFilters,
        *,
        broker_ip: str,
    ) -> None:
        self._config = config
        self._broker_ip = broker_ip
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._groups = groups
        self._subscription_groups = subscription_groups
        self._sql_filters = sql_filters
        self.held: HeldPulls = HeldPulls(self._answer_held)

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {RequestCode.PULL_MESSAGE: self._pull, RequestCode.LITE_PULL_MESSAGE: self._pull}

    def _pull(self, connection: Connection, request: Command) -> None:
        self._answer(connection, request, PullMessageRequest.from_fields(request.fields), may_hold=True)

    def _answer_held(self, held: HeldPull) -> None:
        def answer(connection: Connection, request: Command) -> None:
            self._answer(connection, request, held.header, may_hold=False)

        answer_with(answer, held.connection, held.request)

    def _answer(
        self, connection: Connection, request: Command, header: PullMessageRequest, *, may_hold: bool
    ) -> None:
        if not self._config.broker_permission & PERM_READ:
            raise _forbidden(_Forbidden.BROKER, f"the broker[{self._broker_ip}] pulling message is forbidden")
        group = self._consuming_group(header)
        topic = self._readable_topic(header)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[/{connection.address}]",
            )
        wanted = self._wanted(header, group)
        queue = self._store.queue(header.topic, header.queue_id)
        found = self._look(queue, header, wanted)
        self._note_offsets(header, found.next_offset, may_commit=may_hold)
        if found.code == ResponseCode.PULL_NOT_FOUND and may_hold and header.sys_flag & SUSPEND_FLAG:
            config = self._config
            seconds = (
                header.suspend_timeout_millis / 1000
                if config.long_polling_enable
                else config.short_polling_time
            )
            self.held.hold(connection, request, header, queue, wanted, seconds)
            return
        fields = {
            "nextBeginOffset": str(found.next_offset),
            "minOffset": str(queue.start),
            "maxOffset": str(queue.end),
            "suggestWhichBrokerId": "0",
            "topicSysFlag": str(topic.topic_sys_flag),
            "groupSysFlag": str(group.group_sys_flag),
        }
        body = b"".join([message.data for message in found.messages])
        self._store.hand_out(header.topic, header.consumer_group, len(found.messages))
        connection.respond(request, found.code, fields, body, found.status)

    def _look(self, queue: ConsumeQueue, header: PullMessageRequest, wanted: Wanted) -> Found:
        reset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None:
            return Found(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", reset, [])
        return look(queue, header.queue_offset, header.max_msg_nums, wanted, self._config)

    def _consuming_group(self, header: PullMessageRequest) -> SubscriptionGroupConfig:
        group = self._subscription_groups.find(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise _forbidden(_Forbidden.GROUP, f"subscription group no permission, {header.consumer_group}")
        return group

    def _readable_topic(self, header: PullMessageRequest) -> TopicConfig:
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            )
        if not topic.is_readable:
            raise _forbidden(_Forbidden.TOPIC, f"the topic[{header.topic}] pulling message is forbidden")
        return topic

    def _wanted(self, header: PullMessageRequest, group: SubscriptionGroupConfig) -> Wanted:
        brings_subscription = header.sys_flag & SUBSCRIPTION_FLAG
        if brings_subscription:
            subscription = _parse_subscription(header)
        else:
            subscription = self._registered_subscription(header, group)
        kind = subscription.expression_type
        if is_tag_expression(kind):
            return wanted_by_tags(subscription)
        wanted = (
            _brought_condition(subscription) if brings_subscription else self._registered_condition(header)
        )
        if not self._config.enable_property_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
            )
        return wanted

    def _registered_condition(self, header: PullMessageRequest) -> Wanted:
        registered = self._sql_filters.find(header.topic, header.consumer_group)
        if registered is None:
            raise Refusal(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if registered.version < header.sub_version:
            raise Refusal(
                ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
            )
        return wanted_by(registered.parsed)

    def _registered_subscription(
        self, header: PullMessageRequest, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        members = self._groups.get(header.consumer_group)
        if members is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if not group.consume_broadcast_enable and members.is_broadcasting:
            raise _forbidden(
                _Forbidden.BROADCASTING,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.sub_version < header.sub_version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription

    def _note_offsets(self, header: PullMessageRequest, next_offset: int, *, may_commit: bool) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._offsets.note_pulled(group, topic, queue_id, next_offset)
        # A pull that was held has committed when it came: since then its client may have committed more.
        if may_commit and header.sys_flag & COMMIT_FLAG:
            self._offsets.commit(group, topic, queue_id, header.commit_offset)


def _parse_subscription(header: PullMessageRequest) -> SubscriptionData:
    expression = header.subscription or ""
    if not is_tag_expression(header.expression_type) and expression:
        return SubscriptionData(
            topic=header.topic, sub_string=expression, expression_type=header.expression_type or ""
        )
    try:
        if is_tag_expression(header.expression_type):
            return make_subscription(header.topic, expression, version_ms=header.sub_version)
    except ConfigurationError:
        pass
    raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")


def _brought_condition(subscription: SubscriptionData) -> Wanted:
    try:
        return wanted_by(sql_filter_of(subscription.expression_type, subscription.sub_string))
    except SqlFilterError:
        return None  # so do real brokers: what cannot be read lets all messages through


def _forbidden(kind: _Forbidden, remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(int(kind))})
