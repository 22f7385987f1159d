"""Which brokers a pop consumer asks, and in which order."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final, NamedTuple

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.pull.retry import PullRetry
from rocketmq_py.errors import NoQueueError, RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ALL_QUEUES

logger: Final = logging.getLogger("rocketmq_py.consumer")

TURN_SECONDS = 1.0
"""How long one broker may hold a pop while there are others that might have messages."""


class PopTarget(NamedTuple):
    """A topic on one broker."""

    topic: str
    broker_name: str


class PopTargets:
    """The topics' targets in turn, and what fails there.

    Args:
        client: knows the topics' routes.
        group: who asks, for the log.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._turn = 0
        self._topic_logs = RetryLogs(logger, "route lookup", "topic", group=group)
        self._broker_logs = RetryLogs(logger, "pop", "broker", group=group)
        self._retries: dict[PopTarget, PullRetry] = {}

    async def of(self, topics: Iterable[str]) -> list[PopTarget]:
        """Return where messages of the topics may be; each time another target is the first.

        Raises:
            RocketMQError: no topic has a route (that of the first is raised), or a queue that may be read.
            While there is any, a topic without one is logged.
        """
        targets: list[PopTarget] = []
        errors: dict[str, RocketMQError] = {}
        for topic in topics:
            try:
                route = await self._client.routes.get(topic)
            except RocketMQError as error:
                errors[topic] = error
                continue
            names = {queue.broker_name for queue in route.read_queues}
            targets += [PopTarget(topic, name) for name in sorted(names)]
            if names:
                self._topic_logs.succeeded(topic)
            else:
                errors[topic] = NoQueueError(f"topic {topic!r} has no queue that may be read")
        if not targets:
            raise next(iter(errors.values()))
        for topic, missing in errors.items():
            self._topic_logs.failed(topic, missing)
        self._turn += 1
        first = self._turn % len(targets)
        return targets[first:] + targets[:first]

    def failed(self, target: PopTarget, error: RocketMQError) -> None:
        """Note that nothing could be asked for there; raise what will not be better next time."""
        if not (error.retriable or error.invalidates_route):
            raise error
        retry = self._retries.get(target)
        if retry is None:
            retry = self._retries[target] = PullRetry(
                MessageQueue(target.topic, target.broker_name, ALL_QUEUES),
                self._broker_logs.of(target.broker_name),
                partial(self._client.routes.invalidate, target.topic),
                pause=TURN_SECONDS,
            )
        retry.failed(error)

    def answered(self, target: PopTarget) -> None:
        """Note that the broker has answered."""
        if target in self._retries:
            self._retries[target].succeeded()
