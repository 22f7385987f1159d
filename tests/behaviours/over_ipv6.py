"""Behaviours over IPv6, for the embedded broker and for real ones.

A module that derives a test class from :class:`OverIPv6` needs a fixture ``cluster`` with servers on
``::1`` and announce it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from rocketmq_py import Admin, Client, Message, ReceivedMessage, TransactionState
from rocketmq_py.address import split_address
from rocketmq_py.admin.message_values import TraceKind
from rocketmq_py.client import core_of
from rocketmq_py.client.features import POP
from rocketmq_py.names import TRACE_TOPIC
from rocketmq_py.relay import wait_in
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import PATIENCE, read_all
from tests.behaviours.test_admin_messages import poll_until
from tests.behaviours.test_relaying import relay_of
from tests.behaviours.ways import WAYS

HOST = "::1"


def is_local(address: str) -> bool:
    """Return whether an address of ``::1`` has the documented form."""
    return address.startswith(f"[{HOST}]:")


class OverIPv6:
    """Tests that use the fixture ``cluster`` of the deriving module."""

    @pytest.fixture
    async def client(self, cluster: ClusterUnderTest) -> AsyncIterator[Client]:
        async with Client(cluster.address) as client:
            yield client

    @pytest.fixture
    async def topic(self, client: Client, unique: str) -> str:
        await create_topic(client, unique, queues=2)
        return unique

    @pytest.mark.parametrize(
        "text", ["::1:{port}", "[::1]:{port}", "0:0:0:0:0:0:0:1:{port}", "[::1]:1;::1:{port}"]
    )
    async def test_name_servers_are_given_with_and_without_brackets(
        self, cluster: ClusterUnderTest, text: str
    ) -> None:
        _, port = split_address(cluster.address)
        async with Client(text.format(port=port)) as client:
            assert f"[::1]:{port}" in core_of(client).name_servers.addresses.split(";")
            info = await core_of(client).name_servers.cluster_info()
            (broker,) = info.broker_addr_table.values()
            assert broker.announced == {0: broker.broker_addrs[0].replace("[", "").replace("]", "")}
            assert is_local(broker.broker_addrs[0])

    @pytest.mark.parametrize("way", WAYS)
    async def test_messages_are_sent_and_consumed(
        self, cluster: ClusterUnderTest, client: Client, topic: str, way: str, tmp_path: Path
    ) -> None:
        if way == "pop":
            cluster.needs(POP)
        async with client.producer("senders") as producer:
            sent = [await producer.send(Message(topic, b"single"))]
            sent += await producer.send_batch([Message(topic, b"%d" % number) for number in range(3)])
            sent.append(await (await producer.submit(Message(topic, b"pipelined"))))
        await read_all(client, topic, count=5)
        received = await WAYS[way](client, topic, f"group-{topic}", 5, tmp_path)
        assert {one.message_id for one in received} == {one.message_id for one in sent}
        assert {one.offset_message_id for one in received} == {one.offset_message_id for one in sent}
        assert {len(one.offset_message_id) for one in received} == {56}
        broker = core_of(client).routes.broker_address(sent[0].queue.broker_name)
        assert {one.store_host for one in received} == {broker}
        assert all(is_local(one.born_host) for one in received)
        # One connection to each server, however its address is spelled.
        assert sorted(one.address for one in core_of(client).connections.open_connections()) == sorted(
            [core_of(client).name_servers.addresses, broker]
        )
        assert not [path for path in tmp_path.rglob("*") if ":" in path.name]

    async def test_a_failed_message_is_delivered_again(self, client: Client, topic: str) -> None:
        handled: list[ReceivedMessage] = []

        async def fail_first(message: ReceivedMessage) -> None:
            handled.append(message)
            if not message.reconsume_times:
                raise ValueError("the first time fails")
            consumer.stop()

        async with client.producer("senders") as producer:
            sent = await producer.send(Message(topic, b"x"))
        async with client.push_consumer(f"group-{topic}", consume_from="earliest") as consumer:
            consumer.subscribe(topic)
            with trio.fail_after(PATIENCE):
                await consumer.run(fail_first)
        assert [one.message_id for one in handled] == [sent.message_id] * 2

    async def test_a_message_is_found_by_its_ids(self, client: Client, topic: str) -> None:
        async with client.producer("senders") as producer:
            sent = await producer.send(Message(topic, b"x", keys="order-1"))
        async with client.admin() as admin:
            found = [
                await poll_until(lambda: admin.messages.get(sent.offset_message_id), bool),
                await poll_until(lambda: admin.messages.get(sent.message_id, topic=topic), bool),
                *(await admin.messages.find(topic, "order-1")).messages,
            ]
        assert [one.body for one in found] == [b"x"] * 3

    async def test_a_request_is_replied_to(self, cluster: ClusterUnderTest, topic: str) -> None:
        async with (
            Client(cluster.address) as asking,
            Client(cluster.address) as answering,
            asking.producer("askers") as asker,
            answering.producer("repliers") as replier,
            answering.push_consumer(f"group-{topic}", consume_from="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):

            async def answer(message: ReceivedMessage) -> None:
                await replier.reply(message, message.body.upper())

            consumer.subscribe(topic)
            nursery.start_soon(consumer.run, answer)
            reply = await asker.request(Message(topic, b"question"), timeout=PATIENCE)
            assert reply.body == b"QUESTION"
            assert reply.store_host == core_of(asking).routes.broker_address("broker-a")
            connections = [*core_of(answering).connections.open_connections()]
            assert reply.born_host in {one.local_address for one in connections}
            nursery.cancel_scope.cancel()

    async def test_transactions_end_with_the_state_of_their_sender(self, client: Client, topic: str) -> None:
        asked: list[ReceivedMessage] = []

        async def check(message: ReceivedMessage) -> TransactionState:
            asked.append(message)
            return TransactionState.COMMIT

        async with client.transaction_producer(f"senders-{topic}", check) as producer:
            for body, state in (
                (b"committed", TransactionState.COMMIT),
                (b"rolled back", TransactionState.ROLLBACK),
                (b"unknown", TransactionState.UNKNOWN),
            ):
                sent = await producer.send_in_transaction(Message(topic, body), lambda *_, to=state: to)
                assert sent.end_error is None
            received = await read_all(client, topic, count=2)
        assert {one.body for one in received} == {b"committed", b"unknown"}
        assert {one.body for one in asked} == {b"unknown"}
        assert all(is_local(one.store_host) for one in asked)

    async def test_operators_see_brokers_and_clients(
        self, cluster: ClusterUnderTest, client: Client, topic: str
    ) -> None:
        broker = core_of(client).routes.broker_address("broker-a")
        group = f"group-{topic}"
        async with (
            Admin(cluster.address) as admin,
            client.producer(f"senders-{topic}") as producer,
            client.push_consumer(group, consume_from="earliest", commit_interval=0.2) as consumer,
            trio.open_nursery() as nursery,
        ):
            handled = trio.Event()

            async def handle(_: ReceivedMessage) -> None:
                handled.set()

            consumer.subscribe(topic)
            nursery.start_soon(consumer.run, handle)
            await producer.send(Message(topic, b"x"))
            with trio.fail_after(PATIENCE):
                await handled.wait()
            # 4.9.7 fails in its first second.
            listed_brokers = await poll_until(admin.brokers.list, lambda listing: not listing.failures)
            assert [one.address for one in listed_brokers.brokers] == [broker]
            for name in ("broker-a", broker, broker.replace("[", "").replace("]", "")):
                assert (await admin.brokers.settings(name))["brokerIP1"] == HOST
                assert (await admin.brokers.describe(name)).address == broker
            assert (await admin.topics.describe(topic)).addresses == {"broker-a": broker}
            listing = await poll_until(
                admin.clients.list,
                lambda some: any(
                    one.client_id == core_of(client).client_id and one.producer_groups and one.consumer_groups
                    for one in some.clients
                ),
            )
            (listed,) = [one for one in listing.clients if one.client_id == core_of(client).client_id]
            (member,) = (await admin.groups.describe(group)).members
            connections = {one.local_address for one in core_of(client).connections.open_connections()}
            assert {listed.address, member.address} <= connections
            assert all(is_local(address) for address in connections)
            nursery.cancel_scope.cancel()
        async with Admin(cluster.address) as admin:
            await admin.offsets.reset(group, topic, "earliest")
            assert (await admin.topics.delete(topic)) == ("broker-a",)

    async def test_a_trace_names_the_client_and_the_broker(self, client: Client, topic: str) -> None:
        async with client.producer(f"senders-{topic}", trace=True) as producer:
            sent = await producer.send(Message(topic, b"x"))
        # 4.9.7 creates the trace topic with the first trace, and registers it a moment later.
        await poll_until(core_of(client).name_servers.topics, lambda topics: TRACE_TOPIC in topics)
        async with client.admin() as admin:
            listing = await poll_until(
                lambda: admin.messages.trace(sent.message_id), lambda listing: bool(listing.events)
            )
        (event,) = listing.events
        assert (event.kind, event.broker_address) == (
            TraceKind.SENT,
            core_of(client).routes.broker_address("broker-a"),
        )
        assert is_local(event.client_address)

    async def test_a_relay_delivers(self, client: Client, topic: str, tmp_path: Path) -> None:
        pytest.importorskip("rocksdict", reason="the extra relay is not installed")
        buffer = f"B-{topic}"
        await create_topic(client, buffer, queues=2)
        async with relay_of(client, buffer, tmp_path), client.producer("senders") as producer:
            await producer.send(wait_in(buffer, Message(topic, b"later"), core_of(client).now_ms() + 500))
            (received,) = await read_all(client, topic, count=1)
        assert received.body == b"later"

    async def test_ids_of_clients_hold_the_address(self, client: Client, topic: str) -> None:
        async with client.producer("senders") as producer:
            sent = await producer.send(Message(topic, b"x"))
        assert core_of(client).client_id.startswith(f"{HOST}@")
        assert sent.message_id.startswith(ipaddress.ip_address(HOST).packed.hex().upper())
        assert len(sent.message_id) == 56
