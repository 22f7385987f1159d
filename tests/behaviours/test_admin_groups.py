"""Groups are listed, described, created, altered and deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest
import trio

from rocketmq_py import Admin, Client, Message, ReceivedMessage
from rocketmq_py.admin import AlreadyExistsError, GroupDescription, GroupNotFoundError
from rocketmq_py.client import core_of
from rocketmq_py.client.features import GROUP_ATTRIBUTES, LITE_TOPICS, OFFSET_DELETION
from rocketmq_py.errors import BrokerError, ConfigurationError, UnsupportedByBrokerError
from rocketmq_py.protocol.bodies import MASTER_ID, TopicStats
from rocketmq_py.protocol.headers import GetTopicStatsInfoRequest
from tests.behaviours.conftest import ClusterUnderTest
from tests.behaviours.reading import until_readable

PATIENCE = 60


@pytest.fixture
async def admin(client: Client) -> AsyncIterator[Admin]:
    async with client.admin() as admin:
        yield admin


async def described_when(admin: Admin, group: str, *, members: int, lag: int) -> GroupDescription:
    """Return a group's description once it has the given members and lag, and assigned its retry topic."""
    with trio.fail_after(PATIENCE):
        while True:
            described = await admin.groups.describe(group)
            assigned = {queue.topic for member in described.members for queue in member.queues or ()}
            if (
                (len(described.members), described.lag) == (members, lag)
                and described.topics
                and (not members or f"%RETRY%{group}" in assigned)
            ):
                return described
            await trio.sleep(0.05)


async def test_a_group_that_may_not_consume_is_paused(
    client: Client, admin: Admin, topic: str, unique: str
) -> None:
    received: list[bytes] = []
    arrived = trio.lowlevel.ParkingLot()

    async def handle(message: ReceivedMessage) -> None:
        received.append(message.body)
        arrived.unpark_all()

    async def until_received(count: int) -> None:
        with trio.fail_after(PATIENCE):
            while len(received) < count:
                await arrived.park()

    async with (
        client.producer("senders") as producer,
        client.push_consumer(unique, consume_from="earliest") as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic)
        await admin.groups.create(unique)
        await producer.send(Message(topic, b"before"))
        nursery.start_soon(consumer.run, handle)
        await until_received(1)
        await admin.groups.alter(unique, consume_enable=False)
        sent = await producer.send(Message(topic, b"paused"))
        with trio.fail_after(PATIENCE):
            while not consumer.health().failing:
                await trio.sleep(0.05)
        assert sent.queue in consumer.assignment
        assert received == [b"before"]
        await admin.groups.alter(unique, consume_enable=True)
        await until_received(2)
        assert received == [b"before", b"paused"]
        nursery.cancel_scope.cancel()


@pytest.mark.versions
async def test_describe_returns_members_and_lag(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    group = f"group-{unique}"
    async with client.producer("senders") as producer:
        sent = [await producer.send(Message(topic, b"%d" % number)) for number in range(20)]
    await until_readable(client, topic, count=20)
    received = trio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.queue == sent[0].queue:
            received.set()
            await trio.sleep_forever()

    stuck = sum(one.queue == sent[0].queue for one in sent)
    async with (
        Client(cluster.address) as own,
        own.push_consumer(group, consume_from="earliest", commit_interval=0.2) as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe(topic, "*")
        nursery.start_soon(consumer.run, handle)
        with trio.fail_after(PATIENCE):
            await received.wait()
        described = await described_when(admin, group, members=1, lag=stuck)
        (member,) = described.members
        assert (member.client_id, member.language, member.version) == (
            core_of(own).client_id,
            "PYTHON",
            "5.5.0",
        )
        assert member.failure is None
        assert member.brokers == ("broker-a",)
        assert member.subscriptions is not None
        assert [(one.topic, one.expression) for one in member.subscriptions] == [(topic, "*")]
        assert member.queues is not None
        assert {queue.topic for queue in member.queues} == {topic, f"%RETRY%{group}"}
        assert (described.consume_type, described.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        assert described.consume_from == "CONSUME_FROM_FIRST_OFFSET"
        assert [one.topic for one in described.subscriptions] == [topic]
        assert described.conflicts == ()
        of_topic = described.topics[0]
        assert of_topic.topic == topic
        assert {one.queue: one.lag for one in of_topic.queues if one.lag} == {sent[0].queue: stuck}
        assert {one.client_id for one in of_topic.queues} == {core_of(own).client_id}
        consumed = [one.last_consumed_ms for one in of_topic.queues if one.queue != sent[0].queue]
        assert all(
            one is not None
            and core_of(client).now_ms() - PATIENCE * 1000 < one <= core_of(client).now_ms() + 1000
            for one in consumed
        )
        for error in (listing := await admin.groups.list()).failures.values():
            raise error
        (summary,) = [one for one in listing.groups if one.group == group]
        assert (summary.members, summary.lag, summary.message_model) == (1, stuck, "CLUSTERING")
        nursery.cancel_scope.cancel()


async def test_describe_and_list_return_the_consume_rate(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    if not cluster.is_at_least("4.6.1"):
        pytest.skip("older brokers report no rate of messages that arrive within seconds")
    count, group = 60, f"group-{unique}"
    await admin.groups.create(group)
    async with client.producer("senders") as producer:
        for _ in range(count):
            await producer.send(Message(topic, b"x"))
    received, all_received = 0, trio.Event()
    lowest = count / 60 * 0.9  # brokers update the rate of the last minute every 10 s, and a little late

    async def handle(message: ReceivedMessage) -> None:
        nonlocal received
        received += 1
        if received == count:
            all_received.set()

    async with client.push_consumer(group, consume_from="earliest") as consumer:
        consumer.subscribe(topic, "*")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.run, handle)
            with trio.fail_after(PATIENCE):
                await all_received.wait()
                # The broker's first rate lacks the messages that were received after it was updated.
                while ((described := await admin.groups.describe(group)).rate or 0) < lowest:
                    await trio.sleep(0.2)
            (summary,) = [one for one in (await admin.groups.list()).groups if one.group == group]
            nursery.cancel_scope.cancel()
    assert lowest <= (described.rate or 0) <= count / 10 * 1.1
    assert lowest <= summary.rate <= count / 10 * 1.1
    ((_, broker),) = (await core_of(client).name_servers.cluster_info()).broker_addr_table.items()
    answer = await core_of(client).brokers.call(
        broker.broker_addrs[MASTER_ID], GetTopicStatsInfoRequest(topic=topic)
    )
    put_rate = TopicStats.decode(answer.body).topic_put_tps
    if cluster.is_at_least("5.3.3"):
        assert count / 60 * 0.9 <= put_rate <= count / 10 * 1.1
    else:
        assert put_rate == 0


async def test_describe_reports_conflicting_subscriptions(
    cluster: ClusterUnderTest, admin: Admin, topic: str, unique: str
) -> None:
    group = f"group-{unique}"
    async with (
        Client(cluster.address) as one,
        Client(cluster.address) as other,
        one.push_consumer(group) as first,
        other.push_consumer(group) as second,
        trio.open_nursery() as nursery,
    ):
        first.subscribe(topic, "a || b")
        second.subscribe(topic, "c")
        nursery.start_soon(first.run, print)
        nursery.start_soon(second.run, print)
        with trio.fail_after(PATIENCE):
            while True:
                try:
                    described = await admin.groups.describe(group)
                except GroupNotFoundError:  # the broker has not received a heartbeat yet
                    continue
                if len(described.members) == 2:
                    break
                await trio.sleep(0.05)
        (conflict,) = described.conflicts
        assert (conflict.topic, conflict.members) == (
            topic,
            {"a || b": (core_of(one).client_id,), "c": (core_of(other).client_id,)},
        )
        nursery.cancel_scope.cancel()


async def test_create_can_be_repeated_with_if_not_exists(admin: Admin, unique: str) -> None:
    brokers = await admin.groups.create(unique, max_reconsume_times=3, if_not_exists=True)
    assert brokers
    assert await admin.groups.create(unique, max_reconsume_times=3, if_not_exists=True) == ()
    with pytest.raises(AlreadyExistsError) as caught:
        await admin.groups.create(unique, consume_enable=False, if_not_exists=True)
    assert (caught.value.kind, caught.value.name, caught.value.brokers) == ("group", unique, brokers)
    assert caught.value.differences == (
        "consume_enable is true, not false",
        "max_reconsume_times is 3, not 16",
    )
    assert "with other settings: consume_enable is true, not false, max_reconsume_times is 3" in str(
        caught.value
    )


@pytest.mark.versions
async def test_a_group_is_created_altered_and_deleted(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    brokers = await admin.groups.create(unique, max_reconsume_times=3, broadcast_enable=False)
    with pytest.raises(AlreadyExistsError, match=f"^group '{unique}' exists already on {brokers[0]}"):
        await admin.groups.create(unique)
    settings = (await admin.groups.describe(unique)).settings
    assert {
        (one.max_reconsume_times, one.broadcast_enable, one.consume_enable) for one in settings.values()
    } == {(3, False, True)}
    changed = await admin.groups.alter(unique, consume_enable=False, orderly=cluster.is_at_least("5.0.0"))
    described = await admin.groups.describe(unique)
    assert described.settings == changed
    assert {(one.max_reconsume_times, one.consume_enable, one.orderly) for one in changed.values()} == {
        (3, False, cluster.is_at_least("5.0.0"))
    }
    assert (described.lag, described.members, described.topics) == (0, (), ())
    assert unique in [group.group for group in (await admin.groups.list()).groups]
    assert await admin.groups.delete(unique) == brokers
    assert unique not in [group.group for group in (await admin.groups.list()).groups]
    for ask in (admin.groups.describe, admin.groups.delete, admin.groups.alter):
        with pytest.raises(GroupNotFoundError, match=unique):
            await ask(unique)


async def test_alter_sets_and_removes_attributes(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    wanted = {"priority.factor": "50", "lite.sub.client.quota": "9"}
    if not cluster.has(LITE_TOPICS):
        with pytest.raises(UnsupportedByBrokerError, match=r"a group with priority.factor=50, .* needs 5\.5"):
            await admin.groups.create(unique, attributes=wanted)
        if cluster.has(GROUP_ATTRIBUTES):
            return
        await admin.groups.create(unique)
        with pytest.raises(UnsupportedByBrokerError, match=r"a group with priority.factor, which needs 5\.4"):
            await admin.groups.alter(unique, attributes={"priority.factor": "50"}, max_reconsume_times=1)
        assert {
            one.max_reconsume_times for one in (await admin.groups.describe(unique)).settings.values()
        } == {16}
        return

    async def attributes() -> list[Mapping[str, str]]:
        return [one.attributes for one in (await admin.groups.describe(unique)).settings.values()]

    brokers = await admin.groups.create(unique, attributes=wanted)
    assert await attributes() == [wanted] * len(brokers)
    changed = await admin.groups.alter(unique, attributes={"priority.factor": "60"})
    assert [one.attributes for one in changed.values()] == await attributes()
    assert await attributes() == [{**wanted, "priority.factor": "60"}] * len(brokers)
    await admin.groups.alter(unique, max_reconsume_times=3)
    assert await attributes() == [{**wanted, "priority.factor": "60"}] * len(brokers)
    await admin.groups.alter(unique, attributes={"priority.factor": None, "lite.bind.topic": None})
    assert await attributes() == [{"lite.sub.client.quota": "9"}] * len(brokers)
    for wrong, remark in (
        ({"priority.factor": "101"}, r"value is not in range\(0, 100\)"),
        ({"no.such": "1"}, "unsupported key: no.such"),
    ):
        with pytest.raises(BrokerError, match=remark):
            await admin.groups.alter(unique, attributes=wrong)


async def test_delete_removes_the_offsets_of_a_group(
    cluster: ClusterUnderTest, client: Client, admin: Admin, topic: str, unique: str
) -> None:
    await admin.groups.create(unique)
    queues = (await core_of(client).routes.get(topic)).read_queues
    async with client.reader() as reader:
        await reader.commit(unique, dict.fromkeys(queues, 0))
    assert (await admin.groups.describe(unique)).topics
    await admin.groups.delete(unique)
    if not cluster.has(OFFSET_DELETION):
        described = await admin.groups.describe(unique)
        assert (described.settings, [one.topic for one in described.topics]) == ({}, [topic])
        return
    with pytest.raises(GroupNotFoundError):
        await admin.groups.describe(unique)


async def test_list_excludes_internal_groups_by_default(cluster: ClusterUnderTest, admin: Admin) -> None:
    listing = await admin.groups.list(system=True)
    for error in listing.failures.values():
        raise error
    assert "TOOLS_CONSUMER" in [group.group for group in listing.groups]
    assert "TOOLS_CONSUMER" not in [group.group for group in (await admin.groups.list()).groups]


async def test_group_names_in_a_namespace_have_no_prefix(
    cluster: ClusterUnderTest, admin: Admin, unique: str
) -> None:
    async with Admin(cluster.address, namespace="tenant-1") as inside:
        await inside.groups.create(unique)
        assert (await inside.groups.describe(unique)).group == unique
        assert unique in [group.group for group in (await inside.groups.list()).groups]
        assert (await admin.groups.describe(f"tenant-1%{unique}")).settings
        with pytest.raises(GroupNotFoundError):
            await admin.groups.describe(unique)
        await inside.groups.alter(unique, max_reconsume_times=2)
        await inside.groups.delete(unique)


async def test_wrong_arguments_raise_configuration_errors(admin: Admin, unique: str) -> None:
    with pytest.raises(ConfigurationError, match="max_reconsume_times is -2; it must be from -1 to 65536"):
        await admin.groups.create(unique, max_reconsume_times=-2)
    with pytest.raises(ConfigurationError, match="may hold only letters"):
        await admin.groups.create("a b")
    with pytest.raises(ConfigurationError, match="'TOOLS_CONSUMER' is internal to RocketMQ"):
        await admin.groups.delete("TOOLS_CONSUMER")
    with pytest.raises(ConfigurationError, match="broker 'broker-x' does not exist"):
        await admin.groups.create(unique, brokers=["broker-x"])
