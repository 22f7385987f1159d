"""Two ways to separate urgent messages on any broker: by topic, and by queue.

    python examples/priorities.py [NAMESRV]

Brokers from 5.4.0 have priorities: pop consumers of a topic of type PRIORITY receive messages with a higher
``Message.priority`` first. For older brokers and other consumers, separate urgent messages from the others:
either in their own topic with dedicated consumers, or in their own queues, which ordinary senders avoid.

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import trio

from rocketmq_py import Client, Message, MessageQueue, ReceivedMessage

TOPICS = {"urgent": "PaymentUrgent", "ordinary": "PaymentOrdinary"}
SHARED_TOPIC = "PaymentByQueues"


def urgent_queue(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Select the first queue, which is reserved for urgent messages."""
    return queues[0]


def ordinary_queue(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Spread ordinary messages over the other queues."""
    return queues[1 + hash(message.keys) % (len(queues) - 1)]


async def by_topics(client: Client) -> None:
    """Give each priority its own topic, and a consumer whose concurrency fits the priority."""
    handled: Counter[str] = Counter()
    done = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        handled[message.topic] += 1
        if handled.total() == 60:
            done.set()

    async with client.producer("examples") as producer:
        for number in range(50):
            await producer.submit(Message(TOPICS["ordinary"], b"%d" % number))
        for number in range(10):
            await producer.submit(Message(TOPICS["urgent"], b"%d" % number))
    async with (
        client.push_consumer("pay-urgent", consume_from="earliest", concurrency=20) as urgent,
        client.push_consumer("pay-ordinary", consume_from="earliest", concurrency=2) as ordinary,
        trio.open_nursery() as nursery,
    ):
        urgent.subscribe(TOPICS["urgent"])
        ordinary.subscribe(TOPICS["ordinary"])
        nursery.start_soon(urgent.run, handle)
        nursery.start_soon(ordinary.run, handle)
        await done.wait()
        nursery.cancel_scope.cancel()
    print(f"by topics: {handled[TOPICS['urgent']]} urgent, {handled[TOPICS['ordinary']]} ordinary")


async def by_queues(client: Client) -> None:
    """Reserve one queue, so that urgent messages wait only behind other urgent messages."""
    async with client.producer("examples") as producer:
        queues: Counter[int] = Counter()
        for number in range(50):
            message = Message(SHARED_TOPIC, b"ordinary", keys=f"payment-{number}")
            queues[(await producer.send(message, queue=ordinary_queue)).queue.queue_id] += 1
        urgent = await producer.send(Message(SHARED_TOPIC, b"urgent"), queue=urgent_queue)
    print(f"by queues: the urgent one is number {urgent.queue_offset} of queue {urgent.queue.queue_id}")
    print(f"by queues: {queues.total()} ordinary ones are in the other {len(queues)}")


async def main(address: str | None) -> None:
    """Show both ways."""
    async with Client(address) as client:
        await by_topics(client)
        await by_queues(client)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
