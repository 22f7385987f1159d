"""Reading a topic without joining a group."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Unpack

from rocketmq_py.client.config import ClientOptions
from rocketmq_py.client.instance import ClientInstance, wall_clock_ms
from rocketmq_py.client.member import Member
from rocketmq_py.consumer.reading import Reading, of_each
from rocketmq_py.consumer.start import Start
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.subscription import ALL, subscribe

__all__ = ["Reader", "Start"]


class Reader(Member):
    """Reads topics as tools do: no group is joined, nothing is committed, others are not disturbed.

    ::

        async with Reader("127.0.0.1:9876") as reader:
            async with reader.open("TopicTest", start=Start.BEGINNING, stop_at_end=True) as messages:
                async for message in messages:
                    ...

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the clock that ``Start.END`` is taken from for queues that appear later, epoch milliseconds.
        **options: the fields of ClientConfig, unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: ClientInstance | str | None = None,
        *,
        rng: random.Random | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(client, rng, dict(options))
        self._now_ms = now_ms

    def open(
        self, topic: str, *, start: Start = Start.END, stop_at_end: bool = False, tags: str = ALL
    ) -> Reading:
        """Return what reads a topic, all queues of it at once; to be used inside ``async with``.

        Args:
            topic: the topic.
            start: where to begin in each queue.
            stop_at_end: end when everything has been read that was there at the beginning of the
                ``async with``; else wait for more, and for queues that appear.
            tags: with ``||`` between, or ``*`` for all messages.

        Raises:
            ConfigurationError: ``tags`` names no tag.
            ClosedError: the reader is not open.
        """
        self._check_open()
        now_ms = self._now_ms()
        subscription = subscribe(topic, tags, version_ms=now_ms)
        return Reading(self.client, subscription, start, stop_at_end=stop_at_end, opened_ms=now_ms)

    async def offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return each queue's first offset, and the one that its next message will get.

        Raises:
            TopicNotFoundError: there is no such topic.
            NameServerError, BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError.
        """
        self._check_open()
        route = await self.client.routes.get(topic)
        brokers = self.client.brokers
        first = await of_each(route.read_queues, brokers.min_offset)
        end = await of_each(route.read_queues, brokers.max_offset)
        return {queue: (first[queue], end[queue]) for queue in route.read_queues}
