from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.client.namespace import Namespace, missing_topic_advice
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol.bodies import (
    BrokerLiteInfo,
    CheckClientConfig,
    ConsumerConnection,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatus,
    GroupList,
    GroupOffset,
    Heartbeat,
    LiteSubscription,
    LiteSubscriptionAction,
    LiteSubscriptions,
    ProcessQueueInfo,
    QueueLock,
    SubscriptionData,
)
from rocketmq_py.protocol.headers import (
    ConsumerSendMsgBackRequest,
    GetConsumerListByGroupRequest,
    HeartbeatRequest,
    PullMessageRequest,
    UnregisterClientRequest,
)
from tests.consumer.received import received

NAMES = st.text(st.sampled_from("abcXYZ019_-|"), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("topic", "on_wire"),
    [
        ("T", "ns%T"),
        ("%RETRY%G", "%RETRY%ns%G"),
        ("%DLQ%G", "%DLQ%ns%G"),
        ("ns%T", "ns%T"),  # it has the namespace already
        ("%RETRY%ns%G", "%RETRY%ns%G"),
        ("other%T", "ns%other%T"),
        ("TBW102", "TBW102"),  # reserved by RocketMQ
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_anything", "rmq_sys_anything"),
        ("%RETRY%TOOLS_CONSUMER", "%RETRY%TOOLS_CONSUMER"),
    ],
)
def test_topics_have_the_same_names_as_in_java(topic: str, on_wire: str) -> None:
    assert Namespace("ns").wrap_topic(topic) == on_wire
    assert repr(Namespace("ns")) == "Namespace('ns')"


@pytest.mark.parametrize(
    ("group", "on_wire"),
    [
        ("G", "ns%G"),
        ("ns%G", "ns%G"),
        ("CID_RMQ_SYS_X", "CID_RMQ_SYS_X"),
        ("TOOLS_CONSUMER", "TOOLS_CONSUMER"),
    ],
)
def test_groups_have_the_same_names_as_in_java(group: str, on_wire: str) -> None:
    assert Namespace("ns").wrap_group(group) == on_wire


@pytest.mark.parametrize(
    ("on_wire", "topic"),
    [
        ("ns%T", "T"),
        ("%RETRY%ns%G", "%RETRY%G"),
        ("%DLQ%ns%G", "%DLQ%G"),
        ("other%T", "other%T"),
        ("%RETRY%other%G", "%RETRY%other%G"),
        ("nsT", "nsT"),
        ("T", "T"),
    ],
)
def test_names_of_another_namespace_are_unchanged(on_wire: str, topic: str) -> None:
    assert Namespace("ns").unwrap_topic(on_wire) == topic


@given(NAMES, NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_unwrapping_reverses_wrapping(name: str, short: str, kind: str) -> None:
    namespace = Namespace(name)
    assert namespace.unwrap_topic(namespace.wrap_topic(kind + short)) == kind + short
    assert namespace.unwrap_group(namespace.wrap_group(short)) == short


@given(st.sampled_from(["", "%RETRY%", "%DLQ%"]), NAMES)
def test_without_a_namespace_nothing_changes(kind: str, short: str) -> None:
    none, topic = Namespace(), kind + short
    header = GetConsumerListByGroupRequest(consumer_group=short)
    assert none.wrap_topic(topic) is topic
    assert none.unwrap_topic(topic) is topic
    assert none.wrap_group(short) is short
    assert none.unwrap_group(short) == short
    assert none.wrap(header) is header


def test_every_name_in_a_request_is_wrapped() -> None:
    namespace = Namespace("ns")
    sent_back = ConsumerSendMsgBackRequest(
        offset=1, group="G", delay_level=0, origin_topic="T", broker_name="broker-a"
    )
    assert namespace.wrap(sent_back).to_fields() == {
        **sent_back.to_fields(),
        "group": "ns%G",
        "originTopic": "ns%T",
    }
    pull = PullMessageRequest(
        consumer_group="G",
        topic="%RETRY%G",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    assert namespace.wrap(pull).topic == "%RETRY%ns%G"
    assert namespace.wrap(pull).consumer_group == "ns%G"
    leaving = UnregisterClientRequest(client_id="c", producer_group="P")
    assert namespace.wrap(leaving) == UnregisterClientRequest(client_id="c", producer_group="ns%P")
    assert namespace.wrap(HeartbeatRequest()) == HeartbeatRequest()


def test_a_heartbeat_has_the_names_on_the_wire() -> None:
    consumer = ConsumerData(
        group_name="G",
        subscription_data_set=(
            SubscriptionData(topic="T", sub_string="A", tags_set=("A",)),
            SubscriptionData(topic="%RETRY%G", sub_string="*"),
        ),
    )
    (wrapped,) = (
        Namespace("ns").wrap(Heartbeat(client_id="c", consumer_data_set=(consumer,))).consumer_data_set
    )
    assert wrapped.group_name == "ns%G"
    assert [one.topic for one in wrapped.subscription_data_set] == ["ns%T", "%RETRY%ns%G"]
    assert wrapped.subscription_data_set[0].tags_set == ("A",)
    assert Namespace().wrap(consumer) is consumer


def test_every_name_in_a_body_is_wrapped() -> None:
    namespace = Namespace("ns")
    lock = namespace.wrap(
        QueueLock.of("G", "c", [MessageQueue("T", "b", 1), MessageQueue("%RETRY%G", "b", 0)])
    )
    assert lock.consumer_group == "ns%G"
    assert lock.queues == (MessageQueue("ns%T", "b", 1), MessageQueue("%RETRY%ns%G", "b", 0))
    subscription = SubscriptionData(topic="T", sub_string="*")
    check = namespace.wrap(CheckClientConfig(client_id="c", group="G", subscription_data=subscription))
    assert (check.group, check.subscription_data.topic, check.namespace) == ("ns%G", "ns%T", None)
    change = LiteSubscription(
        action=LiteSubscriptionAction.PARTIAL_ADD, client_id="c", group="G", topic="T", lite_topic_set=("L",)
    )
    (changed,) = namespace.wrap(LiteSubscriptions(subscription_set=(change,))).subscription_set
    assert (changed.group, changed.topic, changed.lite_topic_set) == ("ns%G", "ns%T", ("L",))


def test_every_name_in_an_answer_is_unwrapped() -> None:
    namespace = Namespace("ns")
    retries, mine, other = "%RETRY%ns%G", MessageQueue("ns%T", "b", 1), MessageQueue("other%T", "b", 1)
    stats = namespace.unwrap(ConsumeStats({mine: GroupOffset(consumer_offset=7), other: GroupOffset()}, 2.5))
    assert stats.offset_table == {
        MessageQueue("T", "b", 1): GroupOffset(consumer_offset=7),
        other: GroupOffset(),
    }
    assert stats.consume_tps == 2.5
    subscription = SubscriptionData(topic="ns%T", sub_string="ns%T")
    online = namespace.unwrap(ConsumerConnection(subscription_table={"ns%T": subscription}))
    assert online.subscription_table == {"T": SubscriptionData(topic="T", sub_string="ns%T")}
    info = ConsumerRunningInfo(
        {"consumerGroup": "ns%G"},
        (subscription,),
        queue_table={mine: ProcessQueueInfo(commit_offset=7)},
        status_table={"ns%T": ConsumeStatus(consume_rt=1.5), retries: ConsumeStatus()},
    )
    seen = namespace.unwrap(info)
    assert [one.topic for one in seen.subscription_set] == ["T"]
    assert seen.queue_table == {MessageQueue("T", "b", 1): ProcessQueueInfo(commit_offset=7)}
    assert seen.status_table == {"T": ConsumeStatus(consume_rt=1.5), "%RETRY%G": ConsumeStatus()}
    assert namespace.wrap(seen) == info
    lite = BrokerLiteInfo(topic_meta={"ns%T": 5}, group_meta={"ns%T": ("ns%G", "H"), "U": ()})
    assert namespace.unwrap(lite) == BrokerLiteInfo(
        topic_meta={"T": 5}, group_meta={"T": ("G", "H"), "U": ()}
    )
    assert namespace.unwrap(GroupList(group_list=("ns%G", "H"))) == GroupList(group_list=("G", "H"))
    assert Namespace().unwrap(info) is info


def test_tables_of_all_namespaces_are_read_by_the_users_names() -> None:
    namespace = Namespace("ns")
    topics = {"T": 1, "ns%T": 2, "%RETRY%ns%G": 3, "%RETRY%G": 4, "TBW102": 5}
    assert namespace.own_topics(topics) == {"T": 2, "%RETRY%G": 3, "TBW102": 5}
    assert namespace.find_topic("T", topics) == 2
    assert namespace.find_topic("ns%T", topics) == 2
    assert namespace.find_topic("U", topics) is None
    groups = {"G": 1, "ns%G": 2, "TOOLS_CONSUMER": 3}
    assert namespace.own_groups(groups) == {"G": 2, "TOOLS_CONSUMER": 3}
    assert namespace.find_group("G", groups) == 2
    assert namespace.find_group("H", groups) is None
    assert Namespace().own_topics(topics) == topics
    assert Namespace().own_groups(groups) == groups


def test_names_with_and_without_the_namespace_are_the_same() -> None:
    namespace = Namespace("ns")
    assert namespace.same_topic("%RETRY%G", "%RETRY%ns%G")
    assert namespace.same_group("ns%G", "G")
    assert not namespace.same_topic("T", "other%T")
    assert not namespace.same_group("G", "other%G")


def test_messages_have_the_users_topic_and_the_properties_that_the_broker_stored() -> None:
    stored = received(0, topic="ns%T", RETRY_TOPIC="ns%T")
    (message,) = Namespace("ns").unwrap([stored])
    assert message.topic == "T"
    assert message.body is stored.body
    assert message.properties == {"RETRY_TOPIC": "ns%T"}
    assert Namespace().unwrap([stored]) == [stored]


def test_a_name_that_becomes_too_long_is_rejected() -> None:
    namespace = Namespace("n" * 60)
    assert len(namespace.wrap_topic("t" * 66)) == 127
    with pytest.raises(ConfigurationError, match="has 128 characters; at most 127"):
        namespace.wrap_topic("t" * 67)
    with pytest.raises(ConfigurationError, match="has 121 characters; at most 120"):
        namespace.wrap_group("g" * 60)
    # As in Java, a group and a topic together.
    pop_retry = f"%RETRY%{'g' * 60}_{'t' * 60}"
    assert namespace.wrap_topic(pop_retry) == f"%RETRY%{'n' * 60}%{'g' * 60}_{'t' * 60}"
    with pytest.raises(ConfigurationError, match="at most 255"):
        namespace.wrap_topic(pop_retry + "t" * 67)


@pytest.mark.parametrize("name", ["a%b", "with blank", "ü", "a\n"])
def test_an_invalid_namespace_is_rejected(name: str) -> None:
    with pytest.raises(ConfigurationError, match="may hold only letters, digits"):
        Namespace(name)


@pytest.mark.parametrize(
    ("topic", "namespace", "address", "advice"),
    [
        ("T", "", "a:1", ""),
        ("T", "ns", "a:1", ""),
        ("T", "MQ_INST_1_a", "MQ_INST_1_a.x:1", ""),
        ("MQ_INST_1_a%T", "", "MQ_INST_1_a.x:1", ""),
        ("rocketmq-1|n%T", "ns", "a:1", "the name may contain a namespace already; pass the name without it"),
        ("%RETRY%G", "ns", "a:1", ""),
        ("%RETRY%other%G", "ns", "a:1", "the name may contain a namespace already"),
        (
            "T",
            "",
            "MQ_INST_1_a.x:1",
            "is of the namespace MQ_INST_1_a, which namespace='' tu",
        ),
        (
            "T",
            "",
            "rocketmq-1.rocketmq.gz.public.tencenttdmq.com:9876",
            "have a namespace; pass it as",
        ),
        ("T", "", "rmq-1.rocketmq.gz.public.tencenttdmq.com:8080", ""),
    ],
)
def test_advice_for_a_missing_topic_whose_namespace_may_be_wrong(
    topic: str, namespace: str, address: str, advice: str
) -> None:
    given = missing_topic_advice(topic, namespace, ["10.0.0.1:9876", address])
    assert advice in given
    assert bool(advice) == bool(given)
