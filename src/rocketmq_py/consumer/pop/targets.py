"""The brokers from which a consumer receives popped messages, in round-robin order."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.group.statistics import PullState
from rocketmq_py.consumer.pull.retry import PullRetry
from rocketmq_py.errors import NoQueueError, RocketMQError, TopicNotFoundError, UnsupportedByBrokerError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import ALL_QUEUES

logger: Final = LibraryLogger("rocketmq_py.consumer")

SHARED_HOLD_SECONDS = 1.0
"""Seconds that a broker may hold a pop while other brokers might have messages."""


class PopTarget(NamedTuple):
    """A topic on one broker."""

    topic: str
    broker_name: str


class PopTargets:
    """The pop targets of topics, in round-robin order, with the failures of each.

    Args:
        client: provides the routes.
        group: the consumer group, for log lines.
    """

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        self._round = 0
        self._topic_logs = RetryLogs(logger, "route lookup", "topic", group=group)
        self._broker_logs = RetryLogs(logger, "pop", "broker", group=group)
        self._retries: dict[PopTarget, PullRetry] = {}

    async def of(self, topics: Iterable[str]) -> list[PopTarget]:
        """Return the targets of topics, rotated by one target more than in the previous call.

        A static topic, and one that has no route or no readable queue, is logged and skipped.

        Raises:
            RocketMQError: no topic has a readable queue. This is the error of the first topic.
        """
        targets: list[PopTarget] = []
        errors: dict[str, RocketMQError] = {}
        for topic in topics:
            try:
                route = await self._client.routes.get(topic)
            except RocketMQError as error:
                errors[topic] = error
                continue
            if route.logical_brokers:
                errors[topic] = UnsupportedByBrokerError(
                    f"topic {topic!r} is a static topic, whose logical queues brokers do not pop; use a "
                    "PushConsumer or a LitePullConsumer"
                )
                continue
            names = {queue.broker_name for queue in route.read_queues}
            targets += [PopTarget(topic, name) for name in sorted(names)]
            if names:
                self._topic_logs.succeeded(topic)
            else:
                errors[topic] = NoQueueError(f"topic {topic!r} has no readable queue")
        if not targets:
            cause = next(iter(errors.values()))
            if isinstance(cause, TopicNotFoundError):
                await self._client.name_servers.has_no_broker(cause)  # receive waits for one then
            raise cause
        for topic, missing in errors.items():
            self._topic_logs.failed(topic, missing)
        self._round += 1
        first = self._round % len(targets)
        return targets[first:] + targets[:first]

    def failed(self, target: PopTarget, error: RocketMQError, *, is_raised: bool) -> None:
        """Record a failed pop. It is not logged with ``is_raised``: the program gets the error."""
        retry = self._retries.get(target)
        if retry is None:
            retry = self._retries[target] = PullRetry(
                self._client,
                MessageQueue(target.topic, target.broker_name, ALL_QUEUES),
                self._broker_logs.of(target.broker_name),
                pause=SHARED_HOLD_SECONDS,
            )
        retry.failed(error, is_raised=is_raised)

    def pause(self, topics: Container[str]) -> float:
        """Return the seconds until brokers that limit the rate may be asked again. 0 if none does."""
        delays = [
            retry.delay(PullState.BUSY)
            for target, retry in self._retries.items()
            if target.topic in topics and retry.is_limited
        ]
        return max(delays, default=0.0)

    def succeeded(self, target: PopTarget) -> None:
        """Record an answer."""
        if target in self._retries:
            self._retries[target].succeeded()
