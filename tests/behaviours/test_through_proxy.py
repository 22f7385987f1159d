"""Clients whose connections all go through a SOCKS5 proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from rocketmq_py import Admin, Client, LitePullConsumer, Message, Producer, PushConsumer
from rocketmq_py.address import split_address
from rocketmq_py.client import core_of
from rocketmq_py.message import ReceivedMessage
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import PATIENCE
from tests.remoting.socks_server import SocksServer, socks_server

CREDENTIALS = ("alice", "a-password")


@pytest.fixture
async def proxy() -> AsyncIterator[SocksServer]:
    async with socks_server(CREDENTIALS) as server:
        yield server


async def test_producers_consumers_and_admin_use_the_proxy(
    cluster: ClusterUnderTest, topic: str, unique: str, proxy: SocksServer
) -> None:
    url = proxy.url_with_credentials
    received: set[bytes] = set()
    done = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        received.add(message.body)
        if len(received) == 20:
            done.set()

    async with (
        Producer(cluster.address, group=unique, proxy=url) as producer,
        PushConsumer(cluster.address, group=f"{unique}-push", consume_from="earliest", proxy=url) as consumer,
        trio.open_nursery() as nursery,
    ):
        bodies = {f"{number}".encode() for number in range(20)}
        for body in bodies:
            await producer.send(Message(topic, body))
        consumer.subscribe(topic)
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            await done.wait()
        assert received == bodies
        nursery.cancel_scope.cancel()
    async with Client(cluster.address, proxy=url) as client:
        async with client.admin() as admin:
            assert isinstance(admin, Admin)
            assert (await admin.topics.describe(topic)).messages == 20
        async with LitePullConsumer(client, group=f"{unique}-pull", consume_from="earliest") as puller:
            puller.subscribe(topic)
            polled: list[ReceivedMessage] = []
            with trio.fail_after(PATIENCE):
                while len(polled) < 20:
                    polled += await puller.poll(wait=PATIENCE)
        brokers = {
            split_address(address)
            for addresses in (await core_of(client).routes.get(topic)).brokers.values()
            for address in addresses.values()
        }
    assert set(proxy.targets) >= {split_address(cluster.address), *brokers}
