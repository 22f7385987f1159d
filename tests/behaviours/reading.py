"""Reading everything that a topic holds."""

from __future__ import annotations

from rocketmq_py import Client, ReceivedMessage, Start


async def read_all(client: Client, topic: str) -> list[ReceivedMessage]:
    """Return all messages of a topic, in the order of each queue."""
    async with (
        client.reader() as reader,
        reader.open(topic, start=Start.BEGINNING, stop_at_end=True) as received,
    ):
        return [message async for message in received]
