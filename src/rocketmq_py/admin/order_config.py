"""The order configuration of topics: the number of write queues on each broker, stored in name servers.

A name server with ``orderMessageEnable`` returns it in a topic's route, where it replaces all write queues.
It must therefore list every broker that has the topic, even if only some of them change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import attrs

from rocketmq_py.admin.errors import SomeBrokersFailedError
from rocketmq_py.admin.fan_out import query_each, require_all
from rocketmq_py.admin.operations import call_all_name_servers, call_name_server
from rocketmq_py.client.core import ClientCore
from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import BrokerError, ConfigurationError, RocketMQError
from rocketmq_py.protocol.bodies import TopicRoute
from rocketmq_py.protocol.headers import DeleteKvConfigRequest, GetKvConfigRequest, PutKvConfigRequest

ORDER_CONFIG_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""The namespace of order configurations among the name servers' key-value pairs. Java: ``NamesrvUtil``."""

Changed = TypeVar("Changed")


@attrs.frozen(kw_only=True)
class OrderConfigChange:
    """A change of a topic's order configuration that accompanies a change of the topic on some brokers.

    All attributes are numbers of write queues by broker name.

    Attributes:
        stored: the stored order configuration. Empty if the topic is not ordered.
        kept: the entries that do not depend on the brokers' success. Empty to delete the order configuration.
        changed: the entries of the brokers that change. They replace those in ``kept``.
    """

    stored: Mapping[str, int]
    kept: Mapping[str, int]
    changed: Mapping[str, int]


def write_queues_of(route: TopicRoute) -> Mapping[str, int]:
    """Return the number of write queues on each broker that has a topic."""
    return {queue.broker_name: queue.write_queue_nums for queue in route.queue_datas}


async def creation_of(
    client: ClientCore,
    topic: str,
    existing: Mapping[str, int],
    selected: Iterable[str],
    *,
    order: bool,
    write_queues: int,
) -> OrderConfigChange | None:
    """Return the change for the creation of a topic on the selected brokers. None if it is not ordered.

    ``existing`` has the write queues of the other brokers that have the topic. If it is ordered there, it is
    on the selected brokers, too.
    """
    stored = await _read(client, topic) if existing else {}
    if not (order or stored):
        return None
    changed = dict.fromkeys(selected, write_queues)
    return OrderConfigChange(stored=stored, kept={**existing, **stored}, changed=changed)


async def alteration_of(
    client: ClientCore,
    topic: str,
    existing: Mapping[str, int],
    selected: Iterable[str],
    *,
    order: bool | None,
    write_queues: int | None,
) -> OrderConfigChange | None:
    """Return the change for new settings of a topic on the selected brokers. None if nothing changes.

    ``existing`` has the write queues of all brokers that have the topic. ``order`` and ``write_queues`` are
    None if they keep their value.

    Raises:
        ConfigurationError: ``order`` is False and the topic would still be ordered on other brokers.
    """
    if order is None and write_queues is None:
        return None
    stored = await _read(client, topic)
    if order is None and not stored:
        return None
    changed = {name: write_queues or existing[name] for name in selected if name in existing}
    if order is not False:
        return OrderConfigChange(stored=stored, kept={**existing, **stored}, changed=changed)
    if stored and existing.keys() - changed.keys():
        raise ConfigurationError(
            f"topic {topic!r} cannot be unordered on {', '.join(changed)} only: name servers store one order "
            "configuration for all of its brokers; change it on all of them"
        )
    return OrderConfigChange(stored=stored, kept={}, changed={})


async def apply_with(
    client: ClientCore,
    topic: str,
    change: OrderConfigChange | None,
    change_brokers: Callable[[], Awaitable[Mapping[str, Changed]]],
) -> Mapping[str, Changed]:
    """Change the order configuration of a topic, then the topic on brokers. Return the brokers' results.

    In this order, because a broker sets ``order`` of its topics by the order configurations that a name
    server returns whenever the broker registers. Where the change of a broker fails, its entry is restored.
    """
    if change is None:
        return await change_brokers()
    await _store(client, topic, {**change.kept, **change.changed})
    try:
        return await change_brokers()
    except RocketMQError as error:
        done = error.done if isinstance(error, SomeBrokersFailedError) else ()
        changed = {name: count for name, count in change.changed.items() if name in done}
        await _store(client, topic, {**change.kept, **changed} if done else change.stored)
        raise


def deletion_request(client: ClientCore, topic: str) -> DeleteKvConfigRequest:
    """Return the request that deletes the order configuration of a topic, if there is one."""
    return DeleteKvConfigRequest(kv_namespace=ORDER_CONFIG_NAMESPACE, key=_key(client, topic))


def _key(client: ClientCore, topic: str) -> str:
    """Return the key of a topic. Only in this table of name servers, keys are topics on the wire."""
    return client.namespace.wrap_topic(topic)


async def _read(client: ClientCore, topic: str) -> Mapping[str, int]:
    """Return the stored order configuration. Empty if there is none, or if it cannot be parsed.

    Name servers that do not answer are ignored, unless none answers.
    """
    header = GetKvConfigRequest(kv_namespace=ORDER_CONFIG_NAMESPACE, key=_key(client, topic))

    async def read(address: str) -> Mapping[str, int]:
        try:
            answer = await call_name_server(client, address, header)
            return dict(TopicRoute(order_topic_conf=answer.fields["value"]).ordered_queues())
        except BrokerError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
        except ValueError:
            pass  # written by another tool; a client could not read it either
        return {}

    results = await query_each(await client.name_servers.all_addresses(), read)
    answers = results.values or require_all(results, f"reading the order configuration of topic {topic!r}")
    return next(filter(None, answers.values()), {})


async def _store(client: ClientCore, topic: str, counts: Mapping[str, int]) -> None:
    """Store an order configuration. Delete it if it is empty."""
    what = f"the order configuration of topic {topic!r}"
    if not counts:
        await call_all_name_servers(client, deletion_request(client, topic), f"deleting {what}")
        return
    value = ";".join(f"{name}:{count}" for name, count in sorted(counts.items()))
    header = PutKvConfigRequest(kv_namespace=ORDER_CONFIG_NAMESPACE, key=_key(client, topic), value=value)
    await call_all_name_servers(client, header, f"storing {what}")
