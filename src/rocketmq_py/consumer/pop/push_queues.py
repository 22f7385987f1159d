"""What brokers have a push consumer pop instead of pull (5.x)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, KeysView, Mapping
from functools import partial
from typing import Final

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.config import ConsumeFrom, PushConsumerConfig
from rocketmq_py.consumer.group.statistics import ConsumerCounters, QueueStatistics, epoch_ms
from rocketmq_py.consumer.pop.popped_queue import PoppedQueue
from rocketmq_py.consumer.pop.push_loop import PopLoop
from rocketmq_py.consumer.pop.push_outcomes import PopOutcomes
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.consumer.pull.loop_table import LoopTable, start
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ALL_QUEUES, PopQueueInfo, SubscriptionData
from rocketmq_py.protocol.headers import INIT_FROM_MAX, INIT_FROM_MIN

logger: Final = logging.getLogger("rocketmq_py.consumer")


class PoppedQueues:
    """A pop loop for each queue, or all queues of a broker, that this member shall pop from.

    Java: ``RebalanceImpl.updateMessageQueueAssignment``.

    Args:
        client: what the member talks through.
        config: its settings.
        subscriptions: what is subscribed, by topic; may change.
        statistics: what counts the messages of each topic.

    Attributes:
        outcomes: tells brokers what became of popped messages.
        topics: gives the topics that are popped now.
        pause: stops popping some queues or all, or goes on, as LoopTable has it.
    """

    def __init__(
        self,
        client: Client,
        config: PushConsumerConfig,
        subscriptions: Mapping[str, SubscriptionData],
        statistics: ConsumerCounters,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._statistics = statistics
        self._requests = PopRequests(client, config.group)
        self.outcomes: PopOutcomes = PopOutcomes(
            self._requests, config.group, max_reconsume_times=config.reconsume_limit
        )
        self._loops: LoopTable[PopLoop] = LoopTable()
        self._retry_logs = RetryLogs(logger, "pop", "broker", group=config.group)
        self._nursery: trio.Nursery
        self._deliver: Callable[[PoppedQueue], None]
        self.topics: Callable[[], KeysView[str]] = self._loops.topics
        self.pause: Final = self._loops.pause

    def open(
        self, nursery: trio.Nursery, handlers: trio.Nursery, deliver: Callable[[PoppedQueue], None]
    ) -> None:
        """Have loops run in ``nursery``, and brokers told in ``handlers`` what became of the messages.

        ``deliver`` sees to what the loops put into their PoppedQueues.
        """
        self._nursery = nursery
        self._deliver = deliver
        self.outcomes.open(handlers)

    def __iter__(self) -> Iterator[PopLoop]:
        return iter(self._loops)

    def statistics(self) -> dict[MessageQueue, QueueStatistics]:
        """Return what is here of each; how far the group is, only brokers know."""
        now_ms = self._client.now_ms()
        return {
            loop.queue: QueueStatistics(
                state=loop.state,
                committed=None,
                handled_to=None,
                pulled_to=None,
                end=None,
                cached=len(loop.popped_queue),
                cached_bytes=loop.popped_queue.size,
                in_flight=len(loop.popped_queue) - loop.popped_queue.waiting,
                locked=None,
                pulled_ms=epoch_ms(loop.asked_at, now_ms),
                handled_ms=None,
            )
            for loop in self._loops.in_order()
        }

    def infos(self) -> dict[MessageQueue, PopQueueInfo]:
        """Return what operators see of each. Java: ``PopProcessQueue.fillPopProcessQueueInfo``."""
        now_ms = self._client.now_ms()
        return {
            loop.queue: PopQueueInfo(
                wait_ack_count=len(loop.popped_queue),
                dropped=loop.dropped,
                last_pop_timestamp=epoch_ms(loop.asked_at, now_ms) or 0,
            )
            for loop in self
        }

    async def read_queues(self) -> list[MessageQueue]:
        """Return all queues that are popped from, whoever else does. Raises as ``Routes.get``."""
        return [
            queue
            for loop in self
            for queue in (await self._client.routes.get(loop.queue.topic)).read_queues
            if queue == loop.queue
            or (loop.queue.queue_id == ALL_QUEUES and queue.broker_name == loop.queue.broker_name)
        ]

    def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Pop from these queues of the topic and from no other."""
        wanted = set(queues) if topic in self._subscriptions else set()
        revoked = [loop for loop in self._loops.of_topic(topic) if loop.queue not in wanted]
        for loop in revoked:
            loop.drop()
        self._loops.remove(revoked)
        acquired = self._loops.add(topic, wanted, self._make_loop)
        start(acquired, self._nursery)
        if revoked or acquired:
            logger.info(
                "group %s: topic %s is popped from %d queues, of which %d are new; %d revoked",
                self._config.group, topic, len(wanted), len(acquired), len(revoked),
            )  # fmt: skip

    async def leave(self) -> None:
        """Acknowledge what was handled; all else comes again when its time is up."""
        await self.outcomes.flush()

    def _make_loop(self, queue: MessageQueue) -> PopLoop:
        config = self._config
        subscribed = self._subscriptions[queue.topic]
        first = config.consume_from is ConsumeFrom.FIRST
        return PopLoop(
            PoppedQueue(queue, self._statistics.of(queue.topic), self.outcomes.done),
            self._requests,
            lambda: PopSpec(
                self._subscriptions.get(queue.topic, subscribed),
                config.pop_batch_nums,
                config.pop_invisible_time,
                INIT_FROM_MIN if first else INIT_FROM_MAX,
            ),
            hold=config.pull_hold,
            threshold=config.pop_threshold_for_queue,
            max_reconsume_times=config.reconsume_limit,
            outcomes=self.outcomes,
            deliver=self._deliver,
            invalidate_route=partial(self._client.routes.invalidate, queue.topic),
            retry_log=self._retry_logs.of(queue.broker_name),
        )
