"""Seeing that the members of a group subscribe alike: if they do not, each loses messages that it wants."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from rocketmq_py.client.client import Client
from rocketmq_py.errors import RocketMQError
from rocketmq_py.names import RETRY_PREFIX
from rocketmq_py.protocol.bodies import ConsumerConnection, ConsumerData, SubscriptionData
from rocketmq_py.protocol.headers import GetConsumerConnectionListRequest

logger: Final = logging.getLogger("rocketmq_py.consumer")

MOST_SAID = 100
"""Differences that are remembered, so that each is said once."""


class SubscriptionCheck:
    """Compares what a member wants with what a broker has of its group, which is what was subscribed last.

    Args:
        client: how brokers are reached.
        group: the group.
        describe: gives what heartbeats say of this member.
    """

    def __init__(self, client: Client, group: str, describe: Callable[[], ConsumerData]) -> None:
        self._client = client
        self._group = group
        self._describe = describe
        self._said: set[str] = set()

    async def look(self) -> None:
        """Ask one broker, and warn of each difference the first time that it is seen."""
        own = self._describe()
        broker_name = self._some_broker(own)
        if broker_name is None:
            return
        try:
            address = self._client.routes.broker_address(broker_name)
            header = GetConsumerConnectionListRequest(consumer_group=self._group)
            answer = await self._client.brokers.call(address, header)
            connection = ConsumerConnection.decode(answer.body)
        except RocketMQError as error:
            logger.debug(
                "group %s: %s does not say what it has subscribed: %s", self._group, broker_name, error
            )
            return
        for difference in self._differences(own, connection):
            if difference not in self._said and len(self._said) < MOST_SAID:
                self._said.add(difference)
                logger.warning(
                    "group %s: its members do not subscribe alike, and lose messages by it: %s, says %s",
                    self._group, difference, broker_name,
                )  # fmt: skip

    def _some_broker(self, own: ConsumerData) -> str | None:
        for subscription in own.subscription_data_set:
            route = self._client.routes.get_nowait(subscription.topic)
            if route is not None and route.brokers and not route.is_default:
                return min(route.brokers)
        return None

    def _differences(self, own: ConsumerData, connection: ConsumerConnection) -> Iterator[str]:
        if connection.message_model not in (None, own.message_model):
            yield f"this one is {own.message_model}, another one {connection.message_model}"
        unwrap = self._client.namespace.unwrap_topic
        table = {unwrap(topic): of_topic for topic, of_topic in connection.subscription_table.items()}
        wanted = {subscription.topic: subscription for subscription in own.subscription_data_set}
        for topic in sorted({*table, *wanted}):
            if topic.startswith(RETRY_PREFIX):
                continue
            if topic not in table:
                yield f"another one does not subscribe to topic {topic}, and this one does"
            elif topic not in wanted:
                yield f"another one subscribes to topic {topic}, and this one does not"
            elif _meaning(table[topic]) != _meaning(wanted[topic]):
                yield (
                    f"another one wants {table[topic].sub_string!r} of topic {topic}, "
                    f"this one {wanted[topic].sub_string!r}"
                )


def _meaning(subscription: SubscriptionData) -> tuple[str, object]:
    return subscription.expression_type, frozenset(subscription.tags_set) or subscription.sub_string
