"""Administration bodies as 4.9.7 and 5.5.0 encode them."""

from __future__ import annotations

import pytest

from rocketmq_py.errors import ConfigurationError, ProtocolError
from rocketmq_py.protocol.bodies import (
    KeyValueTable,
    ProducerTable,
    SubscriptionGroupTable,
    TopicConfigTable,
    UserInfo,
    read_properties,
    write_properties,
)


def test_the_topics_of_4_9_7() -> None:
    body = TopicConfigTable.decode(
        b'{"dataVersion":{"counter":1,"timestamp":1795373642123},"topicConfigTable":{"T1":{"order":false,'
        b'"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,'
        b'"writeQueueNums":8}}}'
    )
    topic = body.topic_config_table["T1"]
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.order) == (4, 8, 6, False)
    assert topic.attributes == {}


def test_the_topics_of_5_5_0() -> None:
    body = TopicConfigTable.decode(
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"mappingDataVersion":{"counter":0},'
        b'"topicConfigTable":{"F":{"attributes":{"message.type":"FIFO"},"order":true,"perm":4,'
        b'"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"F","topicSysFlag":0,'
        b'"writeQueueNums":1}}}'
    )
    assert body.topic_config_table["F"].attributes == {"message.type": "FIFO"}


def test_the_groups_of_5_5_0() -> None:
    body = SubscriptionGroupTable.decode(
        b'{"dataVersion":{"counter":0},"forbiddenTable":{},"subscriptionGroupTable":{"G":{"attributes":{},'
        b'"brokerId":0,"consumeBroadcastEnable":false,"consumeEnable":true,"consumeFromMinEnable":true,'
        b'"consumeMessageOrderly":true,"consumeTimeoutMinute":15,"groupName":"G","groupRetryPolicy":'
        b'{"type":"CUSTOMIZED"},"groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":3,'
        b'"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}'
    )
    group = body.subscription_group_table["G"]
    assert (group.retry_max_times, group.consume_message_orderly) == (3, True)
    assert not group.consume_broadcast_enable


def test_a_user_shows_no_password() -> None:
    shown = repr(UserInfo(username="alice", password="secret-1", user_type="Super"))
    assert shown == "UserInfo(username='alice', user_type='Super')"


def test_a_table_of_texts_and_one_of_producers() -> None:
    assert KeyValueTable.decode(b'{"table":{"brokerVersion":"513"}}').table == {"brokerVersion": "513"}
    (producer,) = ProducerTable.decode(
        b'{"data":{"g":[{"clientId":"c@1","language":"PYTHON","lastUpdateTimestamp":5,'
        b'"remoteIP":"127.0.0.1:1","version":513}]}}'
    ).data["g"]
    assert (producer.client_id, producer.remote_ip, producer.version) == ("c@1", "127.0.0.1:1", 513)


def test_settings_are_lines_of_text() -> None:
    text = b"aclEnable=false\nmessageDelayLevel=1s 5s\nstorePathRootDir=C:\\rocketmq\nempty=\n\n"
    assert read_properties(text) == {
        "aclEnable": "false",
        "messageDelayLevel": "1s 5s",
        "storePathRootDir": "C:\\rocketmq",
        "empty": "",
    }
    with pytest.raises(ProtocolError, match="settings"):
        read_properties(b"\xff=1")


def test_backslashes_in_settings_are_escaped() -> None:
    assert write_properties({"a": "1", "path": "C:\\x"}) == b"a=1\npath=C:\\\\x"


@pytest.mark.parametrize("settings", [{"": "1"}, {"a=b": "1"}, {"a b": "1"}, {"a": "1\nb=2"}])
def test_ambiguous_settings_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        write_properties(settings)
