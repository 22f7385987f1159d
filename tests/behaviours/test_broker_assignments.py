"""Assignment of queues by the broker. Brokers of 4.x do not support it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import attrs
import pytest

from rocketmq_py import Client
from rocketmq_py.client.features import BROKER_ASSIGNMENT
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    AssignmentQuery,
    ConsumerData,
    Heartbeat,
    MessageQueueAssignment,
    QueueAssignments,
    RequestMode,
    RequestModeSetting,
    SubscriptionData,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import HeartbeatRequest
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.peers import Peer, open_peers

Assignments = tuple[MessageQueueAssignment, ...] | None


@attrs.define(eq=False)
class Group:
    """A consumer group of a topic with four queues."""

    connect: Callable[[], Peer]
    topic: str
    name: str
    peers: dict[str, Peer] = attrs.field(factory=dict)

    async def join(self, *client_ids: str) -> None:
        for client_id in client_ids:
            peer = self.peers[client_id] = self.connect()
            subscription = SubscriptionData(topic=self.topic, sub_string="*", sub_version=1)
            data = ConsumerData(group_name=self.name, subscription_data_set=(subscription,))
            heartbeat = Heartbeat(client_id=client_id, consumer_data_set=(data,))
            answer = await peer.ask(HeartbeatRequest(), heartbeat.encode())
            assert answer.code == ResponseCode.SUCCESS

    async def send(self, code: int, body: bytes) -> Command:
        return await next(iter(self.peers.values())).send(code, {}, body)

    async def assignments(self, client_id: str, **changes: Any) -> Assignments:
        values = {"topic": self.topic, "consumer_group": self.name, "client_id": client_id, **changes}
        answer = await self.send(RequestCode.QUERY_ASSIGNMENT, AssignmentQuery(**values).encode())
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        return QueueAssignments.decode(answer.body).message_queue_assignments

    async def queues(self, client_id: str, **changes: Any) -> list[int] | None:
        found = await self.assignments(client_id, **changes)
        return None if found is None else sorted([each.message_queue.queue_id for each in found])

    async def set_mode(self, **changes: Any) -> Command:
        values = {"topic": self.topic, "consumer_group": self.name, "mode": RequestMode.POP, **changes}
        return await self.send(RequestCode.SET_MESSAGE_REQUEST_MODE, RequestModeSetting(**values).encode())


@pytest.fixture
async def group(cluster: ClusterUnderTest, client: Client, unique: str) -> AsyncIterator[Group]:
    cluster.needs(BROKER_ASSIGNMENT)
    await create_topic(client, unique, queues=4)
    async with open_peers(client) as connect:
        yield Group(connect, unique, f"group-{unique}")


async def test_queues_are_assigned_to_the_members(group: Group) -> None:
    await group.join("b", "a", "c")
    assert [await group.queues(each) for each in "abc"] == [[0, 1], [2], [3]]
    assert [await group.queues(each, strategy_name="AVG_BY_CIRCLE") for each in "abc"] == [[0, 3], [1], [2]]
    assert await group.queues("z") == []
    (only,) = await group.assignments("b") or ()
    assert only.mode is RequestMode.PULL
    assert only.message_queue.queue == MessageQueue(group.topic, group.peers["b"].broker_name, 2)


async def test_a_query_that_cannot_be_answered_has_no_assignments(group: Group) -> None:
    await group.join("a")
    assert await group.queues("a", topic="nope") is None
    assert await group.queues("a", consumer_group="nope") is None
    assert await group.queues("a", strategy_name="CONSISTENT_HASH") is None
    assert await group.queues("") is None


async def test_a_broadcasting_member_is_assigned_all_queues(group: Group) -> None:
    await group.join("a", "b")
    assert await group.queues("a", message_model="BROADCASTING") == [0, 1, 2, 3]


async def test_set_message_request_mode_switches_a_group_to_pop(group: Group) -> None:
    await group.join("a", "b")
    answer = await group.set_mode()
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    for client_id in "ab":
        (only,) = await group.assignments(client_id) or ()
        assert (only.message_queue.queue_id, only.mode) == (-1, RequestMode.POP)
    (retry,) = await group.assignments("a", topic=f"%RETRY%{group.name}") or ()
    assert retry.mode is RequestMode.PULL
    await group.set_mode(mode=RequestMode.PULL)
    assert await group.queues("a") == [0, 1]


async def test_pop_share_queue_num_shares_queues_among_members(group: Group) -> None:
    await group.join(*"abcd")
    await group.set_mode(pop_share_queue_num=1)
    assert [await group.queues(each) for each in "abcd"] == [[0, 1], [1, 2], [2, 3], [0, 3]]
    assert await group.queues("z") == []
    await group.set_mode(pop_share_queue_num=3)
    assert [await group.queues(each) for each in "abcdz"] == [[-1]] * 5
    await group.join("e", "f")
    await group.set_mode(pop_share_queue_num=1)
    assert [await group.queues(each) for each in "abcdef"] == [[0], [1], [2], [3], [0], [1]]


async def test_set_message_request_mode_refuses_invalid_settings(
    cluster: ClusterUnderTest, group: Group
) -> None:
    if not cluster.is_at_least("5.3.3"):
        pytest.skip("older brokers do not check the topic and the group")
    await group.join("a")

    async def refused(**changes: Any) -> tuple[int, str | None]:
        answer = await group.set_mode(**changes)
        return answer.code, answer.remark

    assert await refused(topic=f"%RETRY%{group.name}") == (
        ResponseCode.NO_PERMISSION,
        "retry topic is not allowed to set mode",
    )
    assert await refused(topic="nope") == (ResponseCode.TOPIC_NOT_EXIST, "topic[nope] not exist")
    assert await refused(consumer_group="a b") == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "subscription group does not exist",
    )
