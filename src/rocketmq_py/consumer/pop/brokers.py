"""Which brokers a pop consumer asks, and in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.group.failure_log import FailureLog
from rocketmq_py.errors import NoQueueError, RocketMQError

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
        self._failure_logs: defaultdict[str, FailureLog] = defaultdict(FailureLog)

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
            if not names:
                errors[topic] = NoQueueError(f"topic {topic!r} has no queue that may be read")
        if not targets:
            raise next(iter(errors.values()))
        for topic, missing in errors.items():
            self._failure_logs[topic].failed(f"group {self._group}, topic {topic}", missing, TURN_SECONDS)
        self._turn += 1
        first = self._turn % len(targets)
        return targets[first:] + targets[:first]

    def failed(self, target: PopTarget, error: RocketMQError) -> None:
        """Note that nothing could be asked for there; raise what will not be better next time."""
        if error.invalidates_route:
            self._client.routes.invalidate(target.topic)
        elif not error.retriable:
            raise error
        self._failure_logs[target.broker_name].failed(self._what(target), error, TURN_SECONDS)

    def answered(self, target: PopTarget) -> None:
        """Note that the broker has answered."""
        if target.broker_name in self._failure_logs:
            self._failure_logs[target.broker_name].succeeded(self._what(target))

    def _what(self, target: PopTarget) -> str:
        return f"group {self._group}, popping from {target.broker_name}"
