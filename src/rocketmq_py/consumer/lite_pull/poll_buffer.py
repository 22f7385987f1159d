"""What a lite pull consumer has pulled: it waits for a poll, is in its user's hands, and is done with."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

import trio

from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.message import ReceivedMessage

Batch: TypeAlias = tuple[ProcessQueue, Sequence[ReceivedMessage]]
"""Messages that were taken of one queue."""


class PollBuffer:
    """The queues that have something waiting, in turn. Java: ``consumeRequestCache``.

    What was handed out stays in the ProcessQueues, and holds their offsets back, until it is settled.

    Attributes:
        total: the messages that are here, but for those of queues that are paused.
    """

    def __init__(self) -> None:
        self.total: int = 0
        self._counted: dict[ProcessQueue, int] = {}
        self._turns: deque[ProcessQueue] = deque()
        self._in_hand: list[Batch] = []
        self._changed = trio.lowlevel.ParkingLot()

    def offer(self, process_queue: ProcessQueue) -> None:
        """Have what waits in a queue taken in its turn."""
        self.count(process_queue)
        if not process_queue.is_ready and process_queue.waiting:
            process_queue.is_ready = True
            self._turns.append(process_queue)
        self.wake()

    def count(self, process_queue: ProcessQueue) -> None:
        """Count a queue's messages anew: there are others, or it has been paused or dropped."""
        counts = not (process_queue.dropped or process_queue.paused)
        now = len(process_queue) if counts else 0
        self.total += now - self._counted.pop(process_queue, 0)
        if now:
            self._counted[process_queue] = now

    def wake(self) -> None:
        """Have those who wait look again."""
        self._changed.unpark_all()

    async def changed(self) -> None:
        """Wait until there may be something to take."""
        await self._changed.park()

    def take(self, count: int) -> list[Batch]:
        """Return the next messages, ``count`` at the most, those of each queue in their order.

        A queue that is paused loses its turn with all that it has; offer it again when it no longer is.
        """
        turns = self._turns
        taken: list[Batch] = []
        while turns and count > 0:
            process_queue = turns.popleft()
            process_queue.is_ready = False
            if process_queue.paused or process_queue.dropped:
                continue
            messages = process_queue.take_batch(count)
            if messages:
                taken.append((process_queue, messages))
                count -= len(messages)
            if process_queue.waiting:
                process_queue.is_ready = True
                turns.append(process_queue)
        return taken

    async def hand_out(
        self, taken: Sequence[Batch], hooks: ConsumerHooks, seconds: float
    ) -> list[ReceivedMessage]:
        """Call the hooks for what was just taken, after so many seconds; return what the user gets.

        Until then nobody can settle it. When cancelled, the messages wait again, before those that follow.
        """
        messages = [message for _, batch in taken for message in batch]
        if messages and hooks.all:
            queues = [process_queue.queue for process_queue, batch in taken for _ in batch]
            try:
                messages = await hooks.received(messages, queues, seconds)
            except BaseException:
                for process_queue, batch in taken:
                    process_queue.requeue_first(batch)
                    self.offer(process_queue)
                raise
        self._in_hand += taken
        return messages

    def settle(self) -> bool:
        """Be done with everything that was handed out; return whether there was anything."""
        in_hand = self._in_hand
        if not in_hand:
            return False
        self._in_hand = []
        for process_queue, messages in in_hand:
            process_queue.remove_all(messages)
            self.count(process_queue)
        return True
