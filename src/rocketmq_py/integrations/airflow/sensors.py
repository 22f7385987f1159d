"""The sensor that waits for a message."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.integrations.airflow.hook import RocketMQHook
from rocketmq_py.integrations.airflow.trigger import RocketMQMessageTrigger, event_of

try:
    from airflow.sdk import BaseSensorOperator, PokeReturnValue
except ImportError:
    raise ConfigurationError(
        "the Airflow provider needs Airflow 3.1 or newer: install rocketmq-py[airflow]"
    ) from None

__all__ = ["RocketMQMessageSensor"]


class RocketMQMessageSensor(BaseSensorOperator):  # type: ignore[misc]  # Airflow is in an environment of its own
    """Waits for a message of a topic, acknowledges it, and returns it. Needs brokers of 5.x.

    The XCom is the payload of RocketMQMessageTrigger, which waits if ``deferrable`` is set.

    Args:
        topic: the topic. Templated, like ``group`` and ``tags``.
        group: the consumer group. Each message goes to one member of a group.
        tags: tags separated by ``||``, or ``*`` for all messages.
        rocketmq_conn_id: the id of Airflow's connection.
        deferrable: wait in the triggerer instead of a worker.
        **options: the arguments of BaseSensorOperator, such as ``timeout`` and ``poke_interval``.
    """

    template_fields: Sequence[str] = ("topic", "group", "tags")

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        tags: str = "*",
        rocketmq_conn_id: str = RocketMQHook.default_conn_name,
        deferrable: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.topic = topic
        self.group = group
        self.tags = tags
        self.rocketmq_conn_id = rocketmq_conn_id
        self.deferrable = deferrable

    def execute(self, context: Any) -> Any:
        """Wait here, or defer the task until the trigger fires."""
        if not self.deferrable:
            return super().execute(context)
        return self.defer(
            trigger=RocketMQMessageTrigger(
                self.topic, self.group, self.tags, self.rocketmq_conn_id, once=True
            ),
            method_name=self.execute_complete.__name__,
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Any, event: dict[str, Any]) -> dict[str, Any]:
        """Return the message that the trigger has received."""
        return event

    def poke(self, context: Any) -> PokeReturnValue:
        """Receive a message if there is one now."""
        with (
            RocketMQHook(self.rocketmq_conn_id).get_conn() as client,
            client.pop_consumer(self.group, consume_from="earliest") as consumer,
        ):
            consumer.subscribe(self.topic, self.tags)
            for message in consumer.receive(max_messages=1, wait=1.0):
                consumer.ack(message)
                return PokeReturnValue(is_done=True, xcom_value=event_of(message))
        return PokeReturnValue(is_done=False)
