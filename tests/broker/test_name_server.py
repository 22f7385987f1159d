from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import trio
import trio.testing

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.broker.topics import TopicConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import TopicRoute, read_properties, write_properties
from tests.broker.offline import BROKER_ADDRESS, Answer, OfflineBroker, OfflineClient

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


def known_topics(client: OfflineClient, **fields: str) -> list[str]:
    code = RequestCode.GET_TOPICS_BY_CLUSTER if fields else RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
    return list(json.loads(client.ask_name_server(code, fields).body)["topicList"])


async def test_the_route_of_a_topic(client: OfflineClient) -> None:
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
async def test_old_clients_are_answered_in_the_dialect_of_fastjson(
    client: OfflineClient, version: int, accept: dict[str, str], dialect: bool
) -> None:
    fields = {"topic": "TBW102", **accept}
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, version=version)
    assert (b'"brokerAddrs":{0:"127' in answer.body) == dialect
    assert (b'"brokerAddrs":{"0":"127' in answer.body) != dialect


async def test_the_route_of_an_unknown_topic_is_refused(client: OfflineClient) -> None:
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nope"})
    assert (answer.code, answer.remark) == (
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: nope{FAQ}",
    )


async def test_the_brokers_of_the_cluster(client: OfflineClient) -> None:
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


async def test_topics_can_be_listed(client: OfflineClient) -> None:
    assert "t" not in known_topics(client)
    client.send("t")
    assert {"t", "TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(known_topics(client))
    assert known_topics(client, cluster="DefaultCluster") == known_topics(client)
    assert known_topics(client, cluster="another") == []


async def test_an_unknown_kv_config_is_refused(client: OfflineClient) -> None:
    answer = client.ask_name_server(RequestCode.GET_KV_CONFIG, {"namespace": "n", "key": "k"})
    assert (answer.code, answer.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: n Key: k",
    )


async def test_a_topic_is_deleted_on_the_broker_and_on_the_name_server(
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


async def test_a_topic_that_is_deleted_only_on_the_name_server_comes_back(
    client: OfflineClient, autojump_clock: trio.testing.MockClock
) -> None:
    client.send("t")
    client.ask_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "t"})
    assert "t" not in known_topics(client)
    await trio.sleep(31)
    assert "t" in known_topics(client)


async def test_topic_lists_can_be_disabled(open_broker: Callable[..., OfflineBroker]) -> None:
    client = open_broker().connect()

    def ask(code: int, **settings: str) -> Answer:
        return client.ask_name_server(code, {}, body=write_properties(settings))

    assert read_properties(ask(RequestCode.GET_NAMESRV_CONFIG).body)["enableAllTopicList"] == "true"
    ask(RequestCode.UPDATE_NAMESRV_CONFIG, enableAllTopicList="false", enableTopicList="false", nothing="1")
    assert read_properties(ask(RequestCode.GET_NAMESRV_CONFIG).body)["enableAllTopicList"] == "false"
    for code in (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER):
        assert ask(code).remark == "disable"
    refused = ask(RequestCode.UPDATE_NAMESRV_CONFIG, kvConfigPath="/x", enableTopicList="true")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert ask(RequestCode.GET_TOPICS_BY_CLUSTER).remark == "disable"


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, ["a", "b", "replica"]),
        ({"__ZONE_NAME": "zone-1"}, ["a", "b", "replica"]),
        ({"__ZONE_NAME": "zone-1", "__ZONE_MODE": "false"}, ["a", "b", "replica"]),
        ({"__ZONE_NAME": "", "__ZONE_MODE": "true"}, ["a", "b", "replica"]),
        ({"__ZONE_NAME": "Zone-1", "__ZONE_MODE": "true"}, ["a", "replica"]),
        ({"__ZONE_NAME": "zone-3", "__ZONE_MODE": "true"}, ["replica"]),
    ],
)
async def test_routes_for_a_zone_have_its_brokers_and_those_without_a_master(
    broker: OfflineBroker, client: OfflineClient, fields: dict[str, str], names: list[str]
) -> None:
    server = broker.name_server
    topic = TopicConfig(topic_name="zoned")
    for name, zone in (("a", "zone-1"), ("b", "zone-2"), ("replica", "zone-2")):
        config = BrokerConfig(broker_name=name, zone_name=zone)
        server.register(config, "127.0.0.1:1", [topic])
        server.register(config, "127.0.0.1:2", [], broker_id=1)
    server.unregister("replica")
    answer = client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "zoned", **fields})
    route = TopicRoute.decode(answer.body)
    assert [broker.broker_name for broker in route.broker_datas] == names
    assert [queues.broker_name for queues in route.queue_datas] == names
