"""Which queue a message goes to when the user does not say."""

from __future__ import annotations

import itertools
import random

from rocketmq_py.client.routes import Route
from rocketmq_py.errors import NoQueueError
from rocketmq_py.message import MessageQueue


class RoundRobin:
    """One queue after the other, passing over the broker that just failed if there is another.

    Java: ``TopicPublishInfo.selectOneMessageQueue``. It starts anywhere, so that many senders that
    start together do not all begin with the same queue.
    """

    def __init__(self, rng: random.Random) -> None:
        self._counter = itertools.count(rng.randrange(1024))

    def choose(self, route: Route, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue. Raises NoQueueError if the topic has none to write to."""
        queues = route.write_queues
        if not queues:
            raise NoQueueError(f"topic {route.topic!r} has no queue that may be written to and has a master")
        if failed_broker is not None:
            for _ in queues:
                queue = queues[next(self._counter) % len(queues)]
                if queue.broker_name != failed_broker:
                    return queue
        return queues[next(self._counter) % len(queues)]
