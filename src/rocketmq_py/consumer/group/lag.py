"""How far a group is behind, as the brokers say it now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue


async def ask_lag(
    client: ClientInstance,
    queues: Iterable[MessageQueue],
    committed: Callable[[MessageQueue], Awaitable[int | None]],
) -> Mapping[MessageQueue, int]:
    """Return how many messages of each queue are not committed; brokers are asked all at once.

    Args:
        client: how brokers are reached.
        queues: the queues.
        committed: looks up where the group goes on; where it has never been, all that there is counts.

    Raises:
        RocketMQError: the first of what failed.
    """
    lags = dict.fromkeys(sorted(queues), 0)
    errors: list[RocketMQError] = []

    async def ask(queue: MessageQueue) -> None:
        try:
            begin = await committed(queue)
            if begin is None:
                begin = await client.brokers.min_offset(queue)
            lags[queue] = max(await client.brokers.max_offset(queue) - begin, 0)
        except RocketMQError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        for queue in lags:
            nursery.start_soon(ask, queue)
    if errors:
        raise errors[0]
    return lags
