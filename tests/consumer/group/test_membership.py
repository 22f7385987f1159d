"""Consumers join and leave their group, and warn about members with different subscriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import LitePullConsumer, PopConsumer, PushConsumer
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol.bodies import ConsumerList, Heartbeat
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import NotifyConsumerIdsChangedRequest
from rocketmq_py.remoting import Connection
from tests.consumer.conftest import Fill
from tests.consumer.received import stored
from tests.scripted import ScriptedServer, scripted_cluster

CONSUMER_CLASSES = [LitePullConsumer, PopConsumer, PushConsumer]


class Broker:
    """A broker with one message that tracks the members. It does not answer the requests in ``mute``."""

    def __init__(self, *mute: RequestCode) -> None:
        self.mute = set(mute)
        self.members: set[str] = set()
        self.unanswered: list[tuple[Connection, Command]] = []

    def __call__(self, connection: Connection, request: Command) -> None:
        if request.code in self.mute:
            self.unanswered.append((connection, request))
        elif request.code == RequestCode.HEART_BEAT:
            heartbeat = Heartbeat.decode(request.body)
            if any(data.group_name == "g" for data in heartbeat.consumer_data_set):
                self.members.add(heartbeat.client_id)
            connection.respond(request, ResponseCode.SUCCESS)
        elif request.code == RequestCode.UNREGISTER_CLIENT:
            self.members.discard(request.fields["clientID"])
            connection.respond(request, ResponseCode.SUCCESS)
        elif request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            body = ConsumerList(consumer_id_list=tuple(sorted(self.members))).encode()
            connection.respond(request, ResponseCode.SUCCESS, body=body)
        elif request.code == RequestCode.PULL_MESSAGE:
            offset = int(request.fields["queueOffset"])
            numbers = {"nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1"}
            fields = {**numbers, "suggestWhichBrokerId": "0"}
            if not offset:
                connection.respond(request, ResponseCode.SUCCESS, fields, stored(0))
        elif request.code == RequestCode.POP_MESSAGE:
            connection.respond(request, ResponseCode.POLLING_TIMEOUT)
        else:
            connection.respond(request, ResponseCode.SUCCESS, {"offset": "0"})

    def answer_all(self) -> None:
        self.mute.clear()
        for connection, request in self.unanswered:
            self(connection, request)
        self.unanswered.clear()


async def consume(consumer: Any, handled: trio.Event) -> None:
    """Run a consumer until one message is acknowledged but not committed. A PopConsumer only runs."""
    if isinstance(consumer, PushConsumer):
        await consumer.run(setting(handled))
    elif isinstance(consumer, LitePullConsumer):
        while not await consumer.poll():
            pass
        consumer._queues.acknowledge()
        handled.set()
    else:
        handled.set()
    await trio.sleep_forever()


def setting(handled: trio.Event) -> Any:
    async def handle(_: ReceivedMessage) -> None:
        handled.set()

    return handle


def consumer_of(kind: type[Any], client: Client, **options: Any) -> Any:
    consumer = kind(client, group="g", consume_from="earliest", **options)
    consumer.subscribe("T")
    return consumer


async def wait_for_request(server: ScriptedServer, code: RequestCode) -> None:
    with trio.fail_after(60):
        while not server.asked(code):
            await trio.sleep(0.1)


@pytest.mark.parametrize("kind", CONSUMER_CLASSES)
@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_leave_unregisters_although_commits_time_out(
    kind: type[Lifespan], how: str, jumping_clock: trio.testing.MockClock
) -> None:
    broker = Broker(RequestCode.UPDATE_CONSUMER_OFFSET)
    async with (
        scripted_cluster(broker, queues=1) as cluster,
        Client(cluster.address, request_timeout=30) as client,
        trio.open_nursery() as nursery,
    ):
        await core_of(client).routes.get("T")
        (server,) = cluster.brokers.values()
        consumer = consumer_of(kind, client)
        handled = trio.Event()
        async with trio.open_nursery() as consumer_nursery:
            await consumer.start(consumer_nursery)
            consumer_nursery.start_soon(consume, consumer, handled)
            with trio.fail_after(60):
                await handled.wait()
            await core_of(client).heartbeats.send()
            assert broker.members == {core_of(client).client_id}
            if how == "closed":
                started = trio.current_time()
                await consumer.aclose()
                assert trio.current_time() - started <= consumer.settings.close_timeout
            consumer_nursery.cancel_scope.cancel()
        assert not core_of(client).heartbeats.has_consumer("g")
        assert len(server.asked(RequestCode.UNREGISTER_CLIENT)) == 1
        assert not broker.members
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("kind", CONSUMER_CLASSES)
async def test_leave_unregisters_after_the_response_to_a_late_heartbeat(
    kind: type[Lifespan], jumping_clock: trio.testing.MockClock
) -> None:
    broker = Broker(RequestCode.HEART_BEAT)
    async with scripted_cluster(broker, queues=1) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        (server,) = cluster.brokers.values()
        consumer = consumer_of(kind, client, close_timeout=0.01)
        async with trio.open_nursery() as consumer_nursery:
            await consumer.start(consumer_nursery)
            if isinstance(consumer, PushConsumer):
                consumer_nursery.start_soon(consumer.run, setting(trio.Event()))
            core_of(client).heartbeats.request_round()
            await wait_for_request(server, RequestCode.HEART_BEAT)
            await consumer.aclose()
            consumer_nursery.cancel_scope.cancel()
        assert not server.asked(RequestCode.UNREGISTER_CLIENT), (
            "a heartbeat that is processed later would register it again"
        )
        broker.answer_all()
        await wait_for_request(server, RequestCode.UNREGISTER_CLIENT)
        assert not broker.members


async def test_a_member_that_has_rejoined_is_not_unregistered(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker(RequestCode.HEART_BEAT)
    async with scripted_cluster(broker, queues=1) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        (server,) = cluster.brokers.values()
        async with consumer_of(PopConsumer, client):
            core_of(client).heartbeats.request_round()
            await wait_for_request(server, RequestCode.HEART_BEAT)
            with trio.move_on_after(0) as scope:
                await core_of(client).heartbeats.remove_consumer("g")
            assert scope.cancelled_caught
            async with consumer_of(LitePullConsumer, client):
                broker.answer_all()
                await core_of(client).heartbeats.send()
                await trio.sleep(5)
                assert not server.asked(RequestCode.UNREGISTER_CLIENT)
                assert broker.members == {core_of(client).client_id}


@pytest.mark.parametrize("kind", CONSUMER_CLASSES)
async def test_a_second_consumer_of_a_client_cannot_join_the_group(
    kind: type[Lifespan], client: Client
) -> None:
    async with consumer_of(PopConsumer, client):
        with pytest.raises(ConfigurationError, match="Give each consumer its own client"):
            async with consumer_of(kind, client) as second:
                await second.run(print)
        assert core_of(client).heartbeats.has_consumer("g"), "the first consumer stays a member"
    assert not core_of(client).heartbeats.has_consumer("g")


# Members with different subscriptions


def member_of(kind: type[Any], address: str, *subscriptions: tuple[str, str], **options: Any) -> Any:
    consumer = kind(address, group="g", consume_from="earliest", **options)
    for topic, tags in subscriptions:
        consumer.subscribe(topic, tags)
    return consumer


async def keep_consuming(consumer: Any) -> None:
    if isinstance(consumer, PushConsumer):
        await consumer.run(setting(trio.Event()))
    while True:
        await (consumer.receive() if isinstance(consumer, PopConsumer) else consumer.poll())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if "members subscribe differently" in record.getMessage()
    ]


@pytest.mark.parametrize("kind", CONSUMER_CLASSES)
@pytest.mark.parametrize(
    ("one", "other", "text"),
    [
        (
            [("T", "A")],
            [("T", "B || C")],
            "this member subscribes to topic T with 'A', another one with 'B || C'",
        ),
        (
            [("T", "*")],
            [("T", "*"), ("U", "*")],
            "this member does not subscribe to topic U, another one does",
        ),
        (
            [("T", "*"), ("U", "*")],
            [("T", "*")],
            "only this member subscribes to topic U, another one does not",
        ),
        ([("T", "A||B")], [("T", "B || A")], None),
    ],
)
async def test_each_difference_between_subscriptions_is_logged_once(
    kind: type[Any],
    one: list[tuple[str, str]],
    other: list[tuple[str, str]],
    text: str | None,
    address: str,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for topic in ("T", "U"):
        await fill(topic, 1, tags="A")
    async with trio.open_nursery() as nursery, member_of(kind, address, *one) as first:
        nursery.start_soon(keep_consuming, first)
        await trio.sleep(10)
        assert not warnings(caplog)
        async with member_of(kind, address, *other) as second:
            nursery.start_soon(keep_consuming, second)
            await trio.sleep(100)
            logged = warnings(caplog)
            assert len(logged) == len(set(logged))
            assert any(text in line for line in logged) if text else not logged
            nursery.cancel_scope.cancel()


async def test_a_different_message_model_is_logged(
    address: str,
    fill: Fill,
    jumping_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    await fill("T", 1)
    broadcasting = {"broadcasting": True, "local_offsets": tmp_path}
    async with (
        trio.open_nursery() as nursery,
        member_of(PushConsumer, address, ("T", "*")) as first,
        member_of(PushConsumer, address, ("T", "*"), **broadcasting) as second,
    ):
        nursery.start_soon(keep_consuming, first)
        await trio.sleep(10)
        nursery.start_soon(keep_consuming, second)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    [warning] = warnings(caplog)
    assert "this member is BROADCASTING, another member is CLUSTERING" in warning, (
        "the broker keeps the first"
    )


async def test_subscriptions_are_not_compared_while_no_topic_exists(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(Broker(), queues=1) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        (server,) = cluster.brokers.values()
        async with PopConsumer(client, group="g") as consumer:
            consumer.subscribe("Missing")
            await core_of(client).heartbeats.send()
            notice = NotifyConsumerIdsChangedRequest(consumer_group="g")
            server.connections[0].oneway_nowait(notice.code, notice.to_fields())
            await trio.sleep(60)
    assert not server.asked(RequestCode.GET_CONSUMER_CONNECTION_LIST)


async def test_a_broker_that_refuses_the_query_is_not_asked_again(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.GET_CONSUMER_CONNECTION_LIST:
            connection.respond(request, ResponseCode.NO_PERMISSION, remark="scripted")
        else:
            broker(connection, request)

    broker = Broker()
    async with scripted_cluster(refuse, queues=1) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        (server,) = cluster.brokers.values()
        async with consumer_of(PopConsumer, client):
            await core_of(client).heartbeats.send()
            notice = NotifyConsumerIdsChangedRequest(consumer_group="g")
            server.connections[0].oneway_nowait(notice.code, notice.to_fields())
            await wait_for_request(server, RequestCode.GET_CONSUMER_CONNECTION_LIST)
            await trio.sleep(60)
    assert len(server.asked(RequestCode.GET_CONSUMER_CONNECTION_LIST)) == 1
    assert not warnings(caplog)
