"""Inspection of a real cluster, with the methods of a test cluster."""

from __future__ import annotations

import time
import uuid
from typing import Any

import trio

from rocketmq_py.admin import Admin, GroupNotFoundError
from rocketmq_py.consumer import Reader
from rocketmq_py.errors import TopicNotFoundError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import retry_topic
from rocketmq_py.testing.observable_cluster import ObservableCluster
from rocketmq_py.testing.threaded_cluster import ClusterThread, TestBroker


class RealCluster(ObservableCluster):
    """A real cluster with the methods of a :class:`TestBroker` that need only a client.

    These are inspection of messages and offsets, waiting, :meth:`name`, :meth:`reset` and
    :meth:`create_topic`. They send requests, for which they block their thread. Other attributes of a
    TestBroker (its requests, its clock, faults) raise RuntimeError.

    Args:
        address: the addresses of the name servers, ``host:port;host:port``.
    """

    def __init__(self, address: str) -> None:
        self.name_server_address = address
        self._thread = ClusterThread()
        self._name_suffix = _unique_suffix()
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
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def close(self) -> None:
        """Close all connections."""
        self._thread.close()

    def reset(self) -> None:
        """Change the names that :meth:`name` returns to new ones, which no message was sent to before."""
        self._name_suffix = _unique_suffix()

    def name(self, name: str) -> str:
        """Return a topic or group name that no other test uses. It stays the same until the next reset."""
        return f"{name}-{self._name_suffix}"

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic on each broker of the cluster."""
        self._thread.call(lambda: self._admin.topics.create(topic, queues=queues))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return the messages of a topic, queue by queue."""

        async def read() -> list[ReceivedMessage]:
            queues = await self._offset_ranges(topic)
            return [message for queue in queues async for message in self._reader.range(queue)]

        return self._thread.call(read)

    def committed(self, group: str) -> dict[MessageQueue, int]:
        """Return the committed offsets of a group."""

        async def query() -> dict[MessageQueue, int]:
            try:
                topics = [*await self._admin.offsets.topics(group), retry_topic(group)]
            except GroupNotFoundError:
                return {}
            queues = [queue for topic in topics for queue in await self._offset_ranges(topic)]
            committed = await self._reader.committed(group, queues)
            return {queue: offset for queue, offset in committed.items() if offset is not None}

        return self._thread.call(query)

    def describe(self) -> str:
        """Return a description of the test's topics for the output of failed tests."""

        async def query() -> list[str]:
            own = [topic for topic in await self._reader.topics() if self._name_suffix in topic]
            counts = {topic: await self._count_messages(topic) for topic in own}
            return [f"  {topic}: {count} messages" for topic, count in sorted(counts.items()) if count]

        return "\n".join(["topics of this test with messages:", *(self._thread.call(query) or ["  none"])])

    async def _start(self) -> None:
        await self._thread.nursery.start(self._run_clients)

    async def _run_clients(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with (
            Admin(self.name_server_address) as self._admin,
            Reader(self.name_server_address) as self._reader,
        ):
            task_status.started()
            await trio.sleep_forever()

    async def _offset_ranges(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        try:
            return await self._reader.offsets(topic)
        except TopicNotFoundError:
            return {}

    async def _count_messages(self, topic: str) -> int:
        return sum([end - start for start, end in (await self._offset_ranges(topic)).values()])

    def _count(self, topic: str) -> int:
        return self._thread.call(lambda: self._count_messages(topic))

    # A real cluster does not report changes, so that conditions are checked at intervals only.

    def _change_count(self) -> int:
        return 0

    def _wait_for_change(self, count: int, seconds: float) -> None:
        time.sleep(seconds)


def _unique_suffix() -> str:
    return uuid.uuid4().hex[:12]
