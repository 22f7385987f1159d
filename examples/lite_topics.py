"""Consume lite topics: each session has a topic of its own. Needs brokers from 5.5.0 on.

    python examples/lite_topics.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876. The brokers need ``enableLmq`` and ``enableMultiDispatch``.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Client, Message, ReceivedMessage
from rocketmq_py.admin import AlreadyExistsError, MessageType

PARENT, GROUP = "LiteTest", "lite-examples"


async def prepare(client: Client) -> None:
    """Create the parent topic and the group, unless they exist."""
    async with client.admin() as admin:
        try:
            await admin.topics.create(PARENT, queues=4, message_type=MessageType.LITE)
            await admin.groups.create(GROUP, attributes={"lite.bind.topic": PARENT})
        except AlreadyExistsError:
            pass


async def main(address: str | None) -> None:
    """Send three messages to each of two sessions, and handle those of the subscribed one."""
    async with Client(address) as client:
        await prepare(client)
        async with client.lite_topic_push_consumer(GROUP, parent=PARENT) as consumer:
            await consumer.subscribe_lite("session-1")

            async with client.producer("examples") as producer:
                for number in range(1, 4):
                    for session in ("session-1", "session-2"):
                        text = f"{session}: line {number}"
                        await producer.send(Message(PARENT, text.encode(), lite_topic=session))

            async def handle(message: ReceivedMessage) -> None:
                print(f"{message.lite_topic} has {message.body.decode()!r}")
                if message.body.endswith(b"3"):
                    consumer.stop()

            await consumer.run(handle)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
