"""QUERY_ASSIGNMENT and SET_MESSAGE_REQUEST_MODE: the broker assigns the queues of a topic (5.x).

Java: ``QueryAssignmentProcessor``, ``MessageRequestModeManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from rocketmq_py.broker.dispatch import Refusal, RequestHandler
from rocketmq_py.broker.name_server import NameServer
from rocketmq_py.broker.state import BrokerState
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
"""Returns a member's queues, given all queues, the member's index and the number of members."""


def averagely(queues: Sequence[MessageQueue], index: int, members: int) -> Sequence[MessageQueue]:
    """Assign each member a range of queues. Java: ``AllocateMessageQueueAveragely``."""
    share, left_over = divmod(len(queues), members)
    start = index * share + min(index, left_over)
    return queues[start : start + share + (index < left_over)]


def by_circle(queues: Sequence[MessageQueue], index: int, members: int) -> Sequence[MessageQueue]:
    """Assign the queues to the members in turn. Java: ``AllocateMessageQueueAveragelyByCircle``."""
    return queues[index::members]


_STRATEGIES: Mapping[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


class AssignmentProcessor:
    """Assigns queues to consumers that leave the allocation to the broker, and tells them to pull or pop.

    Each broker assigns the queues of all brokers, which it knows from the name servers. Java:
    ``TopicRouteInfoManager``.

    Args:
        state: the broker's tables.
        name_servers: returns the name servers that the broker reaches.
    """

    def __init__(self, state: BrokerState, name_servers: Callable[[], Sequence[NameServer]]) -> None:
        self._state = state
        self._name_servers = name_servers
        self._read_queues: dict[str, Sequence[MessageQueue]] = {}  # by topic, as last seen
        self._config = state.config
        self._settings: dict[tuple[str, str], RequestModeSetting] = {}  # by topic and group

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the request handlers by request code."""
        return {
            RequestCode.QUERY_ASSIGNMENT: self._query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
        }

    def _set_mode(self, connection: Connection, request: Command) -> None:
        setting = RequestModeSetting.decode(request.body)
        if setting.topic.startswith(RETRY_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._state.topics.get(setting.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{setting.topic}] not exist")
        if self._state.subscription_groups.get_or_create(setting.consumer_group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        self._settings[setting.topic, setting.consumer_group] = setting
        connection.respond(request, ResponseCode.SUCCESS)

    def _query(self, connection: Connection, request: Command) -> None:
        query = AssignmentQuery.decode(request.body)
        setting = self._setting(query)
        queues = self._assigned_queues(query, setting)
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

    def _assigned_queues(
        self, query: AssignmentQuery, setting: RequestModeSetting
    ) -> Iterable[MessageQueue] | None:
        """Return the member's queues. None if they are unknown, and the member keeps those that it has."""
        queues = self._queues_of(query.topic)
        if queues is None:
            return None
        if query.message_model == MessageModel.BROADCASTING:
            return queues
        group = self._state.consumers.get(query.consumer_group)
        strategy = _STRATEGIES.get(query.strategy_name)
        if query.message_model != MessageModel.CLUSTERING or group is None or strategy is None:
            return None
        members = sorted([member.client_id for member in group.members.values()])
        followers = setting.pop_share_queue_num
        if setting.mode is RequestMode.POP and (followers <= 0 or followers >= len(members) - 1):
            return [attrs.evolve(queue, queue_id=ALL_QUEUES) for queue in queues]
        if not queues or not query.client_id:
            return None
        if query.client_id not in members:
            return ()
        index = members.index(query.client_id)
        if setting.mode is RequestMode.POP:
            return _shared_queues(queues, index, len(members), strategy, followers)
        return strategy(queues, index, len(members))

    def _queues_of(self, topic: str) -> Sequence[MessageQueue] | None:
        """Return the readable queues of a topic, or None if it is unknown."""
        name_servers = self._name_servers()
        for name_server in name_servers:
            queues = name_server.read_queues(topic)
            if queues is not None:
                self._read_queues[topic] = queues
                return queues
        if name_servers:
            self._read_queues.pop(topic, None)
        return self._read_queues.get(topic)


def _shared_queues(
    queues: Sequence[MessageQueue], index: int, members: int, strategy: Strategy, followers: int
) -> Sequence[MessageQueue]:
    """Return the queues that a member pops from: its own, and those of the ``followers`` members after it."""
    if members > len(queues):
        return [queues[index % len(queues)]]
    indexes = [(index + step) % members for step in range(followers + 1)]
    return [queue for each in indexes for queue in strategy(queues, each, members)]


def _assignments(queues: Iterable[MessageQueue], mode: RequestMode) -> tuple[MessageQueueAssignment, ...]:
    return tuple(
        [
            MessageQueueAssignment(message_queue=JsonMessageQueue.of(queue), mode=mode)
            for queue in dict.fromkeys(queues)
        ]
    )
