from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import pytest
import trio
import trio.testing

from rocketmq_py import Client, Message, Producer, PushConsumer
from rocketmq_py.client import core_of
from rocketmq_py.client.discovery import Discovery
from rocketmq_py.client.health import find_reasons
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import NameServerError
from rocketmq_py.health import ClientHealth, ServerHealth
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import ignore, scripted_cluster, store


async def until(
    health: Callable[[], ClientHealth], condition: Callable[[ClientHealth], object]
) -> ClientHealth:
    """Probe every second until a condition holds."""
    with trio.fail_after(600):
        while not condition(found := health()):
            await trio.sleep(1)
    return found


def is_healthy(health: ClientHealth) -> bool:
    return health.healthy


async def test_a_client_that_is_not_open_is_unhealthy() -> None:
    async with scripted_cluster(store) as cluster:
        client = Client(cluster.address)
        assert str(client.health()).startswith("unhealthy: this Client is not open")
        async with client:
            pass
        assert client.health() == ClientHealth(reasons=("this Client is closed",))


async def test_consumers_of_lite_topics_report_their_health(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        await until(client.health, is_healthy)
        async with client.lite_topic_consumer("lite", parent="Sessions") as pulling:
            assert pulling.health().healthy
        async with client.lite_topic_push_consumer("lite", parent="Sessions") as pushing:
            (reason,) = pushing.health().reasons
            assert reason.startswith("this LiteTopicPushConsumer is not running")


async def test_a_probe_connects_a_client_that_has_sent_nothing(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        first = client.health()
        assert first.reasons == (f"no name server has answered: {cluster.address} (not asked yet)",)
        assert first.name_servers == (ServerHealth(address=cluster.address, connected=False),)
        health = await until(client.health, is_healthy)
        assert health.name_servers == (ServerHealth(address=cluster.address, connected=True),)
        assert (health.brokers, health.route_age) == ((), None)


async def test_probes_notice_an_idle_name_server_that_has_gone(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        await until(client.health, is_healthy)
        cluster.name_server.stop()
        health = await until(client.health, lambda one: not one.healthy)
        assert health.name_servers[0].error is not None
        assert health.name_servers[0].error in health.reasons[0]


async def test_concurrent_probes_share_one_request_to_a_silent_name_server(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        cluster.name_server.answer = ignore
        for _ in range(10):
            assert not client.health().healthy
        await trio.sleep(1)
        assert len(cluster.name_server.asked(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1


async def test_name_servers_may_be_down_while_brokers_answer(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        await producer.send(Message("T", b"1"))
        cluster.name_server.stop()
        await until(lambda: producer.health().client, lambda one: one.name_servers[0].error)
        await trio.sleep(60)
        health = producer.health().client
        assert health.healthy
        assert health.route_age is not None
        assert 60 <= health.route_age < 70


async def test_a_topic_without_a_reachable_broker_is_a_reason(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store, store) as cluster, Producer(cluster.address) as producer:
        for _ in range(2):  # to each broker
            await producer.send(Message("T", b"1"))
        health = await until(
            lambda: producer.health().client, lambda one: all(broker.connected for broker in one.brokers)
        )
        assert health.healthy
        first, second = health.brokers
        assert (first.broker_name, second.broker_name) == ("broker-a", "broker-b")
        assert first.heartbeat_age is not None
        cluster.brokers["broker-a"].stop()
        health = await until(lambda: producer.health().client, lambda one: one.brokers[0].error)
        assert health.healthy, "the other broker takes the messages"
        assert not health.brokers[0].connected
        cluster.brokers["broker-b"].stop()
        health = await until(lambda: producer.health().client, lambda one: not one.healthy)
        (reason,) = producer.health().reasons
        assert reason.startswith("no broker of topic T can be reached: broker-a at 127.0.0.1:")
        assert f"broker-b at {second.address} (" in reason


async def test_a_broker_that_answers_no_heartbeats_is_unhealthy_until_it_does(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Producer(cluster.address) as producer:
        await producer.send(Message("T", b"1"))
        await until(lambda: producer.health().client, is_healthy)
        broker = cluster.brokers["broker-a"]
        broker.answer = ignore
        health = await until(lambda: producer.health().client, lambda one: not one.healthy)
        assert "no answer from" in str(health.brokers[0].error)
        broker.answer = store
        await until(lambda: producer.health().client, is_healthy)


async def test_heartbeats_that_failed_are_no_reason_after_the_last_group_has_left(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        async with client.producer("group") as producer:
            await producer.send(Message("T", b"1"))
            cluster.brokers["broker-a"].answer = ignore
            await until(client.health, lambda one: not one.healthy)
        cluster.brokers["broker-a"].answer = store
        await until(client.health, is_healthy)


def refuse_sends(connection: Connection, request: Command) -> None:
    if request.code == RequestCode.SEND_MESSAGE_V2:
        connection.respond(request, ResponseCode.MESSAGE_ILLEGAL, remark="the body is bad")
    else:
        store(connection, request)


async def test_a_failed_send_is_the_last_error_but_no_reason(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(refuse_sends) as cluster, Producer(cluster.address) as producer:
        await until(lambda: producer.health().client, is_healthy)
        assert producer.health().last_error is None
        pending = await producer.submit(Message("T", b"1"))
        await pending.wait()
        await trio.sleep(5)
        health = producer.health()
        assert health.healthy
        assert "the body is bad" in str(health.last_error)
        assert health.last_error_age is not None
        assert 5 <= health.last_error_age < 6
    assert producer.health().reasons == ("this Producer is closed",)


async def test_consumers_tell_why_they_do_not_consume(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        await until(client.health, is_healthy)
        push = client.push_consumer("push")
        assert push.health().reasons[0].startswith("this PushConsumer is not open")
        async with push, client.pop_consumer("pop") as pop, client.lite_pull_consumer("lite") as lite:
            (reason,) = push.health().reasons
            assert reason.startswith("this PushConsumer is not running")
            assert pop.health().reasons == lite.health().reasons == ("no topic is subscribed",)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(push.run, lambda message: None)
                await trio.sleep(1)
                assert push.health().reasons == ("no topic is subscribed",)
                push.stop()


async def test_failing_pulls_are_a_reason(jumping_clock: trio.testing.MockClock) -> None:
    def fail_pulls(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.PULL_MESSAGE:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="the disk is broken")
        elif request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            body = b'{"consumerIdList":["%s"]}' % core_of(consumer).client_id.encode()
            connection.respond(request, ResponseCode.SUCCESS, body=body)
        elif request.code in (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_MAX_OFFSET):
            connection.respond(request, ResponseCode.SUCCESS, {"offset": "0"})
        else:
            store(connection, request)

    async with (
        scripted_cluster(fail_pulls) as cluster,
        PushConsumer(cluster.address, group="g", consume_from="earliest") as consumer,
        trio.open_nursery() as nursery,
    ):
        consumer.subscribe("T")
        nursery.start_soon(consumer.run, lambda message: None)
        with trio.fail_after(600):
            while not consumer.health().failing:
                await trio.sleep(1)
        await trio.sleep(10)
        health = consumer.health()
        assert health.assignment == health.failing
        assert health.reasons[0].startswith("the last pulls failed in queues T/broker-a/0, ")
        assert "the disk is broken" in str(health.last_error)
        consumer.stop()


async def test_before_the_discovery_its_url_stands_for_the_name_servers(
    jumping_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: Discovery) -> NoReturn:
        raise NameServerError({url: "refused"})

    url = "http://names.example:80/nsaddr"
    monkeypatch.setattr(Discovery, "fetch", fail)
    async with Client(url) as client:
        health = await until(client.health, lambda one: one.name_servers[0].error)
        assert health.name_servers == (ServerHealth(address=url, connected=False, error="refused"),)
        assert health.reasons == (f"no name server has answered: {url} (refused)",)


def test_a_reason_names_a_few_of_many_topics() -> None:
    broker = ServerHealth(address="h:1", broker_name="b", connected=False, error="refused")
    topics = [(f"T{number}", ("b",)) for number in range(7)]
    assert find_reasons((), (broker,), [*topics, ("without", ())], has_answer=False) == (
        "no broker of topics T0, T1, T2 and 4 more can be reached: b at h:1 (refused)",
    )
