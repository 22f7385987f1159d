"""The trigger: waits for messages in Airflow's triggerer, and returns them as events, which are JSON."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

from rocketmq_py.aio import PopConsumer
from rocketmq_py.arguments import Duration, seconds
from rocketmq_py.consumer import PoppedMessage
from rocketmq_py.errors import ConfigurationError, RocketMQError, TopicNotFoundError
from rocketmq_py.integrations.airflow.hook import RocketMQHook, client_arguments
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

try:
    from airflow.providers.common.compat.connection import get_async_connection
    from airflow.triggers.base import BaseEventTrigger, TriggerEvent
except ImportError:
    raise ConfigurationError(
        "the Airflow provider needs Airflow 3.1 or newer: install rocketmq-py[airflow]"
    ) from None

__all__ = ["RocketMQMessageTrigger"]

logger: Final = LibraryLogger("rocketmq_py.integrations")

RETRY_SECONDS = 5.0
"""Seconds between attempts while brokers are away, or the topic does not exist yet."""


class RocketMQMessageTrigger(BaseEventTrigger):  # type: ignore[misc]  # Airflow is in an environment of its own
    """Fires for each message of a topic, as a member of a consumer group. Needs brokers of 5.x.

    The payload is a dict with ``topic``, ``message_id``, ``tags``, ``keys``, ``properties``,
    ``reconsume_times``, ``store_time_ms``, and ``body`` or, for a body that is not UTF-8, ``body_base64``.

    A message is acknowledged when the triggerer has taken its event. If the triggerer stops before, the
    message is delivered again after ``invisible`` seconds. If the triggerer is killed before it has stored
    the event, the message is lost. A new group begins with the first message of the topic.

    Args:
        topic: the topic.
        group: the consumer group.
        tags: tags separated by ``||``, or ``*`` for all messages.
        rocketmq_conn_id: the id of Airflow's connection.
        invisible: seconds until an unacknowledged message is delivered again.
        once: end after the first message, as a deferred task needs it.
    """

    def __init__(
        self,
        topic: str,
        group: str,
        tags: str = "*",
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        invisible: Duration = 60.0,
        once: bool = False,
    ) -> None:
        super().__init__()
        self.topic = topic
        self.group = group
        self.tags = tags
        self.rocketmq_conn_id = rocketmq_conn_id
        self.invisible = seconds(invisible)
        self.once = once

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and the arguments, from which a triggerer makes a copy."""
        names = ("topic", "group", "tags", "rocketmq_conn_id", "invisible", "once")
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncGenerator[TriggerEvent, None]:
        """Yield an event for each message. Failures of brokers and name servers are logged and retried.

        Raises ConfigurationError for an invalid connection, and UnsupportedByBrokerError for brokers of 4.x.
        """
        connection = await get_async_connection(self.rocketmq_conn_id, RocketMQHook)
        address, options = client_arguments(connection)
        async with PopConsumer(address, group=self.group, consume_from="earliest", **options) as consumer:
            consumer.subscribe(self.topic, self.tags)
            while True:
                try:
                    messages = await consumer.receive(max_messages=1, invisible=self.invisible)
                except RocketMQError as error:
                    await self._wait_after(error, "receive")
                    continue
                for message in messages:
                    yield TriggerEvent(event_of(message))
                    await self._acknowledge(consumer, message)
                    if self.once:
                        return

    async def _acknowledge(self, consumer: PopConsumer, message: PoppedMessage) -> None:
        """Acknowledge a message. Failures are retried until the broker delivers it again anyway."""
        deadline = time.monotonic() + self.invisible
        while time.monotonic() < deadline:
            try:
                await consumer.ack(message)
            except RocketMQError as error:
                await self._wait_after(error, "ack")
            else:
                return

    async def _wait_after(self, error: RocketMQError, request: str) -> None:
        """Log a failed request, and wait before the next attempt. Raise the error if retries cannot help."""
        if not (error.retriable or error._not_reached or isinstance(error, TopicNotFoundError)):
            raise error
        logger.warning("trigger failed, retrying: request=%s topic=%s error=%s", request, self.topic, error)
        await asyncio.sleep(RETRY_SECONDS)


def event_of(message: ReceivedMessage) -> dict[str, Any]:
    """Return a message as an event or XCom, in JSON. A body that is not UTF-8 is in ``body_base64``."""
    event: dict[str, Any] = {
        "topic": message.topic,
        "message_id": message.message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "reconsume_times": message.reconsume_times,
        "store_time_ms": message.store_time_ms,
    }
    try:
        event["body"] = message.body.decode()
    except UnicodeDecodeError:
        event["body_base64"] = base64.b64encode(message.body).decode()
    return event
