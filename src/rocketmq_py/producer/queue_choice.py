"""Chooses the queue of each request: the caller's queue or selector, else round robin.

``request_router`` caches the queues of a topic, and takes the next one by itself as long as nothing but round
robin could choose another.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from rocketmq_py.client.routes import Route
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer.destinations import select
from rocketmq_py.producer.latency_faults import LatencyFaults
from rocketmq_py.producer.send import Send


class QueueChoice:
    """Chooses the queue of each request of a producer.

    Args:
        faults: the brokers to avoid. None without the latency-fault strategy.
        rng: chooses the first queue of each topic.
    """

    def __init__(self, faults: LatencyFaults | None, rng: random.Random) -> None:
        self._round_robin = RoundRobin(rng) if faults is None else FaultAwareRoundRobin(faults, rng)

    def choose(self, route: Route, send: Send) -> MessageQueue:
        """Return the queue for the next attempt of a send.

        A selector is called once. Later attempts use the same queue.

        Raises:
            NoQueueError: the topic has no queue to write to.
            InvalidMessageError: the selector returned something else than a queue of the topic.
            Exception: any exception of the selector.
        """
        if send.fixed_queue is not None:
            return send.fixed_queue
        if send.selector is None:
            return self._round_robin.choose(route, send.failed_broker)
        queue = send.fixed_queue = select(send.selector, route.queues_to_write(), send.request.messages[0])
        return queue

    def counter(self, topic: str) -> itertools.count[int]:
        """Return the round-robin counter of a topic."""
        return self._round_robin.counter(topic)


class RoundRobin:
    """Round robin over the queues of a topic, skipping the broker that failed last if there is another.

    Java: ``TopicPublishInfo.selectOneMessageQueue``. Each topic starts at a random queue, so that senders
    that start together use different queues.
    """

    def __init__(self, rng: random.Random) -> None:
        self._counters: defaultdict[str, itertools.count[int]] = defaultdict(
            lambda: itertools.count(rng.randrange(1024))
        )

    def choose(self, route: Route, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue. Raises NoQueueError if the topic has none to write to."""
        queues = route.queues_to_write()
        if failed_broker is not None:
            queue = self.next_on(queues, lambda broker_name: broker_name != failed_broker)
            if queue is not None:
                return queue
        return queues[next(self._counters[route.topic]) % len(queues)]

    def counter(self, topic: str) -> itertools.count[int]:
        """Return the round-robin counter of a topic."""
        return self._counters[topic]

    def next_on(
        self, queues: Sequence[MessageQueue], is_wanted: Callable[[str], bool]
    ) -> MessageQueue | None:
        """Return the next queue on a wanted broker, or None. ``is_wanted`` gets the name of the broker."""
        for _ in queues:
            queue = queues[next(self._counters[queues[0].topic]) % len(queues)]
            if is_wanted(queue.broker_name):
                return queue
        return None


class FaultAwareRoundRobin:
    """Round robin that avoids brokers that answer late or not at all. Java: ``MQFaultStrategy``.

    As long as no broker is in the fault table, it is a plain RoundRobin. Otherwise it takes the first of
    these that exists, in the order of Java 4.x and 5.x:

    1. a queue on an available broker other than the one that failed last;
    2. with a policy that detects: a queue on a reachable broker other than the one that failed last. With
       other policies: a queue on the broker that failed last, if it has answered in time since;
    3. a queue on a broker of the better half, see :meth:`LatencyFaults.one_of_the_better`;
    4. the next queue on any broker. A message is sent even if all brokers are in the table.

    Args:
        faults: the fault table.
        rng: chooses the first queue of each topic.
    """

    def __init__(self, faults: LatencyFaults, rng: random.Random) -> None:
        self._faults = faults
        self._round_robin = RoundRobin(rng)

    def choose(self, route: Route, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue. Raises NoQueueError if the topic has none to write to."""
        queues = route.write_queues
        if self._faults.all_clear:
            return self._round_robin.choose(route, failed_broker)
        return (
            self._next_except(failed_broker, queues, self._faults.is_available)
            or self._second_choice(failed_broker, queues)
            or self._on_better_broker(queues)
            or self._round_robin.choose(route)
        )

    def counter(self, topic: str) -> itertools.count[int]:
        """Return the round-robin counter of a topic."""
        return self._round_robin.counter(topic)

    def _second_choice(
        self, failed_broker: str | None, queues: Sequence[MessageQueue]
    ) -> MessageQueue | None:
        if self._faults.policy.detect:
            return self._next_except(failed_broker, queues, self._faults.is_reachable)
        return self._round_robin.next_on(queues, self._faults.is_available)

    def _on_better_broker(self, queues: Sequence[MessageQueue]) -> MessageQueue | None:
        better = self._faults.one_of_the_better({queue.broker_name for queue in queues})
        return self._round_robin.next_on(queues, lambda broker_name: broker_name == better)

    def _next_except(
        self, failed_broker: str | None, queues: Sequence[MessageQueue], is_wanted: Callable[[str], bool]
    ) -> MessageQueue | None:
        return self._round_robin.next_on(
            queues, lambda broker_name: broker_name != failed_broker and is_wanted(broker_name)
        )
