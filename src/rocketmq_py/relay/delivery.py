"""Delivery of the messages of a buffer queue when they are due."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import trio

from rocketmq_py.client.flow_control import RateLimiter
from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BatchError, BrokerError, InvalidMessageError, RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.producer import Producer
from rocketmq_py.relay.buffer_entries import Progress, progress_message
from rocketmq_py.relay.settings import RelaySettings
from rocketmq_py.relay.store import NEVER_MS, QueueStore, StoreRecord
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.relay")

MAX_SLEEP_SECONDS = 1.0
"""Maximum seconds between two reads of the wall clock, which may be set while trio's clock runs on."""
RETRY_INTERVAL = 5.0
"""Seconds between two attempts to send to an unavailable topic."""
UNREACHED_INTERVAL = 1.0
"""Seconds between two attempts to send to a topic whose brokers cannot be reached."""
BURST_SECONDS = 0.1
"""The unused rate of this many seconds may be used at once."""


class QueueDelivery:
    """Sends the messages of a buffer queue to their topics, in the order of their due times.

    Messages for an unavailable topic are deferred in the store, while those for other topics are delivered.
    They follow in their order when the topic is available again. A message that brokers refuse permanently
    stays deferred, and messages after it do not wait for it.

    Args:
        queue: the buffer queue.
        store: the messages of the queue.
        config: the relay's settings.
        producer: sends the messages, and records the progress in the buffer queue.
        rate_limiter: shared by all queues of a relay.
        now_ms: the clock, epoch milliseconds.
    """

    def __init__(
        self,
        queue: MessageQueue,
        store: QueueStore,
        config: RelaySettings,
        producer: Producer,
        rate_limiter: RateLimiter,
        *,
        now_ms: Callable[[], int],
    ) -> None:
        self._queue = queue
        self._store = store
        self._config = config
        self._producer = producer
        self._rate_limiter = rate_limiter
        self._now_ms = now_ms
        self._batch_size = int(min(config.batch_size, max(1, BURST_SECONDS * config.max_rate)))
        # Records are read from the store after this key. The first of them is due at this time.
        self._read_after = b""
        self._next_due_ms = 0
        # There are no records before this key. Searching for the first record without it takes hundreds of
        # milliseconds, if RocksDB has not compacted many deleted records yet.
        self._lower_bound = b""
        self._read_to = store.next_offset or 0
        self._changed = trio.Event()
        self._unavailable_topics: set[str] = set()
        # Those of them whose brokers cannot be reached. They are tried again soon, and sends wait for them.
        self._unreached_topics: set[str] = set()
        # The topic whose deferred messages are being retried, and the key after which they are read next.
        self._retried_topic = ""
        self._retry_after = b""
        self._retry_logs = RetryLogs(logger, "delivery", "topic", group=config.group)
        self._has_progressed = False
        self._is_stopped = False
        self._in_flight = 0
        self._landed = trio.lowlevel.ParkingLot()

    async def finish(self) -> None:
        """Send no more messages, and wait until brokers have answered those in flight."""
        self._is_stopped = True
        while self._in_flight:
            await self._landed.park()

    async def run(self) -> None:
        """Deliver messages, until cancelled. Messages in flight are then delivered again by the next run."""
        self._unavailable_topics.update(self._store.deferred_topics())
        async with open_nursery() as nursery:
            nursery.start_soon(self._retry_deferred)
            nursery.start_soon(self._record_progress_periodically)
            while True:
                if (now_ms := self._now_ms()) < self._next_due_ms:
                    await self._wait(self._next_due_ms - now_ms)
                    continue
                due = self._store.due(self._read_after, now_ms, self._batch_size)
                if due:
                    self._read_after = due[-1].key
                if len(due) < self._batch_size:
                    self._next_due_ms = self._store.next_due_ms(self._read_after)
                await self._deliver(due)
                self._lower_bound = self._read_after

    def on_written(self, due_ms: int, next_offset: int) -> None:
        """Take new messages in the store into account.

        Args:
            due_ms: when the first of them is due; NEVER_MS if there are none.
            next_offset: the offset of the buffer queue to read next.
        """
        if due_ms < NEVER_MS:
            self._read_after = min(self._read_after, self._store.key_before(due_ms))
            self._lower_bound = min(self._lower_bound, self._read_after)
        self._read_to = next_offset
        if due_ms < self._next_due_ms:
            self._next_due_ms = due_ms
            self._changed.set()

    async def record_progress(self) -> None:
        """Record the progress in the buffer queue if it has changed."""
        if self._has_progressed:
            self._has_progressed = False
            progress = Progress(self._read_to, self._store.earliest_due_ms(self._lower_bound))
            try:
                await self._producer.send(progress_message(self._queue.topic, progress), queue=self._queue)
            except RocketMQError as error:
                self._has_progressed = True
                logger.debug("could not record progress cause=%s", error)

    async def _wait(self, milliseconds: int) -> None:
        self._changed = trio.Event()
        with trio.move_on_after(min(milliseconds / 1000, MAX_SLEEP_SECONDS)):
            await self._changed.wait()

    async def _deliver(self, due: Sequence[StoreRecord]) -> None:
        deferred = [record for record in due if record.message.topic in self._unavailable_topics]
        refused: list[StoreRecord] = []
        for record, error in await self._send(
            [record for record in due if record.message.topic not in self._unavailable_topics]
        ):
            topic = record.message.topic
            if _is_permanent(error):
                refused.append(record)
                continue
            deferred.append(record)
            self._unavailable_topics.add(topic)
            self._note_failure(topic, error)
        if deferred or refused:
            await trio.to_thread.run_sync(self._store.defer, deferred + refused)
            # A retry may have found a topic available since. These messages need another one.
            self._unavailable_topics.update(record.message.topic for record in deferred)
            # A retry in progress may have passed the keys of these messages.
            for record in deferred:
                if record.message.topic == self._retried_topic:
                    before = self._store.deferred_key_before(self._retried_topic, record.message.due_ms)
                    self._retry_after = min(self._retry_after, before)

    async def _send(self, records: Sequence[StoreRecord]) -> list[tuple[StoreRecord, RocketMQError]]:
        """Send messages, and remove the acknowledged ones. Returns the others with their errors."""
        failed: list[tuple[StoreRecord, RocketMQError]] = []
        by_target: defaultdict[tuple[str, str], list[StoreRecord]] = defaultdict(list)
        for record in records:
            by_target[record.message.topic, record.message.sharding_key].append(record)

        async def send(batch: Sequence[StoreRecord]) -> None:
            failed.extend(await self._send_batch(batch))

        async with open_nursery() as nursery:
            for batch in by_target.values():
                nursery.start_soon(send, batch)
        return failed

    async def _send_batch(self, records: Sequence[StoreRecord]) -> list[tuple[StoreRecord, RocketMQError]]:
        """Send messages to one queue in their order, which the threads of brokers keep only in a batch."""
        await self._rate_limiter.wait(len(records))
        if self._is_stopped:
            await trio.sleep_forever()
        self._in_flight += 1
        try:
            count, error = await self._send_request(records)
            if count:
                # In this thread, because it is not synced: another thread would take longer.
                self._store.remove(records[:count])
                self._has_progressed = True
        finally:
            self._in_flight -= 1
            self._landed.unpark_all()
        if error is None:
            return []
        if not _is_permanent(error):
            return [(record, error) for record in records[count:]]
        if len(records) > 1:
            # A single message causes the error, or the size of the batch does.
            return await self._send_one_by_one(records[count:])
        refused = records[0].message
        logger.error(
            "message refused, keeping it in the store id=%s topic=%s cause=%s",
            refused.message_id,
            refused.topic,
            error,
        )
        return [(records[0], error)]

    async def _send_one_by_one(
        self, records: Sequence[StoreRecord]
    ) -> list[tuple[StoreRecord, RocketMQError]]:
        """Send messages to one queue in their order, until the topic turns out to be unavailable."""
        failed: list[tuple[StoreRecord, RocketMQError]] = []
        for number, record in enumerate(records, 1):
            failed += await self._send_batch([record])
            if failed and not _is_permanent(error := failed[-1][1]):
                return [*failed, *[(later, error) for later in records[number:]]]
        return failed

    async def _send_request(self, records: Sequence[StoreRecord]) -> tuple[int, RocketMQError | None]:
        """Send messages in one request. Returns how many were acknowledged, and the error of the others."""
        try:
            messages = [record.message.message() for record in records]
            if len(messages) == 1:
                await self._producer.send(messages[0])
            else:
                await self._producer.send_batch(messages)
        except BatchError as error:
            return len(error.results), error
        except RocketMQError as error:
            return 0, error
        return len(records), None

    async def _retry_deferred(self) -> None:
        next_round = trio.current_time() + RETRY_INTERVAL
        while True:
            await trio.sleep(UNREACHED_INTERVAL)
            topics = self._unavailable_topics
            if trio.current_time() < next_round:
                topics = topics & self._unreached_topics
            else:
                next_round = trio.current_time() + RETRY_INTERVAL
            for topic in sorted(topics):
                if await self._deliver_deferred(topic):
                    self._unavailable_topics.discard(topic)
                    self._unreached_topics.discard(topic)
                    self._retry_logs.succeeded(topic)

    def _note_failure(self, topic: str, error: RocketMQError) -> None:
        if error._not_reached:
            self._unreached_topics.add(topic)
        else:
            self._unreached_topics.discard(topic)
        pause = UNREACHED_INTERVAL if error._not_reached else RETRY_INTERVAL
        self._retry_logs.failed(topic, error, retry_in=pause)

    async def _deliver_deferred(self, topic: str) -> bool:
        """Deliver the deferred messages for a topic. Returns whether the topic is available."""
        self._retried_topic, self._retry_after = topic, b""
        count = 1  # the first message tests whether the topic is available
        while records := self._store.deferred(topic, self._retry_after, count):
            self._retry_after, count = records[-1].key, self._batch_size
            errors = [error for _, error in await self._send(records) if not _is_permanent(error)]
            if errors:
                self._note_failure(topic, errors[0])
                return False
        return True

    async def _record_progress_periodically(self) -> None:
        while True:
            await trio.sleep(self._config.progress_interval)
            await self.record_progress()


def _is_permanent(error: RocketMQError) -> bool:
    """Return whether brokers refuse the message itself, so that a retry fails too."""
    cause = error.__cause__ if isinstance(error, BatchError) else error
    return isinstance(cause, InvalidMessageError) or (
        isinstance(cause, BrokerError) and cause.code == ResponseCode.MESSAGE_ILLEGAL
    )
