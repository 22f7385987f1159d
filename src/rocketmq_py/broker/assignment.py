"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: the broker shares out the queues of a topic (5.x).

Java: ``QueryAssignmentProcessor``, ``MessageRequestModeManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.groups import ConsumerGroups
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import (
    ALL_QUEUES,
    AssignmentQuery,
    JsonMessageQueue,
    MessageModel,
    MessageQueueAssignment,
    QueueAssignments,
    RequestMode,
    RequestModeSetting,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection

Strategy: TypeAlias = Callable[[Sequence[MessageQueue], int, int], Sequence[MessageQueue]]
"""Returns a member's queues: of all queues, for its place among the members, and how many they are."""


def averagely(queues: Sequence[MessageQueue], index: int, members: int) -> Sequence[MessageQueue]:
    """Give each member as many queues in a row. Java: ``AllocateMessageQueueAveragely``."""
    share, left_over = divmod(len(queues), members)
    start = index * share + min(index, left_over)
    return queues[start : start + share + (index < left_over)]


def by_circle(queues: Sequence[MessageQueue], index: int, members: int) -> Sequence[MessageQueue]:
    """Give each member a queue in turn. Java: ``AllocateMessageQueueAveragelyByCircle``."""
    return queues[index::members]


_STRATEGIES: Mapping[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


class Assignments:
    """Answers consumers that leave it to the broker which queues they get, and how.

    Args:
        config: the broker's settings.
        topics: say which queues there are.
        subscription_groups: the settings of groups.
        consumers: the members of groups.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        consumers: ConsumerGroups,
    ) -> None:
        self._config = config
        self._topics = topics
        self._subscription_groups = subscription_groups
        self._consumers = consumers
        self._settings: dict[tuple[str, str], RequestModeSetting] = {}

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self._query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
        }

    def _set_mode(self, connection: Connection, request: Command) -> None:
        setting = RequestModeSetting.decode(request.body)
        if setting.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(setting.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{setting.topic}] not exist")
        if self._subscription_groups.find(setting.consumer_group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        self._settings[setting.topic, setting.consumer_group] = setting
        connection.respond(request, ResponseCode.SUCCESS)

    def _query(self, connection: Connection, request: Command) -> None:
        query = AssignmentQuery.decode(request.body)
        setting = self._setting(query)
        queues = self._assigned(query, setting)
        body = QueueAssignments(
            message_queue_assignments=None if queues is None else _assignments(queues, setting.mode)
        )
        connection.respond(request, ResponseCode.SUCCESS, body=body.encode())

    def _setting(self, query: AssignmentQuery) -> RequestModeSetting:
        setting = self._settings.get((query.topic, query.consumer_group))
        if setting is not None:
            return setting
        mode = self._config.default_message_request_mode
        return RequestModeSetting(
            topic=query.topic,
            consumer_group=query.consumer_group,
            mode=RequestMode.PULL if query.topic.startswith(RETRY_PREFIX) else RequestMode(mode),
            pop_share_queue_num=self._config.default_pop_share_queue_num,
        )

    def _assigned(self, query: AssignmentQuery, setting: RequestModeSetting) -> Iterable[MessageQueue] | None:
        """Return the member's queues; None if nothing can be said, and it shall keep what it has."""
        topic = self._topics.get(query.topic)
        if topic is None:
            return None
        queues = [
            MessageQueue(query.topic, self._config.broker_name, queue_id)
            for queue_id in range(topic.read_queue_nums if topic.is_readable else 0)
        ]
        if query.message_model == MessageModel.BROADCASTING:
            return queues
        group = self._consumers.get(query.consumer_group)
        strategy = _STRATEGIES.get(query.strategy_name)
        if query.message_model != MessageModel.CLUSTERING or group is None or strategy is None:
            return None
        members = sorted([member.client_id for member in group.members.values()])
        followers = setting.pop_share_queue_num
        if setting.mode is RequestMode.POP and (followers <= 0 or followers >= len(members) - 1):
            return [MessageQueue(query.topic, queue.broker_name, ALL_QUEUES) for queue in queues]
        if not queues or not query.client_id:
            return None
        if query.client_id not in members:
            return ()
        index = members.index(query.client_id)
        if setting.mode is RequestMode.POP:
            return _shared(queues, index, len(members), strategy, followers)
        return strategy(queues, index, len(members))


def _shared(
    queues: Sequence[MessageQueue], index: int, members: int, strategy: Strategy, followers: int
) -> Sequence[MessageQueue]:
    """Return the queues that a member pops from: its own, and those of the members that follow it."""
    if members > len(queues):
        return [queues[index % len(queues)]]
    places = [(index + step) % members for step in range(followers + 1)]
    return [queue for place in places for queue in strategy(queues, place, members)]


def _assignments(queues: Iterable[MessageQueue], mode: RequestMode) -> tuple[MessageQueueAssignment, ...]:
    return tuple(
        [
            MessageQueueAssignment(message_queue=JsonMessageQueue.of(queue), mode=mode)
            for queue in dict.fromkeys(queues)
        ]
    )
