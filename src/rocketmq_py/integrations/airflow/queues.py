"""The message-queue provider: ``MessageQueueTrigger(scheme="rocketmq", topic=…, group=…)``."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger

try:
    from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
except ImportError:
    raise ConfigurationError(
        "the message-queue provider needs apache-airflow-providers-common-messaging: install "
        "rocketmq-py[airflow]"
    ) from None

__all__ = ["RocketMQMessageQueueProvider"]


class RocketMQMessageQueueProvider(BaseMessageQueueProvider):  # type: ignore[misc]  # as Airflow
    """Makes RocketMQMessageTrigger available to MessageQueueTrigger.

    ::

        trigger = MessageQueueTrigger(scheme="rocketmq", topic="Orders", group="orders-dag")
        asset = Asset("orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])

    The keywords are the arguments of RocketMQMessageTrigger. The older ``queue`` of MessageQueueTrigger is
    ``rocketmq://CONNECTION_ID/TOPIC``.
    """

    scheme = "rocketmq"

    def queue_matches(self, queue: str) -> bool:
        """Return whether a queue begins with ``rocketmq://``."""
        return queue.startswith("rocketmq://")

    def trigger_class(self) -> type[RocketMQMessageTrigger]:
        """Return RocketMQMessageTrigger."""
        return RocketMQMessageTrigger

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:
        """Return the connection and the topic of a queue, without those that the keywords set.

        Raises ConfigurationError for a queue without them.
        """
        parts = urlsplit(queue)
        topic = parts.path.strip("/")
        if not parts.netloc or not topic:
            raise ConfigurationError(f"queue is {queue!r}; it must be rocketmq://CONNECTION_ID/TOPIC")
        found = {"rocketmq_conn_id": parts.netloc, "topic": topic}
        return {name: value for name, value in found.items() if name not in kwargs}
