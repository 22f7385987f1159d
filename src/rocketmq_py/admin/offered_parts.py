"""Descriptions of topics and groups on managed services and proxies, which refuse requests of operators.

They offer the requests of consumers: routes, offsets of queues, and a group's committed offset in a queue.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rocketmq_py.admin.fan_out import PartialResults, query_each, require_all
from rocketmq_py.admin.group_state import committed_offset
from rocketmq_py.admin.operations import any_address, call_broker
from rocketmq_py.client.core import ClientCore
from rocketmq_py.errors import TopicNotFoundError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import retry_topic
from rocketmq_py.protocol.bodies import BrokerData, ConsumeStats, GroupOffset, TopicOffset
from rocketmq_py.protocol.headers import GetMaxOffsetRequest, GetMinOffsetRequest, OffsetAnswer


async def offsets_of_queues(
    client: ClientCore, broker: BrokerData, topic: str, count: int
) -> Mapping[MessageQueue, TopicOffset]:
    """Return the offsets of the first ``count`` queues of a topic on a broker, without store times."""

    async def query(queue_id: int) -> TopicOffset:
        address, name = any_address(broker), broker.broker_name
        lowest = GetMinOffsetRequest(topic=topic, queue_id=queue_id, broker_name=name)
        highest = GetMaxOffsetRequest(topic=topic, queue_id=queue_id, broker_name=name)
        first = OffsetAnswer.from_fields((await call_broker(client, address, lowest)).fields)
        end = OffsetAnswer.from_fields((await call_broker(client, address, highest)).fields)
        return TopicOffset(min_offset=first.offset, max_offset=end.offset)

    results = await query_each(range(count), query)
    for error in results.failures.values():
        raise error
    return {
        MessageQueue(topic, broker.broker_name, queue_id): offset
        for queue_id, offset in results.values.items()
    }


async def brokers_of_group(
    client: ClientCore, group: str, topics: Collection[str], refusal: UnsupportedByBrokerError
) -> Mapping[str, BrokerData]:
    """Return the brokers of a group's topics, or of its retry topic, where brokers are not listed.

    Raises:
        TopicNotFoundError: the topic does not exist.
        SomeBrokersFailedError: none of several topics exists.
        UnsupportedByBrokerError: no topics are given, and the group has no retry topic.
    """
    routes = await query_each(topics or [retry_topic(group)], client.name_servers.route)
    if not routes.values:
        if topics:
            require_all(routes, f"describing group {group!r}")
        raise needs_topics(group, refusal)
    brokers = {broker.broker_name: broker for one in routes.values.values() for broker in one.broker_datas}
    return dict(sorted(brokers.items()))


async def group_offsets(
    client: ClientCore, group: str, topics: Collection[str]
) -> PartialResults[str, ConsumeStats]:
    """Return a group's offsets by topic. Topics without any, and a missing retry topic, are left out."""
    results = await query_each(sorted(topics), lambda topic: _offsets_in(client, group, topic))
    offsets = {topic: stats for topic, stats in results.values.items() if stats.offset_table}
    failures = dict(results.failures)
    if isinstance(failures.get(retry_topic(group)), TopicNotFoundError):
        del failures[retry_topic(group)]
    return PartialResults(offsets, failures)


async def _offsets_in(client: ClientCore, group: str, topic: str) -> ConsumeStats:
    route = await client.name_servers.route(topic)
    counts = {data.broker_name: data.read_queue_nums for data in route.queue_datas}
    table: dict[MessageQueue, GroupOffset] = {}
    is_consumed = False
    for broker in route.broker_datas:
        count = counts.get(broker.broker_name, 0)
        for queue, bounds in (await offsets_of_queues(client, broker, topic, count)).items():
            committed = await committed_offset(client, group, queue, broker)
            is_consumed = is_consumed or committed is not None
            # A queue without an offset counts from 0, as in the answers to GET_CONSUME_STATS.
            table[queue] = GroupOffset(broker_offset=bounds.max_offset, consumer_offset=committed or 0)
    return ConsumeStats(table if is_consumed else {})


def needs_topics(group: str, refusal: UnsupportedByBrokerError) -> UnsupportedByBrokerError:
    """Return the error for a group whose topics are not known."""
    return UnsupportedByBrokerError(
        f"{refusal}. Name the topics of group {group!r} (topics=, or --topic in commands)"
    )
