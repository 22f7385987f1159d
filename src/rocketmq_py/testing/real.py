"""A real cluster, looked at in the same way as one under test."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from typing import Any

import trio

from rocketmq_py.admin import Admin
from rocketmq_py.consumer import Reader
from rocketmq_py.errors import GroupNotFoundError, TopicNotFoundError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.testing.thread import KitThread
from rocketmq_py.testing.threaded import TestBroker
from rocketmq_py.testing.watching import Watched

POLL_SECONDS = 0.1
"""How often it is looked whether what a test waits for has come."""


class RealCluster(Watched):
    """What tests use of a :class:`TestBroker`, on a real cluster: looking and waiting.

    What only an embedded broker can do (its requests, its clock, faults) raises RuntimeError.

    Args:
        address: the name servers, ``host:port;host:port``.
    """

    def __init__(self, address: str) -> None:
        self.name_server_address = address
        self._thread = KitThread()
        self._worlds = itertools.count()
        self._world = ""
        self.reset()
        try:
            self._thread.call(self._start)
        except BaseException:
            self.close()
            raise

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(TestBroker, name):
            raise RuntimeError(
                f"{name} needs an embedded broker, and {self.name_server_address} is a real cluster: "
                "mark the test with pytest.mark.rocketmq_embedded"
            )
        raise AttributeError(name)

    def close(self) -> None:
        """Close its connections."""
        self._thread.close()

    def reset(self) -> None:
        """Have :meth:`name` make new names: nothing was sent to these before."""
        self._world = f"{os.getpid()}-{uuid.uuid4().hex[:8]}-{next(self._worlds)}"

    def name(self, name: str) -> str:
        """Return a name for a topic or a group that no other test uses: the same one until the next reset."""
        return f"{name}-{self._world}"

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic on each broker of the cluster."""
        self._thread.call(lambda: self._admin.topics.create(topic, queues=queues))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return what is stored in a topic, queue after queue."""

        async def read() -> list[ReceivedMessage]:
            queues = await self._offsets(topic)
            return [message for queue in queues async for message in self._reader.range(queue)]

        return self._thread.call(read)

    def offsets(self, group: str) -> dict[MessageQueue, int]:
        """Return what a group has committed: where it goes on in each queue."""

        async def ask() -> dict[MessageQueue, int]:
            try:
                topics = await self._admin.offsets.topics(group)
            except GroupNotFoundError:
                return {}
            queues = [queue for topic in topics for queue in await self._offsets(topic)]
            committed = await self._reader.committed(group, queues)
            return {queue: offset for queue, offset in committed.items() if offset is not None}

        return self._thread.call(ask)

    def describe(self) -> str:
        """Return what is there, as failures show it."""

        async def ask() -> list[str]:
            own = [topic for topic in await self._reader.topics() if self._world in topic]
            counts = {topic: await self._counted(topic) for topic in own}
            return [f"  {topic}: {count} messages" for topic, count in sorted(counts.items()) if count]

        return "\n".join(["topics of this test with messages:", *(self._thread.call(ask) or ["  none"])])

    async def _start(self) -> None:
        await self._thread.nursery.start(self._live)

    async def _live(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with (
            Admin(self.name_server_address) as self._admin,
            Reader(self.name_server_address) as self._reader,
        ):
            task_status.started()
            await trio.sleep_forever()

    async def _offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        try:
            return await self._reader.offsets(topic)
        except TopicNotFoundError:
            return {}

    async def _counted(self, topic: str) -> int:
        return sum([end - start for start, end in (await self._offsets(topic)).values()])

    def _count(self, topic: str) -> int:
        return self._thread.call(lambda: self._counted(topic))

    def _seen(self) -> int:
        return 0

    def _changed(self, seen: int, seconds: float) -> bool:
        time.sleep(max(min(seconds, POLL_SECONDS), 0.0))
        return seconds > 0
