from __future__ import annotations

import pytest

from rocketmq_py.broker.config import BrokerConfig
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol.bodies import read_properties, write_properties
from tests.broker.offline import Answer, OfflineBroker, OfflineClient


def alter(client: OfflineClient, **settings: str) -> Answer:
    return client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, write_properties(settings))


def settings_of(client: OfflineClient) -> dict[str, str]:
    return read_properties(client.ask(RequestCode.GET_BROKER_CONFIG, {}).body)


async def test_a_change_is_visible_and_increases_the_version(client: OfflineClient) -> None:
    before = client.ask(RequestCode.GET_BROKER_CONFIG, {}).fields["version"]
    assert alter(client, transactionTimeOut="1500", longPollingEnable="false").code == ResponseCode.SUCCESS
    settings = settings_of(client)
    assert (settings["transactionTimeOut"], settings["longPollingEnable"]) == ("1500", "false")
    assert '"counter":0' in before
    assert '"counter":1' in client.ask(RequestCode.GET_BROKER_CONFIG, {}).fields["version"]


async def test_a_change_takes_effect_at_once(client: OfflineClient) -> None:
    alter(client, autoCreateTopicEnable="false", maxMessageSize="10", autoCreateSubscriptionGroup="false")
    assert client.send("NewTopic").code == ResponseCode.TOPIC_NOT_EXIST
    assert client.send("TBW102", b"12345678901").code == ResponseCode.MESSAGE_ILLEGAL
    assert client.pull("TBW102", consumerGroup="unknown").code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    alter(client, longPollingEnable="false", shortPollingTimeMills="10")
    assert client.send("TBW102", b"1").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("setting", ["enableLmq", "enableMultiDispatch"])
async def test_lite_topics_can_be_disabled_and_enabled(client: OfflineClient, setting: str) -> None:
    topic = {
        "topic": "t", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "defaultTopic": "TBW102",
        "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+message.type=LITE",
    }  # fmt: skip
    client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic)
    for enabled in ("true", "false", "true"):
        alter(client, **{setting: enabled})
        client.send("t", __LITE_TOPIC="lite")
    stored = client.pull("t").messages
    assert ["INNER_MULTI_QUEUE_OFFSET" in message.properties for message in stored] == [True, False, True]


async def test_a_change_of_the_permission_is_registered_at_the_name_server(client: OfflineClient) -> None:
    def route() -> bytes:
        return client.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "SELF_TEST_TOPIC"}).body

    assert b'"perm":6' in route()
    alter(client, brokerPermission="4")
    assert b'"perm":4' in route()
    alter(client, brokerPermission="6")
    assert b'"perm":6' in route()


async def test_unknown_settings_and_values_of_the_wrong_type_are_ignored(client: OfflineClient) -> None:
    before = settings_of(client)
    assert alter(client, nothing="1", brokerPermission="six").code == ResponseCode.SUCCESS
    assert settings_of(client) == before


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"brokerName": "other", "traceOn": "false"}, ResponseCode.NO_PERMISSION, "black list"),
        (
            {"brokerPermission": "9", "longPollingEnable": "false"},
            ResponseCode.INVALID_PARAMETER,
            "from 0 to 7",
        ),
    ],
)
async def test_a_refused_change_changes_no_setting(
    client: OfflineClient, settings: dict[str, str], code: int, words: str
) -> None:
    before = settings_of(client)
    answer = alter(client, **settings)
    assert answer.code == code
    assert words in (answer.remark or "")
    assert settings_of(client) == before


async def test_a_change_does_not_affect_the_callers_config() -> None:
    config = BrokerConfig()
    client = OfflineBroker(config).connect()
    alter(client, transactionTimeOut="1500")
    assert config == BrokerConfig()
