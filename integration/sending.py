"""Numbered messages for tests, each sent once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rocketmq_py import Client, Message

PATIENT: Mapping[str, str] = {"waitTimeMillsInSendQueue": "30000"}
"""Settings of brokers that accept sends even on a busy machine."""


async def send_once(client: Client, topic: str, numbers: Iterable[int]) -> None:
    """Send messages whose bodies are numbers. Raises the errors of a send.

    Each message gets one attempt with a long timeout, because a second attempt could store it twice.
    """
    async with client.producer("senders", send_timeout=120) as producer:
        for pending in [await producer.submit(Message(topic, b"%d" % number)) for number in numbers]:
            await pending
