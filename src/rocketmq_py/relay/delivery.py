"""Delivering what waits in one buffer queue, when it is due."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import trio

from rocketmq_py.client.retry_log import RetryLogs
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BatchError, BrokerError, InvalidMessageError, RocketMQError
from rocketmq_py.producer import Producer
from rocketmq_py.relay.config import RelayConfig
from rocketmq_py.relay.entries import Progress
from rocketmq_py.relay.store import NEVER_MS, QueueStore, Stored
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.relay")

LOOK_SECONDS = 1.0
"""Seconds between two looks at the clock at the most: it may be set, while trio's goes on evenly."""
UNUSED_SECONDS = 0.1


class Rate:
    """Lets so many through in a second, and what was not used of a tenth of a second at once.

    Args:
        per_second: how many.
    """

    def __init__(self, per_second: float) -> None:
        self._seconds_each = 1 / per_second
        self._next_at = trio.current_time()

    @property
    def at_once(self) -> int:
        """How many may go together: those of a tenth of a second."""
        return max(1, int(UNUSED_SECONDS / self._seconds_each))

    async def wait(self, count: int) -> None:
        """Return when so many more may go."""
        now = trio.current_time()
        at = max(self._next_at, now - UNUSED_SECONDS)
        self._next_at = at + count * self._seconds_each
        if at > now:
            await trio.sleep_until(at)


class Delivery:
    """Sends the messages of one buffer queue to their topics, in the order of their times.

    Messages for a topic that cannot be sent to are put aside in the store, and those for other topics go on;
    the topic's own follow in their order when it can be sent to again. A message that brokers refuse for
    good stays aside, and those behind it do not wait for it.

    Args:
        store: what waits.
        config: the relay's settings.
        producer: sends it.
        rate: shared by all of a relay.
        now_ms: the clock, epoch milliseconds.
        announce: writes down in the buffer queue how far it is delivered.
    """

    def __init__(
        self,
        store: QueueStore,
        config: RelayConfig,
        producer: Producer,
        rate: Rate,
        *,
        now_ms: Callable[[], int],
        announce: Callable[[Progress], Awaitable[None]],
    ) -> None:
        self._store = store
        self._config = config
        self._producer = producer
        self._rate = rate
        self._now_ms = now_ms
        self._announce = announce
        self._batch_size = min(config.batch_size, rate.at_once)
        # What comes after this key is not looked at yet, and nothing of it is due before that time.
        self._after = b""
        self._next_due_ms = 0
        # Nothing waits before this key. To look for the first that does, among very many that RocksDB has
        # not cleared away yet, takes hundreds of milliseconds.
        self._done = b""
        self._read_to = store.next_offset or 0
        self._changed = trio.Event()
        self._failing: set[str] = set()
        self._retry_logs = RetryLogs(logger, "delivery", "topic", group=config.group)
        self._has_progressed = False

    async def run(self) -> None:
        """Deliver until cancelled. What is under way then is delivered again by who comes next."""
        self._failing.update(self._store.held_topics())
        async with open_nursery() as nursery:
            nursery.start_soon(self._try_again)
            nursery.start_soon(self._tell_progress)
            while True:
                if (now_ms := self._now_ms()) < self._next_due_ms:
                    await self._wait(self._next_due_ms - now_ms)
                    continue
                due = self._store.due(self._after, now_ms, self._batch_size)
                if due:
                    self._after = due[-1].key
                if len(due) < self._batch_size:
                    self._next_due_ms = self._store.next_due_ms(self._after)
                await self._deliver(due)
                self._done = self._after

    def added(self, due_ms: int, next_offset: int) -> None:
        """Take into account what was read of the buffer queue up to ``next_offset``.

        Args:
            due_ms: when the first of the new messages is due; NEVER_MS if there are none.
            next_offset: the offset to read next.
        """
        if due_ms < NEVER_MS:
            self._after = min(self._after, self._store.before(due_ms))
            self._done = min(self._done, self._after)
        self._read_to = next_offset
        if due_ms < self._next_due_ms:
            self._next_due_ms = due_ms
            self._changed.set()

    async def tell_progress(self) -> None:
        """Write down how far the queue is delivered, if that has changed."""
        if self._has_progressed:
            self._has_progressed = False
            try:
                await self._announce(Progress(self._read_to, self._store.earliest_ms(self._done)))
            except RocketMQError as error:
                self._has_progressed = True
                logger.debug("progress not written down: %s", error)

    async def _wait(self, milliseconds: int) -> None:
        self._changed = trio.Event()
        with trio.move_on_after(min(milliseconds / 1000, LOOK_SECONDS)):
            await self._changed.wait()

    async def _deliver(self, due: Sequence[Stored]) -> None:
        aside = [stored for stored in due if stored.message.topic in self._failing]
        refused: list[Stored] = []
        for stored, error in await self._send(
            [stored for stored in due if stored.message.topic not in self._failing]
        ):
            topic = stored.message.topic
            if _is_refused(error):
                refused.append(stored)
                continue
            aside.append(stored)
            self._failing.add(topic)
            self._retry_logs.failed(topic, error, retry_in=self._config.retry_interval)
        if aside or refused:
            await trio.to_thread.run_sync(self._store.hold, aside + refused)
            # A topic may have been sent to again meanwhile; these were too late for that.
            self._failing.update(stored.message.topic for stored in aside)

    async def _send(self, messages: Sequence[Stored]) -> list[tuple[Stored, RocketMQError]]:
        """Send them, and forget those that brokers have acknowledged. Return the others, and why."""
        failed: list[tuple[Stored, RocketMQError]] = []
        alike: defaultdict[tuple[str, str], list[Stored]] = defaultdict(list)
        for stored in messages:
            alike[stored.message.topic, stored.message.sharding_key].append(stored)
        async with open_nursery() as nursery:
            for together in alike.values():
                nursery.start_soon(self._send_together, together, failed)
        return failed

    async def _send_together(
        self, messages: list[Stored], failed: list[tuple[Stored, RocketMQError]]
    ) -> None:
        """Send messages into one queue in their order, which the threads of brokers keep only in a batch."""
        await self._rate.wait(len(messages))
        count, error = await self._send_in_one_request(messages)
        if count:
            self._store.remove(messages[:count])  # in memory, as it is not synced: a thread would take longer
            self._has_progressed = True
        rest = messages[count:]
        if error is None:
            return
        if not _is_refused(error):
            failed += [(stored, error) for stored in rest]
        elif len(messages) > 1:
            # It is the fault of one of them, or of their being together.
            for stored in rest:
                await self._send_together([stored], failed)
        else:
            failed.append((messages[0], error))
            refused = messages[0].message
            logger.error(
                "message %s for topic %s is kept, and not delivered: %s",
                refused.message_id,
                refused.topic,
                error,
            )

    async def _send_in_one_request(self, messages: Sequence[Stored]) -> tuple[int, RocketMQError | None]:
        """Return how many were acknowledged, the first ones, and what became of the others."""
        try:
            to_send = [stored.message.message() for stored in messages]
            if len(to_send) == 1:
                await self._producer.send(to_send[0])
            else:
                await self._producer.send_batch(to_send)
        except BatchError as error:
            return len(error.results), error
        except RocketMQError as error:
            return 0, error
        return len(messages), None

    async def _try_again(self) -> None:
        while True:
            await trio.sleep(self._config.retry_interval)
            for topic in sorted(self._failing):
                if await self._deliver_held(topic):
                    self._failing.discard(topic)
                    self._retry_logs.succeeded(topic)

    async def _deliver_held(self, topic: str) -> bool:
        """Deliver what was put aside for a topic. Return whether it can be sent to."""
        after, count = b"", 1  # the first one tells whether more are worth while
        while held := self._store.held(topic, after, count):
            after, count = held[-1].key, self._batch_size
            waiting = [error for _, error in await self._send(held) if not _is_refused(error)]
            if waiting:
                self._retry_logs.failed(topic, waiting[0], retry_in=self._config.retry_interval)
                return False
        return True

    async def _tell_progress(self) -> None:
        while True:
            await trio.sleep(self._config.progress_interval)
            await self.tell_progress()


def _is_refused(error: RocketMQError) -> bool:
    """Tell whether it is the message that brokers do not take, whenever they are asked."""
    return isinstance(error, InvalidMessageError) or (
        isinstance(error, BrokerError) and error.code == ResponseCode.MESSAGE_ILLEGAL
    )
