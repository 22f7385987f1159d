"""Where a group goes on in each queue: what keeps it, the brokers above all, and where new groups begin."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Protocol, TypeAlias

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.consumer.config import ConsumeFrom
from rocketmq_py.errors import NoQueueError, RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.consumer")

REWRITE_SECONDS = 60.0
"""After which offsets are written although they have not changed: a broker that was killed has lost those of
its last five seconds, and a member that was long away may have overwritten them."""

BrokerOffset: TypeAlias = tuple[str, int]
"""The address of a broker, and the offset that it was told, or said."""


class OffsetStore(Protocol):
    """Keeps where consumption goes on in each queue. Java: ``OffsetStore``."""

    async def open(self) -> None:
        """Make ready. Raises RocketMQError if it cannot be used."""

    def close(self) -> None:
        """Release what :meth:`open` took."""

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = True) -> int | None:
        """Return where consumption goes on; None if it has never been in the queue."""

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note where consumption goes on."""

    def forget(self, queue: MessageQueue) -> None:
        """Write no more of the queue."""

    def written(self, queue: MessageQueue) -> int | None:
        """Return the offset that was last written or read; None if neither was."""

    def has_entry(self, queue: MessageQueue) -> bool:
        """Whether a pull may carry the offset."""

    async def write(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Write the offsets of the queues (None for all) that have changed. Failures are logged."""

    async def confirm(
        self, queues: Iterable[MessageQueue] | None = None
    ) -> Mapping[MessageQueue, RocketMQError]:
        """Write them, and return when they are safe. Failures are logged, and returned."""


class RemoteOffsetStore:
    """The offsets of a group, written to the brokers now and then. Java: ``RemoteBrokerOffsetStore``.

    An offset is written when it differs from what was last written, and every minute. Most writes have no
    answer; one that gets lost is made up for by the next, by the pulls, which carry the offset too, or at
    the end.

    The very first commits of a group for a topic are made one after the other: a broker (4.9 and 5.5
    alike) that gets several of them at the same time makes an entry for each, and keeps one. So it is with
    each broker: a replica that stands in for its master is told everything, and first of all once.

    Args:
        client: how brokers are reached.
        group: the group.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._retry_logs = RetryLogs(logger, "offset commit", "broker", group=group)
        self._offsets: dict[MessageQueue, int] = {}
        self._written: dict[MessageQueue, BrokerOffset] = {}
        self._confirmed: dict[MessageQueue, BrokerOffset] = {}
        self._entries: set[tuple[str, str]] = set()  # address and topic
        self._first_commits: defaultdict[tuple[str, str], trio.Lock] = defaultdict(trio.Lock)
        self._rewrite_at = math.inf

    async def open(self) -> None:
        """Begin to count the minutes; brokers are asked queue by queue."""
        self._rewrite_at = trio.current_time() + REWRITE_SECONDS

    def close(self) -> None:
        """Do nothing."""

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = True) -> int | None:
        """Ask the broker where the group goes on; None if it has never been in the queue.

        Arguments and errors are those of ``BrokerCalls.committed_offset``.
        """
        address = self._client.brokers.offsets_address(queue)
        offset = await self._client.brokers.committed_offset(self._group, queue, zero_if_new=zero_if_new)
        if offset:  # 0 may be what a broker says to groups that it does not know: that is written as well
            self._written[queue] = self._confirmed[queue] = address, offset
            self._entries.add((address, queue.topic))
        return offset

    async def committed(self, queue: MessageQueue) -> int | None:
        """Ask the broker how far the group has come; None if it has never been in the queue.

        Errors are those of ``BrokerCalls.committed_offset``.
        """
        return await self._client.brokers.committed_offset(self._group, queue, zero_if_new=False)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Note where the group goes on; it is written at the next occasion."""
        self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Write no more of the queue: it is another member's now."""
        for table in (self._offsets, self._written, self._confirmed):
            table.pop(queue, None)

    def written(self, queue: MessageQueue) -> int | None:
        """Return the offset that the broker was last told, or said; None if neither was."""
        written = self._written.get(queue)
        return written and written[1]

    def has_entry(self, queue: MessageQueue) -> bool:
        """Whether the broker has an entry for the group and the topic: if so, a pull may carry the offset."""
        return (self._address(queue), queue.topic) in self._entries

    async def write(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Write the offsets of the queues (None for all) that have changed, without an answer.

        Failures are logged. When cancelled, what is not written counts as changed still.
        """
        changed: dict[str, list[MessageQueue]] = {}
        rewrites = queues is None and self._is_time_to_rewrite()
        for queue in self._offsets if queues is None else queues:
            if rewrites or not self._is_in(self._written, queue):
                changed.setdefault(queue.broker_name, []).append(queue)
        for broker_name, broker_queues in changed.items():
            try:
                for queue in broker_queues:
                    await self._write(queue)
            except RocketMQError as error:
                self._retry_logs.failed(broker_name, error, queues=len(broker_queues))
            else:
                self._retry_logs.succeeded(broker_name)

    async def _write(self, queue: MessageQueue) -> None:
        offset = self._offsets.get(queue)
        if offset is None:
            return  # forgotten while the others were written
        address = self._client.brokers.offsets_address(queue)
        if (address, queue.topic) not in self._entries:
            await self._commit(queue)
            return
        await self._client.brokers.commit_offset_oneway(self._group, queue, offset)
        self._written[queue] = address, offset
        if not self._is_in(self._confirmed, queue):
            self._confirmed.pop(queue, None)  # it is no longer what the broker has

    def _is_time_to_rewrite(self) -> bool:
        now = trio.current_time()
        if now < self._rewrite_at:
            return False
        self._rewrite_at = now + REWRITE_SECONDS
        return True

    async def confirm(
        self, queues: Iterable[MessageQueue] | None = None
    ) -> Mapping[MessageQueue, RocketMQError]:
        """Write the offsets of the queues (None for all) that have changed since a broker last confirmed one.

        Failures are logged. Returns those of this call.
        """
        failures: dict[MessageQueue, RocketMQError] = {}
        async with open_nursery() as nursery:
            for queue in self._offsets if queues is None else queues:
                if not self._is_in(self._confirmed, queue):
                    nursery.start_soon(self._confirm_one, queue, failures)
        return failures

    async def _confirm_one(self, queue: MessageQueue, failures: dict[MessageQueue, RocketMQError]) -> None:
        try:
            await self._commit(queue)
        except RocketMQError as error:
            failures[queue] = error
            self._retry_logs.failed(queue.broker_name, error, topic=queue.topic, queue=queue.queue_id)
        else:
            self._retry_logs.succeeded(queue.broker_name)

    async def _commit(self, queue: MessageQueue) -> None:
        entry = self._client.brokers.offsets_address(queue), queue.topic
        if entry not in self._entries:
            async with self._first_commits[entry]:  # whoever else writes: brokers keep one of several
                if entry not in self._entries:
                    await self._tell(queue)
                    return
        await self._tell(queue)

    async def _tell(self, queue: MessageQueue) -> None:
        offset = self._offsets.get(queue)
        if offset is None:
            return  # forgotten while others were told
        address = self._client.brokers.offsets_address(queue)
        try:
            await self._client.brokers.commit_offset(self._group, queue, offset)
        except BaseException:
            # It may have arrived: what was there before is the broker's no more for certain.
            self._written.pop(queue, None)
            self._confirmed.pop(queue, None)
            raise
        self._written[queue] = self._confirmed[queue] = address, offset
        self._entries.add((address, queue.topic))

    def _is_in(self, table: Mapping[MessageQueue, BrokerOffset], queue: MessageQueue) -> bool:
        """Whether a table has the queue's offset, from or for the broker that keeps it now."""
        if queue not in table:
            return queue not in self._offsets
        address, offset = table[queue]
        return offset == self._offsets.get(queue) and self._address(queue) in (address, None)

    def _address(self, queue: MessageQueue) -> str | None:
        try:
            return self._client.brokers.offsets_address(queue)
        except NoQueueError:
            return None  # neither the master nor a replica is there


async def starting_offset(
    client: Client,
    offsets: OffsetStore,
    queue: MessageQueue,
    consume_from: ConsumeFrom,
    timestamp_ms: int,
) -> int:
    """Return where to begin in a queue. Java: ``RebalancePushImpl.computePullFromWhere``.

    Where the group has been before, it goes on. Raises as BrokerCalls do. Brokers that still have the
    first message of a queue in memory make new groups begin there, so that those of a queue that has just
    come into being are not missed. A time leaves no such gap: under TIMESTAMP they are asked not to,
    unlike in Java; 4.x brokers do it all the same.

    Args:
        client: how brokers are reached.
        offsets: where the group, or the broadcasting consumer, has been.
        queue: the queue.
        consume_from: where to begin otherwise. The group's retry topic is begun at its first message
            under LAST and at its end under TIMESTAMP, as Java does.
        timestamp_ms: the time of ConsumeFrom.TIMESTAMP.
    """
    offset = await offsets.read(queue, zero_if_new=consume_from is not ConsumeFrom.TIMESTAMP)
    if offset is not None:
        return offset
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    if consume_from is ConsumeFrom.FIRST:
        return 0  # if that message has gone, the broker corrects it
    if consume_from is ConsumeFrom.LAST:
        return 0 if is_retry else await client.brokers.max_offset(queue)
    if is_retry:
        return await client.brokers.max_offset(queue)
    return await client.brokers.offset_at(queue, timestamp_ms)
