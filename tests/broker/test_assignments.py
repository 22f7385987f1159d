from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketmq_py.broker.assignments import averagely, by_circle
from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    AssignmentQuery,
    MessageQueueAssignment,
    QueueAssignments,
    RequestMode,
    RequestModeSetting,
)
from tests.broker.offline import Answer, OfflineBroker, OfflineClient
from tests.broker.test_groups import send_heartbeat

QUEUES = [MessageQueue("t", "b", queue_id) for queue_id in range(8)]


@pytest.mark.parametrize("members", range(1, 12))
def test_strategies_assign_each_queue_to_one_member(members: int) -> None:
    for strategy in (averagely, by_circle):
        shares = [strategy(QUEUES, index, members) for index in range(members)]
        assert sorted([queue for share in shares for queue in share]) == QUEUES
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_averagely_assigns_ranges_and_by_circle_alternates() -> None:
    assert [queue.queue_id for queue in averagely(QUEUES, 1, 3)] == [3, 4, 5]
    assert [queue.queue_id for queue in by_circle(QUEUES, 1, 3)] == [1, 4, 7]


async def join(broker: OfflineBroker, *client_ids: str) -> None:
    for client_id in client_ids:
        send_heartbeat(broker.connect(), client_id)


def assignments(client: OfflineClient, **changes: Any) -> tuple[MessageQueueAssignment, ...] | None:
    query = AssignmentQuery(**{"topic": "t", "consumer_group": "g", "client_id": "a", **changes})
    answer = client.ask(RequestCode.QUERY_ASSIGNMENT, {}, query.encode())
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    return QueueAssignments.decode(answer.body).message_queue_assignments


def queues(client: OfflineClient, **changes: Any) -> list[int] | None:
    found = assignments(client, **changes)
    return None if found is None else sorted([each.message_queue.queue_id for each in found])


def set_mode(client: OfflineClient, **changes: Any) -> Answer:
    values = {"topic": "t", "consumer_group": "g", "mode": RequestMode.POP, **changes}
    setting = RequestModeSetting(**values)
    return client.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, setting.encode())


async def test_queues_are_assigned_to_the_members(client: OfflineClient, broker: OfflineBroker) -> None:
    client.send("t", queue_id=0)
    await join(broker, "b", "a", "c")
    assert [queues(client, client_id=each) for each in "abc"] == [[0, 1], [2], [3]]
    assert queues(client, client_id="b", strategy_name="AVG_BY_CIRCLE") == [1]
    assert queues(client, client_id="z") == []
    (first, *_) = assignments(client) or ()
    assert first.mode is RequestMode.PULL
    assert first.message_queue.queue == MessageQueue("t", "broker-a", 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "nope"},
        {"consumer_group": "nope"},
        {"strategy_name": "CONSISTENT_HASH"},
        {"message_model": "OTHER"},
        {"client_id": ""},
    ],
)
async def test_a_query_that_cannot_be_answered_has_no_assignments(
    client: OfflineClient, broker: OfflineBroker, changes: dict[str, str]
) -> None:
    client.send("t")
    await join(broker, "a")
    assert queues(client, **changes) is None


async def test_a_broadcasting_member_is_assigned_all_queues(client: OfflineClient) -> None:
    client.send("t")
    assert queues(client, message_model="BROADCASTING") == [0, 1, 2, 3]


async def test_queues_of_all_brokers_are_assigned(client: OfflineClient, broker: OfflineBroker) -> None:
    client.send("t")
    await join(broker, "a", "b")
    other = BrokerConfig(broker_name="broker-b")
    broker.name_server.register(other, "127.0.0.1:1", [TopicConfig("t", 4, 4)])

    def assigned(client_id: str) -> list[tuple[str, int]]:
        found = assignments(client, client_id=client_id) or ()
        return sorted([(each.message_queue.broker_name, each.message_queue.queue_id) for each in found])

    assert [assigned(each) for each in "ab"] == [
        [("broker-a", number) for number in range(4)],
        [("broker-b", number) for number in range(4)],
    ]
    set_mode(client)
    assert assigned("a") == assigned("b") == [("broker-a", -1), ("broker-b", -1)]
    broker.name_server.unregister("broker-b")
    assert assigned("a") == [("broker-a", -1)]


async def test_without_name_servers_the_known_queues_are_assigned(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    client.send("t")
    await join(broker, "a")
    assert queues(client) == [0, 1, 2, 3]
    broker.reachable_name_servers.clear()
    assert queues(client) == [0, 1, 2, 3]
    assert queues(client, topic="unseen") is None


async def test_set_message_request_mode_switches_a_group_to_pop(
    client: OfflineClient, broker: OfflineBroker
) -> None:
    client.send("t")
    await join(broker, "a", "b")
    assert set_mode(client).code == ResponseCode.SUCCESS
    for client_id in "ab":
        (only,) = assignments(client, client_id=client_id) or ()
        assert (only.message_queue.queue_id, only.mode) == (-1, RequestMode.POP)
    (retry,) = assignments(client, topic="%RETRY%g") or ()
    assert retry.mode is RequestMode.PULL
    set_mode(client, mode=RequestMode.PULL)
    assert queues(client) == [0, 1]


@pytest.mark.parametrize(
    ("members", "followers", "shares"),
    [
        ("abcd", 1, [[0, 1], [1, 2], [2, 3], [0, 3]]),
        ("abcd", 2, [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]]),
        ("abcd", 3, [[-1]] * 4),
        ("abcdef", 1, [[0], [1], [2], [3], [0], [1]]),
    ],
)
async def test_pop_share_queue_num_shares_queues_among_members(
    client: OfflineClient, broker: OfflineBroker, members: str, followers: int, shares: list[list[int]]
) -> None:
    client.send("t")
    await join(broker, *members)
    set_mode(client, pop_share_queue_num=followers)
    assert [queues(client, client_id=each) for each in members] == shares
    queues_of_other_clients = [-1] if shares[0] == [-1] else []
    assert queues(client, client_id="z") == queues_of_other_clients


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "%RETRY%g"}, ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"),
        ({"topic": "nope"}, ResponseCode.TOPIC_NOT_EXIST, "topic[nope] not exist"),
        (
            {"consumer_group": "a b"},
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            "subscription group does not exist",
        ),
    ],
)
async def test_set_message_request_mode_refuses_invalid_settings(
    client: OfflineClient, changes: dict[str, str], code: int, remark: str
) -> None:
    client.send("t")
    answer = set_mode(client, **changes)
    assert (answer.code, answer.remark) == (code, remark)


async def test_default_message_request_mode_may_be_pop(open_broker: Callable[..., OfflineBroker]) -> None:
    broker = open_broker(default_message_request_mode="POP", default_pop_share_queue_num=1)
    client = broker.connect()
    client.send("t")
    await join(broker, *"abcd")
    found = assignments(client) or ()
    assert [(each.message_queue.queue_id, each.mode) for each in found] == [(0, "POP"), (1, "POP")]
    (retry,) = assignments(client, topic="%RETRY%g") or ()
    assert retry.mode is RequestMode.PULL
