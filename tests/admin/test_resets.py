"""Resets of a group: on several brokers of which some fail, and on brokers that notify the members."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from rocketmq_py import Admin, Client, Message, MessageQueue, Position, ReceivedMessage
from rocketmq_py.admin import GroupNotFoundError, SomeBrokersFailedError
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import BrokerBusyError, NoQueueError, TopicNotFoundError, UnsupportedByBrokerError
from rocketmq_py.protocol.headers import DeleteTopicInNameServerRequest
from rocketmq_py.testing import World, simulate

GROUP = "billing"


def run_with_group(work: Callable[[Admin, World], Awaitable[None]], *, replicas: bool = False) -> None:
    """Run ``work`` with a group that has offset 0 in Orders on two brokers, and in Alone on broker-b."""

    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.admin() as admin:
            await admin.topics.create("Orders", queues=1)
            await admin.topics.create("Alone", queues=1, brokers=["broker-b"])
            await admin.groups.create(GROUP)
            async with client.reader() as reader, client.producer("shop") as producer:
                for topic in ("Alone", "Orders"):
                    for queue in (await core_of(client).routes.get(topic)).write_queues:
                        await producer.send(Message(topic, b"x"), queue=queue)
                        await reader.commit(GROUP, {queue: 0})
            await work(admin, world)

    simulate(program, seed=1, brokers=2, replicas=replicas)


def test_resets_are_sorted_by_topic_and_broker() -> None:
    async def work(admin: Admin, _: World) -> None:
        queues = [reset.queue for reset in await admin.offsets.reset(GROUP, None, "latest", dry_run=True)]
        assert [(queue.topic, queue.broker_name) for queue in queues] == [
            ("Alone", "broker-b"),
            ("Orders", "broker-a"),
            ("Orders", "broker-b"),
        ]

    run_with_group(work)


def reset_queues(world: World) -> set[tuple[str, str]]:
    """Return the topic and broker of each queue that was reset to its end."""
    return {
        (queue.topic, queue.broker_name) for queue, offset in world.committed(GROUP).items() if offset == 1
    }


def test_a_broker_that_fails_only_to_list_topics_is_reset() -> None:
    async def work(admin: Admin, world: World) -> None:
        world.fail(RequestCode.GET_CONSUME_STATS, times=1, server="broker-b")
        with pytest.raises(SomeBrokersFailedError) as caught:
            await admin.offsets.reset(GROUP, None, "latest")
        assert (caught.value.done, set(caught.value.failures)) == (("broker-a",), {"broker-b"})
        assert reset_queues(world) == {("Orders", "broker-a"), ("Orders", "broker-b")}

    run_with_group(work)


def test_a_topic_that_fails_on_its_only_broker_does_not_prevent_other_resets() -> None:
    async def work(admin: Admin, world: World) -> None:
        world.fail(RequestCode.GET_TOPIC_STATS_INFO, times=1, server="broker-b")
        with pytest.raises(SomeBrokersFailedError, match="failed on 1 of 2: broker-b") as caught:
            await admin.offsets.reset(GROUP, None, "latest")
        assert [reset.queue.topic for reset in caught.value.answers["broker-a"]] == ["Orders"]
        assert reset_queues(world) == {("Orders", "broker-a"), ("Orders", "broker-b")}

    run_with_group(work)


def test_a_topic_without_a_route_does_not_prevent_other_resets() -> None:
    async def work(admin: Admin, world: World) -> None:
        header = DeleteTopicInNameServerRequest(topic="Alone")
        await core_of(admin).connections.request(
            world.name_server_address, header.code, header.to_fields(), timeout=3
        )
        with pytest.raises(SomeBrokersFailedError) as caught:
            await admin.offsets.reset(GROUP, None, "latest")
        assert caught.value.done == ("broker-a", "broker-b")
        assert isinstance(caught.value.failures["Alone"], TopicNotFoundError)
        assert reset_queues(world) == {("Orders", "broker-a"), ("Orders", "broker-b")}

    run_with_group(work)


def test_a_single_failure_is_raised_if_nothing_was_reset() -> None:
    async def work(admin: Admin, world: World) -> None:
        await admin.topics.delete("Orders")
        world.fail(RequestCode.GET_TOPIC_STATS_INFO, server="broker-b")
        with pytest.raises(BrokerBusyError):
            await admin.offsets.reset(GROUP, None, "latest")

    run_with_group(work)


@pytest.mark.parametrize("topic", ["Orders", None])
def test_queues_that_do_not_exist_are_refused_before_any_reset(topic: str | None) -> None:
    async def work(admin: Admin, world: World) -> None:
        places = [("broker-a", 0), ("broker-a", 77), ("broker-z", 0)]
        offsets = {MessageQueue("Orders", name, number): 1 for name, number in places}
        text = "does not have broker-a/77, broker-z/0; its queues: broker-a/0, broker-b/0"
        for dry_run in (False, True):
            with pytest.raises(NoQueueError, match=text):
                await admin.offsets.reset(GROUP, topic, offsets, dry_run=dry_run)
        assert reset_queues(world) == set()

    run_with_group(work)


def test_a_queue_of_another_topic_is_refused() -> None:
    async def work(admin: Admin, _: World) -> None:
        with pytest.raises(NoQueueError, match="topic 'Orders' does not have Alone/broker-b/0"):
            await admin.offsets.reset(GROUP, "Orders", {MessageQueue("Alone", "broker-b", 0): 1})

    run_with_group(work)


def test_queues_select_their_topics() -> None:
    async def work(admin: Admin, world: World) -> None:
        await admin.offsets.reset(GROUP, None, {MessageQueue("Alone", "broker-b", 0): 1})
        assert reset_queues(world) == {("Alone", "broker-b")}

    run_with_group(work)


def test_a_dry_run_fails_as_the_reset_of_a_group_that_does_not_exist() -> None:
    async def work(admin: Admin, _: World) -> None:
        for dry_run in (False, True):
            with pytest.raises(SomeBrokersFailedError, match="group 'nope' does not exist") as caught:
                await admin.offsets.reset("nope", "Orders", "latest", dry_run=dry_run)
            with pytest.raises(SomeBrokersFailedError, match="group 'nope' does not exist"):
                await admin.offsets.clone(GROUP, "nope", dry_run=dry_run)
            assert {type(error) for error in caught.value.failures.values()} == {GroupNotFoundError}

    run_with_group(work)


def test_a_dry_run_needs_the_masters_as_the_reset_does() -> None:
    async def work(admin: Admin, world: World) -> None:
        await trio.sleep(10)  # until the replicas have the offsets
        await world.crash("broker-a")
        for dry_run in (False, True):
            with pytest.raises(
                SomeBrokersFailedError, match="'broker-a' has no master at the moment"
            ) as caught:
                await admin.offsets.reset(GROUP, "Orders", "latest", dry_run=dry_run)
            assert {type(error) for error in caught.value.failures.values()} == {NoQueueError}

    run_with_group(work, replicas=True)


def test_a_dry_run_needs_no_permission_to_list_groups() -> None:
    async def work(admin: Admin, world: World) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        world.fail(code, code=ResponseCode.NO_PERMISSION, remark=DENIED)
        assert len(await admin.offsets.reset(GROUP, "Orders", "latest", dry_run=True)) == 2

    run_with_group(work)


DENIED = "User:alice has no permission to access Cluster:DefaultCluster from 10.0.0.1, no matched policies."


def test_a_user_who_may_not_read_the_configuration_of_brokers_resets_a_group() -> None:
    async def work(admin: Admin, world: World) -> None:
        world.fail(RequestCode.GET_BROKER_CONFIG, code=ResponseCode.NO_PERMISSION, remark=DENIED)
        await admin.offsets.reset(GROUP, "Orders", "latest")
        assert reset_queues(world) == {("Orders", "broker-a"), ("Orders", "broker-b")}

    run_with_group(work)


def run_with_notifying_broker(work: Callable[[Client, Admin], Awaitable[None]]) -> None:
    """Run ``work`` with a broker as of 5.1: it notifies members of a reset. Orders has three messages."""

    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.admin() as admin:
            async with client.producer("shop") as producer:
                await producer.send_batch([Message("Orders", b"x")] * 3)
            await work(client, admin)

    simulate(program, seed=1, topics={"Orders": 1}, use_server_side_reset_offset=False)


async def until_consumed(admin: Admin) -> None:
    while not (described := await admin.groups.describe(GROUP)).topics or described.lag:
        await trio.sleep(1)


def test_members_consume_again_after_a_reset_to_earliest_on_a_broker_that_notifies_them() -> None:
    async def work(client: Client, admin: Admin) -> None:
        handled = 0

        async def handle(_: ReceivedMessage) -> None:
            nonlocal handled
            handled += 1

        async with (
            client.push_consumer(GROUP, consume_from="earliest") as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe("Orders")
            nursery.start_soon(consumer.run, handle)
            await until_consumed(admin)
            await admin.offsets.reset(GROUP, "Orders", "earliest")
            await trio.sleep(60)
            assert handled == 6
            text = "its setting useServerSideResetOffset is false. Stop the members, or reset to earliest"
            for dry_run in (False, True):
                with pytest.raises(UnsupportedByBrokerError, match=text):
                    await admin.offsets.reset(GROUP, "Orders", Position.offset(1), dry_run=dry_run)
            nursery.cancel_scope.cancel()

    run_with_notifying_broker(work)


def test_a_group_without_members_is_reset_on_a_broker_that_notifies_them() -> None:
    async def work(_: Client, admin: Admin) -> None:
        await admin.groups.create(GROUP)
        assert len(await admin.offsets.reset(GROUP, "Orders", Position.offset(1), dry_run=True)) == 1
        await admin.offsets.reset(GROUP, "Orders", Position.offset(1))
        (topic,) = (await admin.groups.describe(GROUP)).topics
        assert [queue.committed for queue in topic.queues] == [1]

    run_with_notifying_broker(work)
