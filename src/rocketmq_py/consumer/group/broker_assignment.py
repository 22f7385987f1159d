"""Leaving it to the brokers who of a group has which queues (5.x)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from rocketmq_py.client.client import Client
from rocketmq_py.client.routes import Route
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.allocation.strategies import (
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

logger: Final = logging.getLogger("rocketmq_py.consumer")

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

    Where an operator has set a group to pop a topic (``mqadmin setConsumeMode -m POP``), a PushConsumer pops
    it: each message is taken for ``pop_invisible_time`` and acknowledged by itself, and there may be more
    members than queues. It changes over to and from that while it runs; in order it cannot.

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


@attrs.frozen
class TopicAssignment:
    """What a member has of a topic.

    Attributes:
        pulled: queues that it pulls.
        popped: queues that it pops from; ALL_QUEUES for a number stands for all of a broker's. None where no
            broker says it, and the members share out the queues to pull them.
    """

    pulled: Collection[MessageQueue]
    popped: Collection[MessageQueue] | None = None

    def __bool__(self) -> bool:
        return bool(self.pulled or self.popped)


class Assignments:
    """Asks brokers for one member's queues. Java: ``RebalanceImpl.getRebalanceResultFromBroker``.

    Args:
        client: the member.
        group: its group.
        strategy_name: how brokers share out queues.
        pops: whether the member can pop; if not, what it should pop is left alone, and the log says so.
    """

    def __init__(self, client: Client, group: str, strategy_name: str, *, pops: bool = False) -> None:
        self._pops = pops
        self._client = client
        self._group = group
        self._strategy_name = strategy_name
        self._said: set[str] = set()

    async def of(self, route: Route) -> TopicAssignment:
        """Return what the member has of a topic, on all brokers; nothing also if it is not known as a member.

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

    async def _ask(self, route: Route, broker_name: str) -> TopicAssignment:
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
        assignment = TopicAssignment(
            _of_mode(RequestMode.PULL, assigned, route), _of_mode(RequestMode.POP, assigned, route)
        )
        if assignment.popped and not self._pops:
            self._say(
                f"topic {route.topic}",
                "%s is set to be popped by this group, which only a PopConsumer and a PushConsumer out of "
                "order do: nothing of it is consumed here",
            )
            return TopicAssignment(assignment.pulled, ())
        return assignment

    def _say(self, whom: str, text: str) -> None:
        if whom not in self._said:
            self._said.add(whom)
            logger.warning(f"group %s: {text}", self._group, whom)


def _of_mode(
    mode: RequestMode, assigned: Sequence[MessageQueueAssignment], route: Route
) -> list[MessageQueue]:
    return [
        attrs.evolve(each.message_queue.queue, topic=route.topic) for each in assigned if each.mode is mode
    ]
