"""Sends while brokers or name servers cannot be reached. Attempts that reach no broker are not retries."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import (
    ConnectError,
    Delivery,
    NameServerError,
    NoQueueError,
    RequestTimeoutError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer import Producer
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.environment import created
from tests.hostname_resolver import Resolver
from tests.scripted import ScriptedServer, ignore, refuse, scripted_cluster

MESSAGE = Message("T", b"body")
SENDS = RequestCode.SEND_MESSAGE_V2

SENDS_OF_ALL_KINDS = {SENDS, RequestCode.SEND_BATCH_MESSAGE}

Send = Callable[[Producer, float], Awaitable[object]]


def producer_of(address: str, **options: Any) -> Producer:
    options = {"retries": 0, **options}
    return created(Producer, address, group="g", rng=random.Random(1), **options)


async def awaited(producer: Producer, timeout: float) -> object:
    return await producer.send(MESSAGE, timeout=timeout)


async def pipelined(producer: Producer, timeout: float) -> object:
    return await (await producer.submit(MESSAGE, timeout=timeout))


async def to_a_queue(producer: Producer, timeout: float) -> object:
    return await producer.send(MESSAGE, timeout=timeout, queue=MessageQueue("T", "broker-a", 1))


async def in_a_batch(producer: Producer, timeout: float) -> object:
    return await producer.send_batch([MESSAGE, MESSAGE], timeout=timeout)


WAYS = pytest.mark.parametrize("send", [awaited, pipelined, to_a_queue, in_a_batch])


def store(connection: Connection, request: Command) -> None:
    """Respond to messages and batches like a broker that has stored them."""
    fields = {}
    if request.code in SENDS_OF_ALL_KINDS:
        place = "7F00000100002A9F0000000000000000"
        fields = {"msgId": f"{place},{place}", "queueId": request.fields["e"], "queueOffset": "0"}
    connection.respond(request, ResponseCode.SUCCESS, fields)


@asynccontextmanager
async def restarted(server: ScriptedServer, *, port: int | None = None) -> AsyncIterator[ScriptedServer]:
    """Serve at the address of a server that was stopped, or at another port."""
    again = ScriptedServer(server.answer, port=port or int(server.address.split(":")[1]))
    async with trio.open_nursery() as nursery:
        again.address = await nursery.start(again.run)
        yield again
        nursery.cancel_scope.cancel()


async def stop(*servers: ScriptedServer) -> None:
    for server in servers:
        server.stop()
    await trio.testing.wait_all_tasks_blocked()


@WAYS
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_send_waits_for_the_only_broker_without_a_retry(
    jumping_clock: trio.testing.MockClock, send: Send, is_known: bool
) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        if is_known:
            await send(producer, 10)
        await stop(broker := cluster.brokers["broker-a"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, producer, 10)
            await trio.sleep(6)
            async with restarted(broker) as again:
                await trio.sleep(1)
                assert again.requests
        assert producer.statistics.retried == 0


@WAYS
async def test_a_send_to_a_broker_that_stays_away_fails_at_its_timeout(
    jumping_clock: trio.testing.MockClock, send: Send
) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await stop(cluster.brokers["broker-a"])
        start = trio.current_time()
        with pytest.raises(ConnectError) as caught:
            await send(producer, 10)
        assert trio.current_time() - start == pytest.approx(10, abs=0.1)
        assert caught.value.delivery is Delivery.NOT_SENT
        assert re.search(
            r"Connection refused \(\d\d attempts in \d+\.\d s; unreachable since ", str(caught.value)
        )


@WAYS
async def test_a_send_waits_for_the_name_server(jumping_clock: trio.testing.MockClock, send: Send) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await stop(cluster.name_server)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, producer, 10)
            await trio.sleep(7)
            async with restarted(cluster.name_server):
                await trio.sleep(1)
                asked = [request.code for request in cluster.brokers["broker-a"].requests]
                assert SENDS_OF_ALL_KINDS & set(asked)


async def test_a_name_server_that_stays_away_is_the_error_at_the_timeout(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await stop(cluster.name_server)
        for timeout in (10.0, 1.0):
            start = trio.current_time()
            with pytest.raises(NameServerError, match=r"Connection refused \(\d+ attempts in ") as caught:
                await awaited(producer, timeout)
            assert trio.current_time() - start == pytest.approx(timeout, abs=0.1)
            assert caught.value.delivery is Delivery.NOT_SENT


async def test_a_name_server_that_does_not_answer_is_a_timeout(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        cluster.name_server.answer = ignore
        with pytest.raises(RequestTimeoutError, match=f"no answer from {cluster.address} within 1 s"):
            await awaited(producer, 1)


async def test_a_send_waits_until_brokers_are_registered(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        brokers, topics = dict(cluster.brokers), dict(cluster.topics)
        cluster.brokers.clear()
        cluster.topics.clear()
        start = trio.current_time()
        with pytest.raises(TopicNotFoundError) as caught:
            await awaited(producer, 3)
        assert trio.current_time() - start == pytest.approx(3, abs=0.1)
        assert "; no broker is registered there at the moment" in str(caught.value)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(awaited, producer, 10)
            await trio.sleep(3)
            cluster.brokers.update(brokers)
            cluster.topics.update(topics)


async def test_a_topic_that_no_broker_creates_is_an_error_at_once(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store, topics=["T"]) as cluster, producer_of(cluster.address) as producer:
        start = trio.current_time()
        with pytest.raises(TopicNotFoundError):
            await producer.send(Message("Missing", b"x"), timeout=10)
        cluster.topics["read-only"] = (4, 4, 4)
        with pytest.raises(NoQueueError):
            await producer.send(Message("read-only", b"x"), timeout=10)
        assert trio.current_time() - start < 0.1


@pytest.mark.parametrize("send", [awaited, pipelined, in_a_batch])
async def test_another_broker_is_tried_at_once(jumping_clock: trio.testing.MockClock, send: Send) -> None:
    async with scripted_cluster(store, store, store) as cluster, producer_of(cluster.address) as producer:
        await stop(cluster.brokers["broker-a"], cluster.brokers["broker-b"])
        start = trio.current_time()
        for _ in range(20):
            await send(producer, 10)
        assert trio.current_time() - start < 0.1


@pytest.mark.parametrize("send", [awaited, pipelined, in_a_batch])
async def test_the_first_broker_that_is_back_gets_the_message(
    jumping_clock: trio.testing.MockClock, send: Send
) -> None:
    for back in "broker-a", "broker-b", "broker-c":
        async with (
            scripted_cluster(store, store, store) as cluster,
            producer_of(cluster.address) as producer,
            trio.open_nursery() as nursery,
        ):
            await stop(*cluster.brokers.values())
            for _ in range(10):
                nursery.start_soon(send, producer, 10)
            await trio.sleep(5)
            async with restarted(cluster.brokers[back]) as again:
                await trio.sleep(1.1)
                assert len(again.requests) >= 10


async def test_a_send_finds_a_broker_at_its_new_address(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        await producer.send(MESSAGE)
        await stop(broker := cluster.brokers["broker-a"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(awaited, producer, 10)
            nursery.start_soon(pipelined, producer, 10)
            await trio.sleep(2)
            async with restarted(broker, port=30000) as again:
                cluster.brokers["broker-a"] = again
                await trio.sleep(2.5)
                assert len(again.asked(SENDS)) == 2


@WAYS
async def test_a_send_waits_until_the_name_of_its_broker_is_resolved(
    jumping_clock: trio.testing.MockClock, send: Send
) -> None:
    resolver = Resolver.install()
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        broker = cluster.brokers["broker-a"]
        broker.address = f"broker.example:{broker.address.partition(':')[2]}"
        start = trio.current_time()
        with pytest.raises(ConnectError, match="Name or service not known") as caught:
            await send(producer, 2)
        assert caught.value._not_reached
        assert trio.current_time() - start == pytest.approx(2, abs=0.1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, producer, 10)
            await trio.sleep(6)
            assert not SENDS_OF_ALL_KINDS & {request.code for request in broker.requests}
            resolver.addresses["broker.example"] = ["127.0.0.1"]
            await trio.sleep(1)
            assert SENDS_OF_ALL_KINDS & {request.code for request in broker.requests}
        assert producer.statistics.retried == 0


async def test_a_oneway_message_waits_for_the_broker(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_cluster(store) as cluster,
        producer_of(cluster.address, send_timeout=10) as producer,
        trio.open_nursery() as nursery,
    ):
        await stop(broker := cluster.brokers["broker-a"])
        nursery.start_soon(producer.send_oneway, MESSAGE)
        await trio.sleep(6)
        async with restarted(broker) as again:
            await trio.sleep(1)
            assert len(again.asked(SENDS)) == 1


async def test_a_oneway_message_fails_at_its_timeout_if_all_brokers_stay_away(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with (
        scripted_cluster(store, store) as cluster,
        producer_of(cluster.address, send_timeout=10) as producer,
    ):
        await stop(*cluster.brokers.values())
        waited: list[float] = []
        while len(waited) < 10 and sum(waited) < 1:  # it waits as soon as both are known to be away
            start = trio.current_time()
            with pytest.raises(ConnectError, match="Connection refused") as caught:
                await producer.send_oneway(MESSAGE)
            assert caught.value.delivery is Delivery.NOT_SENT
            waited.append(trio.current_time() - start)
        *at_once, last = waited
        assert at_once == pytest.approx([0] * len(at_once), abs=0.1)
        assert last == pytest.approx(10, abs=0.1)


async def test_only_attempts_that_reached_a_broker_are_counted(jumping_clock: trio.testing.MockClock) -> None:
    async with (
        scripted_cluster(refuse(ResponseCode.SYSTEM_ERROR)) as cluster,
        producer_of(cluster.address, retries=2) as producer,
        trio.open_nursery() as nursery,
    ):
        await stop(broker := cluster.brokers["broker-a"])
        errors: list[RocketMQError] = []

        async def send() -> None:
            with pytest.raises(RocketMQError) as caught:
                await awaited(producer, 10)
            errors.append(caught.value)

        nursery.start_soon(send)
        await trio.sleep(5)
        async with restarted(broker) as again:
            await trio.sleep(2)
            assert len(again.asked(SENDS)) == 3
        (error,) = errors
        assert error.__notes__ == ["sending to topic 'T' failed after 3 attempts"]


async def test_a_send_to_a_broker_without_an_address_waits(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        queue = MessageQueue("T", "broker-x", 0)
        start = trio.current_time()
        with pytest.raises(NoQueueError, match="the address of the master of broker 'broker-x' is unknown"):
            await producer.send(MESSAGE, queue=queue, timeout=2)
        assert trio.current_time() - start == pytest.approx(2, abs=0.1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: producer.send(MESSAGE, queue=queue, timeout=10))
            await trio.sleep(4)
            cluster.brokers["broker-x"] = cluster.brokers["broker-a"]


async def test_an_error_that_waiting_cannot_mend_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:

        async def fail(addresses: list[str], deadline: float) -> Connection:
            error = ConnectError(addresses[0], "TLS: the certificate is for another host")
            error._not_reached = False
            raise error

        await core_of(producer).routes.get("T")
        monkeypatch.setattr(core_of(producer).connections, "get_any_before", fail)
        with pytest.raises(ConnectError, match="the certificate is for another host"):
            await producer.send(MESSAGE, timeout=600)


async def test_the_error_of_a_broker_that_has_left_the_routes_names_it() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        request = SimpleNamespace(queue=MessageQueue("T", "broker-gone", 0), started=1.0, deadline=3.0)
        error = producer._sender.router.not_connected(request)  # type: ignore[arg-type]  # a part of one
        assert isinstance(error, RequestTimeoutError)
        assert str(error) == "no answer from broker-gone within 2 s"


async def test_a_send_does_not_wait_for_an_invalid_address(jumping_clock: trio.testing.MockClock) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address, retries=2) as producer:
        cluster.brokers["broker-a"].address = "nonsense"
        start = trio.current_time()
        with pytest.raises(ConnectError, match="cannot connect to nonsense") as caught:
            await producer.send(MESSAGE, timeout=10)
        assert not caught.value._not_reached
        assert caught.value.__notes__ == ["sending to topic 'T' failed after 3 attempts"]
        assert trio.current_time() - start < 2


async def test_an_invalid_address_fails_the_waiting_sends_and_not_their_producer(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address, vip_channel=True) as producer:
        address = cluster.brokers["broker-a"].address
        host, _, port = address.partition(":")
        cluster.brokers["broker-a"].address = "127.0.0.1:13"  # refuses connections
        pending = [await producer.submit(MESSAGE, timeout=10) for _ in range(3)]
        await trio.sleep(1)
        cluster.brokers["broker-a"].address = "nonsense"
        for one in pending:
            with pytest.raises(ConnectError, match="cannot connect to nonsense"):
                await one
        cluster.brokers["broker-a"].address = f"{host}:{int(port) + 2}"
        await trio.sleep(31)
        await producer.send(MESSAGE)


async def test_a_name_server_that_lists_no_brokers_decides_about_missing_topics(
    jumping_clock: trio.testing.MockClock,
) -> None:
    def without_list(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            connection.respond(request, ResponseCode.SYSTEM_ERROR, remark="scripted")
        else:
            cluster.route(connection, request)

    async with scripted_cluster(store, topics=["T"]) as cluster, producer_of(cluster.address) as producer:
        cluster.name_server.answer = without_list
        start = trio.current_time()
        with pytest.raises(TopicNotFoundError):
            await producer.send(Message("Missing", b"x"), timeout=10)
        assert trio.current_time() - start < 0.1


async def test_a_send_pauses_between_attempts_if_none_of_several_brokers_is_registered() -> None:
    # In real time: without pauses, virtual time would not pass.
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        cluster.order_topic_conf["T"] = "broker-x:2;broker-y:2"
        with pytest.raises(NoQueueError, match=r"master of broker 'broker-[xy]' is unknown"):
            await producer.send(MESSAGE, timeout=0.3)
        assert producer.statistics.retried == 0


async def test_a_broker_that_is_not_registered_does_not_fail_sends_to_another() -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        cluster.order_topic_conf["T"] = "broker-a:1024;broker-x:1"
        await producer.send(MESSAGE)
        assert producer.statistics.retried == 0


async def test_a_broker_that_is_back_in_the_last_pause_gets_no_message_after_the_timeout(
    jumping_clock: trio.testing.MockClock,
) -> None:
    async with scripted_cluster(store) as cluster, producer_of(cluster.address) as producer:
        broker = cluster.brokers.pop("broker-a")
        cluster.topics["T"] = (4, 0, 6)
        start = trio.current_time()
        pending = await producer.submit(MESSAGE, timeout=0.5)
        await trio.sleep(0.35)  # the last attempt within the time was after 0.3 seconds
        cluster.brokers["broker-a"] = broker
        cluster.topics["T"] = (4, 4, 6)
        with pytest.raises(NoQueueError) as caught:
            await pending
        assert caught.value.delivery is Delivery.NOT_SENT
        assert trio.current_time() - start == pytest.approx(0.5)
        assert not broker.asked(SENDS)
