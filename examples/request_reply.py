"""Requests and replies: send a request to a topic, and wait for a consumer's reply.

    python examples/request_reply.py [NAMESRV]

NAMESRV is ``host:port`` of a name server. Without it, NAMESRV_ADDR is read from the environment, else
127.0.0.1:9876.
"""

from __future__ import annotations

import sys

import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage

TOPIC = "RequestTest"


async def answer(address: str | None, *, task_status: trio.TaskStatus[PushConsumer]) -> None:
    """Run the service: reply to each request with its text in capitals."""
    async with (
        Client(address) as client,
        client.producer("example-repliers") as producer,
        client.push_consumer("example-service", consume_from="earliest") as consumer,
    ):

        async def handle(request: ReceivedMessage) -> None:
            await producer.reply(request, request.body.upper())

        async with client.reader() as reader:
            while TOPIC not in await reader.topics():  # noqa: ASYNC110  # created by the first send
                await trio.sleep(0.05)
        consumer.subscribe(TOPIC)
        task_status.started(consumer)
        await consumer.run(handle)


async def main(address: str | None) -> None:
    """Send one request and wait, then send ten requests concurrently."""
    async with trio.open_nursery() as nursery, Client(address) as client:
        async with client.producer("example-askers") as producer:
            # The timeout covers request and reply. It raises ReplyTimeoutError.
            # `await producer.request(…)` sends a request and waits for its reply in one call.
            first = await producer.submit_request(Message(TOPIC, b"are you there?"), timeout=30)
            service: PushConsumer = await nursery.start(answer, address)
            print((await first).body.decode())

            pending = [
                await producer.submit_request(Message(TOPIC, b"question %d" % number), timeout=30)
                for number in range(10)
            ]
            print(", ".join([(await one).body.decode() for one in pending]))
        service.stop()  # the handler of the last request may still be running


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
