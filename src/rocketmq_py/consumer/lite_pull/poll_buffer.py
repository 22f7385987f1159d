"""Buffered messages of a lite pull consumer, until they are polled and acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import trio

from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.message import MessageQueue, ReceivedMessage

Batch: TypeAlias = tuple[ProcessQueue, Sequence[ReceivedMessage]]
"""Messages taken from one ProcessQueue."""
Position: TypeAlias = tuple[MessageQueue, int]
"""The queue and the offset of a message."""


class PollBuffer:
    """The ProcessQueues with messages to poll, served round robin. Java: ``consumeRequestCache``.

    Polled messages stay in their ProcessQueue, whose offset they hold back, until they are acknowledged.

    Args:
        hooks: called around polled messages.

    Attributes:
        total: unacknowledged messages of all queues that are not paused.
    """

    def __init__(self, hooks: ConsumerHooks) -> None:
        self._hooks = hooks
        self.total: int = 0
        self._counted: dict[ProcessQueue, int] = {}
        self._ready: deque[ProcessQueue] = deque()
        self._polled: list[Batch] = []
        self._changed = trio.lowlevel.ParkingLot()

    def add(self, process_queue: ProcessQueue) -> None:
        """Add a queue that may have messages to poll, and wake up waiting polls."""
        self.recount(process_queue)
        if not process_queue.is_ready and process_queue.waiting:
            process_queue.is_ready = True
            self._ready.append(process_queue)
        self.wake()

    def recount(self, process_queue: ProcessQueue) -> None:
        """Update ``total`` after a queue's messages have changed, or after it was paused or dropped."""
        counts = not (process_queue.dropped or process_queue.paused)
        count = len(process_queue) if counts else 0
        self.total += count - self._counted.pop(process_queue, 0)
        if count:
            self._counted[process_queue] = count

    def wake(self) -> None:
        """Wake up waiting polls."""
        self._changed.unpark_all()

    async def poll(self, count: int, wait: float, check: Callable[[], None]) -> list[ReceivedMessage]:
        """Return at most ``count`` messages, or none after ``wait`` seconds. When cancelled, none is lost.

        ``check`` is called after each wait. It raises an error if no messages can come.
        """
        started = trio.current_time()
        batches = self.take(count)
        with trio.move_on_after(wait):
            while not batches:
                await self._changed.park()
                check()
                batches = self.take(count)
        return await self._deliver(batches, trio.current_time() - started)

    def take(self, count: int) -> list[Batch]:
        """Take at most ``count`` messages. Those of each queue are in order.

        Removes paused queues. Add a queue again when it is resumed.
        """
        ready = self._ready
        batches: list[Batch] = []
        while ready and count > 0:
            process_queue = ready.popleft()
            process_queue.is_ready = False
            if process_queue.paused or process_queue.dropped:
                continue
            wait = None if process_queue.arrivals is None else process_queue.wait_of_next()
            messages = process_queue.take_batch(count)
            if process_queue.counts.meter is not None:
                process_queue.counts.meter.waited(wait, len(messages))
            if messages:
                batches.append((process_queue, messages))
                count -= len(messages)
            if process_queue.waiting:
                process_queue.is_ready = True
                ready.append(process_queue)
        return batches

    async def _deliver(self, batches: Sequence[Batch], seconds: float) -> list[ReceivedMessage]:
        """Call the hooks for messages that were just taken, and return the messages for the user.

        When cancelled, the messages are put back in front of those that follow them.

        Args:
            batches: the messages. They can be acknowledged once this has returned.
            seconds: how long the poll has waited.
        """
        messages = [message for _, batch in batches for message in batch]
        if messages and self._hooks.all:
            queues = [process_queue.queue for process_queue, batch in batches for _ in batch]
            try:
                messages = await self._hooks.call_for_received(messages, queues, seconds)
            except BaseException:
                for process_queue, batch in batches:
                    self._requeue(process_queue, batch)
                raise
        self._polled += batches
        return messages

    def put_back(self, positions: Collection[Position]) -> set[Position]:
        """Put polled messages back, which the user has not got. Another poll returns them.

        Messages of the same queue that one poll has taken with them are put back, too. Returns the positions
        of all that were put back. Those that were acknowledged meanwhile are missing.
        """
        returned: set[Position] = set()
        polled, self._polled = self._polled, []
        for process_queue, messages in polled:
            taken = {(process_queue.queue, message.queue_offset) for message in messages}
            if taken.isdisjoint(positions):
                self._polled.append((process_queue, messages))
            else:
                self._requeue(process_queue, messages)
                returned |= taken
        return returned

    def _requeue(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        process_queue.requeue_first(messages)
        self.add(process_queue)

    def acknowledge(self) -> bool:
        """Acknowledge all polled messages. Returns whether there were any."""
        polled = self._polled
        if not polled:
            return False
        self._polled = []
        for process_queue, messages in polled:
            process_queue.remove_all(messages)
            self.recount(process_queue)
        return True
