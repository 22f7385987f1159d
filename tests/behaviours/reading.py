"""Helpers that read a whole topic, allow reading it, and wait for committed offsets."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from rocketmq_py import Client, MessageQueue, ReceivedMessage
from rocketmq_py.client import ClientCore, core_of
from rocketmq_py.client.features import READABLE_DEAD_LETTERS
from rocketmq_py.errors import NoQueueError

PATIENCE = 60
"""Seconds after which a waiting test fails."""


async def until_readable(client: Client, topic: str, *, count: int) -> None:
    """Wait until consumers can see ``count`` messages of a topic.

    A real broker acknowledges a message when it is in the commit log; consumers see it a moment later, when
    it is in its queue.
    """
    async with client.reader() as reader:
        with trio.fail_after(PATIENCE):
            while True:
                try:
                    offsets = await reader.offsets(topic)
                except NoQueueError:
                    await allow_reading(core_of(client), topic)
                    continue
                if sum(end - first for first, end in offsets.values()) >= count:
                    return
                await trio.sleep(0.02)


async def allow_reading(client: ClientCore, topic: str) -> None:
    """Allow consumers to read a topic of dead letters of a broker without READABLE_DEAD_LETTERS."""
    for broker_name in {queue.broker_name for queue in (await client.routes.refresh(topic)).write_queues}:
        address = client.routes.broker_address(broker_name)
        assert not READABLE_DEAD_LETTERS.is_supported_by(await client.brokers.version(address))
        await client.brokers.create_topic(address, topic, queues=1)
    with trio.fail_after(PATIENCE):
        while not (await client.routes.refresh(topic)).read_queues:
            await trio.sleep(0.05)


async def read_all(client: Client, topic: str, *, count: int) -> list[ReceivedMessage]:
    """Return all messages of a topic, in the order of each queue, as soon as there are ``count``."""
    await until_readable(client, topic, count=count)
    async with (
        client.reader() as reader,
        reader.open(topic, start="earliest", stop_at_end=True) as received,
    ):
        return [message async for message in received]


async def until_committed(client: Client, group: str, ends: Mapping[MessageQueue, int]) -> None:
    """Wait until a running group has committed these offsets.

    After a member has left, an older offset may remain, because a pull in flight carries an offset that the
    broker may store after the last commit. While the member runs, its next pull corrects the offset.
    """
    with trio.fail_after(PATIENCE):
        for queue, end in ends.items():
            while await core_of(client).brokers.committed_offset(group, queue) != end:
                await trio.sleep(0.05)
