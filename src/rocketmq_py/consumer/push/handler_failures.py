"""What happens when a handler fails.

Out of order the broker takes the messages back and delivers them again later (:class:`Redelivery`, by way of
``send_back.py``); in order they are handed out again in place (``orderly.py``). Either way they are dead
letters after ``max_reconsume_times``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import attrs
import trio

from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.remoting.running import open_nursery

logger: Final = logging.getLogger("rocketmq_py.consumer")

RETRY_HERE_SECONDS = 5.0
"""How long a message waits that failed and could not be sent back. Java: submitConsumeRequestLater."""


class Redelivery:
    """Has messages delivered again that a handler failed on.

    Java: ``ConsumeMessageConcurrentlyService.processConsumeResult``.

    Args:
        send_back: has the broker deliver a message again, after the delay of this level.
        offer: has a queue's messages handled that wait.
    """

    def __init__(
        self,
        send_back: Callable[[ReceivedMessage, int], Awaitable[None]],
        offer: Callable[[MessageBuffer], None],
    ) -> None:
        self._send_back = send_back
        self._offer = offer
        self._later: deque[tuple[float, MessageBuffer, ReceivedMessage]] = deque()
        self._more_later = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Hand out again what no broker took back, when its time has come, until cancelled."""
        while True:
            while not self._later:
                await self._more_later.park()
            due_at, buffer, message = self._later.popleft()
            await trio.sleep_until(due_at)
            buffer.put_back(message)
            self._offer(buffer)

    async def deliver_again(
        self, buffer: MessageBuffer, messages: Sequence[ReceivedMessage], delay_level: int
    ) -> None:
        """Send messages back to the broker; those that it does not take are kept, and tried again here."""
        buffer.counts.failed += len(messages)
        async with open_nursery() as nursery:
            for message in messages:
                nursery.start_soon(self._deliver_one_again, buffer, message, delay_level)

    async def _deliver_one_again(
        self, buffer: MessageBuffer, message: ReceivedMessage, delay_level: int
    ) -> None:
        # Whoever has the queue now gets the message anyway; or its call has ended after all.
        if buffer.dropped or not buffer.holds(message):
            return
        try:
            await self._send_back(message, delay_level)
        except RocketMQError:  # logged by SendBack
            again = attrs.evolve(message, reconsume_times=message.reconsume_times + 1)
            self._later.append((trio.current_time() + RETRY_HERE_SECONDS, buffer, again))
            self._more_later.unpark_all()
        else:
            buffer.release(message)


def describe(buffer: MessageBuffer, *messages: ReceivedMessage) -> str:
    """Return what logs call messages of a queue."""
    queue, first = buffer.queue, messages[0]
    others = f" and {len(messages) - 1} after it" if len(messages) > 1 else ""
    return (
        f"message {first.message_id} of topic {first.topic} "
        f"({queue.topic}, {queue.broker_name}, queue {queue.queue_id}, offset {first.queue_offset}){others}"
    )


def log_meaningless(result: object, what: str) -> None:
    """Say that a handler returned a ConsumeResult that is for consumers of another kind."""
    logger.error(
        "handling %s failed: the handler returned %r, which says nothing to this consumer",
        what, result,
    )  # fmt: skip


def unreadable(message: ReceivedMessage) -> RocketMQError:
    """Return why a message fails that no handler can get."""
    return RocketMQError(f"its body cannot be read: {message.corruption}")
