from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import pytest
import trio
import trio.testing

from rocketmq_py.broker.replica import REPLICA_ID, Replica
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import TopicRoute, read_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.broker.offline import BROKER_ADDRESS, START_MS, Answer, OfflineBroker, OfflineClient

REPLICA_ADDRESS = "127.0.0.2:10911"


def now_ms() -> int:
    return START_MS + int(trio.current_time() * 1000)


@pytest.fixture
async def replica(broker: OfflineBroker, nursery: trio.Nursery) -> Replica:
    replica = Replica(broker.broker, REPLICA_ADDRESS, lambda: [broker.name_server])
    for task in replica.tasks:
        nursery.start_soon(task)
    replica.register()
    return replica


def send_request(
    replica: Replica, client: OfflineClient, code: int, fields: Mapping[str, str], body: bytes = b""
) -> None:
    replica.dispatch(cast(Connection, client), Command(code, 7, 0, dict(fields), body, version=513))


def ask(replica: Replica, client: OfflineClient, code: int, fields: Mapping[str, str]) -> Answer:
    send_request(replica, client, code, fields)
    return client.answers.pop()


def route(client: OfflineClient, topic: str) -> TopicRoute:
    return TopicRoute.decode(
        client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).body
    )


async def test_routes_contain_the_replica_while_the_master_is_down(
    broker: OfflineBroker, client: OfflineClient, replica: Replica
) -> None:
    client.send("T")
    (data,) = route(client, "T").broker_datas
    assert data.broker_addrs == {0: BROKER_ADDRESS, REPLICA_ID: REPLICA_ADDRESS}
    old = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, version=400).body
    assert f'"brokerAddrs":{{0:"{BROKER_ADDRESS}",1:"{REPLICA_ADDRESS}"}}'.encode() in old
    broker.name_server.unregister("broker-a")
    (data,) = route(client, "T").broker_datas
    assert data.broker_addrs == {REPLICA_ID: REPLICA_ADDRESS}
    broker.name_server.unregister("broker-a", REPLICA_ID)
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_replica_answers_pulls_and_queries(client: OfflineClient, replica: Replica) -> None:
    client.send("T", b"one")
    pulled = ask(replica, client, RequestCode.PULL_MESSAGE, client.pull_fields("T", 0))
    assert [message.body for message in pulled.messages] == [b"one"]
    queue = {"topic": "T", "queueId": "0"}
    assert ask(replica, client, RequestCode.GET_MAX_OFFSET, queue).fields == {"offset": "1"}
    viewed = ask(replica, client, RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
    assert [message.body for message in viewed.messages] == [b"one"]
    stats = ask(replica, client, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"})
    assert b'"maxOffset":1' in stats.body


async def test_a_message_on_the_master_answers_a_pull_held_by_the_replica(
    client: OfflineClient, replica: Replica
) -> None:
    client.send("T", b"one")
    fields = client.pull_fields("T", 1, sysFlag="6")
    send_request(replica, client, RequestCode.PULL_MESSAGE, fields)
    assert not [answer for answer in client.answers if answer.opaque == 7]
    client.send("T", b"two")
    await trio.testing.wait_all_tasks_blocked()
    (held,) = [answer for answer in client.answers if answer.opaque == 7]
    assert [message.body for message in held.messages] == [b"two"]


async def test_offsets_committed_on_the_replica_are_on_the_master(
    client: OfflineClient, replica: Replica
) -> None:
    client.send("T")
    ask(replica, client, RequestCode.PULL_MESSAGE, client.pull_fields("T", 0))
    offset = {"consumerGroup": "readers", "topic": "T", "queueId": "0", "commitOffset": "1"}
    answer = ask(replica, client, RequestCode.UPDATE_CONSUMER_OFFSET, offset)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert client.ask(RequestCode.QUERY_CONSUMER_OFFSET, offset).fields == {"offset": "1"}


async def test_a_replica_has_the_role_slave(client: OfflineClient, replica: Replica) -> None:
    settings = read_properties(ask(replica, client, RequestCode.GET_BROKER_CONFIG, {}).body)
    assert (settings["brokerId"], settings["brokerRole"]) == ("1", "SLAVE")
    assert json.loads(ask(replica, client, RequestCode.GET_BROKER_RUNTIME_INFO, {}).body)


@pytest.mark.parametrize(
    ("code", "answered", "words"),
    [
        (RequestCode.SEND_MESSAGE_V2, ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy"),
        (RequestCode.CONSUMER_SEND_MSG_BACK, ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy"),
        (RequestCode.RECALL_MESSAGE, ResponseCode.SLAVE_NOT_AVAILABLE, "recall failed"),
        (RequestCode.END_TRANSACTION, ResponseCode.SLAVE_NOT_AVAILABLE, "not set any response code"),
        (RequestCode.UPDATE_AND_CREATE_TOPIC, ResponseCode.SYSTEM_ERROR, "from slave broker"),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, ResponseCode.SYSTEM_ERROR, "from slave broker"),
        (RequestCode.POP_MESSAGE, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported"),
    ],
)
async def test_a_replica_refuses_changes(
    client: OfflineClient, replica: Replica, code: int, answered: int, words: str
) -> None:
    answer = ask(replica, client, code, {})
    assert answer.code == answered
    assert words in (answer.remark or "")


async def test_a_replica_registers_periodically(
    broker: OfflineBroker, client: OfflineClient, replica: Replica, autojump_clock: trio.testing.MockClock
) -> None:
    broker.name_server.unregister("broker-a", REPLICA_ID)
    await trio.sleep(31)
    (data,) = route(client, "TBW102").broker_datas
    assert REPLICA_ID in data.broker_addrs
