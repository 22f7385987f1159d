"""A warning for messages that are delayed for longer than brokers keep them in the buffer topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rocketmq_py.client.core import ClientCore
from rocketmq_py.errors import RocketMQError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import read_properties
from rocketmq_py.protocol.headers import GetBrokerConfigRequest
from rocketmq_py.relay.buffer_entries import BufferEntry, DelayedMessage

logger: Final = LibraryLogger("rocketmq_py.relay")

HOUR_MS = 3_600_000
SETTING = "fileReservedTime"


class RetentionMonitor:
    """Logs a warning, once, when a message of a buffer queue is due after its broker deletes it.

    From then on, only the relay's store has the message.

    Args:
        queue: the buffer queue.
        hours: how long its broker keeps messages; None if that is unknown, which disables the warning.
    """

    def __init__(self, queue: MessageQueue, hours: int | None) -> None:
        self._queue = queue
        self._hours = hours

    def check(self, entries: Iterable[tuple[ReceivedMessage, BufferEntry]]) -> None:
        """Check messages of the queue."""
        if self._hours is None:
            return
        for message, entry in entries:
            if not isinstance(entry, DelayedMessage):
                continue
            if entry.due_ms > message.store_time_ms + self._hours * HOUR_MS:
                logger.warning(
                    "message is due after its broker deletes it: it is lost if the store is lost, or if"
                    " another relay takes over the queue; there may be more such messages"
                    " id=%s broker=%s topic=%s queue=%d %s=%d h",
                    message.message_id,
                    self._queue.broker_name,
                    self._queue.topic,
                    self._queue.queue_id,
                    SETTING,
                    self._hours,
                )
                self._hours = None
                return


async def query_retention(client: ClientCore, queue: MessageQueue) -> RetentionMonitor:
    """Create the monitor of a buffer queue, with the retention time that its broker reports."""
    try:
        address = client.routes.broker_address(queue.broker_name)
        answer = await client.brokers.call(address, GetBrokerConfigRequest())
        return RetentionMonitor(queue, int(read_properties(answer.body)[SETTING]))
    except (RocketMQError, KeyError, ValueError) as error:
        logger.debug("retention time unknown broker=%s cause=%s", queue.broker_name, error)
        return RetentionMonitor(queue, None)
