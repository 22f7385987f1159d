"""How long brokers keep the messages of a buffer topic: what waits longer is in a relay's store alone."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from rocketmq_py.client.client import Client
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.protocol.bodies import read_properties
from rocketmq_py.protocol.headers import GetBrokerConfigRequest
from rocketmq_py.relay.entries import Entry, Waiting

logger: Final = logging.getLogger("rocketmq_py.relay")

HOUR_MS = 3_600_000
SETTING = "fileReservedTime"


class Retention:
    """Tells of messages that wait for longer than the broker of a buffer queue keeps them, once for a queue.

    Args:
        queue: the buffer queue.
        hours: how long its broker keeps messages; None if it does not say.
    """

    def __init__(self, queue: MessageQueue, hours: int | None) -> None:
        self._queue = queue
        self._hours = hours

    def look_at(self, read: Iterable[tuple[ReceivedMessage, Entry]]) -> None:
        """Look at messages of the queue."""
        if self._hours is None:
            return
        for message, entry in read:
            if isinstance(entry, Waiting) and entry.due_ms > message.store_time_ms + self._hours * HOUR_MS:
                logger.warning(
                    "message %s waits for longer than %s keeps messages of buffer topic %s (%s, %d h): it is "
                    "lost if this store is, or if another relay takes queue %d over; there may be more",
                    message.message_id,
                    self._queue.broker_name,
                    self._queue.topic,
                    SETTING,
                    self._hours,
                    self._queue.queue_id,
                )
                self._hours = None
                return


async def retention_of(client: Client, queue: MessageQueue) -> Retention:
    """Ask the broker of a buffer queue; one that does not answer this is not told of."""
    try:
        address = client.routes.broker_address(queue.broker_name)
        answer = await client.brokers.call(address, GetBrokerConfigRequest())
        return Retention(queue, int(read_properties(answer.body)[SETTING]))
    except (RocketMQError, KeyError, ValueError) as error:
        logger.debug("%s does not say how long it keeps messages: %s", queue.broker_name, error)
        return Retention(queue, None)
