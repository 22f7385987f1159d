"""Redelivery and retries of messages whose handler call has failed.

A call fails when the handler raises an exception or returns a result that the consumer does not support, when
it times out (``consume_timeout`` of concurrent consumers), and when the body of a message is corrupt. The
result ``ConsumeLater`` of a concurrent consumer and ``Suspend`` of an ordered one have the same effect.

- Concurrent consumers (``concurrent_dispatch``) send the messages back to the broker, which delivers them
  again later: :class:`Redelivery`, which uses ``send_back.SendBack``. The time until a popped message is
  delivered again is changed instead: ``send_back.SendBackOrPopLater``.
- Ordered consumers and consumers of lite topics (``orderly_dispatch``) call the handler with the same
  messages again after a pause: :class:`RetryInPlace`.
- Broadcasting consumers drop the messages (``send_back.DroppedMessages``), unless they are ordered.

After ``max_reconsume_times`` failures a message becomes a dead letter of its group. A ``FailedDelivery``
tells when, and the ``DeadLetter`` has the cause, for all consumers: ``group.dead_letters``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import attrs
import trio

from rocketmq_py.client.user_functions import users_traceback
from rocketmq_py.consumer.group.dead_letters import Cause, DeadLetter, FailedDelivery
from rocketmq_py.consumer.group.handler_results import delay_seconds
from rocketmq_py.consumer.pop.messages import PoppedMessage
from rocketmq_py.consumer.pull.message_buffer import MessageBuffer
from rocketmq_py.consumer.pull.process_queue import ProcessQueue
from rocketmq_py.consumer.push.typed_handlers import HandlerSettings
from rocketmq_py.consumer.settings import (
    DEFAULT_RECONSUME_TIMES,
    UNLIMITED_RECONSUME_TIMES,
    PushConsumerSettings,
)
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.remoting.nurseries import open_nursery

logger: Final = LibraryLogger("rocketmq_py.consumer")

LOCAL_RETRY_SECONDS = 5.0
"""Delay of the local retry if a message cannot be sent back. Java: submitConsumeRequestLater."""


class DeadLetterQueue(Protocol):
    """The dead-letter queue of a group. A broadcasting group, which has none, drops the messages."""

    async def send_to_dead_letters(self, dead_letter: DeadLetter) -> None:
        """Make a message a dead letter of the group. Raises RocketMQError, which is logged."""


class FailedMessages(DeadLetterQueue, Protocol):
    """The brokers to which a consumer returns failed messages. See ``send_back.SendBack``."""

    async def send_back(self, failed: FailedDelivery) -> None:
        """Have a message delivered again after a delay, or make it a dead letter after the last delivery.

        Raises RocketMQError, which is logged.
        """


class Dispatcher(Protocol):
    """The dispatch that calls the handler."""

    def offer(self, buffer: MessageBuffer) -> None:
        """Dispatch the waiting messages of a queue."""


class Redelivery:
    """Has failed messages of a concurrent consumer delivered again.

    Java: ``ConsumeMessageConcurrentlyService.processConsumeResult``.

    Args:
        failed_messages: takes the messages.
        dispatch: gets messages that no broker took back once more.
        settings: the settings of the consumer.
    """

    def __init__(
        self, failed_messages: FailedMessages, dispatch: Dispatcher, settings: PushConsumerSettings
    ) -> None:
        # Broadcasting groups have no redelivery.
        self._max_reconsume_times = None if settings.broadcasting else settings.reconsume_limit
        self._failed_messages = failed_messages
        self._dispatch = dispatch
        # Messages to retry here, with the time on trio's clock.
        self._local_retries: deque[tuple[float, MessageBuffer, ReceivedMessage]] = deque()
        self._retry_added = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Dispatch messages that no broker took back once their delay is over. Runs until cancelled."""
        while True:
            while not self._local_retries:
                await self._retry_added.park()
            due_at, buffer, message = self._local_retries.popleft()
            await trio.sleep_until(due_at)
            buffer.requeue(message)
            self._dispatch.offer(buffer)

    def describe(self, messages: Sequence[ReceivedMessage], delay_level: int = 0) -> str:
        """Describe the failed deliveries of messages, and when they are delivered again, for log lines."""
        if self._max_reconsume_times is None:
            return "it is not delivered again"
        return describe_deliveries(
            messages,
            self._max_reconsume_times,
            lambda message: delay_seconds(delay_level, message.reconsume_times),
        )

    async def redeliver(
        self,
        buffer: MessageBuffer,
        messages: Sequence[ReceivedMessage],
        delay_level: int = 0,
        error: BaseException | None = None,
    ) -> None:
        """Send messages back to the broker. Those that it does not accept are retried here."""
        buffer.counts.failed += len(messages)
        async with open_nursery() as nursery:
            for message in messages:
                failed = FailedDelivery(message, delay_level, error)
                send = partial(self._failed_messages.send_back, failed)
                nursery.start_soon(self._send_or_retry, buffer, message, send)

    async def give_up(self, buffer: MessageBuffer, reasons: Mapping[ReceivedMessage, str]) -> None:
        """Send messages to the dead-letter queue, with the reasons. Those that fail are retried here."""
        buffer.counts.failed += len(reasons)
        async with open_nursery() as nursery:
            for message, reason in reasons.items():
                dead_letter = DeadLetter(message, Cause.UNUSABLE, reason)
                send = partial(self._failed_messages.send_to_dead_letters, dead_letter)
                nursery.start_soon(self._send_or_retry, buffer, message, send)

    async def _send_or_retry(
        self, buffer: MessageBuffer, message: ReceivedMessage, send: Callable[[], Awaitable[None]]
    ) -> None:
        # The new owner of a revoked queue gets the message anyway. A call that timed out may have succeeded
        # in the meantime.
        if buffer.dropped or message not in buffer:
            return
        try:
            await send()
        except RocketMQError:  # logged
            again = message
            if not isinstance(message, PoppedMessage):  # a PopProcessQueue knows its messages by identity
                again = attrs.evolve(message, reconsume_times=message.reconsume_times + 1)
            self._local_retries.append((trio.current_time() + LOCAL_RETRY_SECONDS, buffer, again))
            self._retry_added.unpark_all()
        else:
            buffer.remove_sent_back(message)


class RetryInPlace:
    """Puts failed messages of an ordered consumer back to the front of their queue.

    Java: ``ConsumeMessageOrderlyService.processConsumeResult``.

    Args:
        dead_letter_queue: takes the messages after their last retry.
        settings: the settings of the consumer. A message with a corrupt body has at most
            DEFAULT_RECONSUME_TIMES retries, because it would block its queue forever.
    """

    def __init__(self, dead_letter_queue: DeadLetterQueue, settings: HandlerSettings) -> None:
        self._suspend = settings.suspend_current_queue
        self._max_reconsume_times = settings.reconsume_limit
        self._dead_letter_queue = dead_letter_queue

    def describe(self, messages: Sequence[ReceivedMessage]) -> str:
        """Describe the failed deliveries of messages, and when they are delivered again, for log lines."""
        return describe_deliveries(messages, self._limit_of(messages[0]), lambda _: self._suspend)

    async def retry(
        self,
        process_queue: ProcessQueue,
        messages: Sequence[ReceivedMessage],
        seconds: float | None = None,
        error: BaseException | None = None,
    ) -> float | None:
        """Requeue messages, or send them to the dead-letter queue after the last retry.

        Args:
            process_queue: the queue of the messages.
            messages: the failed messages.
            seconds: the pause that the handler asked for. None is the default.
            error: the exception that the handler raised, or None.

        Returns:
            Seconds to wait before the queue is dispatched again, or None for no pause.
        """
        if process_queue.dropped:
            return None  # the new owner of the queue gets the messages anyway
        process_queue.counts.failed += len(messages)
        again = []
        for message in messages:
            dead_letter = FailedDelivery(message, error=error).dead_letter(self._limit_of(message))
            if dead_letter is not None and await self._try_dead_letter(dead_letter):
                process_queue.remove_sent_back(message)
            else:
                again.append(attrs.evolve(message, reconsume_times=message.reconsume_times + 1))
        if not again:
            return None
        process_queue.requeue_first(again)
        return self._suspend if seconds is None else seconds

    async def give_up(
        self, process_queue: ProcessQueue, reasons: Mapping[ReceivedMessage, str]
    ) -> float | None:
        """Send messages to the dead-letter queue, with the reasons. Requeue those that fail.

        Returns:
            Seconds to wait before the queue is dispatched again, or None for no pause.
        """
        if process_queue.dropped:
            return None
        process_queue.counts.failed += len(reasons)
        again = []
        for message, reason in reasons.items():
            if await self._try_dead_letter(DeadLetter(message, Cause.UNUSABLE, reason)):
                process_queue.remove_sent_back(message)
            else:
                again.append(message)
        if not again:
            return None
        process_queue.requeue_first(again)
        return self._suspend

    def _limit_of(self, message: ReceivedMessage) -> float:
        limit = math.inf if message.corruption is None else DEFAULT_RECONSUME_TIMES
        return min(limit, self._max_reconsume_times)

    async def _try_dead_letter(self, dead_letter: DeadLetter) -> bool:
        """Send a message to the dead-letter queue. Return False if that failed."""
        try:
            await self._dead_letter_queue.send_to_dead_letters(dead_letter)
        except RocketMQError:  # logged
            return False
        return True


def describe(buffer: MessageBuffer, *messages: ReceivedMessage) -> str:
    """Describe messages of a queue for log lines."""
    queue, first = buffer.queue, messages[0]
    retry_topic = f" retry_topic={queue.topic}" if queue.topic != first.topic else ""
    count = f" messages={len(messages)}" if len(messages) > 1 else ""
    return (
        f"message={first.message_id} topic={first.topic}{retry_topic} broker={queue.broker_name} "
        f"queue={queue.queue_id} offset={first.queue_offset}{count}"
    )


def describe_deliveries(
    messages: Sequence[ReceivedMessage], limit: float, delay: Callable[[ReceivedMessage], float]
) -> str:
    """Describe failed deliveries for log lines: ``delivery 2 of 17, next in about 30 s``.

    Args:
        messages: the messages. If some failed more often than others, both are described.
        limit: redeliveries after which a message becomes a dead letter.
        delay: returns the seconds until a message is delivered again.
    """
    fewest, most = (choose(messages, key=lambda one: one.reconsume_times) for choose in (min, max))
    described = [_describe_delivery(one.reconsume_times, limit, delay(one)) for one in (fewest, most)]
    return described[0] if described[0] == described[1] else f"{described[0]}, up to {described[1]}"


def _describe_delivery(failures: int, limit: float, seconds: float) -> str:
    of_all = f" of {limit + 1:.0f}" if limit < UNLIMITED_RECONSUME_TIMES else ""
    due = "the last one" if failures >= limit else f"next in about {_duration(seconds)}"
    return f"delivery {failures + 1}{of_all}, {due}"


def _duration(seconds: float) -> str:
    size, unit = next(one for one in _UNITS if seconds >= one[0])
    return f"{seconds / (size or 1):.3g} {unit}"


_UNITS = ((3600, "h"), (60, "min"), (0, "s"))


def log_end(error: BaseException, call: str) -> None:
    """Log an error of a handler that ends the consumer, such as SystemExit, but no cancellation."""
    if not isinstance(error, trio.Cancelled):
        logger.error(
            "the consumer ends, because its handler raised %s: %s",
            type(error).__name__, call, exc_info=users_traceback(error),
        )  # fmt: skip
