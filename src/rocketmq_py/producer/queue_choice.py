"""Which queue a message goes to when the user does not say."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Sequence

from rocketmq_py.client.routes import Route
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer.latency_faults import LatencyFaults


class RoundRobin:
    """One queue of a topic after the other, passing over the broker that just failed if there is another.

    Java: ``TopicPublishInfo.selectOneMessageQueue``. Each topic's turn starts anywhere, so that many senders
    that start together do not all begin with the same queue.
    """

    def __init__(self, rng: random.Random) -> None:
        self._turns: defaultdict[str, itertools.count[int]] = defaultdict(
            lambda: itertools.count(rng.randrange(1024))
        )

    def choose(self, route: Route, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue. Raises NoQueueError if the topic has none to write to."""
        queues = route.queues_to_write()
        if failed_broker is not None:
            queue = self.next_of(queues, lambda broker_name: broker_name != failed_broker)
            if queue is not None:
                return queue
        return queues[next(self._turns[route.topic]) % len(queues)]

    def turn(self, topic: str) -> itertools.count[int]:
        """Return the topic's turn, for who takes the next queue without asking for more."""
        return self._turns[topic]

    def next_of(self, queues: Sequence[MessageQueue], suits: Callable[[str], bool]) -> MessageQueue | None:
        """Return the next queue whose broker's name suits, or None if there is none."""
        for queue in queues:
            queue = queues[next(self._turns[queue.topic]) % len(queues)]
            if suits(queue.broker_name):
                return queue
        return None


class FaultAwareRoundRobin:
    """One queue after the other, going round brokers that answer late or not at all.

    While nothing is held against any broker it is a plain RoundRobin. Else it is the first of
    these that exists, which is the order of Java's ``MQFaultStrategy``, of 4.x and 5.x in turn:

    1. a queue of an available broker, not the one that just failed;
    2. with a policy that detects, a queue of a broker that can be reached, not the one that just failed;
       else a queue of the broker that just failed, if it has answered in time since;
    3. a queue of one of the better half of the brokers;
    4. the next queue, whatever its broker is: a message is never refused because all brokers are in trouble.

    Args:
        faults: what is held against which broker.
        rng: where the turn starts.
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
            self._next_but(failed_broker, queues, self._faults.is_available)
            or self._second_best(failed_broker, queues)
            or self._of_one_of_the_better(queues)
            or self._round_robin.choose(route)
        )

    def turn(self, topic: str) -> itertools.count[int]:
        """Return the topic's turn, for who takes the next queue while nothing is held against any broker."""
        return self._round_robin.turn(topic)

    def _second_best(self, failed_broker: str | None, queues: Sequence[MessageQueue]) -> MessageQueue | None:
        if self._faults.policy.detect:
            return self._next_but(failed_broker, queues, self._faults.is_reachable)
        return self._round_robin.next_of(queues, self._faults.is_available)

    def _of_one_of_the_better(self, queues: Sequence[MessageQueue]) -> MessageQueue | None:
        better = self._faults.one_of_the_better({queue.broker_name for queue in queues})
        return self._round_robin.next_of(queues, lambda broker_name: broker_name == better)

    def _next_but(
        self, failed_broker: str | None, queues: Sequence[MessageQueue], suits: Callable[[str], bool]
    ) -> MessageQueue | None:
        return self._round_robin.next_of(
            queues, lambda broker_name: broker_name != failed_broker and suits(broker_name)
        )
