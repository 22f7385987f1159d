"""Queues, which topics consist of."""

from __future__ import annotations

import attrs


@attrs.frozen(order=True)
class MessageQueue:
    """One queue of a topic on one broker. Java: ``MessageQueue``; sorted as Java sorts them."""

    topic: str
    broker_name: str
    queue_id: int


def queue_name(queue: MessageQueue) -> str:
    """Return a queue's name for texts that people read."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
