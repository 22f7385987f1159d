from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from rocketmq_py.codes import RequestCode, ResponseCode
from tests.broker.offline import BROKER_ADDRESS, OfflineClient

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def known_topics(client: OfflineClient, **fields: str) -> list[str]:
    code = RequestCode.GET_TOPICS_BY_CLUSTER if fields else RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    return list(json.loads(client.ask_name_server(code, fields).body)["topicList"])


async def test_a_route(client: OfflineClient) -> None:
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
    assert answer.code == ResponseCode.SUCCESS
    assert json.loads(answer.body) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": BROKER_ADDRESS},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 7,
                "readQueueNums": 8,
                "writeQueueNums": 8,
                "topicSysFlag": 0,
            }
        ],
    }


@pytest.mark.parametrize(
    ("version", "accept", "dialect"),
    [(400, {}, True), (401, {}, False), (513, {}, False), (400, {"acceptStandardJsonOnly": "true"}, False)],
)
async def test_old_clients_are_answered_in_fastjsons_dialect(
    client: OfflineClient, version: int, accept: dict[str, str], dialect: bool
) -> None:
    fields = {"topic": "TBW102", **accept}
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, version=version)
    assert (b'"brokerAddrs":{0:"127' in answer.body) == dialect
    assert (b'"brokerAddrs":{"0":"127' in answer.body) != dialect


async def test_an_unknown_topic(client: OfflineClient) -> None:
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nope"})
    assert (answer.code, answer.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: nope{FAQ}",
    )


async def test_the_cluster(client: OfflineClient) -> None:
    answer = client.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO, {})
    standard = answer.body.replace(b"{0:", b'{"0":')
    assert standard != answer.body
    assert json.loads(standard) == {
        "brokerAddrTable": {
            "broker-a": {
                "brokerAddrs": {"0": BROKER_ADDRESS},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }
        },
        "clusterAddrTable": {"DefaultCluster": ["broker-a"]},
    }


async def test_topics_are_listed(client: OfflineClient) -> None:
    assert "t" not in known_topics(client)
    client.send("t")
    assert {"t", "TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(known_topics(client))
    assert known_topics(client, cluster="DefaultCluster") == known_topics(client)
    assert known_topics(client, cluster="another") == []


async def test_there_are_no_settings(client: OfflineClient) -> None:
    answer = client.ask_name_server(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "k"})
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: n Key: k",
    )


async def test_a_topic_is_deleted_on_both(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t")
    client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    assert "t" in known_topics(client)
    client.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t", "clusterName": "another"})
    assert "t" in known_topics(client)
    client.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"})
    await trio.sleep(60)
    assert "t" not in known_topics(client)


async def test_a_topic_that_its_broker_keeps_comes_back(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t")
    client.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"})
    assert "t" not in known_topics(client)
    await trio.sleep(31)
    assert "t" in known_topics(client)
