"""The queues that a push consumer pops from, if its brokers assign pop instead of pull (5.x)."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, KeysView, Mapping, Set
from typing import Final, Protocol

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.group.counters import CachedMessages, ConsumerCounters
from rocketmq_py.consumer.group.statistics import QueueStatistics, epoch_ms
from rocketmq_py.consumer.pop.acknowledger import PopAcknowledger
from rocketmq_py.consumer.pop.pop_loop import PopLoop
from rocketmq_py.consumer.pop.process_queue import PopProcessQueue
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.consumer.pull.loop_table import LoopTable, start_loops
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.position import Position
from rocketmq_py.protocol.bodies import ALL_QUEUES, PopQueueInfo, SubscriptionData
from rocketmq_py.protocol.headers import INIT_FROM_MAX, INIT_FROM_MIN

logger: Final = LibraryLogger("rocketmq_py.consumer")


class PopAssignedQueuesOwner(Protocol):
    """The consumer that processes the popped messages."""

    def deliver(self, process_queue: PopProcessQueue) -> None:
        """Dispatch the waiting messages of a PopProcessQueue."""


class PopAssignedQueues:
    """The pop loops of a member, one for each assigned queue or broker.

    Java: ``RebalanceImpl.updateMessageQueueAssignment``.

    Args:
        client: the client that sends the requests.
        config: the consumer's settings.
        subscriptions: the current subscriptions by topic.
        counters: the counters of the topics.
        owner: processes the messages.

    Attributes:
        acknowledger: reports the outcomes of popped messages to the brokers.
    """

    def __init__(
        self,
        client: ClientCore,
        config: PushConsumerSettings,
        subscriptions: Mapping[str, SubscriptionData],
        counters: ConsumerCounters,
        owner: PopAssignedQueuesOwner,
    ) -> None:
        self._client = client
        self._owner = owner
        self._config = config
        self._subscriptions = subscriptions
        self._counters = counters
        self._requests = PopRequests(client, config.group, counters)
        self.acknowledger: PopAcknowledger = PopAcknowledger(
            self._requests, config.group, max_reconsume_times=config.reconsume_limit
        )
        self._loops: LoopTable[PopLoop[PopProcessQueue]] = LoopTable()
        self._retry_logs = RetryLogs(logger, "pop", "broker", group=config.group)
        self._nursery: trio.Nursery

    def open(self, nursery: trio.Nursery, handlers: trio.Nursery) -> None:
        """Run loops in ``nursery`` and acknowledgements in ``handlers``."""
        self._nursery = nursery
        self.acknowledger.open(handlers)

    def __iter__(self) -> Iterator[PopLoop[PopProcessQueue]]:
        return iter(self._loops)

    def topics(self) -> KeysView[str]:
        """Return the topics that are popped."""
        return self._loops.topics()

    def pause(self, paused: bool, queues: Set[MessageQueue] | None = None) -> None:
        """Pause or resume popping these queues, or with None all queues, including those assigned later."""
        self._loops.pause(paused, queues)

    def cached(self) -> Iterator[CachedMessages]:
        """Yield the unacknowledged messages in memory of each queue. Any thread may call this."""
        for loop in self:
            yield CachedMessages(loop.queue.topic, len(loop.process_queue), loop.process_queue.size, 0)

    def statistics(self) -> dict[MessageQueue, QueueStatistics]:
        """Return the statistics of each queue. They have no offsets, which only the brokers know."""
        now_ms = self._client.now_ms()
        return {
            loop.queue: QueueStatistics(
                state=loop.state,
                committed=None,
                handled_to=None,
                pulled_to=None,
                end=None,
                cached=len(loop.process_queue),
                cached_bytes=loop.process_queue.size,
                in_flight=len(loop.process_queue) - loop.process_queue.waiting,
                locked=None,
                pulled_ms=epoch_ms(loop.pulled_at, now_ms),
                handled_ms=None,
            )
            for loop in self._loops.sorted_by_queue()
        }

    def infos(self) -> dict[MessageQueue, PopQueueInfo]:
        """Return the state of each queue for operators. Java: ``PopProcessQueue.fillPopProcessQueueInfo``."""
        now_ms = self._client.now_ms()
        return {
            loop.queue: PopQueueInfo(
                wait_ack_count=len(loop.process_queue),
                dropped=loop.dropped,
                last_pop_timestamp=epoch_ms(loop.pulled_at, now_ms) or 0,
            )
            for loop in self
        }

    async def read_queues(self) -> list[MessageQueue]:
        """Return all popped queues, which other members may pop from as well. Raises as ``Routes.get``."""
        popped: list[MessageQueue] = []
        for loop in self:
            queues = (await self._client.routes.get(loop.queue.topic)).read_queues
            of_broker = [queue for queue in queues if queue.broker_name == loop.queue.broker_name]
            popped += [queue for queue in of_broker if loop.queue.queue_id in (queue.queue_id, ALL_QUEUES)]
        return popped

    def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Set the queues of a topic to pop from: start loops for new queues and drop the others."""
        wanted = set(queues) if topic in self._subscriptions else set()
        revoked = [loop for loop in self._loops.of_topic(topic) if loop.queue not in wanted]
        for loop in revoked:
            loop.drop()
        self._loops.remove(revoked)
        assigned = self._loops.add(topic, wanted, self._make_loop)
        start_loops(assigned, self._nursery)
        if revoked or assigned:
            logger.info(
                "rebalanced pop group=%s topic=%s assigned=%d (+%d, -%d)",
                self._config.group, topic, len(wanted), len(assigned), len(revoked),
            )  # fmt: skip

    async def hand_over(self) -> None:
        """Have brokers redeliver the messages that wait for a handler."""
        await self._release(waiting_only=True)

    async def leave(self) -> None:
        """Send the outstanding acknowledgements, and have brokers redeliver all other messages."""
        await self.acknowledger.flush()
        await self._release(waiting_only=False)

    async def _release(self, *, waiting_only: bool) -> None:
        queues = [loop.process_queue for loop in self]
        messages = [queue.take_to_release(waiting_only=waiting_only) for queue in queues]
        await self._requests.release(itertools.chain.from_iterable(messages))

    def _make_loop(self, queue: MessageQueue) -> PopLoop[PopProcessQueue]:
        config = self._config
        process_queue = PopProcessQueue(queue, self._counters.of(queue.topic), self.acknowledger)
        return PopLoop(
            process_queue,
            self._requests,
            self,
            spec=self._spec(self._subscriptions[queue.topic]),
            hold=config.pull_hold,
            threshold=config.pop_threshold,
            max_reconsume_times=config.reconsume_limit,
            acknowledger=self.acknowledger,
            retry_log=self._retry_logs.of(queue.broker_name),
        )

    def _spec(self, subscription: SubscriptionData) -> PopSpec:
        config = self._config
        first = config.consume_from == Position.earliest
        return PopSpec(
            subscription,
            config.pop_batch_nums,
            config.invisible,
            INIT_FROM_MIN if first else INIT_FROM_MAX,
        )

    # The owner of the pop loops

    def spec_of(self, topic: str) -> PopSpec | None:
        """Return the current parameters of a pop. None after the subscription has ended."""
        subscription = self._subscriptions.get(topic)
        return None if subscription is None else self._spec(subscription)

    def deliver(self, process_queue: PopProcessQueue) -> None:
        """Dispatch the waiting messages of a PopProcessQueue."""
        self._owner.deliver(process_queue)
