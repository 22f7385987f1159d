"""Connected clients are listed and described."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from rocketmq_py import Admin, Client, ConsumeFrom, Message, ReceivedMessage
from rocketmq_py.errors import ConfigurationError
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.test_admin_messages import nursery_client, poll_until, run_consumer


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


async def test_list_and_describe_connected_clients(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    consumed = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        consumed.set()

    async with trio.open_nursery() as nursery:
        own = await nursery_client(nursery, cluster)
        consumer = own.push_consumer(f"c-{unique}", consume_from=ConsumeFrom.FIRST, commit_interval=0.2)
        await nursery.start(run_consumer, consumer, topic, "a || b", handle)
        async with own.producer(f"p-{unique}") as producer:
            await producer.send(Message(topic, b"x", "a"))
            await consumed.wait()
            listing = await poll_until(
                lambda: admin.clients.list(),
                lambda some: any(
                    one.client_id == own.client_id and one.producer_groups and one.consumer_groups
                    for one in some.clients
                ),
            )
            (found,) = [one for one in listing.clients if one.client_id == own.client_id]
            assert (found.producer_groups, found.consumer_groups) == ((f"p-{unique}",), (f"c-{unique}",))
            assert (found.language, found.version, found.brokers) == ("PYTHON", "5.5.0", ("broker-a",))
            assert cluster.sees_clients_at in found.address
            assert listing.failures == {}
        described = await poll_until(
            lambda: admin.clients.describe(own.client_id),
            lambda some: len([one for one in some.members[0].queues if one.queue.topic == topic]) == 4,
        )
        (member,) = described.members
        assert (member.group, member.stack, described.failures) == (f"c-{unique}", None, {})
        assert [(one.topic, one.expression) for one in member.subscriptions] == [(topic, "a || b")]
        assert member.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert topic in [one.topic for one in member.rates]
        assert all(one.pulled_ms for one in member.queues if one.queue.topic == topic)
        with_stack = await admin.clients.describe(own.client_id, stack=True)
        assert "handle" in str(with_stack.members[0].stack) or "task" in str(with_stack.members[0].stack)
        nursery.cancel_scope.cancel()


async def test_describe_of_an_unknown_client_raises_an_error(admin: Admin) -> None:
    with pytest.raises(ConfigurationError, match="client 'no-such-client' is not online; clients online: "):
        await admin.clients.describe("no-such-client")
