"""Commit the offsets of a consumer group to its brokers, and look up the offset at which to start."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.errors import NoQueueError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.position import Position, PositionKind
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

RECOMMIT_SECONDS = 60.0
"""Seconds after which offsets are committed although they have not changed. A killed broker has lost the
commits of its last five seconds, and a member that was partitioned from the group may have overwritten newer
ones."""

BrokerOffset: TypeAlias = tuple[str, int]
"""A broker's address, and the offset that was committed to it or read from it."""


class OffsetStore(Protocol):
    """Commits the next offset to consume of each queue. Java: ``OffsetStore``.

    Brokers keep the offsets of a group (RemoteOffsetStore), a file those of a broadcasting consumer
    (LocalOffsetStore).
    """

    async def open(self) -> None:
        """Prepare the store. Raises RocketMQError if it cannot be used."""

    def close(self) -> None:
        """Release the resources that :meth:`open` acquired."""

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = True) -> int | None:
        """Return the committed offset to start from. None if nothing of the queue was ever consumed."""

    async def query_committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset as it is stored now. None if there is none."""

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset that the next commit stores."""

    def forget(self, queue: MessageQueue) -> None:
        """Stop committing offsets of the queue."""

    def last_committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that this store last committed or read. None if neither has happened."""

    def has_been_committed(self, queue: MessageQueue) -> bool:
        """Whether the group is known to have had an offset in the queue. A 0 is one, too, then."""

    def may_commit_by_pull(self, queue: MessageQueue) -> bool:
        """Whether pull requests may carry the offset to commit."""

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Commit the changed offsets of the queues (None for all). Failures are logged."""

    async def commit_and_wait(
        self, queues: Iterable[MessageQueue] | None = None
    ) -> Mapping[MessageQueue, RocketMQError]:
        """Commit the changed offsets, and return once they are stored. Failures are logged and returned."""


class RemoteOffsetStore:
    """Commits the offsets of a group to its brokers. Java: ``RemoteBrokerOffsetStore``.

    :meth:`commit` sends the offsets that differ from the last commit, and once a minute all of them. Most of
    these commits are oneway requests. A lost one is repaired by the next commit, by a pull request (which
    carries the offset too), or by :meth:`commit_and_wait` when the consumer closes.

    The first commits of a group for a topic are sent one at a time to each broker. When several arrive at
    once, a broker (4.9 and 5.5 alike) creates an entry for each and keeps only one of them. This also applies
    to a replica that takes over from its master.

    Args:
        client: sends the requests.
        group: the consumer group.
    """

    def __init__(self, client: ClientCore, group: str) -> None:
        self._client = client
        self._group = group
        self._retry_logs = RetryLogs(logger, "offset commit", "broker", group=group)
        self._offsets: dict[MessageQueue, int] = {}
        self._committed: dict[MessageQueue, BrokerOffset] = {}
        self._confirmed: dict[MessageQueue, BrokerOffset] = {}
        # The queues of which the group is known to have had an offset. They are never forgotten.
        self._started: set[MessageQueue] = set()
        # The brokers' addresses and the topics for which an entry exists.
        self._entries: set[tuple[str, str]] = set()
        self._first_commits: defaultdict[tuple[str, str], trio.Lock] = defaultdict(trio.Lock)
        self._recommit_at = math.inf

    async def open(self) -> None:
        """Start the period after which unchanged offsets are committed again."""
        self._recommit_at = trio.current_time() + RECOMMIT_SECONDS

    def close(self) -> None:
        """Do nothing: this store holds no resources."""

    async def read(self, queue: MessageQueue, *, zero_if_new: bool = True) -> int | None:
        """Ask the broker for the committed offset. None if the group has never consumed the queue.

        Takes the arguments of ``BrokerCalls.committed_offset``, and raises its errors.
        """
        address = self._client.brokers.offsets_address(queue)
        offset = await self._client.brokers.committed_offset(self._group, queue, zero_if_new=zero_if_new)
        # Brokers also answer 0 to unknown groups. An offset of 0 therefore does not count as committed.
        if offset:
            self._committed[queue] = self._confirmed[queue] = address, offset
            self._entries.add((address, queue.topic))
            self._started.add(queue)
        return offset

    async def query_committed(self, queue: MessageQueue) -> int | None:
        """Ask the broker for the committed offset. None if the group has never consumed the queue.

        Raises the errors of ``BrokerCalls.committed_offset``.
        """
        return await self._client.brokers.committed_offset(self._group, queue, zero_if_new=False)

    def update(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset that the next commit sends."""
        self._offsets[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Stop committing offsets of the queue, which belongs to another member now."""
        for table in (self._offsets, self._committed, self._confirmed):
            table.pop(queue, None)

    def last_committed(self, queue: MessageQueue) -> int | None:
        """Return the offset last committed to the broker or read from it. None if neither has happened."""
        committed = self._committed.get(queue)
        return committed and committed[1]

    def has_been_committed(self, queue: MessageQueue) -> bool:
        """Whether an offset was ever committed, or one above 0 was read."""
        return queue in self._started

    def may_commit_by_pull(self, queue: MessageQueue) -> bool:
        """Whether pull requests may carry the offset: only once the broker has an entry for the topic."""
        return (self._address(queue), queue.topic) in self._entries

    async def commit(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Commit the changed offsets of the queues (None for all) without waiting for responses.

        Failures are logged. When cancelled, offsets that were not sent still count as changed.
        """
        changed: dict[str, list[MessageQueue]] = {}
        recommits = queues is None and self._is_time_to_recommit()
        for queue in self._offsets if queues is None else queues:
            if recommits or not self._is_current(self._committed, queue):
                changed.setdefault(queue.broker_name, []).append(queue)
        async with open_nursery() as nursery:
            # A broker that cannot be reached must not delay the commits to the others.
            for broker_name, broker_queues in changed.items():
                nursery.start_soon(self._commit_to_broker, broker_name, broker_queues)

    async def _commit_to_broker(self, broker_name: str, queues: Sequence[MessageQueue]) -> None:
        try:
            for queue in queues:
                await self._commit_oneway(queue)
        except RocketMQError as error:
            self._retry_logs.failed(broker_name, error, queues=len(queues))
        else:
            self._retry_logs.succeeded(broker_name)

    async def _commit_oneway(self, queue: MessageQueue) -> None:
        offset = self._offsets.get(queue)
        if offset is None:
            return  # forgotten during the commits before
        address = self._client.brokers.offsets_address(queue)
        if (address, queue.topic) not in self._entries:
            await self._commit_after_first(queue)
            return
        await self._client.brokers.commit_offset_oneway(self._group, queue, offset)
        self._committed[queue] = address, offset
        self._started.add(queue)
        if not self._is_current(self._confirmed, queue):
            self._confirmed.pop(queue, None)  # the broker may have stored the newer offset

    def _is_time_to_recommit(self) -> bool:
        now = trio.current_time()
        if now < self._recommit_at:
            return False
        self._recommit_at = now + RECOMMIT_SECONDS
        return True

    async def commit_and_wait(
        self, queues: Iterable[MessageQueue] | None = None
    ) -> Mapping[MessageQueue, RocketMQError]:
        """Commit offsets of the queues (None for all) that no broker has confirmed, and await the responses.

        Failures are logged, and returned by queue.
        """
        failures: dict[MessageQueue, RocketMQError] = {}
        async with open_nursery() as nursery:
            for queue in self._offsets if queues is None else queues:
                if not self._is_current(self._confirmed, queue):
                    nursery.start_soon(self._commit_one, queue, failures)
        return failures

    async def _commit_one(self, queue: MessageQueue, failures: dict[MessageQueue, RocketMQError]) -> None:
        try:
            await self._commit_after_first(queue)
        except RocketMQError as error:
            failures[queue] = error
            self._retry_logs.failed(queue.broker_name, error, topic=queue.topic, queue=queue.queue_id)
        else:
            self._retry_logs.succeeded(queue.broker_name)

    async def _commit_after_first(self, queue: MessageQueue) -> None:
        """Commit an offset and await the response. The first commit for a topic on a broker is sent alone."""
        entry = self._client.brokers.offsets_address(queue), queue.topic
        if entry not in self._entries:
            async with self._first_commits[entry]:
                if entry not in self._entries:
                    await self._send_commit(queue)
                    return
        await self._send_commit(queue)

    async def _send_commit(self, queue: MessageQueue) -> None:
        offset = self._offsets.get(queue)
        if offset is None:
            return  # forgotten while waiting for the first commit
        address = self._client.brokers.offsets_address(queue)
        try:
            await self._client.brokers.commit_offset(self._group, queue, offset)
        except BaseException:
            # The broker may have stored it, so the offset that it has is unknown.
            self._committed.pop(queue, None)
            self._confirmed.pop(queue, None)
            raise
        self._committed[queue] = self._confirmed[queue] = address, offset
        self._entries.add((address, queue.topic))
        self._started.add(queue)

    def _is_current(self, table: Mapping[MessageQueue, BrokerOffset], queue: MessageQueue) -> bool:
        """Whether a table has the queue's offset, for the broker that stores the offsets now."""
        if queue not in table:
            return queue not in self._offsets
        address, offset = table[queue]
        return offset == self._offsets.get(queue) and self._address(queue) in (address, None)

    def _address(self, queue: MessageQueue) -> str | None:
        try:
            return self._client.brokers.offsets_address(queue)
        except NoQueueError:
            return None  # neither the master nor a replica is in the route


class StartingOffsets:
    """The offsets at which a consumer starts its queues. Java: ``RebalancePushImpl.computePullFromWhere``.

    A committed offset wins over ``consume_from``. Brokers that still have the first message of a queue in
    memory answer 0 to new groups, so that no message of a newly created queue is missed. Under a time they
    are asked not to, unlike in Java, since a timestamp leaves no such gap. 4.x brokers answer 0 anyway.

    The offset at which a queue was started is kept until the group has committed one. Otherwise a queue that
    is started again would skip the messages in between, for example under "latest" after its broker was away.

    Args:
        client: sends the requests.
        offsets: the committed offsets.
        consume_from: where a new group starts, of the kinds EARLIEST, LATEST and TIME. A retry topic always
            starts at its first message, because all of its messages are failed ones of this group. (Java's
            client starts at the end under a time. Its brokers hide that: they answer 0 first.)
    """

    def __init__(self, client: ClientCore, offsets: OffsetStore, consume_from: Position) -> None:
        self._client = client
        self._offsets = offsets
        self._consume_from = consume_from
        self._chosen: dict[MessageQueue, int] = {}

    async def of(self, queue: MessageQueue) -> int:
        """Return the offset at which to start a queue. Raises the errors of ``BrokerCalls``."""
        zero_if_new = self._consume_from.kind is not PositionKind.TIME
        committed = await self._offsets.read(queue, zero_if_new=zero_if_new)
        if committed:
            self._chosen.pop(queue, None)
            return committed
        if committed == 0 and self._offsets.has_been_committed(queue):
            return 0  # an operator has reset the group, or the topic was created again
        # Brokers correct a 0 if that message has expired. They may also answer it to a new group.
        start = self._chosen.get(queue)
        if start is None:
            is_zero = committed is not None or self._consume_from == Position.earliest
            chosen = 0 if is_zero else await self._offset_of_new_group(queue)
            start = self._chosen.setdefault(queue, chosen)  # another task may have chosen meanwhile
        return start

    def moved(self, queue: MessageQueue, offset: int) -> None:
        """Start the queue at ``offset`` if it is started again before the group has committed an offset."""
        self._chosen[queue] = offset

    async def _offset_of_new_group(self, queue: MessageQueue) -> int:
        if queue.topic.startswith(RETRY_PREFIX):
            return 0
        if self._consume_from == Position.latest:
            return await self._client.brokers.max_offset(queue)
        return await self._client.brokers.offset_at(queue, self._consume_from.value)
