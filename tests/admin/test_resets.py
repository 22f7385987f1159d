"""Resets of a group in all its topics, when some requests fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from rocketmq_py import Admin, Client, Message
from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import BrokerBusyError, SomeBrokersFailedError, TopicNotFoundError
from rocketmq_py.protocol.headers import DeleteTopicInNameServerRequest
from rocketmq_py.testing import World, simulate

GROUP = "billing"


def run_with_group(work: Callable[[Admin, World], Awaitable[None]]) -> None:
    """Run ``work`` with a group that has offset 0 in Orders on two brokers, and in Alone on broker-b."""

    async def program(world: World) -> None:
        async with Client(world.name_server_address) as client, client.admin() as admin:
            await admin.topics.create("Orders", queues=1)
            await admin.topics.create("Alone", queues=1, brokers=["broker-b"])
            await admin.groups.create(GROUP)
            async with client.reader() as reader, client.producer("shop") as producer:
                for topic in ("Alone", "Orders"):
                    for queue in (await client.routes.get(topic)).write_queues:
                        await producer.send(Message(topic, b"x"), queue=queue)
                        await reader.commit(GROUP, {queue: 0})
            await work(admin, world)

    simulate(program, seed=1, brokers=2)


def test_resets_are_sorted_by_topic_and_broker() -> None:
    async def work(admin: Admin, _: World) -> None:
        queues = [reset.queue for reset in await admin.offsets.skip(GROUP, dry_run=True)]
        assert [(queue.topic, queue.broker_name) for queue in queues] == [
            ("Alone", "broker-b"),
            ("Orders", "broker-a"),
            ("Orders", "broker-b"),
        ]

    run_with_group(work)


def reset_queues(world: World) -> set[tuple[str, str]]:
    """Return the topic and broker of each queue that was reset to its end."""
    return {(queue.topic, queue.broker_name) for queue, offset in world.offsets(GROUP).items() if offset == 1}


def test_a_broker_that_fails_only_to_list_topics_is_reset() -> None:
    async def work(admin: Admin, world: World) -> None:
        world.fail(RequestCode.GET_CONSUME_STATS, times=1, server="broker-b")
        with pytest.raises(SomeBrokersFailedError) as caught:
            await admin.offsets.skip(GROUP)
        assert (caught.value.done, set(caught.value.failures)) == (("broker-a",), {"broker-b"})
        assert reset_queues(world) == {("Orders", "broker-a"), ("Orders", "broker-b")}

    run_with_group(work)


def test_a_topic_that_fails_on_its_only_broker_does_not_prevent_other_resets() -> None:
    async def work(admin: Admin, world: World) -> None:
        world.fail(RequestCode.GET_TOPIC_STATS_INFO, times=1, server="broker-b")
        with pytest.raises(SomeBrokersFailedError, match="failed on 1 of 2: broker-b") as caught:
            await admin.offsets.skip(GROUP)
        assert [reset.queue.topic for reset in caught.value.answers["broker-a"]] == ["Orders"]
        assert reset_queues(world) == {("Orders", "broker-a"), ("Orders", "broker-b")}

    run_with_group(work)


def test_a_topic_without_a_route_does_not_prevent_other_resets() -> None:
    async def work(admin: Admin, world: World) -> None:
        header = DeleteTopicInNameServerRequest(topic="Alone")
        await admin.client.connections.request(
            world.name_server_address, header.code, header.to_fields(), timeout=3
        )
        with pytest.raises(SomeBrokersFailedError) as caught:
            await admin.offsets.skip(GROUP)
        assert caught.value.done == ("broker-a", "broker-b")
        assert isinstance(caught.value.failures["Alone"], TopicNotFoundError)
        assert reset_queues(world) == {("Orders", "broker-a"), ("Orders", "broker-b")}

    run_with_group(work)


def test_a_single_failure_is_raised_if_nothing_was_reset() -> None:
    async def work(admin: Admin, world: World) -> None:
        await admin.topics.delete("Orders")
        world.fail(RequestCode.GET_TOPIC_STATS_INFO, server="broker-b")
        with pytest.raises(BrokerBusyError):
            await admin.offsets.skip(GROUP)

    run_with_group(work)
