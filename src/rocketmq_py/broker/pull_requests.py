"""PULL_MESSAGE and LITE_PULL_MESSAGE, and their long polling.

Java: ``PullMessageProcessor``, ``PullRequestHoldService``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping

import trio

from rocketmq_py.broker.dispatch import FAQ, Refusal, RequestHandler, answer_with
from rocketmq_py.broker.held_requests import HeldRequest, HeldRequests, HoldingProcessor
from rocketmq_py.broker.message_filters import is_tag_expression, parse_sql_filter, sql_filter, tag_filter
from rocketmq_py.broker.sql92 import SqlFilterError
from rocketmq_py.broker.state import BrokerState
from rocketmq_py.broker.storage.consume_queue import (
    ConsumeQueue,
    MessageFilter,
    ReadResult,
    StoredMessage,
    read_messages,
)
from rocketmq_py.broker.topics import PERM_READ, TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.bodies import SubscriptionData, SubscriptionGroupConfig
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PullMessageRequest
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting import Connection, Deadlines

# Long polling

FILTERED_HOLD_SECONDS = 5.0
"""Maximum seconds that a pull is held after messages arrived that its filter excludes.

Its answer then lets the client continue after these messages.
"""


class HeldPull(HeldRequest):
    """A pull that waits for a message.

    Args:
        connection: the client's connection.
        request: the pull.
        header: its header.
        queue: the queue that it pulls from.
        message_filter: its filter.
        expires_at: when it is answered without a message, on trio's clock.

    Attributes:
        examined_to: the offset up to which the filter has examined messages.
    """

    __slots__ = ("examined_to", "expires_at", "header", "message_filter")

    def __init__(
        self,
        connection: Connection,
        request: Command,
        header: PullMessageRequest,
        queue: ConsumeQueue,
        message_filter: MessageFilter,
        expires_at: float,
    ) -> None:
        super().__init__(connection, request, [queue])
        self.header: PullMessageRequest = header
        self.message_filter: MessageFilter = message_filter
        self.examined_to: int = queue.end
        self.expires_at: float = expires_at

    def matches_any(self, messages: list[StoredMessage]) -> bool:
        """Return whether any of the messages passes the filter."""
        passes = self.message_filter
        return any(passes is None or passes(message) for message in messages)


class HeldPulls:
    """All held pulls. :meth:`run` must be running for them to be answered.

    New messages are examined once per turn of the event loop, not once per message, so that a pull that waits
    during a burst of sends gets many messages in one answer.

    Args:
        processor: answers a pull that is no longer held.
    """

    def __init__(self, processor: HoldingProcessor[HeldPull]) -> None:
        self._deadlines = Deadlines()
        self._held: HeldRequests[HeldPull] = HeldRequests(processor, self._deadlines, self)
        self._changed_queues: dict[ConsumeQueue, None] = {}
        self._parked = trio.lowlevel.ParkingLot()

    def hold(
        self,
        connection: Connection,
        request: Command,
        header: PullMessageRequest,
        queue: ConsumeQueue,
        message_filter: MessageFilter,
        seconds: float,
    ) -> None:
        """Hold a pull until a message arrives that passes its filter, for at most ``seconds``."""
        expires_at = trio.current_time() + seconds
        self._held.hold(HeldPull(connection, request, header, queue, message_filter, expires_at), expires_at)

    def release_replaced(self, topic: str, find_queue: Callable[[str, int], ConsumeQueue | None]) -> None:
        """Answer the pulls from queues of a topic that was deleted and created again.

        Args:
            topic: the topic.
            find_queue: returns a queue of the topic as it is now.
        """
        for queue in self._held.all_keys():
            assert isinstance(queue, ConsumeQueue)
            if queue.topic == topic and find_queue(topic, queue.queue_id) is not queue:
                for pull in self._held.of(queue):
                    self._held.release(pull)

    def drop_connection(self, connection: Connection) -> None:
        """Drop the pulls of a closed connection."""
        self._held.drop_connection(connection)

    async def run(self) -> None:
        """Answer pulls, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            while True:
                if not self._changed_queues:
                    await self._parked.park()
                queues, self._changed_queues = self._changed_queues, {}
                for queue in queues:
                    self._examine(queue)

    def watch(self, key: Hashable) -> None:
        """Note the messages that arrive in a queue."""
        assert isinstance(key, ConsumeQueue)
        key.listeners.append(self._on_arrival)

    def stop_watching(self, key: Hashable) -> None:
        """Note the messages that arrive in a queue no longer."""
        assert isinstance(key, ConsumeQueue)
        key.listeners.remove(self._on_arrival)

    def _on_arrival(self, queue: ConsumeQueue, _: StoredMessage) -> None:
        self._changed_queues[queue] = None
        self._parked.unpark_all()

    def _examine(self, queue: ConsumeQueue) -> None:
        for pull in self._held.of(queue):
            new_messages = queue.slice(max(pull.examined_to, queue.start), queue.end)
            pull.examined_to = queue.end
            if pull.matches_any(new_messages):
                self._held.release(pull)
            elif pull.expires_at - trio.current_time() > FILTERED_HOLD_SECONDS:
                pull.expires_at = trio.current_time() + FILTERED_HOLD_SECONDS
                self._held.postpone(pull, pull.expires_at)


# Requests

COMMIT_FLAG = 1
"""The pull commits an offset."""
SUSPEND_FLAG = 2
"""The broker may hold the pull."""
SUBSCRIPTION_FLAG = 4
"""The pull carries its subscription."""


class _ForbiddenType(enum.IntEnum):
    """The reason why a pull is forbidden: the answer's field ``forbiddenType``. Java: ``ForbiddenType``."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCASTING = 4


class PullProcessor:
    """Answers pulls, at once or, with long polling, when messages arrive.

    Attributes:
        held_pulls: the pulls that wait for messages. Its ``run`` must be running.
    """

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._config = state.config
        self.held_pulls: HeldPulls = HeldPulls(self)
        state.topics.listeners.append(self._on_topic_change)

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {RequestCode.PULL_MESSAGE: self._pull, RequestCode.LITE_PULL_MESSAGE: self._pull}

    def _pull(self, connection: Connection, request: Command) -> None:
        self._answer(connection, request, PullMessageRequest.from_fields(request.fields), may_hold=True)

    def _on_topic_change(self, topic: TopicConfig) -> None:
        self.held_pulls.release_replaced(topic.topic_name, self._state.store.find_queue)

    def answer_held(self, held: HeldPull) -> None:
        """Answer a pull that is no longer held."""

        def answer(connection: Connection, request: Command) -> None:
            self._answer(connection, request, held.header, may_hold=False)

        answer_with(answer, held.connection, held.request)

    def _answer(
        self, connection: Connection, request: Command, header: PullMessageRequest, *, may_hold: bool
    ) -> None:
        group, topic = self._check(connection, header)
        message_filter = self._message_filter(header, group)
        queue = self._state.store.queue(header.topic, header.queue_id)
        result = self._read(queue, header, message_filter)
        self._update_offsets(header, result.next_offset, may_commit=may_hold)
        if result.code == ResponseCode.PULL_NOT_FOUND and may_hold and header.sys_flag & SUSPEND_FLAG:
            seconds = (
                header.suspend_timeout_millis / 1000
                if self._config.long_polling_enable
                else self._config.short_polling_time
            )
            self.held_pulls.hold(connection, request, header, queue, message_filter, seconds)
            return
        fields = {
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(queue.start),
            "maxOffset": str(queue.end),
            "suggestWhichBrokerId": "0",
            "topicSysFlag": str(topic.topic_sys_flag),
            "groupSysFlag": str(group.group_sys_flag),
        }
        body = b"".join([message.data for message in result.messages])
        self._state.store.count_delivered(header.topic, header.consumer_group, len(result.messages))
        connection.respond(request, result.code, fields, body, result.status)

    def _read(
        self, queue: ConsumeQueue, header: PullMessageRequest, message_filter: MessageFilter
    ) -> ReadResult:
        reset = self._state.offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is not None:
            return ReadResult(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", reset, [])
        return read_messages(queue, header.queue_offset, header.max_msg_nums, message_filter, self._config)

    def _update_offsets(self, header: PullMessageRequest, next_offset: int, *, may_commit: bool) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        self._state.offsets.record_pull(group, topic, queue_id, next_offset)
        # A held pull committed when it arrived. The client may have committed a higher offset since.
        if may_commit and header.sys_flag & COMMIT_FLAG:
            self._state.offsets.commit(group, topic, queue_id, header.commit_offset)

    # Checks

    def _check(
        self, connection: Connection, header: PullMessageRequest
    ) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        """Return the group and the topic of a pull. Raises Refusal if the pull is not permitted."""
        if not self._config.broker_permission & PERM_READ:
            raise _forbidden(
                _ForbiddenType.BROKER, f"the broker[{self._state.ip}] pulling message is forbidden"
            )
        group = self._state.subscription_groups.get_or_create(header.consumer_group)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise _forbidden(
                _ForbiddenType.GROUP, f"subscription group no permission, {header.consumer_group}"
            )
        topic = self._state.topics.get(header.topic)
        if topic is None:
            raise Refusal(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            )
        if not topic.is_readable:
            raise _forbidden(_ForbiddenType.TOPIC, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[/{connection.address}]",
            )
        return group, topic

    # Filters

    def _message_filter(self, header: PullMessageRequest, group: SubscriptionGroupConfig) -> MessageFilter:
        carries_subscription = header.sys_flag & SUBSCRIPTION_FLAG
        if carries_subscription:
            subscription = _parse_subscription(header)
        else:
            subscription = self._registered_subscription(header, group)
        if is_tag_expression(subscription.expression_type):
            return tag_filter(subscription)
        message_filter = (
            _carried_sql_filter(subscription) if carries_subscription else self._registered_sql_filter(header)
        )
        if not self._config.enable_property_filter:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.expression_type}",
            )
        return message_filter

    def _registered_sql_filter(self, header: PullMessageRequest) -> MessageFilter:
        registered = self._state.sql_filters.find(header.topic, header.consumer_group)
        if registered is None:
            raise Refusal(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if registered.version < header.sub_version:
            raise Refusal(
                ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest"
            )
        return sql_filter(registered.condition)

    def _registered_subscription(
        self, header: PullMessageRequest, settings: SubscriptionGroupConfig
    ) -> SubscriptionData:
        group = self._state.consumers.get(header.consumer_group)
        if group is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if not settings.consume_broadcast_enable and group.is_broadcasting:
            raise _forbidden(
                _ForbiddenType.BROADCASTING,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.sub_version < header.sub_version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription


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


def _carried_sql_filter(subscription: SubscriptionData) -> MessageFilter:
    try:
        return sql_filter(parse_sql_filter(subscription.expression_type, subscription.sub_string))
    except SqlFilterError:
        return None  # as on real brokers, an invalid filter passes all messages


def _forbidden(forbidden_type: _ForbiddenType, remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(int(forbidden_type))})
