"""Clients that know their routes keep working without a name server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from rocketmq_py import Client, Message, PushConsumer, ReceivedMessage
from rocketmq_py.address import split_address
from rocketmq_py.client import core_of
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import until_committed

PATIENCE = 60


class Relay:
    """A proxy for the name server whose connections can be cut."""

    def __init__(self, to: str) -> None:
        self._host, self._port = split_address(to.split(";")[0])
        self._scope = trio.CancelScope()
        self.address = ""

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._scope.cancel()

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            task_status.started()
            await trio.serve_listeners(self._serve, [listener])

    async def _serve(self, client: trio.SocketStream) -> None:
        async with (
            client,
            await trio.open_tcp_stream(self._host, self._port) as server,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(_copy, client, server)
            await _copy(server, client)
            nursery.cancel_scope.cancel()


async def _copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    try:
        async for data in source:
            await target.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


@asynccontextmanager
async def relay_to(cluster: ClusterUnderTest) -> AsyncIterator[Relay]:
    relay = Relay(cluster.address)
    async with trio.open_nursery() as nursery:
        await nursery.start(relay.run)
        yield relay
        nursery.cancel_scope.cancel()


async def test_consumption_continues(
    cluster: ClusterUnderTest, client: Client, topic: str, unique: str
) -> None:
    numbers: set[int] = set()
    more = trio.lowlevel.ParkingLot()

    async def handle(message: ReceivedMessage) -> None:
        numbers.add(int(message.body))
        more.unpark_all()

    async def until(count: int) -> None:
        with trio.fail_after(PATIENCE):
            while numbers != set(range(count)):
                await more.park()

    async with relay_to(cluster) as relay, client.producer("senders") as producer:
        consumer = PushConsumer(
            relay.address,
            group=f"group-{unique}",
            consume_from="earliest",
            route_refresh_interval=0.2,
            rebalance_interval=0.2,
            commit_interval=0.2,
        )
        async with consumer, trio.open_nursery() as nursery:
            consumer.subscribe(topic)
            nursery.start_soon(consumer.run, handle)
            for number in range(20):
                await producer.send(Message(topic, b"%d" % number))
            await until(20)
            relay.cut()
            for number in range(20, 60):
                await producer.send(Message(topic, b"%d" % number))
                await trio.sleep(0.02)
            await until(60)
            assert len([queue for queue in consumer.assignment if queue.topic == topic]) == 4
            # Handled messages are committed nevertheless.
            route = await core_of(client).routes.get(topic)
            ends = {queue: await core_of(client).brokers.max_offset(queue) for queue in route.read_queues}
            await until_committed(client, f"group-{unique}", ends)
            nursery.cancel_scope.cancel()
