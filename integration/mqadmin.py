"""Run RocketMQ's ``mqadmin`` against a consumer of this client: ``python -m integration.mqadmin
[VERSION ...]``.

Starts a real broker of each version (by default all tested versions) and a consumer, and prints the
output of mqadmin's consumerConnection, consumerStatus, consumerProgress and resetOffsetByTime.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from integration.clusters.cluster import Cluster
from integration.clusters.provider import VERSIONS, start_cluster
from integration.java.peer import client_for, run_java_async
from rocketmq_py import Client, Message, MessageQueue, PushConsumer, ReceivedMessage
from rocketmq_py.client import core_of

PATIENCE = 90


async def mqadmin(cluster: Cluster, command: str) -> str:
    """Run an mqadmin command and return its output."""
    (output,) = await mqadmin_all(cluster.version, cluster.name_servers, [command])
    return output


async def mqadmin_all(version: str, name_servers: str, commands: Sequence[str]) -> list[str]:
    """Run mqadmin commands one after the other in one JVM. Return the output of each.

    Args:
        version: the version of the brokers.
        name_servers: the addresses of the name servers.
        commands: the commands. None may end the JVM, as some commands do on failure.
    """
    arguments = ("--namesrv", name_servers, "--command", "\n".join(commands))
    lines = await run_java_async(client_for(version), "Admin", *arguments)
    return [str(line["output"]) for line in lines]


async def send(
    client: Client, topic: str, numbers: range, *, queues: list[MessageQueue] | None = None
) -> list[str]:
    """Send messages whose bodies are numbers, each to its queue if queues are given. Return their offset
    message ids.
    """
    ids = []
    async with client.producer("senders") as producer:
        for place, number in enumerate(numbers):
            queue = None if queues is None else queues[place]
            result = await producer.send(Message(topic, b"%d" % number), queue=queue)
            ids.append(result.offset_message_id)
    return ids


class CountingHandler:
    """A handler that counts how often each number is delivered."""

    def __init__(self) -> None:
        self.got: Counter[int] = Counter()
        self.fails = False
        self._more = trio.lowlevel.ParkingLot()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.got[int(message.body)] += 1
        self._more.unpark_all()
        if self.fails:
            raise ValueError("not now")

    async def until(self, *expected: range) -> None:
        """Wait until each number has been delivered as often as it occurs in ``expected``."""
        wanted = Counter(number for numbers in expected for number in numbers)
        with trio.fail_after(PATIENCE):
            while not wanted <= self.got:
                await self._more.park()


@asynccontextmanager
async def running(
    cluster: Cluster, group: str, topic: str, handler: CountingHandler, *, orderly: bool = False
) -> AsyncIterator[PushConsumer]:
    """Run a consumer for the duration of the block."""
    consumer = PushConsumer(
        cluster.name_servers, group=group, consume_from="earliest", orderly=orderly, commit_interval=1
    )
    async with consumer, trio.open_nursery() as nursery:
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handler)
        yield consumer
        nursery.cancel_scope.cancel()


async def until_committed(consumer: PushConsumer) -> None:
    """Wait until the brokers have the offsets of all handled messages."""
    with trio.fail_after(PATIENCE):
        while sum((await consumer.lag()).values()):
            await trio.sleep(0.05)


async def show_all(cluster: Cluster, topic: str, group: str, show: Callable[[str, str], object]) -> None:
    """Run a consumer, and show each mqadmin command with its output.

    Raises:
        trio.TooSlowError: some messages were not redelivered after the group's offsets were reset.
    """
    handler = CountingHandler()

    async def run(command: str) -> None:
        show(command, await mqadmin(cluster, command))

    async with Client(cluster.name_servers) as client:
        for address in cluster.brokers.values():
            await core_of(client).brokers.create_topic(address, topic, queues=4)
        began_ms = core_of(client).now_ms()
        await send(client, topic, range(40))
        async with running(cluster, group, topic, handler) as consumer:
            await handler.until(range(40))
            await until_committed(consumer)
            await run(f"consumerConnection -g {group}")
            await run(f"consumerStatus -g {group} -i {core_of(consumer).client_id}")
            await run(f"consumerProgress -g {group}")
            await run(f"resetOffsetByTime -g {group} -t {topic} -s {began_ms}")
            await handler.until(range(40), range(40))


def main() -> None:
    """Show the tools on each version."""
    for version in sys.argv[1:] or VERSIONS:
        with start_cluster(version) as cluster:
            print(f"==== RocketMQ {version} ====")
            trio.run(show_all, cluster, "ToolsTest", "tools", _print)
            print("\nAll 40 messages came again after the group was set back.\n")


def _print(command: str, output: str) -> None:
    print(f"\n$ mqadmin {command}\n{output.rstrip()}", flush=True)


if __name__ == "__main__":
    main()
