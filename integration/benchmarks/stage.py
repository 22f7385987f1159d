"""Creates and fills the topics of a benchmark."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import trio

from integration.benchmarks.workloads import Source
from integration.clusters.cluster import Cluster
from rocketmq_py import Client, Message, PendingSend, Producer, RocketMQError
from rocketmq_py.client import core_of

QUEUES = 4
"""Queues of a topic, as in automatically created topics."""
QUEUES_OF_MANY = 8
"""Queues of each topic of ``Source.MANY``."""
MARGIN = 1.25
"""Size of a backlog relative to a run, so that no queue runs empty before the run ends."""
WARM_UP_SIZE = 128
"""Body size of warm-up messages in bytes."""
SEND_TIMEOUT = 30.0
"""Send timeout in seconds, generous for a busy machine."""


class Stage:
    """Prepares topics on first use, with names unique to this run.

    Use it outside of trio. It does not delete the topics.

    Args:
        cluster: the cluster of the topics.
        backlog: number of messages that the longest run consumes.
        topics: number of topics of ``Source.MANY``.
    """

    def __init__(self, cluster: Cluster, *, backlog: int, topics: int) -> None:
        self._cluster = cluster
        self._backlog = int(backlog * MARGIN)
        self._topics = topics
        self._name = f"benchmark-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count(1)
        self._ready: set[str] = set()

    def topic(self, source: Source, size: int) -> str:
        """Return the topic of ``source`` for bodies of ``size`` bytes, or the name prefix of many topics."""
        match source:
            case Source.SHARED:
                return self._once(f"{self._name}-sends", self._create)
            case Source.FRESH:
                return self._once(f"{self._name}-fresh-{next(self._numbers)}", self._create)
            case Source.BACKLOG:
                return self._once(f"{self._name}-backlog-{size}", partial(self._create_backlog, size))
            case Source.MANY:
                return self._once(f"{self._name}-many-{size}", partial(self._create_many, size))

    def group(self) -> str:
        """Return the name of a new group."""
        return f"{self._name}-group-{next(self._numbers)}"

    def warm_up(self, count: int) -> None:
        """Send ``count`` messages to warm up the brokers' JIT compiler."""
        topic = self.topic(Source.SHARED, WARM_UP_SIZE)
        trio.run(self._send, itertools.repeat(Message(topic, b"x" * WARM_UP_SIZE), count))

    def _once(self, name: str, prepare: Callable[[str], Awaitable[None]]) -> str:
        if name not in self._ready:
            trio.run(prepare, name)
            self._ready.add(name)
        return name

    async def _create(self, *topics: str, queues: int = QUEUES) -> None:
        async with Client(self._cluster.name_servers) as client:
            for topic in topics:
                for address in self._cluster.brokers.values():
                    await core_of(client).brokers.create_topic(address, topic, queues=queues)
            # Brokers register a topic before they respond, so the last topic's route stands for all.
            await core_of(client).routes.refresh(topics[-1])

    async def _create_backlog(self, size: int, topic: str) -> None:
        await self._create(topic)
        await self._send(itertools.repeat(Message(topic, b"x" * size), self._backlog))

    async def _create_many(self, size: int, name: str) -> None:
        topics = [f"{name}-{number}" for number in range(self._topics)]
        await self._create(*topics, queues=QUEUES_OF_MANY)
        # A producer fills the queues of each topic in turn.
        messages = (Message(topic, b"x" * size) for topic in topics for _ in range(QUEUES_OF_MANY))
        await self._send(messages)

    async def _send(self, messages: Iterable[Message]) -> None:
        failed: list[RocketMQError] = []

        def on_done(pending: PendingSend) -> None:
            if (error := pending.exception()) is not None:
                failed.append(error)

        address = self._cluster.name_servers
        async with Producer(address, group=self._name, send_timeout=SEND_TIMEOUT) as producer:
            for message in messages:
                (await producer.submit(message)).add_done_callback(on_done)
        if failed:
            raise failed[0]
