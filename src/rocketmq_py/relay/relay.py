"""The relay: reads a buffer topic into a store, and delivers its messages when they are due."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NoReturn, Self, Unpack

import trio

from rocketmq_py.arguments import check_not_blank
from rocketmq_py.client.client import BorrowedClient, Client, Member, core_of
from rocketmq_py.client.flow_control import RateLimiter
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.client.settings import ClientSettings, split_options
from rocketmq_py.consumer import AssignmentListener, LitePullConsumer
from rocketmq_py.consumer.group.membership import LEAVE_SECONDS
from rocketmq_py.errors import NotAssignedError, ProtocolError, RocketMQError, StoreError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.names import check_topic
from rocketmq_py.producer import Producer
from rocketmq_py.relay.buffer_entries import (
    BufferEntry,
    cancellation_message,
    parse_entry,
)
from rocketmq_py.relay.delivery import BURST_SECONDS, QueueDelivery
from rocketmq_py.relay.retention import RetentionMonitor, query_retention
from rocketmq_py.relay.settings import RelayOptions, RelaySettings, StorePath
from rocketmq_py.relay.store import QueueStore, Store
from rocketmq_py.remoting.nurseries import check_inside_trio, open_nursery
from rocketmq_py.shown_settings import takes_settings

logger: Final = LibraryLogger("rocketmq_py.relay")

READ_BATCH = 1024
"""Maximum number of messages of the buffer topic that are written to the store together."""
POLL_SECONDS = 1.0
"""Maximum seconds until a change of the assignment is followed."""
PROGRESS_SECONDS = 1.0
"""Maximum seconds for the last record of progress. The group and the client have two more."""
OUTSIDE_TRIO = "other programs start the command `rocketmq-py relay`"
"""Ends the errors of a relay that is used outside of trio. Relays have no asyncio or threads API."""


class _OwnedQueue:
    """A buffer queue that is assigned to this relay.

    Attributes:
        queue: the queue.
        store: its messages.
        delivery: delivers its messages.
        retention: warns of messages that expire before they are due.
        scope: cancels the delivery.
        catch_up_to: the end of the queue when it was acquired. The messages before it may include the
            progress of the previous owner.
        caught_up: set when these messages have been read. The delivery starts then.
    """

    def __init__(
        self,
        queue: MessageQueue,
        store: QueueStore,
        delivery: QueueDelivery,
        retention: RetentionMonitor,
        catch_up_to: int,
    ) -> None:
        self.queue = queue
        self.store = store
        self.delivery = delivery
        self.retention = retention
        self.catch_up_to = catch_up_to
        self.scope = trio.CancelScope()
        self.caught_up = trio.Event()


@takes_settings(RelaySettings, ClientSettings)
class Relay(Member):
    """Delivers messages at any time, with any version of brokers.

    ::

        async with Relay("127.0.0.1:9876", topic="Buffer", store="/var/lib/relay") as relay:
            await relay.run()

    Producers whose ``delay_relay`` names the buffer topic send messages with an exact delivery time there, if
    the broker is older than 5.0. The relay reads them into its store, and sends each to its topic when it is
    due. The property RELAY_MESSAGE_ID identifies a message that is delivered twice. Several relays, with a
    store each, share the queues of the buffer topic as members of a consumer group.

    Guarantees: an offset of the buffer topic is committed after the store has synced its message to the
    disk. A message is removed from the store after the broker of its topic has acknowledged it. So each
    message is delivered at least once, and never before its time on this machine's clock. A new owner reads
    the queue from where its own store ends, at first from its beginning, including the recorded progress.
    Therefore messages must not expire in the buffer topic before they are due. Messages that the previous
    owner delivered within its last ``progress_interval``, and all that were due after one that it could not
    deliver, may be delivered twice.

    Args:
        client: the name servers as ``host:port;host:port``, or an open client to share. None for the
            environment variable NAMESRV_ADDR, or 127.0.0.1:9876 if it is not set.
        topic: the buffer topic.
        store: the folder of the store.
        **options: the settings of a Relay, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or out of its range.

    Entering it raises ConfigurationError if the store is in use or ``rocksdict`` is not installed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        topic: str,
        store: StorePath,
        **options: Unpack[RelayOptions],
    ) -> None:
        own, shared = split_options(
            {**options, "topic": topic, "store": store}, RelaySettings, ClientSettings
        )
        self._settings: RelaySettings = RelaySettings(**own)
        super().__init__(client, shared)
        self._close_timeout: float = self._settings.close_timeout + LEAVE_SECONDS  # of closing as a whole
        self._store: Store | None = None
        self._owned: dict[MessageQueue, _OwnedQueue] = {}
        self._assignment_changes: list[tuple[bool, list[MessageQueue]]] = []
        self._assigned: set[MessageQueue] = set()  # those that are not in _owned are still to be acquired
        group = self._settings.group
        self._commit_retry_log = RetryLog(logger, "offset commit", group=group, topic=self._settings.topic)
        self._acquire_retry_logs = RetryLogs(logger, "buffer queue start", "queue", group=group)
        self._failure: RocketMQError | None = None
        self._stopped = trio.Event()
        self._run_called = False

    @property
    def settings(self) -> RelaySettings:
        """The settings."""
        return self._settings

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        check_inside_trio("Relay", OUTSIDE_TRIO)
        return await super().__aenter__()

    if not TYPE_CHECKING:  # type checkers report the missing method

        def __enter__(self) -> NoReturn:
            raise TypeError(
                f"use 'async with Relay(...)' in a function that trio.run(...) runs; {OUTSIDE_TRIO}"
            )

    async def run(self) -> None:
        """Wait until the relay is closed.

        Raises StoreError if the store could not be read or written. No offset is committed then whose message
        is not on the disk, and a restarted relay continues there. Cancelling this method does not stop the
        relay.
        """
        self._check_open()
        self._run_called = True
        await self._stopped.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues of the buffer topic that this relay owns now, sorted."""
        return sorted(self._owned)

    async def _open(self) -> None:
        await super()._open()
        self._store = await trio.to_thread.run_sync(Store, self._settings.store)
        self._rate_limiter = RateLimiter(self._settings.max_rate, burst_seconds=BURST_SECONDS)
        client = BorrowedClient(self._client)
        self._producer = Producer(client, group=self._settings.group)
        self._consumer = LitePullConsumer(
            client,
            group=self._settings.group,
            auto_commit=False,
            consume_from="earliest",
            assignment_listener=_AssignmentRecorder(self._assignment_changes),
        )
        self._consumer.subscribe(self._settings.topic)
        await self._producer.start(self._nursery)
        await self._consumer.start(self._nursery)
        self._reading_scope = trio.CancelScope()
        self._reading_ended = trio.Event()
        self._nursery.start_soon(self._read_and_deliver)
        # The group looks up a missing topic at growing intervals. The first messages must not wait so long.
        self._nursery.start_soon(self._client.routes.wait_for, self._settings.topic)

    async def _finish_pending(self) -> bool:
        """Wait for the messages in flight. Otherwise they would be delivered again."""
        seconds, has_finished = max(self._close_timeout - LEAVE_SECONDS, 0), False
        try:
            with trio.move_on_after(seconds):
                async with open_nursery() as nursery:
                    for owned in self._owned.values():
                        nursery.start_soon(owned.delivery.finish)
                has_finished = True
        finally:
            if not has_finished:
                logger.warning(
                    "closing without the answers for messages in flight, which are delivered again: topic=%s",
                    self._settings.topic,
                )
        return await super()._finish_pending()

    async def _close(self) -> None:
        self._stopped.set()
        self._reading_scope.cancel()
        await self._reading_ended.wait()
        with trio.move_on_after(PROGRESS_SECONDS):
            for owned in self._owned.values():
                await owned.delivery.record_progress()
        await self._consumer.aclose()
        await self._producer.aclose()
        await super()._close()

    def _abandon(self) -> None:
        self._stopped.set()
        try:
            # Here and not in _close: only now no task uses the store, and this runs if _open fails, too.
            if self._store is not None:
                self._store.close()
        except StoreError as error:
            if self._failure is None:
                logger.error("could not close the store folder=%s cause=%s", self._settings.store, error)
        super()._abandon()

    # Reading the buffer topic

    async def _read_and_deliver(self) -> None:
        try:
            with self._reading_scope:
                async with open_nursery() as nursery:
                    await self._read_buffer(nursery)
        except StoreError as error:
            # Reading and delivery stop. The store's contents are safe, and other messages are read again.
            self._failure = StoreError(f"{self._settings.store}: {error}")
            if not self._run_called:  # otherwise run() raises it
                logger.error("relay stopped cause=%s", self._failure)
        finally:
            self._stopped.set()
            self._reading_ended.set()

    async def _read_buffer(self, nursery: trio.Nursery) -> None:
        while True:
            await self._follow_assignment(nursery)
            messages = await self._consumer.poll(max_messages=READ_BATCH, wait=POLL_SECONDS)
            revoked = {
                queue
                for is_assigned, queues in self._assignment_changes
                for queue in queues
                if not is_assigned
            }
            by_queue: defaultdict[_OwnedQueue, list[ReceivedMessage]] = defaultdict(list)
            for message in messages:
                # Other messages are read again after the seek: their queue is not acquired yet, or it was
                # revoked and assigned again during the poll, which restarted it at the committed offset.
                if message.queue not in revoked and (owned := self._owned.get(message.queue)) is not None:
                    by_queue[owned].append(message)
            for owned, queue_messages in by_queue.items():
                await self._write_to_store(owned, queue_messages)
            await self._commit([owned.queue for owned in by_queue])

    async def _write_to_store(self, owned: _OwnedQueue, messages: list[ReceivedMessage]) -> None:
        next_offset = messages[-1].queue_offset + 1
        parsed = [(message, entry) for message in messages if (entry := _parse_or_skip(message))]
        entries = [(message.queue_offset, entry) for message, entry in parsed]
        due_ms = await trio.to_thread.run_sync(owned.store.write, entries, next_offset)
        owned.delivery.on_written(due_ms, next_offset)
        owned.retention.check(parsed)
        if next_offset >= owned.catch_up_to:
            owned.caught_up.set()

    async def _commit(self, queues: list[MessageQueue]) -> None:
        """Commit the offsets that were read, for tools that show the lag. The store has its own offsets."""
        offsets = {queue: self._owned[queue].store.next_offset or 0 for queue in queues}
        try:
            if offsets:
                await self._consumer.commit(offsets)
        except NotAssignedError:
            pass  # a queue was just revoked; its new owner commits
        except RocketMQError as error:
            self._commit_retry_log.failed(error, queues=len(offsets))
        else:
            self._commit_retry_log.succeeded()

    # Assignment of buffer queues

    async def _follow_assignment(self, nursery: trio.Nursery) -> None:
        while self._assignment_changes:
            is_assigned, queues = self._assignment_changes.pop(0)
            if is_assigned:
                self._assigned.update(queues)
                continue
            for queue in queues:
                self._assigned.discard(queue)
                await self._revoke(queue)
        for queue in sorted(self._assigned - self._owned.keys()):
            try:
                await self._acquire(queue, nursery)
            except StoreError:
                raise
            except NotAssignedError:
                pass  # the queue was revoked meanwhile; the next round follows that
            except RocketMQError as error:
                self._acquire_retry_logs.failed(queue, error)
            else:
                self._acquire_retry_logs.succeeded(queue)

    async def _acquire(self, queue: MessageQueue, nursery: trio.Nursery) -> None:
        assert self._store is not None
        brokers = self._client.brokers
        first, end = await brokers.min_offset(queue), await brokers.max_offset(queue)
        store = await trio.to_thread.run_sync(self._store.open_queue, queue)
        start = first if store.next_offset is None else store.next_offset
        if start < first:
            logger.error(
                "messages expired before they were read and are lost queue=%s offsets=%d-%d",
                queue,
                start,
                first - 1,
            )
            start = first
        elif start > end:
            logger.warning("buffer queue was created again, reading from its beginning queue=%s", queue)
            start = first
        retention = await query_retention(self._client, queue)
        await self._consumer.seek(queue, start)
        delivery = QueueDelivery(
            queue, store, self._settings, self._producer, self._rate_limiter, now_ms=self._client.now_ms
        )
        owned = self._owned[queue] = _OwnedQueue(queue, store, delivery, retention, catch_up_to=end)
        if start >= end:
            owned.caught_up.set()
        nursery.start_soon(self._deliver, owned)

    async def _revoke(self, queue: MessageQueue) -> None:
        if (owned := self._owned.pop(queue, None)) is not None:
            owned.scope.cancel()
            with trio.move_on_after(PROGRESS_SECONDS):
                await owned.delivery.record_progress()

    async def _deliver(self, owned: _OwnedQueue) -> None:
        with owned.scope:
            await owned.caught_up.wait()
            await owned.delivery.run()


async def cancel(client: Client, topic: str, message_id: str) -> None:
    """Cancel the delivery of a message that is in a buffer topic.

    The cancellation takes effect when the relay reads it. It has no effect on a message that was delivered.
    If several messages have the id, it cancels all of them.

    Args:
        client: an open client.
        topic: the buffer topic.
        message_id: the message id in the SendResult of the delayed message.

    Raises:
        ConfigurationError: ``topic`` is not a valid name, or ``message_id`` is empty.
        TopicNotFoundError: the topic does not exist.
        RocketMQError: a send failed, as in ``Producer.send``. The cancellation may be in some queues of the
            topic then, as after a trio cancellation. Call ``cancel`` again.
    """
    check_topic(topic)
    check_not_blank(message_id, "message_id")
    async with Producer(client) as producer:
        route = await core_of(client).routes.find(topic)
        # The queue of the message is unknown, so each queue gets the cancellation.
        for queue in route.write_queues:
            await producer.send(cancellation_message(topic, message_id), queue=queue)


class _AssignmentRecorder(AssignmentListener):
    """Appends each change of the assignment to a list, which ``Relay._follow_assignment`` empties.

    A change is a pair: True if queues were assigned, False if they were revoked, and the queues.
    """

    def __init__(self, changes: list[tuple[bool, list[MessageQueue]]]) -> None:
        self._changes = changes

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        self._changes.append((True, queues))

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        self._changes.append((False, queues))


def _parse_or_skip(message: ReceivedMessage) -> BufferEntry | None:
    try:
        return parse_entry(message)
    except ProtocolError as error:
        logger.warning("skipping a message of the buffer topic cause=%s", error)
        return None
