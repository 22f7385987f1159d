"""Leaving it to the brokers who of a group has which queues (5.x)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import attrs

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.routes import Route
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.allocation import (
    AllocateStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
)
from rocketmq_py.errors import (
    BrokerError,
    ConfigurationError,
    NoQueueError,
    RocketMQError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    AssignmentQuery,
    MessageQueueAssignment,
    QueueAssignments,
    RequestMode,
)
from rocketmq_py.protocol.headers import QueryAssignmentRequest

logger = logging.getLogger("rocketmq_py.consumer")

_NAMES = ((allocate_averagely, "AVG"), (allocate_averagely_by_circle, "AVG_BY_CIRCLE"))
"""The strategies that brokers know, and what they call them."""


def _strategy(_: object, __: object, value: object) -> None:
    if not any(value is strategy for strategy, _ in _NAMES):
        raise ConfigurationError(
            "brokers share queues out by allocate_averagely or allocate_averagely_by_circle, "
            f"not by {value!r}"
        )


@attrs.frozen
class AllocateByBroker:
    """Have brokers of 5.x share out the queues. Java: ``clientRebalance=false``.

    Where a broker does not know that, members share them out themselves in the same way, and say so in the
    log: so all come to results that fit together.

    Args:
        strategy: how: ``allocate_averagely`` or ``allocate_averagely_by_circle``. Raises ConfigurationError
            for any other, as brokers know none.
    """

    strategy: AllocateStrategy = attrs.field(default=allocate_averagely, validator=_strategy)

    @property
    def strategy_name(self) -> str:
        """What brokers call the strategy."""
        return next(name for strategy, name in _NAMES if strategy is self.strategy)

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> Sequence[MessageQueue]:
        """Return the member's queues where no broker shares them out."""
        return self.strategy(group, client_id, queues, client_ids)


class Assignments:
    """Asks brokers for one member's queues. Java: ``RebalanceImpl.getRebalanceResultFromBroker``.

    Args:
        client: the member.
        group: its group.
        strategy_name: how brokers share out queues.
    """

    def __init__(self, client: ClientInstance, group: str, strategy_name: str) -> None:
        self._client = client
        self._group = group
        self._strategy_name = strategy_name
        self._said: set[str] = set()

    async def of(self, route: Route) -> Collection[MessageQueue]:
        """Return the member's queues of a topic, on all brokers; none also if it is not known as a member.

        The brokers are asked in turn until one tells.

        Raises:
            UnsupportedByBrokerError: a broker shares out no queues; that is logged once.
            RocketMQError: no broker can tell now.
        """
        failure: RocketMQError | None = None
        for broker_name in sorted(route.brokers):
            try:
                return await self._ask(route, broker_name)
            except UnsupportedByBrokerError:
                raise
            except RocketMQError as error:
                failure = failure or error
        raise failure or NoQueueError(f"topic {route.topic!r} has no broker")

    async def _ask(self, route: Route, broker_name: str) -> Collection[MessageQueue]:
        address = self._client.routes.broker_address(broker_name, any_id=True)
        namespace = self._client.namespace
        query = AssignmentQuery(
            topic=namespace.wrap_topic(route.topic),
            consumer_group=namespace.wrap_group(self._group),
            client_id=self._client.client_id,
            strategy_name=self._strategy_name,
        )
        try:
            answer = await self._client.brokers.call(address, QueryAssignmentRequest(), query.encode())
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
            self._say(address, "%s shares out no queues, as 5.x does: the members do it themselves")
            raise UnsupportedByBrokerError(f"{address} shares out no queues") from None
        assigned = QueueAssignments.decode(answer.body).message_queue_assignments
        if assigned is None:
            raise NoQueueError(f"{address} cannot tell yet who has which queues of topic {route.topic!r}")
        return [
            attrs.evolve(each.message_queue.queue, topic=route.topic)
            for each in self._pulled(route, assigned)
        ]

    def _pulled(
        self, route: Route, assigned: Sequence[MessageQueueAssignment]
    ) -> Sequence[MessageQueueAssignment]:
        pulled = [each for each in assigned if each.mode is RequestMode.PULL]
        if len(pulled) < len(assigned):
            self._say(
                f"topic {route.topic}", "%s is set to be popped by this group: consume it with a PopConsumer"
            )
        return pulled

    def _say(self, whom: str, text: str) -> None:
        if whom not in self._said:
            self._said.add(whom)
            logger.warning(f"group %s: {text}", self._group, whom)
