"""The operator that sends messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.airflow.hook import RocketMQHook
from rocketmq_py.message import Message

try:
    from airflow.sdk import BaseOperator
except ImportError:
    raise ConfigurationError(
        "the Airflow provider needs Airflow 3.1 or newer: install rocketmq-py[airflow]"
    ) from None

__all__ = ["RocketMQSendOperator"]


class RocketMQSendOperator(BaseOperator):  # type: ignore[misc]  # Airflow is in an environment of its own
    """Sends one message for each body, and returns the ids of the messages.

    If a task is retried after a failure, the messages that were stored are sent again.

    Args:
        topic: the topic. Templated, like the other arguments for messages.
        bodies: the texts of the messages.
        tags: the tag of each message.
        keys: the keys of each message. A str is split at blanks.
        properties: the user properties of each message.
        rocketmq_conn_id: the id of Airflow's connection.
        **options: the arguments of BaseOperator.
    """

    template_fields: Sequence[str] = ("topic", "bodies", "tags", "keys", "properties")

    def __init__(
        self,
        *,
        topic: str,
        bodies: Sequence[str],
        tags: str = "",
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topic = topic
        self.bodies = bodies
        self.tags = tags
        self.keys = keys
        self.properties = properties
        self.rocketmq_conn_id = rocketmq_conn_id

    def execute(self, context: Any) -> list[str]:
        """Send the messages. Raises InvalidMessageError, and the errors of ``RocketMQHook.send``."""
        bodies = [self.bodies] if isinstance(self.bodies, str) else self.bodies
        messages = [
            Message(
                self.topic,
                body.encode(),
                tags=self.tags,
                keys=self.keys,
                properties=dict(self.properties or {}),
            )
            for body in bodies
        ]
        results = RocketMQHook(self.rocketmq_conn_id).send(messages)
        return [result.message_id for result in results]
