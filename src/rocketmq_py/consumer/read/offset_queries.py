"""Queries and commits the offsets of many queues concurrently."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from numbers import Integral

from rocketmq_py.arguments import check_instance, check_integer, wrong_type
from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.routes import Route
from rocketmq_py.codes import ResponseCode
from rocketmq_py.consumer.group.concurrent_queries import map_concurrently
from rocketmq_py.consumer.pull.queue_puller import QueuePuller
from rocketmq_py.consumer.read.message_stream import READER_GROUP, TIMEOUT_SECONDS
from rocketmq_py.consumer.read.queue_range import Bounds, QueueRange, exact_offset_of
from rocketmq_py.errors import BrokerError, UnsupportedByBrokerError
from rocketmq_py.message import MessageQueue
from rocketmq_py.position import Position, check_position
from rocketmq_py.protocol.subscription import make_subscription


def check_offsets(offsets: object, name: str = "offsets") -> dict[MessageQueue, int]:
    """Return a copy of a mapping of queues to offsets. Raises ConfigurationError for anything else."""
    if not isinstance(offsets, Mapping):
        raise wrong_type(name, "a mapping of MessageQueue to int", offsets)
    return {
        check_instance(queue, f"a queue in {name}", MessageQueue): check_integer(
            offset, f"{name}[{queue}]", lowest=0
        )
        for queue, offset in offsets.items()
    }


def check_place(position: object, name: str, *, now_ms: int) -> Position:
    """Return a position in one queue, where a whole number stands for an offset."""
    if isinstance(position, Integral):
        return Position.offset(check_integer(position, name, lowest=0))
    return check_position(position, name, now_ms=now_ms, or_else="an offset")


async def bounds_of(
    client: ClientCore, topics: str | Iterable[str], *, present: bool = False
) -> dict[MessageQueue, tuple[int, int]]:
    """Return the first offset and the end of each queue. See ``Reader.offsets``."""
    routes = await _routes_of(client, topics)

    async def ask(queue: MessageQueue) -> tuple[int, int]:
        first, end = await client.brokers.min_offset(queue), await client.brokers.max_offset(queue)
        if present and first < end and await _may_be_gone(client, queue):
            first = await _first_present(client, queue, end)
        return first, end

    return await map_concurrently(_read_queues(routes), ask)


async def _may_be_gone(client: ClientCore, queue: MessageQueue) -> bool:
    """Return whether the broker may no longer have the message at its minimum offset."""
    try:
        return await client.brokers.first_store_time(queue) < 0
    except UnsupportedByBrokerError:  # a proxy
        return True


async def _first_present(client: ClientCore, queue: MessageQueue, end: int) -> int:
    """Return the offset of the first message that can be pulled, or ``end``.

    The minimum offset of a broker may be out of date.
    """
    subscription = make_subscription(queue.topic, version_ms=client.now_ms())
    async for message in QueueRange(client, queue, subscription, Bounds(end_offset=end)):
        return message.queue_offset
    return end


async def offsets_at(
    client: ClientCore, topics: str | Iterable[str], position: Position
) -> dict[MessageQueue, int]:
    """Return the offset of a position in each queue. See ``Reader.offsets_at``."""
    return await map_concurrently(
        _read_queues(await _routes_of(client, topics)),
        lambda queue: exact_offset_of(client, READER_GROUP, queue, position),
    )


async def committed(
    client: ClientCore, group: str, queues: Iterable[MessageQueue]
) -> dict[MessageQueue, int | None]:
    """Return the committed offset of a group in each queue. See ``Reader.committed``."""
    queues = list(queues)
    await _find_brokers_of(client, queues)
    ask = partial(client.brokers.committed_offset, group, zero_if_new=False)
    return await map_concurrently(queues, ask)


async def commit(client: ClientCore, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Commit offsets of a group. See ``Reader.commit``."""
    await _find_brokers_of(client, offsets)
    entries: defaultdict[tuple[str, str], list[MessageQueue]] = defaultdict(list)
    for queue in offsets:
        entries[queue.broker_name, queue.topic].append(queue)

    async def commit_one(queue: MessageQueue) -> None:
        await client.brokers.commit_offset(group, queue, offsets[queue])

    async def commit_first(queue: MessageQueue) -> None:
        try:
            await commit_one(queue)
        except BrokerError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            await _create_group(client, group, queue, offsets[queue])
            await commit_one(queue)

    # For each topic and broker, commit one queue first: see RemoteOffsetStore.
    await map_concurrently([queues[0] for queues in entries.values()], commit_first)
    await map_concurrently([queue for queues in entries.values() for queue in queues[1:]], commit_one)


async def _create_group(client: ClientCore, group: str, queue: MessageQueue, offset: int) -> None:
    """Make a 5.x broker create a group, which it does for a pull of the group."""
    puller = QueuePuller(client, group, queue, batch_size=1, hold=0.0, timeout=TIMEOUT_SECONDS)
    await puller.pull_undecoded(offset, make_subscription(queue.topic, version_ms=client.now_ms()))


async def _find_brokers_of(client: ClientCore, queues: Collection[MessageQueue]) -> None:
    """Look up the brokers of queues. Refresh routes that lack one, because it may have been unavailable."""
    await _routes_of(client, [queue.topic for queue in queues])
    known = client.routes.brokers()
    out_of_date = {queue.topic for queue in queues if not known.get(queue.broker_name)}
    await map_concurrently(out_of_date, client.routes.refresh)


async def _routes_of(client: ClientCore, topics: str | Iterable[str]) -> dict[str, Route]:
    names = [topics] if isinstance(topics, str) else topics
    return await map_concurrently(dict.fromkeys(names), client.routes.find)


def _read_queues(routes: Mapping[str, Route]) -> list[MessageQueue]:
    return [queue for route in routes.values() for queue in route.queues_to_read()]
