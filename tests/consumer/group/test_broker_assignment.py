from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer import (
    AllocateByBroker,
    AllocateConsistentHash,
    allocate_averagely,
    allocate_averagely_by_circle,
)
from rocketmq_py.consumer.group.rebalancer import Rebalancer
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    AssignmentQuery,
    ConsumerData,
    ConsumerList,
    JsonMessageQueue,
    MessageQueueAssignment,
    QueueAssignments,
    RequestMode,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.scripted import scripted_cluster


def assignment(*numbers: int, mode: RequestMode = RequestMode.PULL, topic: str = "T") -> bytes:
    queues = [JsonMessageQueue(topic=topic, broker_name="broker-a", queue_id=number) for number in numbers]
    assigned = [MessageQueueAssignment(message_queue=queue, mode=mode) for queue in queues]
    return QueueAssignments(message_queue_assignments=tuple(assigned)).encode()


@attrs.define(eq=False)
class Broker:
    """Shares out queues as a test says; ``members`` gives who it knows to be in the group."""

    code: int = ResponseCode.SUCCESS
    body: bytes = assignment(2)
    members: Callable[[], list[str]] = list
    queries: list[AssignmentQuery] = attrs.field(factory=list)
    heartbeats: int = 0

    def __call__(self, connection: Connection, request: Command) -> None:
        body = b""
        code: int = ResponseCode.SUCCESS
        if request.code == RequestCode.QUERY_ASSIGNMENT:
            self.queries.append(AssignmentQuery.decode(request.body))
            code, body = self.code, self.body
        elif request.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            body = ConsumerList(consumer_id_list=tuple(self.members())).encode()
        elif request.code == RequestCode.HEART_BEAT:
            self.heartbeats += 1
        connection.respond(request, code, {}, body, remark="scripted")


@attrs.define(eq=False)
class Member:
    client: Client
    has: dict[str, list[int]] = attrs.field(factory=dict)
    pops: dict[str, list[int]] = attrs.field(factory=dict)
    log: list[str] = attrs.field(factory=list)

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        await trio.lowlevel.checkpoint()
        assert {queue.topic for queue in queues} <= {topic}
        self.has[topic] = sorted(queue.queue_id for queue in queues)
        self.log.append(f"pulls {self.has[topic]}")

    def assign_popped(self, topic: str, queues: Collection[MessageQueue]) -> None:
        assert {queue.topic for queue in queues} <= {topic}
        self.pops[topic] = sorted(queue.queue_id for queue in queues)
        self.log.append(f"pops {self.pops[topic]}")


@asynccontextmanager
async def member_of(
    *brokers: Broker, allocate: AllocateByBroker | None = None, can_pop: bool = False, **options: Any
) -> AsyncIterator[Member]:
    async with (
        scripted_cluster(*brokers, topics=["T", "tenant%T"]) as cluster,
        Client(cluster.address, route_refresh_interval=1e6, **options) as client,
        trio.open_nursery() as nursery,
    ):
        member = Member(client)
        client.heartbeats.add_consumer("g", lambda: ConsumerData(group_name="g"))
        rebalancer = Rebalancer(
            client,
            "g",
            allocate=allocate or AllocateByBroker(),
            interval=20,
            topics=lambda: ["T"],
            assigned=member.has.keys,
            assign=member.assign,
            assign_popped=member.assign_popped if can_pop else None,
        )
        for broker in brokers:
            if broker.members is list:
                broker.members = lambda: [client.client_id]
        nursery.start_soon(rebalancer.run)
        yield member
        nursery.cancel_scope.cancel()


async def test_a_broker_says_which_queues_are_this_member_s(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        assert member.has == {"T": [2]}
        assert broker.heartbeats, "so that it knows the member"
        [query] = broker.queries
        assert (query.topic, query.consumer_group, query.strategy_name) == ("T", "g", "AVG")
        assert query.client_id == member.client.client_id
        broker.body = assignment(0, 3)
        await trio.sleep(20)
        assert member.has == {"T": [0, 3]}


async def test_names_on_the_wire_are_those_of_the_namespace(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker(body=assignment(1, topic="tenant%T"))
    circle = AllocateByBroker(allocate_averagely_by_circle)
    async with member_of(broker, allocate=circle, namespace="tenant") as member:
        await trio.sleep(1)
        assert member.has == {"T": [1]}
    [query] = broker.queries
    assert (query.topic, query.consumer_group, query.strategy_name) == (
        "tenant%T",
        "tenant%g",
        "AVG_BY_CIRCLE",
    )


async def test_where_brokers_do_not_share_out_members_do(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    async with member_of(broker) as member:
        client_id = member.client.client_id
        broker.members = lambda: [client_id, "~ the other"]
        await trio.sleep(45)
        assert member.has == {"T": [0, 1]}
    assert len(broker.queries) == 3
    [record] = caplog.records
    assert "shares out no queues, as 5.x does: the members do it themselves" in record.message


async def test_who_is_not_known_keeps_what_it_has(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        members = broker.members
        broker.body, broker.members = assignment(), lambda: ["somebody-else"]
        await trio.sleep(20)
        assert member.has == {"T": [2]}
        broker.members = members
        await trio.sleep(20)
        assert member.has == {"T": []}, "there are more members than queues"


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (ResponseCode.SUCCESS, QueueAssignments().encode()),
        (ResponseCode.SYSTEM_ERROR, b""),
        (ResponseCode.SUCCESS, b"garbage"),
    ],
    ids=["says nothing", "refuses", "cannot be read"],
)
async def test_a_broker_that_cannot_tell_changes_nothing(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, code: int, body: bytes
) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        broker.code, broker.body = code, body
        await trio.sleep(20)
        assert member.has == {"T": [2]}
        assert "queue assignment failed, retrying: group=g topic=T" in caplog.text


async def test_another_broker_is_asked_when_one_cannot_tell(jumping_clock: trio.testing.MockClock) -> None:
    async with member_of(Broker(code=ResponseCode.SYSTEM_ERROR), Broker()) as member:
        await trio.sleep(1)
        assert member.has == {"T": [2]}


async def test_a_topic_that_is_to_be_popped_is_not_pulled(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_of(Broker(body=assignment(-1, mode=RequestMode.POP))) as member:
        await trio.sleep(45)
        assert member.has == {"T": []}
    [record] = caplog.records
    assert (
        "topic T is set to be popped by this group, which only a PopConsumer and a PushConsumer"
        in record.message
    )


async def test_a_member_that_can_pop_changes_over(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker(body=assignment(-1, mode=RequestMode.POP))
    async with member_of(broker, can_pop=True) as member:
        await trio.sleep(1)
        assert (member.has, member.pops) == ({"T": []}, {"T": [-1]})
        broker.body = assignment(0, 1)
        await trio.sleep(20)
        broker.body = assignment(2, 3, mode=RequestMode.POP)
        await trio.sleep(20)
        assert (member.has, member.pops) == ({"T": []}, {"T": [2, 3]})
        # What is revoked comes first.
        assert member.log == ["pulls []", "pops [-1]", "pops []", "pulls [0, 1]", "pulls []", "pops [2, 3]"]


async def test_where_members_share_out_nobody_is_told_to_pop(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    async with member_of(broker, can_pop=True) as member:
        await trio.sleep(1)
        assert (member.has, member.pops) == ({"T": [0, 1, 2, 3]}, {})


def test_brokers_know_two_strategies() -> None:
    assert AllocateByBroker(allocate_averagely).strategy_name == "AVG"
    with pytest.raises(ConfigurationError, match="brokers share queues out by"):
        AllocateByBroker(AllocateConsistentHash())
