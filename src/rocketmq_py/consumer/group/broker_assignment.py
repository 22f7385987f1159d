"""Queue assignment by brokers (5.x), instead of by the members themselves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.routes import Route
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import (
    BrokerError,
    NoQueueError,
    RocketMQError,
    UnsupportedByBrokerError,
)
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    AssignmentQuery,
    MessageQueueAssignment,
    QueueAssignments,
    RequestMode,
)
from rocketmq_py.protocol.headers import QueryAssignmentRequest
from rocketmq_py.queues import is_logical_broker_name, logical_queue

logger: Final = LibraryLogger("rocketmq_py.consumer")


@attrs.frozen
class TopicAssignment:
    """A member's queues of a topic.

    Attributes:
        pulled: queues to pull.
        popped: queues to pop from. The queue number ALL_QUEUES stands for all queues of a broker. None if the
            members allocated the queues themselves.
    """

    pulled: Collection[MessageQueue]
    popped: Collection[MessageQueue] | None = None

    def __bool__(self) -> bool:
        return bool(self.pulled or self.popped)


class BrokerAssignments:
    """Queries brokers for one member's queues. Java: ``RebalanceImpl.getRebalanceResultFromBroker``.

    Args:
        client: sends the requests. Its client id is the member's.
        group: the consumer group.
        strategy_name: the strategy's name in requests.
        can_pop: whether the member can pop. If not, queues that it should pop are not consumed, which is
            logged.
    """

    def __init__(self, client: ClientCore, group: str, strategy_name: str, *, can_pop: bool = False) -> None:
        self._can_pop = can_pop
        self._client = client
        self._group = group
        self._strategy_name = strategy_name
        self._warned: set[str] = set()

    async def query(self, route: Route) -> TopicAssignment:
        """Return the member's queues of a topic, on all its brokers.

        The result is also empty if the broker does not know the member yet. The brokers are asked in turn
        until one answers.

        Raises:
            UnsupportedByBrokerError: a broker does not assign queues. This is logged once.
            RocketMQError: no broker has answered.
        """
        failure: RocketMQError | None = None
        for broker_name in sorted(route.brokers):
            try:
                return await self._query_broker(route, broker_name)
            except UnsupportedByBrokerError:
                raise
            except RocketMQError as error:
                failure = failure or error
        raise failure or NoQueueError(f"topic {route.topic!r} has no broker")

    async def _query_broker(self, route: Route, broker_name: str) -> TopicAssignment:
        address = self._client.routes.broker_address(broker_name, any_id=True)
        query = AssignmentQuery(
            topic=route.topic,
            consumer_group=self._group,
            client_id=self._client.client_id,
            strategy_name=self._strategy_name,
        )
        try:
            answer = await self._client.brokers.call(address, QueryAssignmentRequest(), query)
        except (BrokerError, UnsupportedByBrokerError) as error:
            if isinstance(error, BrokerError) and error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            self._warn_once(
                address,
                "broker does not assign queues, which needs 5.x without a proxy; the members allocate them "
                "themselves: group=%s broker=%s",
            )
            raise UnsupportedByBrokerError(f"broker {address} does not assign queues") from None
        assigned = QueueAssignments.decode(answer.body).message_queue_assignments
        if assigned is None:
            raise NoQueueError(f"broker {address} has no assignment for topic {route.topic!r} yet")
        assignment = TopicAssignment(
            _queues_of(RequestMode.PULL, assigned, route), _queues_of(RequestMode.POP, assigned, route)
        )
        if assignment.popped and not self._can_pop:
            self._warn_once(
                route.topic,
                "an operator has set the group to pop this topic, which this consumer cannot; it consumes "
                "none of it. Use a PopConsumer or a PushConsumer with orderly=False: group=%s topic=%s",
            )
            return TopicAssignment(assignment.pulled, ())
        return assignment

    def _warn_once(self, subject: str, text: str) -> None:
        if subject not in self._warned:
            self._warned.add(subject)
            logger.warning(text, self._group, subject)


def _queues_of(
    mode: RequestMode, assigned: Sequence[MessageQueueAssignment], route: Route
) -> list[MessageQueue]:
    queues = [each.message_queue.queue for each in assigned if each.mode is mode]
    return [
        logical_queue(route.topic, queue.broker_name, queue.queue_id)
        if is_logical_broker_name(queue.broker_name)
        else attrs.evolve(queue, topic=route.topic)
        for queue in queues
    ]
