"""Consumers read from the replica of a broker while the broker is down."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from rocketmq_py import Client, Message, MessageQueue, ReceivedMessage, blocking
from rocketmq_py.client import core_of
from rocketmq_py.errors import RocketMQError
from rocketmq_py.testing import World, run_cluster, simulate

TOPIC, GROUP, COUNT = "Orders", "billing", 20


class CollectingHandler:
    """A handler that counts the bodies of its messages."""

    def __init__(self) -> None:
        self.bodies: Counter[bytes] = Counter()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.bodies[message.body] += 1

    async def wait_for(self, count: int) -> None:
        while len(self.bodies) < count:
            await trio.sleep(0.1)


@pytest.mark.parametrize("seed", range(3))
def test_a_group_consumes_while_the_master_is_down_and_afterwards(seed: int) -> None:
    async def program(world: World) -> None:
        handler = CollectingHandler()
        async with Client(world.name_server_address) as client, client.producer("senders") as producer:
            for number in range(COUNT):
                await producer.send(Message(TOPIC, b"%d" % number))
            async with trio.open_nursery() as nursery:
                consumer = client.push_consumer(GROUP, consume_from="earliest", commit_interval=1)
                async with consumer:
                    consumer.subscribe(TOPIC)
                    await world.crash("broker-a")
                    await core_of(client).routes.refresh(TOPIC)
                    with pytest.raises(RocketMQError):
                        await producer.send(Message(TOPIC, b"lost"))
                    nursery.start_soon(consumer.run, handler)
                    await handler.wait_for(COUNT)
                    while sum(world.committed(GROUP).values()) < COUNT:
                        await trio.sleep(0.1)
                    await world.restart("broker-a")
                    await core_of(client).routes.refresh(TOPIC)
                    for number in range(COUNT, 2 * COUNT):
                        await producer.send(Message(TOPIC, b"%d" % number))
                    await handler.wait_for(2 * COUNT)
                    nursery.cancel_scope.cancel()
        assert set(handler.bodies.values()) == {1}, "offsets committed on the replica are kept"
        assert len(world.messages(TOPIC)) == 2 * COUNT

    simulate(program, seed=seed, replicas=True, topics={TOPIC: 4})


def test_a_replica_loses_its_data_with_its_master() -> None:
    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client:
            async with client.producer("senders") as producer:
                await producer.send(Message(TOPIC, b"x"))
            await world.crash("broker-a", keep="nothing")
            route = await core_of(client).name_servers.route(TOPIC)
            assert set(route.broker_datas[0].broker_addrs) == {1}
            await world.restart("broker-a")
            assert set((await core_of(client).name_servers.route(TOPIC)).broker_datas[0].broker_addrs) == {
                0,
                1,
            }
            await world.crash("broker-a")
            await core_of(client).routes.refresh(TOPIC)
            async with client.reader() as reader:
                assert {end for _, end in (await reader.offsets(TOPIC)).values()} == {0}

    simulate(program, seed=1, replicas=True, topics={TOPIC: 4})


def test_a_replica_keeps_its_data_until_its_master_is_restarted() -> None:
    async def program(world: World) -> None:
        queue = MessageQueue(TOPIC, "broker-a", 0)
        async with Client(world.name_server_address) as client, client.reader() as reader:
            async with client.producer("senders") as producer:
                await producer.send(Message(TOPIC, b"x"), queue=queue)
            await world.crash("broker-a", keep="nothing")
            await world.crash("broker-b")
            await world.restart("broker-b")
            await trio.sleep(1)  # the client notices that its connections are broken
            await core_of(client).routes.refresh(TOPIC)
            assert (await reader.offsets(TOPIC))[queue] == (0, 1)
            await world.restart("broker-a")
            await trio.sleep(1)
            await core_of(client).routes.refresh(TOPIC)
            assert (await reader.offsets(TOPIC))[queue] == (0, 0)

    simulate(program, seed=1, brokers=2, replicas=True, topics={TOPIC: 1})


def test_advance_keeps_connections_to_replicas() -> None:
    with run_cluster(1, replicas=True, topics={TOPIC: 1}) as cluster:
        cluster.crash("broker-a")
        with blocking.PushConsumer(cluster.name_server_address, group=GROUP) as consumer:
            consumer.subscribe(TOPIC)
            consumer.start(lambda _: None)
            cluster.wait_until(lambda: cluster.requests("HEART_BEAT") and cluster.requests("PULL_MESSAGE"))
            before = {request.client_address for request in cluster.requests()}
            cluster.advance("10m")
            consumer.lag()
            assert {request.client_address for request in cluster.requests()} == before


def test_faults_can_name_replicas() -> None:
    with run_cluster(2, replicas=True, topics=[TOPIC]) as cluster:
        assert cluster.broker_names == ("broker-a", "broker-b")
        cluster.crash("broker-a-1")
        cluster.restart("broker-a-1")
        cluster.reset()
        with cluster.freeze("broker-b-1"):
            pass
