"""The order configuration of topics, which name servers with ``orderMessageEnable`` return in routes.

It replaces all write queues of a topic, so it must list every broker that has the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from rocketmq_py import Admin
from rocketmq_py.admin import SomeBrokersFailedError
from rocketmq_py.client import core_of
from rocketmq_py.errors import (
    ConfigurationError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.protocol.headers import PutKvConfigRequest
from rocketmq_py.testing import World, simulate

A, B, C = "broker-a", "broker-b", "broker-c"
TOPIC = "Orders"


def run_with_admin(work: Callable[[Admin, World], Awaitable[None]]) -> None:
    """Run ``work`` on three brokers, with a name server that returns the order configuration in routes."""

    async def program(world: World) -> None:
        async with Admin(world.name_server_address) as admin:
            await admin.name_servers.alter({"orderMessageEnable": "true"})
            await work(admin, world)

    simulate(program, seed=1, brokers=3)


async def crash(world: World, broker: str) -> None:
    """Crash a broker that the name server still lists."""
    world.partition(world.name_server_address, broker)
    await world.crash(broker)


async def queues_to_write(admin: Admin, topic: str = TOPIC) -> dict[str, int]:
    """Return the number of queues that producers use on each broker."""
    route = await core_of(admin).routes.refresh(topic)
    return dict(Counter(queue.broker_name for queue in route.write_queues))


async def order_configuration(admin: Admin) -> str | None:
    return (await admin.topics.describe(TOPIC)).order_configuration


def test_ordering_a_topic_on_one_broker_keeps_the_queues_of_the_others() -> None:
    async def work(admin: Admin, _: World) -> None:
        await admin.topics.create(TOPIC, queues=2)
        await admin.topics.alter(TOPIC, order=True, queues=4, brokers=[A])
        assert await order_configuration(admin) == "broker-a:4;broker-b:2;broker-c:2"
        assert await queues_to_write(admin) == {A: 4, B: 2, C: 2}

    run_with_admin(work)


def test_creating_an_ordered_topic_on_another_broker_keeps_the_queues_of_the_first() -> None:
    async def work(admin: Admin, _: World) -> None:
        await admin.topics.create(TOPIC, queues=2, order=True, brokers=[A])
        await admin.topics.create(TOPIC, queues=3, order=True, brokers=[B])
        assert await queues_to_write(admin) == {A: 2, B: 3}

    run_with_admin(work)


def test_an_ordered_topic_is_ordered_on_brokers_that_it_is_created_on_later() -> None:
    async def work(admin: Admin, _: World) -> None:
        await admin.topics.create(TOPIC, queues=2, order=True, brokers=[A])
        await admin.topics.create(TOPIC, queues=3, brokers=[B])
        assert await queues_to_write(admin) == {A: 2, B: 3}
        assert [one.order for one in (await admin.topics.describe(TOPIC)).brokers.values()] == [True, True]

    run_with_admin(work)


def test_a_failed_creation_restores_the_order_configuration() -> None:
    async def work(admin: Admin, world: World) -> None:
        await admin.topics.create(TOPIC, queues=2, order=True, brokers=[A])
        await crash(world, B)
        with pytest.raises(RocketMQError):
            await admin.topics.create(TOPIC, queues=3, order=True, brokers=[B])
        assert await order_configuration(admin) == "broker-a:2"
        with pytest.raises(RocketMQError):
            await admin.topics.create(TOPIC, queues=3, order=True, brokers=[B, C])
        assert await order_configuration(admin) == "broker-a:2;broker-c:3"

    run_with_admin(work)


@pytest.mark.parametrize("option", ["queues", "write_queues"])
def test_the_order_configuration_follows_the_number_of_queues(option: str) -> None:
    async def work(admin: Admin, _: World) -> None:
        await admin.topics.create(TOPIC, queues=4, order=True)
        await admin.topics.alter(TOPIC, brokers=[A], **{option: 6})  # type: ignore[arg-type]
        assert await queues_to_write(admin) == {A: 6, B: 4, C: 4}
        await admin.topics.alter(TOPIC, **{option: 2})  # type: ignore[arg-type]
        assert await queues_to_write(admin) == {A: 2, B: 2, C: 2}
        await admin.topics.alter(TOPIC, read_queues=8)
        assert await order_configuration(admin) == "broker-a:2;broker-b:2;broker-c:2"

    run_with_admin(work)


def test_changing_the_queues_of_an_unordered_topic_does_not_order_it() -> None:
    async def work(admin: Admin, _: World) -> None:
        await admin.topics.create(TOPIC, queues=2)
        await admin.topics.alter(TOPIC, queues=4)
        assert await order_configuration(admin) is None
        await admin.topics.alter(TOPIC, order=False, brokers=[A])
        assert await order_configuration(admin) is None

    run_with_admin(work)


def test_a_failed_change_of_queues_keeps_the_old_count_in_the_order_configuration() -> None:
    async def work(admin: Admin, world: World) -> None:
        await admin.topics.create(TOPIC, queues=2, order=True)
        await crash(world, B)
        with pytest.raises(RocketMQError):
            await admin.topics.alter(TOPIC, queues=4)
        assert await order_configuration(admin) == "broker-a:4;broker-b:2;broker-c:4"
        with pytest.raises(RocketMQError):
            await admin.topics.alter(TOPIC, queues=8, brokers=[B])
        assert await order_configuration(admin) == "broker-a:4;broker-b:2;broker-c:4"
        with pytest.raises(RocketMQError):
            await admin.topics.alter(TOPIC, order=False)
        assert await order_configuration(admin) is None

    run_with_admin(work)


def test_a_failed_ordering_of_a_topic_leaves_it_unordered() -> None:
    async def work(admin: Admin, world: World) -> None:
        await admin.topics.create(TOPIC, queues=2)
        await crash(world, B)
        with pytest.raises(RocketMQError):
            await admin.topics.alter(TOPIC, order=True, brokers=[B])
        assert await order_configuration(admin) is None

    run_with_admin(work)


def test_the_order_of_a_topic_cannot_be_removed_on_some_brokers_only() -> None:
    async def work(admin: Admin, _: World) -> None:
        await admin.topics.create(TOPIC, queues=2, order=True)
        with pytest.raises(
            ConfigurationError, match="'Orders' cannot be unordered on broker-a, broker-b only"
        ):
            await admin.topics.alter(TOPIC, order=False, brokers=[A, B])
        assert await queues_to_write(admin) == {A: 2, B: 2, C: 2}
        await admin.topics.alter(TOPIC, order=False, brokers=[A, B, C])
        assert await order_configuration(admin) is None

    run_with_admin(work)


@pytest.mark.parametrize("is_enabled", ["true", "false"])
def test_deleting_a_topic_deletes_its_order_configuration(is_enabled: str) -> None:
    async def work(admin: Admin, _: World) -> None:
        await admin.name_servers.alter({"orderMessageEnable": is_enabled})
        await admin.topics.create(TOPIC, queues=2, order=True)
        await admin.topics.delete(TOPIC)
        await admin.name_servers.alter({"orderMessageEnable": "true"})
        await admin.topics.create(TOPIC, queues=4)
        assert await order_configuration(admin) is None

    run_with_admin(work)


def test_an_order_configuration_that_cannot_be_parsed_is_replaced_when_the_order_changes() -> None:
    async def work(admin: Admin, world: World) -> None:
        await admin.topics.create(TOPIC, queues=2)
        header = PutKvConfigRequest(kv_namespace="ORDER_TOPIC_CONFIG", key=TOPIC, value="nonsense")
        await core_of(admin).connections.request(
            world.name_server_address, header.code, header.to_fields(), b"", timeout=3
        )
        await admin.name_servers.alter({"orderMessageEnable": "false"})
        await admin.topics.alter(TOPIC, queues=4)
        await admin.topics.alter(TOPIC, order=True)
        await admin.name_servers.alter({"orderMessageEnable": "true"})
        assert await order_configuration(admin) == "broker-a:4;broker-b:4;broker-c:4"

    run_with_admin(work)


def test_a_name_server_that_is_down_prevents_no_change_of_an_unordered_topic() -> None:
    async def program(world: World) -> None:
        down, _ = world.name_server_address.split(";")
        async with Admin(world.name_server_address) as admin:
            await admin.topics.create(TOPIC, queues=2)
            await world.crash(down)
            await admin.topics.alter(TOPIC, queues=4)
            with pytest.raises(
                SomeBrokersFailedError, match="deleting topic 'Orders' on name servers failed"
            ):
                await admin.topics.delete(TOPIC)
            with pytest.raises(TopicNotFoundError):
                await admin.topics.describe(TOPIC)

    simulate(program, seed=1, brokers=1, name_servers=2)
