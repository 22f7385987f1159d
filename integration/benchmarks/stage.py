"""The topics that a benchmark sends to and consumes from, and what is in them."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import trio

from integration.benchmarks.workloads import Source
from integration.clusters.cluster import Cluster
from rocketmq_py import Client, Message, PendingSend, Producer, RocketMQError

QUEUES = 4
"""Queues of a topic: what a client's topic gets when a broker makes it by itself."""
QUEUES_OF_MANY = 8
"""The same where there are many topics."""
MARGIN = 1.25
"""A backlog holds so much more than a run consumes, so that no queue is empty before its end."""
WARM_UP_SIZE = 128
"""Bytes of the bodies that warm brokers up."""
SEND_TIMEOUT = 30.0
"""Seconds: it may take its time."""


class Stage:
    """Prepares topics, each when it is first asked for. Their names are this run's own.

    Use it outside of trio. The topics stay: a cluster that outlives the benchmark keeps them.

    Args:
        cluster: where.
        backlog: the messages that the longest run consumes.
        topics: how many topics ``Source.MANY`` has.
    """

    def __init__(self, cluster: Cluster, *, backlog: int, topics: int) -> None:
        self._cluster = cluster
        self._backlog = int(backlog * MARGIN)
        self._topics = topics
        self._name = f"benchmark-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count(1)
        self._ready: set[str] = set()

    def topic(self, source: Source, size: int) -> str:
        """Return the topic of ``source`` for bodies of ``size`` bytes; with many, how their names begin."""
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
        """Return a group that nobody has used."""
        return f"{self._name}-group-{next(self._numbers)}"

    def warm_up(self, count: int) -> None:
        """Send so many messages, so that the brokers' compiler has seen it."""
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
                    await client.brokers.create_topic(address, topic, queues=queues)
            # Brokers tell the name servers of it before they answer; the last one stands for all.
            await client.routes.refresh(topics[-1])

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
            if pending.error is not None:
                failed.append(pending.error)

        address = self._cluster.name_servers
        async with Producer(address, group=self._name, send_timeout=SEND_TIMEOUT) as producer:
            for message in messages:
                await producer.submit(message, on_done=on_done)
        if failed:
            raise failed[0]
