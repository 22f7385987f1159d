"""What a lite pull consumer has pulled: it waits for a poll, is in its user's hands, and is done with."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import trio

from rocketmq_py.consumer.group.hooks import ConsumerHooks
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.message import ReceivedMessage


class PollLine:
    """The queues that have something waiting, in turn. Java: ``consumeRequestCache``.

    What was taken stays in the ProcessQueues, and holds their offsets back, until it is settled.
    """

    def __init__(self) -> None:
        self._line: deque[ProcessQueue] = deque()
        self._in_hand: list[tuple[ProcessQueue, Sequence[ReceivedMessage]]] = []
        self._changed = trio.lowlevel.ParkingLot()

    def offer(self, held: ProcessQueue) -> None:
        """Have what waits in a queue taken in its turn."""
        if not held.offered and held.waiting:
            held.offered = True
            self._line.append(held)
        self.wake()

    def wake(self) -> None:
        """Have those who wait look again."""
        self._changed.unpark_all()

    async def changed(self) -> None:
        """Wait until there may be something to take."""
        await self._changed.park()

    def take(self, count: int) -> list[ReceivedMessage]:
        """Return the next messages, ``count`` at the most, those of each queue in their order.

        A queue that is paused leaves the line with all that it holds; offer it again when it no longer is.
        """
        line = self._line
        taken: list[ReceivedMessage] = []
        while line and len(taken) < count:
            held = line.popleft()
            held.offered = False
            if held.paused or held.dropped:
                continue
            messages = held.take_several(count - len(taken))
            if messages:
                self._in_hand.append((held, messages))
                taken += messages
            if held.waiting:
                held.offered = True
                line.append(held)
        return taken

    async def hand_out(
        self, messages: Sequence[ReceivedMessage], hooks: ConsumerHooks, seconds: float
    ) -> list[ReceivedMessage]:
        """Call the hooks for what was just taken, after so many seconds; return what the user gets.

        When cancelled, the messages wait again, before those that follow them.
        """
        queues = [held.queue for held, taken in self._in_hand for _ in taken]
        try:
            return await hooks.received(messages, queues, seconds)
        except BaseException:
            in_hand, self._in_hand = self._in_hand, []
            for held, taken in in_hand:
                held.put_back_first(taken)
                self.offer(held)
            raise

    def settle(self) -> bool:
        """Be done with everything that was taken; return whether there was anything."""
        in_hand = self._in_hand
        if not in_hand:
            return False
        self._in_hand = []
        for held, messages in in_hand:
            held.remove_all(messages)
        return True
