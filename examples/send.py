"""The three ways to send.

    python examples/send.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876. ``rocketmq-py server`` starts one there if you have none.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Message, Producer

TOPIC = "TopicTest"


async def main(address: str | None) -> None:
    """Send a message and wait, pipeline a hundred, and send one without an acknowledgement."""
    async with Producer(address, group="examples") as producer:
        # Awaited: returns when a broker has stored the message.
        message = Message(TOPIC, b"awaited", tags="A", keys="order-1", properties={"source": "examples"})
        result = await producer.send(message)
        print(f"awaited: {result.status.name}, queue {result.queue.queue_id}, offset {result.queue_offset}")

        # Pipelined: returns as soon as the message is queued for sending. Await the handle for the result.
        messages = [Message(TOPIC, b"pipelined %d" % number, tags="B") for number in range(100)]
        pending = [await producer.submit(message) for message in messages]
        results = [await one for one in pending]
        print(f"pipelined: {len(results)} stored in {len({result.queue for result in results})} queues")

        # Oneway: the broker does not acknowledge the message, so a loss is not noticed.
        await producer.send_oneway(Message(TOPIC, b"oneway"))
        print("oneway: on its way")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
