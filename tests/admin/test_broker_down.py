"""Admin with one of three brokers down: results of the others, and the error of the one that failed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import attrs
import pytest
import trio

from rocketmq_py import Admin, Credentials, Message, Producer
from rocketmq_py.admin import SomeBrokersFailedError
from rocketmq_py.client import core_of
from rocketmq_py.client.client import BorrowedClient
from rocketmq_py.errors import (
    ConnectError,
    RocketMQError,
)
from rocketmq_py.message import ReceivedMessage, SendResult
from rocketmq_py.names import TRACE_TOPIC
from rocketmq_py.testing import World, simulate

SUPER = Credentials("the-admin", "12345678")
UP, DOWN = ("broker-a", "broker-c"), "broker-b"
GROUP, TOPIC, DEAD = "billing", "Orders", "%DLQ%billing"


@attrs.frozen
class Scene:
    """A topic with a message on each broker, a group with lag, and a producer that traces."""

    admin: Admin
    client_id: str
    sent: SendResult
    found: ReceivedMessage


Request: TypeAlias = Callable[[Scene], Awaitable[Any]]


async def run_in_scene(world: World, work: Callable[[Scene], Awaitable[None]]) -> None:
    """Create the scene, crash a broker that the name server still lists, and run ``work``."""
    for topic in (TOPIC, DEAD, TRACE_TOPIC):
        world.create_topic(topic, queues=2)
    async with (
        Admin(world.name_server_address, credentials=SUPER) as admin,
        Producer(BorrowedClient(core_of(admin)), group="senders", trace=True) as producer,
    ):
        await admin.groups.create(GROUP)
        await admin.access.create_user("alice", "a-secret")
        await admin.access.put_rule("alice", "*", ["All"])
        by_broker: dict[str, SendResult] = {}
        for queue in (await core_of(admin).routes.get(TOPIC)).write_queues:
            message = Message(TOPIC, b"x", keys="k")
            by_broker[queue.broker_name] = await producer.send(message, queue=queue)
        for queue in (await core_of(admin).routes.get(DEAD)).write_queues:
            await producer.send(Message(DEAD, b"dead"), queue=queue)
        await admin.offsets.reset(GROUP, TOPIC, "latest")
        while not (await admin.messages.trace(by_broker[UP[0]].message_id)).events:
            await trio.sleep(1)
        found = await admin.messages.get(by_broker[UP[0]].offset_message_id)
        assert found is not None
        world.partition(world.name_server_address, DOWN)
        await world.crash(DOWN)
        await trio.sleep(1)  # the client has noticed that the connections are closed
        await work(Scene(admin, core_of(admin).client_id, by_broker[UP[0]], found))


def names(queues: Iterable[Any]) -> set[str]:
    return {one.queue.broker_name for one in queues}


READS: dict[str, tuple[Request, Callable[[Any], Any], Any]] = {
    "topics.list": (
        lambda s: s.admin.topics.list(),
        lambda got: {one.topic: set(one.brokers) for one in got.topics},
        {TOPIC: set(UP)},
    ),
    "topics.describe": (
        lambda s: s.admin.topics.describe(TOPIC), lambda got: names(got.queues), set(UP)
    ),
    "groups.list": (
        lambda s: s.admin.groups.list(),
        lambda got: {one.group: set(one.brokers) for one in got.groups},
        {GROUP: set(UP)},
    ),
    "groups.describe": (
        lambda s: s.admin.groups.describe(GROUP), lambda got: names(got.topics[0].queues), set(UP)
    ),
    "messages.find": (
        lambda s: s.admin.messages.find(TOPIC, "k"), lambda got: names(got.messages), set(UP)
    ),
    "messages.tracks": (
        lambda s: s.admin.messages.tracks(s.found),
        lambda got: [(one.group, one.is_past) for one in got.tracks],
        [(GROUP, True)],
    ),
    "messages.trace": (
        lambda s: s.admin.messages.trace(s.sent.message_id),
        lambda got: [one.group for one in got.events],
        ["senders"],
    ),
    "dead_letters.list": (
        lambda s: s.admin.dead_letters.list(GROUP),
        lambda got: (names(one.message for one in got.letters), got.total),
        (set(UP), 4),
    ),
    "clients.list": (
        lambda s: s.admin.clients.list(), lambda got: [one.brokers for one in got.clients], [UP]
    ),
    "clients.describe": (
        lambda s: s.admin.clients.describe(s.client_id), lambda got: got.client.brokers, UP
    ),
    "brokers.list": (
        lambda s: s.admin.brokers.list(), lambda got: {one.broker_name for one in got.brokers}, set(UP)
    ),
    "access.users": (
        lambda s: s.admin.access.users("ali"), lambda got: [one.brokers for one in got.users], [UP]
    ),
    "access.rules": (
        lambda s: s.admin.access.rules("ali"), lambda got: [one.brokers for one in got.rules], [UP]
    ),
}  # fmt: skip
"""By method: the request, a function that extracts the interesting part of its result, and that part."""

CHANGES: dict[str, Request] = {
    "topics.create": lambda s: s.admin.topics.create("New", queues=2),
    "topics.create ordered": lambda s: s.admin.topics.create("New", queues=2, order=True),
    "topics.alter": lambda s: s.admin.topics.alter(TOPIC, queues=3),
    "topics.delete": lambda s: s.admin.topics.delete(TOPIC),
    "groups.create": lambda s: s.admin.groups.create("new"),
    "groups.alter": lambda s: s.admin.groups.alter(GROUP, max_reconsume_times=3),
    "groups.delete": lambda s: s.admin.groups.delete(GROUP),
    "offsets.reset": lambda s: s.admin.offsets.reset(GROUP, TOPIC, "earliest"),
    "offsets.reset of all topics": lambda s: s.admin.offsets.reset(GROUP, None, "latest"),
    "offsets.clone": lambda s: s.admin.offsets.clone(GROUP, GROUP),
    "offsets.topics": lambda s: s.admin.offsets.topics(GROUP),
    "access.create_user": lambda s: s.admin.access.create_user("bob", "x"),
    "access.alter_user": lambda s: s.admin.access.alter_user("alice", is_enabled=False),
    "access.delete_user": lambda s: s.admin.access.delete_user("alice"),
    "access.put_rule": lambda s: s.admin.access.put_rule("alice", "Topic:x", ["Pub"]),
    "access.delete_rules": lambda s: s.admin.access.delete_rules("alice"),
}
"""By method: a change on all brokers."""


def in_a_simulation(work: Callable[[Scene], Awaitable[None]]) -> None:
    keys: Mapping[str, str] = {SUPER.access_key: SUPER.secret_key}
    simulate(lambda world: run_in_scene(world, work), seed=1, brokers=3, access_keys=keys)


@pytest.mark.parametrize("method", READS)
def test_a_read_returns_the_results_of_the_other_brokers(method: str) -> None:
    request, extract, expected = READS[method]

    async def work(scene: Scene) -> None:
        result = await request(scene)
        assert extract(result) == expected
        (error,) = result.failures.values()
        assert isinstance(error, ConnectError)
        info = await core_of(scene.admin).name_servers.cluster_info()
        assert result.failures.keys() <= {DOWN, *info.broker_addr_table[DOWN].broker_addrs.values()}

    in_a_simulation(work)


@pytest.mark.parametrize("method", CHANGES)
def test_the_error_of_a_change_names_the_brokers_that_succeeded_and_failed(method: str) -> None:
    async def work(scene: Scene) -> None:
        with pytest.raises(
            SomeBrokersFailedError, match="failed on 1 of 3: broker-b: cannot connect"
        ) as caught:
            await CHANGES[method](scene)
        assert caught.value.done == UP
        assert isinstance(caught.value.failures[DOWN], ConnectError)

    in_a_simulation(work)


def test_a_partly_failed_change_has_taken_effect_on_the_other_brokers() -> None:
    async def work(scene: Scene) -> None:
        admin = scene.admin
        for method in (
            "topics.create", "topics.alter", "groups.create", "groups.alter", "offsets.reset",
            "access.create_user",
        ):  # fmt: skip
            with pytest.raises(SomeBrokersFailedError):
                await CHANGES[method](scene)
        assert {one.queue.broker_name for one in (await admin.topics.describe("New")).queues} == set(UP)
        settings = (await admin.topics.describe(TOPIC)).brokers
        assert {name: one.read_queues for name, one in settings.items()} == dict.fromkeys(UP, 3)
        assert set((await admin.groups.describe("new")).settings) == set(UP)
        described = await admin.groups.describe(GROUP)
        assert [one.max_reconsume_times for one in described.settings.values()] == [3, 3]
        assert {one.committed for one in described.topics[0].queues} == {0}
        (bob,) = (await admin.access.users("bob")).users
        assert bob.brokers == UP

    in_a_simulation(work)


def test_a_change_can_be_limited_to_the_brokers_that_are_up() -> None:
    async def work(scene: Scene) -> None:
        assert await scene.admin.topics.create("New", queues=2, brokers=UP) == UP
        assert set(await scene.admin.topics.alter("New", queues=3, brokers=UP)) == set(UP)
        assert await scene.admin.groups.create("new", brokers=UP) == UP

    in_a_simulation(work)


def test_a_partly_failed_deletion_keeps_the_route() -> None:
    async def work(scene: Scene) -> None:
        with pytest.raises(SomeBrokersFailedError):
            await scene.admin.topics.delete(TOPIC)
        assert (await core_of(scene.admin).name_servers.route(TOPIC)).broker_datas

    in_a_simulation(work)


def test_errors_name_the_name_server_that_is_down() -> None:
    async def program(world: World) -> None:
        up, down = world.name_server_address.split(";")
        async with Admin(world.name_server_address) as admin:
            await world.crash(down)
            results = await admin.name_servers.settings()
            assert (set(results.values), set(results.failures)) == ({up}, {down})
            changes: list[Callable[[], Awaitable[Any]]] = [
                lambda: admin.name_servers.alter({"orderMessageEnable": "true"}),
                lambda: admin.brokers.wipe_write_permission(UP[0]),
                lambda: admin.brokers.add_write_permission(UP[0]),
            ]
            for change in changes:
                with pytest.raises(SomeBrokersFailedError) as caught:
                    await change()
                assert (caught.value.done, set(caught.value.failures)) == ((up,), {down})

    simulate(program, seed=1, brokers=2, name_servers=2)


def test_errors_when_all_brokers_are_down() -> None:
    async def program(world: World) -> None:
        world.create_topic(TOPIC)
        async with Admin(world.name_server_address) as admin:
            for name in world.broker_names:
                world.partition(world.name_server_address, name)
            await world.crash()
            assert set((await admin.topics.list()).failures) == set(world.broker_names)
            for request in (
                lambda: admin.topics.describe(TOPIC),
                lambda: admin.groups.describe(GROUP),
                lambda: admin.groups.create(GROUP),
                lambda: admin.offsets.reset(GROUP, None, "latest"),
            ):
                with pytest.raises(RocketMQError, match="failed on 2 of 2"):
                    await request()

    simulate(program, seed=1, brokers=2)
