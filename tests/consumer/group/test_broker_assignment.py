"""Brokers assign queues to members that use AllocateByBroker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from rocketmq_py import Client
from rocketmq_py.allocation import AllocateByBroker, allocate_averagely_by_circle
from rocketmq_py.client import core_of
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.consumer.group.rebalancer import Rebalancer
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
    """A broker that assigns queues.

    Attributes:
        code: the response code of assignment queries.
        body: the response body of assignment queries.
        members: returns the client ids that the broker lists for the group.
    """

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
    """A member that records its queues.

    Attributes:
        pulled: numbers of the queues to pull, by topic.
        popped: numbers of the queues to pop, by topic.
        log: all changes of the assignment.
    """

    client: Client
    pulled: dict[str, list[int]] = attrs.field(factory=dict)
    popped: dict[str, list[int]] = attrs.field(factory=dict)
    log: list[str] = attrs.field(factory=list)

    def subscribed_topics(self) -> Collection[str]:
        return ["T"]

    def assigned_topics(self) -> Collection[str]:
        return self.pulled.keys()

    async def assign(self, topic: str, queues: Collection[MessageQueue]) -> None:
        await trio.lowlevel.checkpoint()
        assert {queue.topic for queue in queues} <= {topic}
        self.pulled[topic] = sorted(queue.queue_id for queue in queues)
        self.log.append(f"pulls {self.pulled[topic]}")

    def assign_popped(self, topic: str, queues: Collection[MessageQueue]) -> None:
        assert {queue.topic for queue in queues} <= {topic}
        self.popped[topic] = sorted(queue.queue_id for queue in queues)
        self.log.append(f"pops {self.popped[topic]}")


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
        core_of(client).heartbeats.add_consumer("g", lambda: ConsumerData(group_name="g"))
        rebalancer = Rebalancer(
            core_of(client),
            "g",
            member,
            allocate=allocate or AllocateByBroker(),
            interval=20,
            popping=member if can_pop else None,
        )
        for broker in brokers:
            if broker.members is list:
                broker.members = lambda: [core_of(client).client_id]
        nursery.start_soon(rebalancer.run)
        yield member
        nursery.cancel_scope.cancel()


async def test_a_broker_assigns_the_queues(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        assert member.pulled == {"T": [2]}
        assert broker.heartbeats, "the broker only assigns queues to known members"
        [query] = broker.queries
        assert (query.topic, query.consumer_group, query.strategy_name) == ("T", "g", "AVG")
        assert query.client_id == core_of(member.client).client_id
        broker.body = assignment(0, 3)
        await trio.sleep(20)
        assert member.pulled == {"T": [0, 3]}


async def test_queries_carry_names_with_the_namespace(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker(body=assignment(1, topic="tenant%T"))
    circle = AllocateByBroker(allocate_averagely_by_circle)
    async with member_of(broker, allocate=circle, namespace="tenant") as member:
        await trio.sleep(1)
        assert member.pulled == {"T": [1]}
    [query] = broker.queries
    assert (query.topic, query.consumer_group, query.strategy_name) == (
        "tenant%T",
        "tenant%g",
        "AVG_BY_CIRCLE",
    )


async def test_members_allocate_the_queues_if_brokers_cannot(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    async with member_of(broker) as member:
        client_id = core_of(member.client).client_id
        broker.members = lambda: [client_id, "~ another"]
        await trio.sleep(45)
        assert member.pulled == {"T": [0, 1]}
    assert len(broker.queries) == 3
    [record] = caplog.records
    assert "broker does not assign queues, which needs 5.x" in record.message


async def test_an_unknown_member_keeps_its_queues(jumping_clock: trio.testing.MockClock) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        members = broker.members
        broker.body, broker.members = assignment(), lambda: ["another"]
        await trio.sleep(20)
        assert member.pulled == {"T": [2]}
        broker.members = members
        await trio.sleep(20)
        assert member.pulled == {"T": []}, "there are more members than queues"


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (ResponseCode.SUCCESS, QueueAssignments().encode()),
        (ResponseCode.SYSTEM_ERROR, b""),
        (ResponseCode.SUCCESS, b"garbage"),
    ],
    ids=["no assignment", "error", "garbage"],
)
async def test_a_failed_query_changes_nothing(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, code: int, body: bytes
) -> None:
    broker = Broker()
    async with member_of(broker) as member:
        await trio.sleep(1)
        broker.code, broker.body = code, body
        await trio.sleep(20)
        assert member.pulled == {"T": [2]}
        assert "queue assignment failed, retrying: group=g topic=T" in caplog.text


async def test_another_broker_is_asked_if_one_fails(jumping_clock: trio.testing.MockClock) -> None:
    async with member_of(Broker(code=ResponseCode.SYSTEM_ERROR), Broker()) as member:
        await trio.sleep(1)
        assert member.pulled == {"T": [2]}


async def test_a_member_that_cannot_pop_does_not_pull_a_popped_topic(
    jumping_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with member_of(Broker(body=assignment(-1, mode=RequestMode.POP))) as member:
        await trio.sleep(45)
        assert member.pulled == {"T": []}
    [record] = caplog.records
    assert "an operator has set the group to pop this topic, which this consumer cannot" in record.message


async def test_a_member_that_can_pop_changes_between_pull_and_pop(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker(body=assignment(-1, mode=RequestMode.POP))
    async with member_of(broker, can_pop=True) as member:
        await trio.sleep(1)
        assert (member.pulled, member.popped) == ({"T": []}, {"T": [-1]})
        broker.body = assignment(0, 1)
        await trio.sleep(20)
        broker.body = assignment(2, 3, mode=RequestMode.POP)
        await trio.sleep(20)
        assert (member.pulled, member.popped) == ({"T": []}, {"T": [2, 3]})
        # Queues are revoked before others are assigned.
        assert member.log == ["pulls []", "pops [-1]", "pops []", "pulls [0, 1]", "pulls []", "pops [2, 3]"]


async def test_members_that_allocate_the_queues_themselves_do_not_pop(
    jumping_clock: trio.testing.MockClock,
) -> None:
    broker = Broker(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    async with member_of(broker, can_pop=True) as member:
        await trio.sleep(1)
        assert (member.pulled, member.popped) == ({"T": [0, 1, 2, 3]}, {})
