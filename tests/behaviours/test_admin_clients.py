"""Connected clients are listed and described."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
import trio

from rocketmq_py import Admin, Client, Message, ReceivedMessage
from rocketmq_py.client import core_of
from rocketmq_py.client.features import PRODUCER_LISTS
from rocketmq_py.errors import ConfigurationError, RocketMQError, UnsupportedByBrokerError
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import until_committed
from tests.behaviours.test_admin_messages import nursery_client, poll_until, run_consumer


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


@pytest.mark.versions
async def test_list_and_describe_connected_clients(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    consumed = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        consumed.set()

    async with trio.open_nursery() as nursery:
        own = await nursery_client(nursery, cluster)
        consumer = own.push_consumer(f"c-{unique}", consume_from="earliest", commit_interval=0.2)
        await nursery.start(run_consumer, consumer, topic, "a || b", handle)
        async with own.producer(f"p-{unique}") as producer:
            sent = await producer.send(Message(topic, b"x", "a"))
            await consumed.wait()
            await until_committed(client, f"c-{unique}", {sent.queue: sent.queue_offset + 1})
            listed = cluster.has(PRODUCER_LISTS)
            listing = await poll_until(
                lambda: admin.clients.list(),
                lambda some: any(
                    one.client_id == core_of(own).client_id
                    and one.consumer_groups
                    and (one.producer_groups or not listed)
                    for one in some.clients
                ),
            )
            (found,) = [one for one in listing.clients if one.client_id == core_of(own).client_id]
            assert found.producer_groups == ((f"p-{unique}",) if listed else ())
            assert found.consumer_groups == (f"c-{unique}",)
            assert (found.language, found.version, found.brokers) == ("PYTHON", "5.5.0", ("broker-a",))
            assert cluster.sees_clients_at in found.address
            assert_producers_fail_on_older_brokers(cluster, listing.failures)
        described = await poll_until(
            lambda: admin.clients.describe(core_of(own).client_id),
            lambda some: len([one for one in some.members[0].queues if one.queue.topic == topic]) == 4,
        )
        (member,) = described.members
        assert (member.group, member.stack) == (f"c-{unique}", None)
        assert_producers_fail_on_older_brokers(cluster, described.failures)
        assert [(one.topic, one.expression) for one in member.subscriptions] == [(topic, "a || b")]
        assert member.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert topic in [one.topic for one in member.rates]
        assert all(one.pulled_ms for one in member.queues if one.queue.topic == topic)
        with_stack = await admin.clients.describe(core_of(own).client_id, stack=True)
        assert "handle" in str(with_stack.members[0].stack) or "task" in str(with_stack.members[0].stack)
        nursery.cancel_scope.cancel()


def assert_producers_fail_on_older_brokers(
    cluster: ClusterUnderTest, failures: Mapping[str, RocketMQError]
) -> None:
    if cluster.has(PRODUCER_LISTS):
        assert failures == {}
    else:
        (error,) = failures.values()
        assert isinstance(error, UnsupportedByBrokerError)
        assert "does not support lists of all producers, which needs 4.9.4" in str(error)


async def test_describe_of_an_unknown_client_raises_an_error(cluster: ClusterUnderTest, admin: Admin) -> None:
    cluster.needs(PRODUCER_LISTS)
    with pytest.raises(ConfigurationError, match="client 'no-such-client' is not online; clients online: "):
        await admin.clients.describe("no-such-client")
