"""Concurrent requests to brokers, and the consumer lag."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.errors import RocketMQError
from rocketmq_py.message import MessageQueue
from rocketmq_py.remoting.nurseries import open_nursery

MAX_CONCURRENT_QUERIES = 256
"""The maximum number of requests in flight. Their answers may contain messages, which take memory."""

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")


async def map_concurrently(
    keys: Iterable[_Key], query: Callable[[_Key], Awaitable[_Answer]]
) -> dict[_Key, _Answer]:
    """Run queries, up to MAX_CONCURRENT_QUERIES at once. Return the answers by key, in the order of the keys.

    Raises the RocketMQError of the query that failed first. After a failure no other query is started, and
    those in flight are finished.
    """
    keys = list(keys)
    answers: dict[_Key, _Answer] = {}
    errors: list[RocketMQError] = []
    remaining = iter(keys)

    async def worker(first: _Key) -> None:
        key: _Key | None = first
        while key is not None and not errors:
            try:
                answers[key] = await query(key)
            except RocketMQError as error:
                errors.append(error)
            key = next(remaining, None)

    async with open_nursery() as nursery:
        # The range comes first: when it ends, zip has not taken a key that no worker would get.
        for _, key in zip(range(MAX_CONCURRENT_QUERIES), remaining, strict=False):
            nursery.start_soon(worker, key)
    if errors:
        raise errors[0]
    return {key: answers[key] for key in keys}


async def run_for_each(items: Iterable[_Item], function: Callable[[_Item], Awaitable[None]]) -> None:
    """Run ``function`` for each item, up to MAX_CONCURRENT_QUERIES at once.

    Raises the first RocketMQError after all have ended.
    """
    errors: list[RocketMQError] = []
    limiter = trio.CapacityLimiter(MAX_CONCURRENT_QUERIES)

    async def run(item: _Item) -> None:
        try:
            async with limiter:
                await function(item)
        except RocketMQError as error:
            errors.append(error)

    async with open_nursery() as nursery:
        for item in items:
            nursery.start_soon(run, item)
    if errors:
        raise errors[0]


async def query_lag(
    client: ClientCore,
    queues: Iterable[MessageQueue],
    committed: Callable[[MessageQueue], Awaitable[int | None]],
) -> Mapping[MessageQueue, int]:
    """Ask the brokers how many messages of each queue lie beyond the committed offset.

    Args:
        client: sends the requests.
        queues: the queues.
        committed: returns the committed offset of a queue. If it returns None, the lag counts from the oldest
            message.

    Raises:
        RocketMQError: the query that failed first.
    """

    async def query(queue: MessageQueue) -> int:
        start = await committed(queue)
        if start is None:
            start = await client.brokers.min_offset(queue)
        return max(await client.brokers.max_offset(queue) - start, 0)

    return await map_concurrently(sorted(set(queues)), query)
