"""Static topics of 5.x, whose logical queues move between brokers."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import msgspec
import pytest
import trio.testing

from rocketmq_py import Client, Message, MessageQueue, Producer
from rocketmq_py.client import Route, core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.broker_assignment import BrokerAssignments
from rocketmq_py.consumer.pull.queue_puller import QueuePuller
from rocketmq_py.errors import NoQueueError, ProtocolError, UnsupportedByBrokerError
from rocketmq_py.protocol.bodies import (
    BrokerData,
    JsonMessageQueue,
    LockedQueues,
    MessageQueueAssignment,
    QueueAssignments,
    QueueLock,
    TopicQueueMapping,
    TopicRoute,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.remoting import Connection
from tests.consumer.received import received, stored
from tests.scripted import Answering, scripted_cluster, store

JAVA_NAME = "__syslo__global__"


def mapping(broker: str, *numbers: int, total: int = 4, epoch: int = 1) -> TopicQueueMapping:
    return TopicQueueMapping(
        broker_name=broker, total_queues=total, epoch=epoch, current_ids=dict.fromkeys(numbers, 0)
    )


def mappings(*of_brokers: TopicQueueMapping) -> dict[str, TopicQueueMapping]:
    return {one.broker_name: one for one in of_brokers}


def logical(number: int) -> MessageQueue:
    return MessageQueue("T", f"{JAVA_NAME}/T/{number:06d}", number)


def wire_route(*of_brokers: TopicQueueMapping, **addresses: Mapping[int, str]) -> TopicRoute:
    return TopicRoute(
        broker_datas=tuple(
            [BrokerData(broker_name=name, announced=dict(table)) for name, table in addresses.items()]
        ),
        queue_mappings=mappings(*of_brokers),
    )


def test_logical_queues_are_at_the_broker_with_the_newest_mapping() -> None:
    route = Route.of(
        "T",
        wire_route(mapping("a", 0, 1, epoch=1), mapping("b", 1, 2, epoch=2), a={0: "a:1"}, b={0: "b:1"}),
    )
    assert route.read_queues == tuple([logical(number) for number in range(4)])
    assert route.write_queues == tuple([logical(number) for number in range(3)]), "no broker has queue 3"
    assert [dict(addresses) for addresses in route.logical_brokers.values()] == [
        {0: "a:1"}, {0: "b:1"}, {0: "b:1"}, {},
    ]  # fmt: skip
    assert list(route.read_queues) == sorted(route.read_queues)


def test_logical_queues_without_a_master_are_only_read() -> None:
    route = Route.of("T", wire_route(mapping("a", 0, total=1), a={1: "a:2"}))
    assert (route.read_queues, route.write_queues) == ((logical(0),), ())


def test_logical_queues_of_other_scopes_have_their_own_names() -> None:
    one = msgspec.structs.replace(mapping("a", 0, total=1), scope="mine")
    [queue] = Route.of("T", wire_route(one, a={0: "a:1"})).read_queues
    assert queue == MessageQueue("T", "__syslo__mine/T/000000", 0)


def test_a_route_has_the_names_of_java() -> None:
    body = (
        b'{"topicQueueMappingByBroker":{"a":{"bname":"a","currIdMap":{"0":3},"dirty":false,"epoch":17,'
        b'"scope":"__global__","topic":"T","totalQueues":1}}}'
    )
    assert TopicRoute.decode(body).queue_mappings == {
        "a": TopicQueueMapping(broker_name="a", current_ids={0: 3}, epoch=17, total_queues=1)
    }


def test_a_static_topic_with_too_many_queues_is_malformed() -> None:
    with pytest.raises(ProtocolError, match="a topic of 2000000000 queues"):
        TopicRoute.decode(
            b'{"topicQueueMappingByBroker":{"a":{"bname":"a","currIdMap":{},"totalQueues":2000000000}}}'
        )


async def test_a_send_follows_a_queue_that_moves(jumping_clock: trio.testing.MockClock) -> None:
    def refuse_and_move(connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_MESSAGE_V2:
            cluster.queue_mappings["T"] = mappings(mapping("broker-b", 0, total=1, epoch=2))
            connection.respond(request, ResponseCode.NOT_LEADER_FOR_QUEUE, remark="moved")
        else:
            store(connection, request)

    async with scripted_cluster(refuse_and_move, store) as cluster, Producer(cluster.address) as producer:
        cluster.queue_mappings["T"] = mappings(mapping("broker-a", 0, total=1))
        result = await producer.send(Message("T", b"body"))
        assert result.queue == logical(0)
    assert [len(broker.asked(RequestCode.SEND_MESSAGE_V2)) for broker in cluster.brokers.values()] == [1, 1]


async def test_health_tells_of_brokers_and_not_of_logical_queues() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        cluster.queue_mappings["T"] = mappings(mapping("broker-a", 0, 1))
        await core_of(client).routes.get("T")
        assert [one.broker_name for one in client.health().brokers] == ["broker-a"]


def answer_with(code: int, body: bytes = b"", fields: Mapping[str, str] | None = None) -> Answering:
    def answer(connection: Connection, request: Command) -> None:
        matches = request.code == code
        connection.respond(request, ResponseCode.SUCCESS, fields if matches else {}, body if matches else b"")

    return answer


async def test_locks_have_the_names_of_java() -> None:
    on_wire = MessageQueue("T", JAVA_NAME, 0), MessageQueue("T", "broker-a", 1), MessageQueue("T", "x", 2)
    answer = answer_with(RequestCode.LOCK_BATCH_MQ, LockedQueues.of(on_wire).encode())
    async with scripted_cluster(answer) as cluster, Client(cluster.address) as client:
        await core_of(client).routes.get("T")
        asked = [logical(0), MessageQueue("T", "broker-a", 1), logical(3)]
        locked = await core_of(client).brokers.lock("g", "client", "broker-a", asked)
        await core_of(client).brokers.unlock("g", "client", "broker-a", [logical(0)])
    assert locked == {logical(0), MessageQueue("T", "broker-a", 1)}
    [lock] = cluster.brokers["broker-a"].asked(RequestCode.LOCK_BATCH_MQ)
    [unlock] = cluster.brokers["broker-a"].asked(RequestCode.UNLOCK_BATCH_MQ)
    assert QueueLock.decode(lock.body).queues[0] == MessageQueue("T", JAVA_NAME, 0)
    assert QueueLock.decode(unlock.body).queues == (MessageQueue("T", JAVA_NAME, 0),)


async def test_pulled_messages_have_the_number_of_the_logical_queue() -> None:
    numbers = {"suggestWhichBrokerId": "0", "nextBeginOffset": "2", "minOffset": "0", "maxOffset": "2"}
    answer = answer_with(RequestCode.PULL_MESSAGE, stored(0) + stored(1), numbers)
    async with scripted_cluster(answer) as cluster, Client(cluster.address) as client:
        cluster.queue_mappings["T"] = mappings(mapping("broker-a", 0, 1, 2, 3))
        await core_of(client).routes.get("T")
        puller = QueuePuller(core_of(client), "g", logical(3), batch_size=32, hold=0, timeout=3)
        pulled = await puller.pull(0, make_subscription("T", version_ms=1))
    assert {message.queue for message in pulled.messages} == {logical(3)}


async def test_messages_of_logical_queues_are_not_sent_back_by_their_position() -> None:
    message = attrs.evolve(received(0), broker_name=logical(0).broker_name)
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        cluster.queue_mappings["T"] = mappings(mapping("broker-a", 0))
        await core_of(client).routes.get("T")
        with pytest.raises(NoQueueError, match="of a logical queue cannot be sent back"):
            await core_of(client).brokers.send_back(message, "g", delay_level=0, max_reconsume_times=16)
    assert not cluster.brokers["broker-a"].asked(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_logical_queues_are_not_popped() -> None:
    async with scripted_cluster(store) as cluster, Client(cluster.address) as client:
        cluster.queue_mappings["T"] = mappings(mapping("broker-a", 0))
        async with client.pop_consumer("g") as consumer:
            consumer.subscribe("T")
            with pytest.raises(UnsupportedByBrokerError, match="'T' is a static topic"):
                await consumer.receive()


async def test_brokers_assign_logical_queues() -> None:
    queue = JsonMessageQueue(topic="T", broker_name=JAVA_NAME, queue_id=2)
    assigned = QueueAssignments(message_queue_assignments=(MessageQueueAssignment(message_queue=queue),))
    answer = answer_with(RequestCode.QUERY_ASSIGNMENT, assigned.encode())
    async with scripted_cluster(answer) as cluster, Client(cluster.address) as client:
        cluster.queue_mappings["T"] = mappings(mapping("broker-a", 0, 1, 2, 3))
        route = await core_of(client).routes.get("T")
        assignment = await BrokerAssignments(core_of(client), "g", "AVG").query(route)
    assert assignment.pulled == [logical(2)]
