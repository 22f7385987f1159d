"""Which queues each broker has of an ordered topic: name servers keep that.

A broker is told when it registers a topic, so it is kept first.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_py.admin.calling import tell_name_servers
from rocketmq_py.client import Client
from rocketmq_py.errors import RocketMQError, SomeBrokersFailedError
from rocketmq_py.protocol import headers

ORDER_CONFIGURATION = "ORDER_TOPIC_CONFIG"
"""Where name servers keep it. Java: ``NamesrvUtil``."""


async def keep_order(client: Client, topic: str, queues: Mapping[str, int]) -> None:
    """Keep how many queues each broker has of a topic."""
    value = ";".join(f"{name}:{count}" for name, count in sorted(queues.items()))
    key = client.namespace.wrap_topic(topic)
    header = headers.PutKvConfigRequest(kv_namespace=ORDER_CONFIGURATION, key=key, value=value)
    await tell_name_servers(client, header, f"noting the order of topic {topic!r}")


async def correct_order(client: Client, topic: str, error: RocketMQError, queues: int) -> None:
    """Keep the queues of those brokers only that have created a topic in spite of an error."""
    done = error.done if isinstance(error, SomeBrokersFailedError) else ()
    if done:
        await keep_order(client, topic, dict.fromkeys(done, queues))
    else:
        await forget_order(client, topic)


async def forget_order(client: Client, topic: str) -> None:
    """Keep nothing of a topic any more."""
    key = client.namespace.wrap_topic(topic)
    header = headers.DeleteKvConfigRequest(kv_namespace=ORDER_CONFIGURATION, key=key)
    await tell_name_servers(client, header, f"forgetting the order of topic {topic!r}")
