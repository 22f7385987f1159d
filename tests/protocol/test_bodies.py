from __future__ import annotations

import json
from typing import Any, Protocol, Self

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import MessageQueue
from rocketmq_py.protocol import bodies
from rocketmq_py.protocol.bodies import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeStats,
    GroupOffset,
    Heartbeat,
    LockedQueues,
    ProcessQueueInfo,
    ProducerData,
    QueueData,
    QueueLock,
    ResetOffsets,
    SubscriptionData,
    TopicOffset,
    TopicRoute,
    TopicStats,
)

QUEUE = MessageQueue("T", "b", 3)


class AnyBody(Protocol):
    """The interface of all body classes."""

    def encode(self) -> bytes: ...

    @classmethod
    def decode(cls, data: bytes) -> Self: ...


SUBSCRIPTION = (
    '{"classFilterMode":false,"codeSet":[65,66],"expressionType":"TAG","subString":"A || B",'
    '"subVersion":1700000000000,"tagsSet":["A","B"],"topic":"T"}'
)
PROCESS_QUEUE = (
    '{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,"cachedMsgSizeInMiB":0,"commitOffset":0,'
    '"droped":true,"lastConsumeTimestamp":0,"lastLockTimestamp":0,"lastPullTimestamp":0,"locked":false,'
    '"transactionMsgCount":0,"transactionMsgMaxOffset":0,"transactionMsgMinOffset":0,"tryUnlockTimes":0}'
)

# Bodies that Java 5.5.0 encodes, in standard JSON.
STANDARD: list[tuple[type[AnyBody], str]] = [
    (
        Heartbeat,
        '{"clientID":"10.0.0.1@77","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        '"consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING",'
        f'"subscriptionDataSet":[{SUBSCRIPTION}],"unitMode":false}}],"heartbeatFingerprint":0,'
        '"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}',
    ),
    (
        TopicRoute,
        '{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"b",'
        '"cluster":"C","enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"b",'
        '"perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}',
    ),
    (
        QueueLock,
        '{"clientId":"c","consumerGroup":"G","mqSet":[{"brokerName":"b","queueId":3,"topic":"T"}],'
        '"onlyThisBroker":false}',
    ),
    (LockedQueues, '{"lockOKMQSet":[{"brokerName":"b","queueId":3,"topic":"T"}]}'),
    (bodies.TopicList, '{"topicList":["T"]}'),
    (
        bodies.ConsumerConnection,
        '{"connectionSet":[{"clientAddr":"10.0.0.1:3","clientId":"x","language":"PYTHON","version":513}],'
        '"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY",'
        f'"messageModel":"CLUSTERING","subscriptionTable":{{"T":{SUBSCRIPTION}}}}}',
    ),
    (
        bodies.CheckClientConfig,
        f'{{"clientId":"x","group":"G","namespace":"n","subscriptionData":{SUBSCRIPTION}}}',
    ),
    (
        bodies.ConsumeMessageDirectlyResult,
        '{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}',
    ),
    (
        bodies.SubscriptionGroupConfig,
        '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        '"groupName":"G","groupSysFlag":0,"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,'
        '"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}',
    ),
    (bodies.ConsumerList, '{"consumerIdList":["a","b"]}'),
    (
        bodies.AssignmentQuery,
        '{"clientId":"x","consumerGroup":"G","messageModel":"CLUSTERING","strategyName":"AVG","topic":"T"}',
    ),
    (
        bodies.QueueAssignments,
        '{"messageQueueAssignments":[{"messageQueue":{"brokerName":"b","queueId":-1,"topic":"T"},"mode":"POP"}]}',
    ),
    (
        bodies.RequestModeSetting,
        '{"consumerGroup":"G","mode":"POP","popShareQueueNum":0,"topic":"T"}',
    ),
    (
        bodies.BatchAcks,
        '{"acks":[{"b":"Aw==","c":"G","it":30000,"pt":1700000000000,"q":2,"r":"0","rq":4,"so":7,"t":"T"}],'
        '"brokerName":"b"}',
    ),
    (
        bodies.ConsumeTimeSpans,
        '{"consumeTimeSpanSet":[{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":2,'
        '"messageQueue":{"brokerName":"b","queueId":3,"topic":"T"},"minTimeStamp":1}]}',
    ),
]

# Bodies that Java encodes in fastjson's dialect. 4.9.8 and 5.5.0 differ only in new members.
DIALECT: list[tuple[type[AnyBody], str]] = [
    (ResetOffsets, '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:5}}'),
    (
        ConsumeStats,
        '{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{"brokerOffset":5,'
        '"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}',
    ),
    (
        TopicStats,
        '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{"lastUpdateTimestamp":0,"maxOffset":7,'
        '"minOffset":0}},"topicPutTps":0.0}',
    ),
    (
        ConsumerRunningInfo,
        '{"mqPopTable":{{"brokerName":"b","queueId":-1,"topic":"T"}:{"droped":false,"lastPopTimestamp":5,'
        '"waitAckCount":2}},'
        f'"mqTable":{{{{"brokerName":"b","queueId":3,"topic":"T"}}:{PROCESS_QUEUE}}},'
        '"properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY","PROP_CONSUMER_START_TIMESTAMP":"17"},'
        '"statusTable":{"T":{"consumeFailedMsgs":0,"consumeFailedTPS":0.0,"consumeOKTPS":0.0,"consumeRT":0.0,'
        f'"pullRT":1.5,"pullTPS":0.0}}}},"subscriptionSet":[{SUBSCRIPTION}],"userConsumerInfo":{{"a":"b"}}}}',
    ),
    (
        bodies.ConsumerOffsets,
        '{"consumerTable":{"x":{{"brokerName":"b","queueId":3,"topic":"T"}:5}},'
        '"messageQueueTable":{{"brokerName":"b","queueId":3,"topic":"T"}:6}}',
    ),
]
KINDS = [kind for kind, _ in STANDARD + DIALECT]


def without_order(text: str) -> str:
    """Return a form that is equal for texts that differ only in the order of members."""
    return "".join(sorted(text))


@pytest.mark.parametrize(("kind", "text"), STANDARD, ids=lambda value: getattr(value, "__name__", ""))
def test_java_body_is_read_and_written(kind: type[AnyBody], text: str) -> None:
    assert json.loads(kind.decode(text.encode()).encode()) == json.loads(text)


@pytest.mark.parametrize(("kind", "text"), DIALECT, ids=lambda value: getattr(value, "__name__", ""))
def test_java_body_in_the_dialect_is_read_and_written(kind: type[AnyBody], text: str) -> None:
    body = kind.decode(text.encode())
    written = body.encode()
    assert without_order(written.decode()) == without_order(text)
    assert kind.decode(written) == body


def test_codes_of_tags_may_be_texts() -> None:
    """Go's client encodes numbers as strings, which fastjson accepts as numbers."""
    text = (
        '{"clientID":"192.0.2.2@15606","producerDataSet":[],"consumerDataSet":[{"groupName":"g",'
        '"subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"Tag1 || Tag3",'
        '"tagsSet":["Tag1","Tag3"],"codeSet":["2598903","2598905"],"subVersion":1,"expressionType":"TAG"}]}]}'
    )
    (group,) = Heartbeat.decode(text.encode()).consumer_data_set
    assert [subscription.code_set for subscription in group.subscription_data_set] == [(2598903, 2598905)]


def test_heartbeat() -> None:
    (_, text) = STANDARD[0]
    assert Heartbeat.decode(text.encode()) == Heartbeat(
        client_id="10.0.0.1@77",
        producer_data_set=(ProducerData(group_name="PG"),),
        consumer_data_set=(
            ConsumerData(
                group_name="CG",
                subscription_data_set=(
                    SubscriptionData(
                        topic="T",
                        sub_string="A || B",
                        tags_set=("A", "B"),
                        code_set=(65, 66),
                        sub_version=1_700_000_000_000,
                    ),
                ),
            ),
        ),
    )


ROUTE = TopicRoute(
    queue_datas=(QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=6),),
    broker_datas=(
        BrokerData(
            cluster="C", broker_name="b", announced={MASTER_ID: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
        ),
    ),
)


@pytest.mark.parametrize("quote", ["", '"'])
def test_route_with_bare_and_with_quoted_broker_ids(quote: str) -> None:
    text = (
        f'{{"brokerDatas":[{{"brokerAddrs":{{{quote}0{quote}:"10.0.0.1:10911",{quote}1{quote}:"10.0.0.2:10911"}},'
        '"brokerName":"b","cluster":"C"}],"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,'
        '"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert TopicRoute.decode(text.encode()) == ROUTE


def test_route_is_written_as_standard_json() -> None:
    assert json.loads(ROUTE.encode())["brokerDatas"][0]["brokerAddrs"] == {
        "0": "10.0.0.1:10911",
        "1": "10.0.0.2:10911",
    }
    assert TopicRoute.decode(ROUTE.encode()) == ROUTE


def test_broker_address_is_normalized_for_dialling_only() -> None:
    broker = BrokerData(broker_name="b", announced={MASTER_ID: "0:0:0:0:0:0:0:1:10911", 1: "nonsense"})
    assert broker.broker_addrs == {MASTER_ID: "[::1]:10911", 1: "nonsense"}
    text = broker.encode()
    assert json.loads(text)["brokerAddrs"] == {"0": "0:0:0:0:0:0:0:1:10911", "1": "nonsense"}
    assert BrokerData.decode(text) == broker


def queues(read: int, write: int, brokers: int = 1) -> str:
    entry = f'{{"brokerName":"b","perm":6,"readQueueNums":{read},"writeQueueNums":{write},"topicSysFlag":0}}'
    return ",".join([entry] * brokers)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (queues(2**31 - 1, 1), 2**31 - 1),
        (queues(1, 10_000_000), 10_000_000),
        (queues(65_537, 65_537), 65_537),
        (queues(64, 64, 1025), 65_600),
        (queues(1, 1), 300_000_000),
        (queues(1, 1), 80_000),
    ],
)
def test_a_route_of_too_many_queues_is_refused_before_they_are_made(text: str, count: int) -> None:
    conf = {300_000_000: "b:300000000", 80_000: ";".join(["b:8000"] * 10)}.get(count, "")
    data = f'{{"queueDatas":[{text}],"brokerDatas":[],"orderTopicConf":"{conf}"}}'.encode()
    with pytest.raises(ProtocolError, match=f"a topic of {count} queues; at most 65536"):
        TopicRoute.decode(data)


@pytest.mark.parametrize(
    ("mappings", "count"),
    [([("a", 70_000), ("a", 60_000)], 70_000), ([("a", 60_000), ("b", 60_000)], 120_000)],
)
def test_a_route_of_too_many_logical_queues_is_refused(mappings: list[tuple[str, int]], count: int) -> None:
    infos = {
        f"broker-{index}": {"scope": scope, "totalQueues": total, "bname": f"broker-{index}"}
        for index, (scope, total) in enumerate(mappings)
    }
    data = json.dumps({"queueDatas": [], "brokerDatas": [], "topicQueueMappingByBroker": infos}).encode()
    with pytest.raises(ProtocolError, match=f"a topic of {count} queues; at most 65536"):
        TopicRoute.decode(data)


@pytest.mark.parametrize("conf", ["b", "b:", "b:²", "b:x", "b:-1", "b:" + "9" * 4300, "b:1:2", "a:1;b:٣"])
def test_invalid_order_configuration(conf: str) -> None:
    with pytest.raises(ProtocolError, match="expected broker:count"):
        TopicRoute.decode(json.dumps({"orderTopicConf": conf}).encode())


def test_an_order_configuration() -> None:
    assert TopicRoute(order_topic_conf="b:1;a:2;").ordered_queues() == [("b", 1), ("a", 2)]
    assert TopicRoute(order_topic_conf="").ordered_queues() == TopicRoute().ordered_queues() == []
    assert TopicRoute.decode(f'{{"queueDatas":[{queues(64, 64, 1024)}]}}'.encode()).queue_datas


def test_null_counts_as_missing() -> None:
    text = '{"orderTopicConf":null,"filterServerTable":null,"queueDatas":null,"brokerDatas":null}'
    assert TopicRoute.decode(text.encode()) == TopicRoute()
    heartbeat = (
        '{"clientID":"c","producerDataSet":null,"consumerDataSet":[{"groupName":"G","unitMode":null}]}'
    )
    assert Heartbeat.decode(heartbeat.encode()).consumer_data_set == (ConsumerData(group_name="G"),)


def test_none_is_not_written() -> None:
    assert b"null" not in ROUTE.encode()
    ordered = TopicRoute(order_topic_conf="b:4")
    assert json.loads(ordered.encode())["orderTopicConf"] == "b:4"


def test_cluster_in_the_dialect() -> None:
    text = (
        '{"brokerAddrTable":{"b":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b",'
        '"cluster":"C","enableActingMaster":false}},"clusterAddrTable":{"C":["b"]}}'
    )
    cluster = ClusterInfo.decode(text.encode())
    assert cluster.broker_addr_table == {"b": ROUTE.broker_datas[0]}
    assert cluster.cluster_addr_table == {"C": ("b",)}


def test_locks() -> None:
    other = MessageQueue("T", "b", 4)
    lock = QueueLock.of("G", "c", [QUEUE, other])
    assert QueueLock.decode(lock.encode()).queues == (QUEUE, other)
    assert LockedQueues.decode(LockedQueues.of([QUEUE]).encode()).queues == (QUEUE,)


def test_tables_of_queues() -> None:
    assert TopicStats.decode(dict(DIALECT)[TopicStats].encode()).offset_table == {
        QUEUE: TopicOffset(max_offset=7)
    }
    stats = ConsumeStats.decode(dict(DIALECT)[ConsumeStats].encode())
    assert stats.offset_table == {QUEUE: GroupOffset(broker_offset=5)}
    assert ResetOffsets.decode(dict(DIALECT)[ResetOffsets].encode()).offset_table == {QUEUE: 5}
    info = ConsumerRunningInfo.decode(dict(DIALECT)[ConsumerRunningInfo].encode())
    assert info.queue_table == {QUEUE: ProcessQueueInfo(dropped=True)}
    assert info.status_table["T"].pull_rt == 1.5
    assert info.jstack is None
    assert info.pop_queue_table == {
        MessageQueue("T", "b", -1): bodies.PopQueueInfo(wait_ack_count=2, last_pop_timestamp=5)
    }
    assert info.user_info == {"a": "b"}


@pytest.mark.parametrize(
    "text",
    [
        '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:5}}',
        '{"offsetTable":[{"brokerName":"b","queueId":3,"topic":"T","offset":5}]}',
        '{"offsetTable":[[{"brokerName":"b","queueId":3,"topic":"T"},5]]}',
    ],
)
def test_offsets_to_go_on_from_come_in_several_forms(text: str) -> None:
    assert ResetOffsets.decode(text.encode()).offset_table == {QUEUE: 5}


def test_offsets_to_go_on_from_as_tools_in_other_languages_read_them() -> None:
    listed = '{"offsetTable":[{"brokerName":"b","queueId":3,"topic":"T","offset":5}]}'
    assert json.loads(ResetOffsets({QUEUE: 5}).encode_as_list()) == json.loads(listed)


def test_messages_that_are_acknowledged_together() -> None:
    acks = bodies.BatchAcks.decode(dict(STANDARD)[bodies.BatchAcks].encode()).acks[0]
    assert [offset for offset in range(30) if acks.acknowledges(offset)] == [7, 8]
    assert bodies.ack_bits(7, [7, 8]) == acks.bits
    assert bodies.ack_bits(7, []) == b""
    bits = bodies.ack_bits(7, [9, 7 + 31])
    assert [
        offset for offset in range(60) if msgspec.structs.replace(acks, bits=bits).acknowledges(offset)
    ] == [
        9,
        38,
    ]


@pytest.mark.parametrize("offset", [6, 7 + 65_536])
def test_batch_ack_refuses_offsets_outside_the_popped_batch(offset: int) -> None:
    with pytest.raises(ProtocolError, match="popped together"):
        bodies.ack_bits(7, [offset])


def test_running_info_with_tasks() -> None:
    info = ConsumerRunningInfo({"a": "b"}, jstack="task")
    assert ConsumerRunningInfo.decode(info.encode()) == info


def test_tables_of_queues_may_be_missing() -> None:
    assert TopicStats.decode(b"{}") == TopicStats({})
    assert ConsumeStats.decode(b'{"offsetTable":null}') == ConsumeStats({})
    assert ResetOffsets.decode(b"{}") == ResetOffsets({})
    assert ConsumerRunningInfo.decode(b"{}") == ConsumerRunningInfo({})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"5", b"{", b'"x"', b"\xff", b"[" * 100_000])
def test_invalid_bodies_are_refused(kind: type[AnyBody], data: bytes) -> None:
    with pytest.raises(ProtocolError):
        kind.decode(data)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Heartbeat, "{}"),
        (Heartbeat, '{"clientID":5}'),
        (TopicRoute, '{"queueDatas":[{"brokerName":"b"}]}'),
        (TopicRoute, '{"brokerDatas":[{"brokerName":"b","brokerAddrs":{"x":"a:1"}}]}'),
        (TopicRoute, '{"brokerDatas":[{"brokerName":"b","brokerAddrs":{{"x":1}:"a:1"}}]}'),
        (TopicStats, '{"offsetTable":[]}'),
        (TopicStats, '{"offsetTable":{"x":{}}}'),
        (TopicStats, '{"offsetTable":{[1,2]:{}}}'),
        (TopicStats, '{"offsetTable":{{"topic":"T"}:{}}}'),
        (TopicStats, '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:5}}'),
        (TopicStats, '{"topicPutTps":"x"}'),
        (ResetOffsets, '{"offsetTable":[5]}'),
        (ResetOffsets, '{"offsetTable":[[{"brokerName":"b","queueId":3,"topic":"T"}]]}'),
        (bodies.ConsumerOffsets, '{"consumerTable":[]}'),
        (bodies.BatchAcks, '{"brokerName":"b","acks":[{"b":"#"}]}'),
        (ResetOffsets, '{"offsetTable":{{"brokerName":"b","queueId":{"a":{}},"topic":"T"}:5}}'),
        (ConsumerRunningInfo, '{"properties":{"a":5}}'),
        (ConsumerRunningInfo, '{"subscriptionSet":{}}'),
    ],
)
def test_members_of_another_type(kind: type[AnyBody], text: str) -> None:
    with pytest.raises(ProtocolError):
        kind.decode(text.encode())


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
members: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(st.sampled_from(STANDARD + DIALECT), st.data())
def test_damaged_bodies_are_read_or_are_a_protocol_error(
    sample: tuple[type[AnyBody], str], data: st.DataObject
) -> None:
    kind, text = sample
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 10)))
    damaged = text[:start] + data.draw(st.text('{}[]:,"01x.', max_size=3)) + text[end:]
    try:
        body = kind.decode(damaged.encode())
    except ProtocolError:
        return
    assert kind.decode(body.encode()) == body


@given(st.sampled_from(STANDARD + DIALECT), members, st.data())
def test_any_members_are_read_or_are_a_protocol_error(
    sample: tuple[type[AnyBody], str], value: Any, data: st.DataObject
) -> None:
    kind, text = sample
    names = st.sampled_from(sorted(set(text.split('"')[1::2])))
    try:
        kind.decode(json.dumps({data.draw(names): value}).encode())
    except ProtocolError:
        return


def test_bodies_of_queues_are_values() -> None:
    assert attrs.evolve(TopicStats({QUEUE: TopicOffset()}), topic_put_tps=1.5).topic_put_tps == 1.5
    assert (
        len({SubscriptionData(topic="T", sub_string="*"), SubscriptionData(topic="T", sub_string="*")}) == 1
    )
