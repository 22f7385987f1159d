"""What brokers have a push consumer pop instead of pull (5.x)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from functools import partial

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.config import ConsumeFrom, PushConsumerConfig
from rocketmq_py.consumer.group.counters import Statistics, epoch_ms
from rocketmq_py.consumer.group.failure_log import FailureLog
from rocketmq_py.consumer.group.statistics import QueueStatistics
from rocketmq_py.consumer.pop.popped_queue import PoppedQueue
from rocketmq_py.consumer.pop.push_loop import PopLoop
from rocketmq_py.consumer.pop.push_outcomes import PopOutcomes
from rocketmq_py.consumer.pop.requests import PopRequests, PopSpec
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ALL_QUEUES, PopQueueInfo, SubscriptionData
from rocketmq_py.protocol.headers import INIT_FROM_MAX, INIT_FROM_MIN

logger = logging.getLogger("rocketmq_py.consumer")


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
    """

    def __init__(
        self,
        client: Client,
        config: PushConsumerConfig,
        subscriptions: Mapping[str, SubscriptionData],
        statistics: Statistics,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._statistics = statistics
        self._requests = PopRequests(client, config.group)
        self.outcomes = PopOutcomes(self._requests, config.group, max_reconsume_times=config.reconsume_limit)
        self._loops: dict[str, dict[MessageQueue, PopLoop]] = {}
        self._failure_logs: defaultdict[str, FailureLog] = defaultdict(FailureLog)
        self._paused = False
        self._nursery: trio.Nursery
        self._deliver: Callable[[PoppedQueue], None]
        self.topics = self._loops.keys
        """Gives the topics that are popped now."""

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
        for loops in list(self._loops.values()):
            yield from list(loops.values())

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
            for loop in sorted(self, key=lambda loop: loop.queue)
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

    def pause(self, paused: bool, queues: Set[MessageQueue] | None = None) -> None:
        """Stop popping these queues, or all (None), for the time being, or go on."""
        if queues is None:
            self._paused = paused
        for loop in self:
            if queues is None or loop.queue in queues:
                loop.pause(paused)

    def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        """Pop from these queues of the topic and from no other."""
        loops = self._loops.setdefault(topic, {})
        wanted = set(queues) if topic in self._subscriptions else set()
        revoked = [loops.pop(queue) for queue in list(loops) if queue not in wanted]
        for loop in revoked:
            loop.drop()
        acquired = sorted(wanted.difference(loops))
        for queue in acquired:
            loops[queue] = self._start_loop(queue)
        if not loops:
            del self._loops[topic]
        if revoked or acquired:
            logger.info(
                "group %s: topic %s is popped from %d queues, of which %d are new; %d revoked",
                self._config.group, topic, len(loops), len(acquired), len(revoked),
            )  # fmt: skip

    async def leave(self) -> None:
        """Acknowledge what was handled; all else comes again when its time is up."""
        await self.outcomes.flush()

    def _start_loop(self, queue: MessageQueue) -> PopLoop:
        config = self._config
        subscribed = self._subscriptions[queue.topic]
        first = config.consume_from is ConsumeFrom.FIRST
        loop = PopLoop(
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
            failure_log=self._failure_logs[queue.broker_name],
        )
        loop.pause(self._paused)
        self._nursery.start_soon(loop.run)
        return loop
