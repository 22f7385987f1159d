"""Poll messages as a member of a group, read a queue again, and look up a message by id.

python examples/lite_pull.py [NAMESRV]
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import AssignmentListener, Client, LitePullConsumer, Message, MessageQueue

TOPIC = "LitePullTest"


class Changes(AssignmentListener):
    """Prints assigned and revoked queues. A program would load and save its state by queue here."""

    async def on_assigned(self, queues: list[MessageQueue]) -> None:
        """Called before the first message of these queues is delivered."""
        print(f"got {len(queues)} queues")

    async def on_revoked(self, queues: list[MessageQueue]) -> None:
        """Called before the offsets of these queues are committed and other members continue there."""
        print(f"lost {len(queues)} queues")


async def send(client: Client) -> str:
    """Send twenty messages. Return the id of the last one."""
    async with client.producer("examples") as producer:
        for number in range(20):
            result = await producer.send(Message(TOPIC, b"%d" % number, keys=f"order-{number}"))
    return result.offset_message_id


async def poll_everything(client: Client) -> None:
    """Share the topic's queues with the group. Each poll commits the messages of the previous poll."""
    async with client.lite_pull_consumer(
        "examples-lite-pull", consume_from="earliest", assignment_listener=Changes()
    ) as consumer:
        consumer.subscribe(TOPIC)
        count = 0
        while count < 20:
            count += len(await consumer.poll(max_messages=5, wait=10))
        print(f"polled {count} messages")


async def read_a_queue_again(client: Client) -> None:
    """Assign one queue by hand, seek to its beginning, and commit by hand."""
    async with LitePullConsumer(client, group="examples-again", auto_commit=False) as consumer:
        queue, *_ = await consumer.queues(TOPIC)
        await consumer.assign([queue])
        await consumer.seek(queue, "earliest")
        messages = await consumer.poll(max_messages=3)
        await consumer.commit()
        print(f"read {len(messages)} again; committed {await consumer.committed(queue)}")


async def look_up(client: Client, message_id: str) -> None:
    """Look up single messages, without a group."""
    async with client.admin() as admin, client.reader() as reader:
        message = await admin.messages.get(message_id)
        print(f"by its id: {message.body!r}" if message else "by its id: it is gone")
        (queue, (first, end)), *_ = (await reader.offsets(TOPIC)).items()
        bodies = [message.body async for message in reader.range(queue, max(first, end - 2), end)]
        print(f"the last of a queue: {len(bodies)}")


async def main(address: str | None) -> None:
    """Send, poll, read again and look up."""
    async with Client(address) as client:
        message_id = await send(client)
        await poll_everything(client)
        await read_a_queue_again(client)
        await look_up(client, message_id)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
