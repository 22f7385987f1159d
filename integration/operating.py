"""Operations on a cluster while clients read from it: create, change and delete topics, and expire
messages.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import ClassVar

import attrs
import trio

from integration.clusters.cluster import Cluster
from rocketmq_py import Client, Message, blocking
from rocketmq_py.client import core_of
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.headers import (
    CreateTopicRequest,
    DeleteTopicInBrokerRequest,
    DeleteTopicInNameServerRequest,
)
from rocketmq_py.protocol.headers.base import Request

EXPIRING: Mapping[str, str] = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "fileReservedTime": "0",
    # Hour 24 never comes. At the default hour, from 4 to 5, brokers would expire all messages unasked.
    "deleteWhen": "24",
    "cleanResourceInterval": "100",
    "deleteCommitLogFilesInterval": "1",
    "deleteConsumeQueueFilesInterval": "1",
}
"""Settings of brokers that expire messages on request, from a minute after their start."""
_FILLING = "Filling"
_POLLS = 1200


class DeleteExpiredCommitLogRequest(Request, frozen=True, kw_only=True):
    """Delete files older than ``fileReservedTime`` now. Java: ``DELETE_EXPIRED_COMMITLOG``."""

    code: ClassVar[int] = 329


def until(done: Callable[[], bool], event: str) -> None:
    """Poll a condition up to 1200 times within two minutes. Raises AssertionError if it stays false."""
    for _ in range(_POLLS):
        if done():
            return
        time.sleep(0.1)
    raise AssertionError(f"timed out while waiting for: {event}")


@attrs.frozen
class Operator:
    """Changes a cluster as an operator does.

    Args:
        cluster: the cluster.
    """

    cluster: Cluster

    def create(
        self, topic: str, brokers: Iterable[str] | None = None, *, queues: int, writable: int = 0
    ) -> None:
        """Create or change a topic on some brokers or on all.

        Args:
            topic: the name of the topic.
            brokers: the names of the brokers; None for all.
            queues: the number of read queues.
            writable: the number of write queues; 0 for as many as read queues.
        """
        header = CreateTopicRequest(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=writable or queues,
            perm=6, topic_sys_flag=0,
        )  # fmt: skip

        async def create(client: Client) -> None:
            for broker in self.cluster.brokers if brokers is None else brokers:
                await core_of(client).brokers.call(self.cluster.brokers[broker], header)

        self._do(create)

    def delete(self, topic: str) -> None:
        """Delete a topic on all brokers, as mqadmin's deleteTopic does."""

        async def delete(client: Client) -> None:
            for address in self.cluster.brokers.values():
                await core_of(client).brokers.call(address, DeleteTopicInBrokerRequest(topic=topic))
            header = DeleteTopicInNameServerRequest(topic=topic)
            await core_of(client).brokers.call(self.cluster.name_servers, header)

        self._do(delete)

    def send(self, queue: MessageQueue, numbers: Iterable[int]) -> None:
        """Send numbers to a queue, and return once they are readable."""
        with blocking.Client(self.cluster.name_servers) as client:
            with client.producer("operators") as producer:
                for number in numbers:
                    end = producer.send(Message(queue.topic, b"%d" % number), queue=queue).queue_offset + 1
            reader = client.reader()
            until(lambda: reader.offsets(queue.topic).get(queue, (0, end))[1] >= end, f"messages in {queue}")

    def fill(self, broker: str) -> None:
        """Make a broker with the settings ``EXPIRING`` start a new file, so that the messages
        stored so far can expire.
        """
        self.create(_FILLING, [broker], queues=1)
        with blocking.Producer(self.cluster.name_servers, group="operators") as producer:
            for _ in range(12):
                producer.send(Message(_FILLING, os.urandom(200_000)), queue=MessageQueue(_FILLING, broker, 0))

    def expire(self, queue: MessageQueue, first: int) -> None:
        """Expire all messages stored before the broker was filled. Return once the queue begins at
        ``first``.
        """

        async def expire(client: Client) -> None:
            await core_of(client).brokers.call(
                self.cluster.brokers[queue.broker_name], DeleteExpiredCommitLogRequest()
            )

        with blocking.Reader(self.cluster.name_servers) as reader:

            def has_expired() -> bool:
                self._do(expire)
                return reader.offsets(queue.topic)[queue][0] == first

            until(has_expired, f"the messages of {queue} expire")

    def _do(self, operation: Callable[[Client], Awaitable[None]]) -> None:
        async def run() -> None:
            async with Client(self.cluster.name_servers) as client:
                await operation(client)

        trio.run(run)
