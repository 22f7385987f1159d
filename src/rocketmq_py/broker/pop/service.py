"""The parts of consuming by pop, put together."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping

from rocketmq_py.address import pack_address, split_address
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.dispatch import RequestHandler
from rocketmq_py.broker.offsets import OffsetTable
from rocketmq_py.broker.pop.acknowledging import Acknowledging
from rocketmq_py.broker.pop.checkpoints import Checkpoints
from rocketmq_py.broker.pop.ordering import OrderedDeliveries
from rocketmq_py.broker.pop.popping import Popping
from rocketmq_py.broker.pop.reviving import Reviving
from rocketmq_py.broker.pop.taking import Taking
from rocketmq_py.broker.schedule import Schedule
from rocketmq_py.broker.store import MessageStore
from rocketmq_py.broker.subscription_groups import SubscriptionGroupTable
from rocketmq_py.broker.topics import TopicTable
from rocketmq_py.remoting import Connection


class PopService:
    """Answers all that consumers by pop ask for.

    Args:
        config: the broker's settings.
        store: the broker's messages.
        topics: its topics.
        subscription_groups: the settings of groups.
        offsets: how far groups have come.
        schedule: stores what comes again.
        address: the broker's own, ``host:port``.
        now_ms: the time, epoch milliseconds.
        rng: chooses where a pop begins.

    Attributes:
        tasks: must be under way for pops to wait, and for messages to come again.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        subscription_groups: SubscriptionGroupTable,
        offsets: OffsetTable,
        schedule: Schedule,
        *,
        address: str,
        now_ms: Callable[[], int],
        rng: random.Random,
    ) -> None:
        packed = pack_address(address)
        reviving = Reviving(config, topics, subscription_groups, store, schedule, offsets, address=packed)
        checkpoints = Checkpoints(reviving.revive)
        ordered = OrderedDeliveries()
        taking = Taking(
            config, store, topics, offsets, checkpoints, ordered, now_ms=now_ms, rng=rng, address=packed
        )
        self._popping = Popping(
            config,
            store,
            topics,
            subscription_groups,
            ordered,
            taking,
            broker_ip=split_address(address)[0],
            now_ms=now_ms,
        )
        self._acknowledging = Acknowledging(
            store,
            topics,
            offsets,
            checkpoints,
            ordered,
            wake_when_free=self._popping.wake_when_free,
            now_ms=now_ms,
        )
        self.tasks: list[Callable[[], Awaitable[None]]] = [checkpoints.run, self._popping.held.run]

    def handlers(self) -> Mapping[int, RequestHandler]:
        """Return the handler of each request's code."""
        return {**self._popping.handlers(), **self._acknowledging.handlers()}

    def forget(self, connection: Connection) -> None:
        """Forget the pops of a connection that is closed."""
        self._popping.held.drop(connection)
