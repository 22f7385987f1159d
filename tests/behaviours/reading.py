"""Helpers that read a whole topic and wait for committed offsets."""

from __future__ import annotations

from collections.abc import Mapping

import trio

from rocketmq_py import Client, MessageQueue, ReceivedMessage, StartPosition

PATIENCE = 60
"""Seconds after which a waiting test fails."""


async def until_readable(client: Client, topic: str, *, count: int) -> None:
    """Wait until consumers can see ``count`` messages of a topic.

    A real broker acknowledges a message when it is in the commit log; consumers see it a moment later, when
    it is in its queue.
    """
    async with client.reader() as reader:
        with trio.fail_after(PATIENCE):
            while sum(end - first for first, end in (await reader.offsets(topic)).values()) < count:
                await trio.sleep(0.02)


async def read_all(client: Client, topic: str, *, count: int) -> list[ReceivedMessage]:
    """Return all messages of a topic, in the order of each queue, as soon as there are ``count``."""
    await until_readable(client, topic, count=count)
    async with (
        client.reader() as reader,
        reader.open(topic, start=StartPosition.BEGINNING, stop_at_end=True) as received,
    ):
        return [message async for message in received]


async def until_committed(client: Client, group: str, ends: Mapping[MessageQueue, int]) -> None:
    """Wait until a running group has committed these offsets.

    After a member has left, an older offset may remain, because a pull in flight carries an offset that the
    broker may store after the last commit. While the member runs, its next pull corrects the offset.
    """
    with trio.fail_after(PATIENCE):
        for queue, end in ends.items():
            while await client.brokers.committed_offset(group, queue) != end:
                await trio.sleep(0.05)
