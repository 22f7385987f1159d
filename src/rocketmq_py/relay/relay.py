"""The relay: any delay, on brokers that know eighteen of them."""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from functools import partial
from typing import Final, Unpack

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.member import Member
from rocketmq_py.client.retry_log import RetryLog, RetryLogs
from rocketmq_py.consumer import AssignmentListener, ConsumeFrom, LitePullConsumer
from rocketmq_py.errors import NotAssignedError, ProtocolError, RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.producer import Producer
from rocketmq_py.relay.config import RelayConfig, RelayOptions, StorePath
from rocketmq_py.relay.delivery import Delivery, Rate
from rocketmq_py.relay.entries import Entry, Progress, cancel_in, progress_in, read_entry
from rocketmq_py.relay.retention import Retention, retention_of
from rocketmq_py.relay.store import QueueStore, Store, StoreError
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.relay")

READ_AT_ONCE = 1024
"""Messages of the buffer topic that are written to the store together, at the most."""
POLL_SECONDS = 1.0
CLOSE_SHARE = 0.4
"""The part of ``close_timeout`` for the last record of progress. The rest is for the group and the client."""


class _Queue:
    """A buffer queue that this relay has."""

    def __init__(
        self, queue: MessageQueue, store: QueueStore, delivery: Delivery, retention: Retention
    ) -> None:
        self.queue = queue
        self.store = store
        self.delivery = delivery
        self.retention = retention
        self.scope = trio.CancelScope()
        self.caught_up = trio.Event()
        # The messages before this offset were there when the queue was acquired. Until they are read, it is
        # not known what the owner before has delivered.
        self.catch_up_to = 0


class Relay(Member):
    """Delivers messages at any time, whatever delays the brokers know.

    ::

        async with Relay("127.0.0.1:9876", topic="Buffer", store="/var/lib/relay") as relay:
            await relay.run()

    Producers whose ``delay_relay`` names the buffer topic send what has an exact time there, if the broker
    is older than 5.0. The relay reads it into its store, and sends each message to its topic when it is due,
    with the property RELAY_MESSAGE_ID: a message that comes twice has the same one. Several relays with
    stores of their own share out the queues of the buffer topic as members of one group.

    What is promised: an offset of the buffer topic is committed when the store has it on the disk; a message
    is forgotten when the broker of its topic has acknowledged it, so that each is delivered at least once,
    and not before its time on this machine's clock. A queue that changes hands is read again from its
    beginning by the new owner, and its progress with it: messages must not expire in the buffer topic
    before they are due. What is delivered within ``progress_interval`` before that may be delivered twice.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        topic: the buffer topic.
        store: the folder of what waits.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of RelayConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.

    Opening it raises ConfigurationError if the store is in use or ``rocksdict`` is not installed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        topic: str,
        store: StorePath,
        rng: random.Random | None = None,
        **options: Unpack[RelayOptions],
    ) -> None:
        own, shared = split_options({**options, "topic": topic, "store": store}, RelayConfig, ClientConfig)
        self.config: RelayConfig = RelayConfig(**own)
        super().__init__(client, rng, shared)
        self.close_timeout: float = self.config.close_timeout
        self._store: Store | None = None
        self._queues: dict[MessageQueue, _Queue] = {}
        self._changes: list[tuple[list[MessageQueue], list[MessageQueue]]] = []
        self._awaited: set[MessageQueue] = set()  # gained; those that are not in _queues are to be acquired
        group = self.config.group
        self._commit_log = RetryLog(logger, "offset commit", group=group, topic=self.config.topic)
        self._acquire_logs = RetryLogs(logger, "buffer queue start", "queue", group=group)
        self._failure: RocketMQError | None = None
        self._stopped = trio.Event()
        self._is_run = False

    async def run(self) -> None:
        """Return when the relay is closed.

        Raises StoreError if the store could not be written. Then nothing is committed that is not on the
        disk, and a relay that is started again goes on there. When cancelled, the relay works on until it
        is closed.
        """
        self._check_open()
        self._is_run = True
        await self._stopped.wait()
        if self._failure is not None:
            raise self._failure

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues of the buffer topic that this relay has now, sorted."""
        return sorted(self._queues)

    async def _open(self) -> None:
        await super()._open()
        self._store = await trio.to_thread.run_sync(Store, self.config.store)
        self._rate = Rate(self.config.max_rate)
        self._producer = Producer(self.client, group=self.config.group)
        self._consumer = LitePullConsumer(
            self.client,
            group=self.config.group,
            auto_commit=False,
            consume_from=ConsumeFrom.FIRST,
            assignment_listener=_NotedChanges(self._changes),
        )
        self._consumer.subscribe(self.config.topic)
        await self._producer.start(self.nursery)
        await self._consumer.start(self.nursery)
        self._reading = trio.CancelScope()
        self._reading_ended = trio.Event()
        self.nursery.start_soon(self._work)
        # The group asks for a missing topic ever more rarely. Its first messages must not wait for that.
        self.nursery.start_soon(self.client.routes.wait_for, self.config.topic)

    async def _close(self) -> None:
        self._stopped.set()
        self._reading.cancel()
        await self._reading_ended.wait()
        with trio.move_on_after(self.close_timeout * CLOSE_SHARE):
            for queue in self._queues.values():
                await queue.delivery.tell_progress()
        await self._consumer.aclose()
        await self._producer.aclose()
        await super()._close()

    def _abandon(self) -> None:
        self._stopped.set()
        try:
            if self._store is not None:
                self._store.close()
        except StoreError as error:
            if self._failure is None:
                logger.error("%s: %s", self.config.store, error)
        super()._abandon()

    # Reading the buffer topic

    async def _work(self) -> None:
        try:
            with self._reading:
                async with open_nursery() as nursery:
                    await self._read(nursery)
        except StoreError as error:
            # Nothing is read or delivered any more. The store is safe; a later relay reads all else again.
            self._failure = StoreError(f"{self.config.store}: {error}")
            if not self._is_run:  # else who runs it is told
                logger.error("%s", self._failure)
        finally:
            self._stopped.set()
            self._reading_ended.set()

    async def _read(self, nursery: trio.Nursery) -> None:
        while True:
            await self._follow_assignment(nursery)
            messages = await self._consumer.poll(max_messages=READ_AT_ONCE, timeout=POLL_SECONDS)
            read: defaultdict[_Queue, list[ReceivedMessage]] = defaultdict(list)
            for message in messages:
                # What came before the queue was sought is read again from there.
                if (queue := self._queues.get(message.queue)) is not None:
                    read[queue].append(message)
            for queue, of_queue in read.items():
                await self._keep(queue, of_queue)
            await self._commit([queue.queue for queue in read])

    async def _keep(self, queue: _Queue, messages: list[ReceivedMessage]) -> None:
        next_offset = messages[-1].queue_offset + 1
        read = [(message, entry) for message in messages if (entry := _entry(message))]
        entries = [(message.queue_offset, entry) for message, entry in read]
        due_ms = await trio.to_thread.run_sync(queue.store.write, entries, next_offset)
        queue.delivery.added(due_ms, next_offset)
        queue.retention.look_at(read)
        if next_offset >= queue.catch_up_to:
            queue.caught_up.set()

    async def _commit(self, queues: list[MessageQueue]) -> None:
        """Say how far the group has read, for who looks at its lag: the store knows by itself."""
        offsets = {queue: self._queues[queue].store.next_offset or 0 for queue in queues}
        try:
            if offsets:
                await self._consumer.commit(offsets)
        except NotAssignedError:
            pass  # it has just been lost; its new owner commits
        except RocketMQError as error:
            self._commit_log.failed(error, queues=len(offsets))
        else:
            self._commit_log.succeeded()

    # Which queues it has

    async def _follow_assignment(self, nursery: trio.Nursery) -> None:
        while self._changes:
            gained, lost = self._changes.pop(0)
            self._awaited.update(gained)
            for queue in lost:
                self._awaited.discard(queue)
                await self._revoke(queue)
        for queue in sorted(self._awaited - self._queues.keys()):
            try:
                await self._acquire(queue, nursery)
            except NotAssignedError:
                pass  # its listener hears of it before the consumer has it
            except RocketMQError as error:
                self._acquire_logs.failed(queue, error)
            else:
                self._acquire_logs.succeeded(queue)

    async def _acquire(self, queue: MessageQueue, nursery: trio.Nursery) -> None:
        assert self._store is not None
        brokers = self.client.brokers
        first, end = await brokers.min_offset(queue), await brokers.max_offset(queue)
        store = self._store.queue(queue)
        start = first if store.next_offset is None else store.next_offset
        if start < first:
            logger.error(
                "messages %d to %d of buffer queue %s have expired before they were read: they are lost",
                start,
                first - 1,
                queue,
            )
            start = first
        elif start > end:
            logger.warning("buffer queue %s was made anew: reading it from its beginning", queue)
            start = first
        retention = await retention_of(self.client, queue)
        await self._consumer.seek(queue, start)
        delivery = Delivery(
            store,
            self.config,
            self._producer,
            self._rate,
            now_ms=self.client.now_ms,
            announce=partial(self._announce, queue),
        )
        mine = self._queues[queue] = _Queue(queue, store, delivery, retention)
        mine.catch_up_to = end
        if start >= end:
            mine.caught_up.set()
        nursery.start_soon(self._deliver, mine)

    async def _revoke(self, queue: MessageQueue) -> None:
        if (mine := self._queues.pop(queue, None)) is not None:
            mine.scope.cancel()
            with trio.move_on_after(self.close_timeout * CLOSE_SHARE):
                await mine.delivery.tell_progress()

    async def _deliver(self, queue: _Queue) -> None:
        with queue.scope:
            await queue.caught_up.wait()
            await queue.delivery.run()

    async def _announce(self, queue: MessageQueue, progress: Progress) -> None:
        await self._producer.send(progress_in(queue.topic, progress), queue=queue)


async def cancel(client: Client, topic: str, message_id: str) -> None:
    """Have a message that waits in a buffer topic not be delivered.

    The relay sees to it when it reads this; what is delivered by then stays so.

    Args:
        client: an open client.
        topic: the buffer topic.
        message_id: the id in the SendResult of the message that waits.

    Raises:
        TopicNotFoundError: there is no such topic.
        others: as ``Producer.send``; then some of the topic's queues may have been told. Doing it again does
            no harm, nor does a cancellation.
    """
    async with Producer(client, group=f"RELAY_{topic}") as producer:
        route = await client.routes.get(topic)
        # Whoever cancels does not know in which queue the message is.
        for queue in route.write_queues:
            await producer.send(cancel_in(topic, message_id), queue=queue)


class _NotedChanges(AssignmentListener):
    """Notes which queues were gained and lost, in that order, for who reads them."""

    def __init__(self, changes: list[tuple[list[MessageQueue], list[MessageQueue]]]) -> None:
        self._changes = changes

    def on_assigned(self, queues: list[MessageQueue]) -> None:
        self._changes.append((queues, []))

    def on_revoked(self, queues: list[MessageQueue]) -> None:
        self._changes.append(([], queues))


def _entry(message: ReceivedMessage) -> Entry | None:
    try:
        return read_entry(message)
    except ProtocolError as error:
        logger.warning("passed over: %s", error)
        return None
