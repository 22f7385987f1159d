"""How far a group is behind, as the brokers say it now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from rocketmq_py.client.client import Client
from rocketmq_py.consumer.group.map_over_brokers import map_over_brokers
from rocketmq_py.message import MessageQueue


async def ask_lag(
    client: Client,
    queues: Iterable[MessageQueue],
    committed: Callable[[MessageQueue], Awaitable[int | None]],
) -> Mapping[MessageQueue, int]:
    """Return how many messages of each queue are not committed; many are asked at the same time.

    Args:
        client: how brokers are reached.
        queues: the queues.
        committed: looks up where the group goes on; where it has never been, all that there is counts.

    Raises:
        RocketMQError: the first of what failed.
    """

    async def ask(queue: MessageQueue) -> int:
        begin = await committed(queue)
        if begin is None:
            begin = await client.brokers.min_offset(queue)
        return max(await client.brokers.max_offset(queue) - begin, 0)

    return await map_over_brokers(sorted(set(queues)), ask)
