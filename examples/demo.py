"""The demo of ``make demo``: send, consume, print and delay messages on an embedded broker.

    python examples/demo.py

It needs only this package. It exits with 0 if all messages arrived, else with 1.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from importlib.util import find_spec
from tempfile import TemporaryDirectory

import trio

from rocketmq_py import Client, Message, Producer, PushConsumer, ReceivedMessage
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.relay import MESSAGE_ID, Relay, wait_in

TOPIC = "Demo"
BUFFER, LATE = "Buffer", "Late"
DELAY_MS = 3300
PIPELINED = 10_000
TIMEOUT = 60.0
"""Seconds until the demo is aborted. It normally takes about six."""


def say(text: str) -> None:
    """Print a line and flush it, because the output may be a pipe."""
    print(text, flush=True)


async def send(address: str) -> set[bytes]:
    """Send in three ways. Return the bodies that must arrive."""
    async with Producer(address, group="demo") as producer:
        say(f"\nA producer sends to topic {TOPIC}:")
        result = await producer.send(Message(TOPIC, b"awaited", tags="A", keys="order-1"))
        say(f"  awaited    {result.status.name}: queue {result.queue.queue_id}, id {result.message_id}")

        began = time.perf_counter()
        bodies = [b"pipelined %d" % number for number in range(1, PIPELINED + 1)]
        pending = [await producer.submit(Message(TOPIC, body, tags="B")) for body in bodies]
        for one in pending:
            await one
        seconds = time.perf_counter() - began
        say(f"  pipelined  {PIPELINED} messages, each with its own result, in {seconds:.2f} s")

        await producer.send_oneway(Message(TOPIC, b"oneway", tags="C"))
        say("  oneway     written to the connection, not acknowledged")
    return {b"awaited", b"oneway", *bodies}


async def consume(address: str, wanted: int) -> set[bytes]:
    """Consume until ``wanted`` different messages have arrived. Return their bodies."""
    say("\nA push consumer of group demo-consumers, subscribed to the tags A, B and C:")
    bodies: set[bytes] = set()
    began = time.perf_counter()

    async with PushConsumer(address, group="demo-consumers", consume_from="earliest") as consumer:

        async def handle(message: ReceivedMessage) -> None:
            bodies.add(message.body)
            if message.tags != "B":
                say(f"  {message.body.decode():9}  queue {message.queue_id}, offset {message.queue_offset}")
            if len(bodies) == wanted:
                consumer.stop()

        consumer.subscribe(TOPIC, "A || B || C")
        await consumer.run(handle)
    say(f"  total      {len(bodies)} messages in {time.perf_counter() - began:.2f} s")
    return bodies


async def tail(address: str) -> set[bytes]:
    """Print the topic with the command line tool. Return the bodies."""
    arguments = ["tail", "-n", address, "-t", TOPIC, "-o", "earliest", "-e", "-f", r"%b[%p]@%o\t%g\t%s\n"]
    say(f"\n$ {shlex.join(['rocketmq-py', *arguments])}")
    ended = await trio.run_process([sys.executable, "-m", "rocketmq_py", *arguments], capture_stdout=True)
    lines = ended.stdout.splitlines()
    for line in [*lines[:4], b"...", *lines[-3:]]:
        say(line.decode())
    say(f"({len(lines)} lines)")
    return {line.split(b"\t")[2] for line in lines}


async def relay(address: str) -> bool:
    """Delay a message with a relay, as on 4.x brokers. Return whether it arrived once and not early."""
    say("\nA relay, which keeps delayed messages in RocksDB and works with any broker:")
    if find_spec("rocksdict") is None:
        say("  not shown: install rocketmq-py[relay]")
        return True
    with TemporaryDirectory() as store:
        async with Client(address) as client, client.admin() as admin, client.producer("demo") as producer:
            for topic in (BUFFER, LATE):
                await admin.topics.create(topic, queues=1)
            due_ms = time.time_ns() // 1_000_000 + DELAY_MS
            sent = await producer.send(wait_in(BUFFER, Message(LATE, b"see you"), due_ms))
            say(f"  delayed    in topic {BUFFER}, due in {DELAY_MS / 1000} s, id {sent.message_id}")
            async with (
                Relay(client, topic=BUFFER, store=store),
                PushConsumer(client, group="demo-late", consume_from="earliest") as consumer,
            ):
                came: list[tuple[str, int]] = []

                async def handle(message: ReceivedMessage) -> None:
                    late_ms = time.time_ns() // 1_000_000 - due_ms
                    say(f"  {message.body.decode():9}  {late_ms} ms after its time")
                    came.append((message.user_properties[MESSAGE_ID], late_ms))
                    consumer.stop()

                consumer.subscribe(LATE)
                await consumer.run(handle)
    return len(came) == 1 and came[0][0] == sent.message_id and came[0][1] >= 0


async def main() -> int:
    """Run the demo; return the exit code."""
    with trio.move_on_after(TIMEOUT):
        async with EmbeddedBroker() as broker:
            address = broker.name_server_address
            say(f"An embedded broker: name server {address}, broker {broker.broker_address}")
            sent = await send(address)
            consumed = await consume(address, len(sent))
            printed = await tail(address)
            is_on_time = await relay(address)
        if not is_on_time:
            say("\nThe delayed message did not arrive exactly once and on time.")
            return 1
        if sent == consumed == printed:
            say(f"\nAll {len(sent)} messages were sent, consumed and printed.")
            return 0
        say(f"\n{len(sent - consumed)} messages were not consumed, {len(sent - printed)} not printed.")
        return 1
    say(f"\nThe demo did not finish within {TIMEOUT:g} s.")
    return 1


if __name__ == "__main__":
    try:
        sys.exit(trio.run(main))
    except subprocess.CalledProcessError as error:
        sys.exit(f"rocketmq-py tail ended with exit code {error.returncode}")
