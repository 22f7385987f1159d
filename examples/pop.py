"""Consume by pop: each message is invisible to others for a time, and acknowledged singly. Needs 5.x brokers.

    python examples/pop.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Client, Message

TOPIC = "PopTest"


async def main(address: str | None) -> None:
    """Send and receive three jobs: one succeeds, one needs more time, one fails and is redelivered."""
    async with Client(address) as client:
        async with client.producer("examples") as producer:
            queue = None
            for name in ("easy", "long", "broken"):
                result = await producer.send(Message(TOPIC, name.encode()), queue=queue)
                queue = result.queue

        async with client.pop_consumer("pop-examples", consume_from="earliest") as consumer:
            consumer.subscribe(TOPIC)
            left = 3
            while left:
                # The messages are invisible to other members for two seconds. Members share all queues.
                for message in await consumer.receive(invisible=2.0, wait=5.0):
                    name = message.body.decode()
                    if name == "broken" and not message.reconsume_times:
                        print("broken: fails")
                        await consumer.change_invisible(message, 0.1)  # otherwise redelivered in 2 s
                        continue
                    if name == "long":
                        message = await consumer.change_invisible(message, 60.0)
                    await consumer.ack(message)
                    print(f"{name}: done, delivered {message.reconsume_times + 1} times")
                    left -= 1


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
