from __future__ import annotations

import types
import typing
from functools import cache
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_py.codes import RequestCode
from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol import headers
from rocketmq_py.protocol.headers import Header, Int32, Int64, Request
from tests.protocol.strategies import int32, int64, text

CLASSES: list[type[Header]] = [
    value
    for value in [getattr(headers, name) for name in headers.__all__]
    if isinstance(value, type) and issubclass(value, Header) and value not in (Header, Request)
]

STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    str: text,
    bool: st.booleans(),
    Int32: int32,
    Int64: int64,
}

# The names on the wire of Java's classes (5.5.0); those that must be there have a "!".
NAMES = {
    headers.SendMessageRequest: "producerGroup! topic! defaultTopic! defaultTopicQueueNums! queueId! sysFlag!"
    " bornTimestamp! flag! properties reconsumeTimes unitMode batch maxReconsumeTimes bname ns nsd",
    headers.SendMessageRequestV2: "a! b! c! d! e! f! g! h! i j k l m n ns nsd",
    headers.SendBatchMessageRequest: "a! b! c! d! e! f! g! h! i j k l m n ns nsd",
    headers.SendMessageAnswer: "msgId! queueId! queueOffset! transactionId batchUniqId recallHandle"
    " MSG_REGION TRACE_ON",
    headers.EndTransactionRequest: "producerGroup! tranStateTableOffset! commitLogOffset! commitOrRollback!"
    " msgId! transactionId fromTransactionCheck topic bname ns nsd",
    headers.CheckTransactionStateRequest: "tranStateTableOffset! commitLogOffset! msgId transactionId"
    " offsetMsgId topic bname ns nsd",
    headers.SendReplyMessageRequest: "producerGroup! topic! defaultTopic! defaultTopicQueueNums! queueId!"
    " sysFlag! bornTimestamp! flag! properties reconsumeTimes unitMode batch maxReconsumeTimes bname ns nsd",
    headers.SendReplyMessageRequestV2: "a! b! c! d! e! f! g! h! i j k l m n ns nsd",
    headers.PushReplyMessageRequest: "producerGroup! topic! defaultTopic! defaultTopicQueueNums! queueId!"
    " sysFlag! bornTimestamp! flag! properties reconsumeTimes unitMode bornHost! storeHost! storeTimestamp!"
    " bname ns nsd",
    headers.RecallMessageRequest: "topic! recallHandle! producerGroup bname ns nsd",
    headers.RecallMessageAnswer: "msgId!",
    headers.PullMessageRequest: "consumerGroup! topic! queueId! queueOffset! maxMsgNums! sysFlag!"
    " commitOffset! suspendTimeoutMillis! subVersion! subscription expressionType maxMsgBytes bname ns nsd",
    headers.PullMessageAnswer: "suggestWhichBrokerId! nextBeginOffset! minOffset! maxOffset! offsetDelta"
    " topicSysFlag groupSysFlag forbiddenType",
    headers.QueryConsumerOffsetRequest: "consumerGroup! topic! queueId! setZeroIfNotFound bname ns nsd",
    headers.UpdateConsumerOffsetRequest: "consumerGroup! topic! queueId! commitOffset! bname ns nsd",
    headers.SearchOffsetRequest: "topic! queueId! timestamp! boundaryType bname ns nsd",
    headers.GetMaxOffsetRequest: "topic! queueId! committed bname ns nsd",
    headers.GetMinOffsetRequest: "topic! queueId! bname ns nsd",
    headers.OffsetAnswer: "offset!",
    headers.GetEarliestStoreTimeRequest: "topic! queueId! bname ns nsd",
    headers.GetEarliestStoreTimeAnswer: "timestamp!",
    headers.ViewMessageRequest: "offset! topic bname ns nsd",
    headers.QueryMessageRequest: "topic! key! maxNum! beginTimestamp! endTimestamp! _UNIQUE_KEY_QUERY"
    " indexType bname ns nsd",
    headers.QueryMessageAnswer: "indexLastUpdateTimestamp! indexLastUpdatePhyoffset!",
    headers.ConsumerSendMsgBackRequest: "offset! group! delayLevel! originMsgId originTopic unitMode"
    " maxReconsumeTimes bname ns nsd",
    headers.GetRouteInfoRequest: "topic! acceptStandardJsonOnly bname ns nsd",
    headers.CheckClientConfigRequest: "bname ns nsd",
    headers.HeartbeatRequest: "bname ns nsd",
    headers.HeartbeatAnswer: "IS_SUPPORT_HEART_BEAT_V2 IS_SUB_CHANGE",
    headers.UnregisterClientRequest: "clientID! producerGroup consumerGroup bname ns nsd",
    headers.GetConsumerListByGroupRequest: "consumerGroup! bname ns nsd",
    headers.LockBatchMqRequest: "bname ns nsd",
    headers.UnlockBatchMqRequest: "bname ns nsd",
    headers.NotifyConsumerIdsChangedRequest: "consumerGroup! bname ns nsd",
    headers.ResetOffsetRequest: "topic! group! timestamp! isForce! queueId offset bname ns nsd",
    headers.GetConsumerStatusRequest: "topic! group! clientAddr bname ns nsd",
    headers.GetConsumerRunningInfoRequest: "consumerGroup! clientId! jstackEnable bname ns nsd",
    headers.ConsumeMessageDirectlyRequest: "consumerGroup! clientId msgId brokerName topic topicSysFlag"
    " groupSysFlag bname ns nsd",
    headers.CreateTopicRequest: "topic! defaultTopic! readQueueNums! writeQueueNums! perm! topicFilterType"
    " topicSysFlag order attributes force bname ns nsd",
    headers.DeleteTopicInBrokerRequest: "topic! bname ns nsd",
    headers.DeleteTopicInNameServerRequest: "topic! clusterName bname ns nsd",
    headers.GetTopicStatsInfoRequest: "topic! bname ns nsd",
    headers.GetConsumerConnectionListRequest: "consumerGroup! bname ns nsd",
    headers.GetConsumeStatsRequest: "consumerGroup! topic topicList bname ns nsd",
    headers.QueryConsumeTimeSpanRequest: "topic! group! bname ns nsd",
    headers.QueryTopicConsumeByWhoRequest: "topic! bname ns nsd",
    headers.InvokeBrokerToGetConsumerStatusRequest: "topic! group! clientAddr bname ns nsd",
    headers.InvokeBrokerToResetOffsetRequest: "topic! group! timestamp! isForce! queueId offset bname ns nsd",
    headers.GetTopicConfigRequest: "topic! lo bname ns nsd",
    headers.GetAllTopicConfigRequest: "topicSeq dataVersion maxTopicNum bname ns nsd",
    headers.GetAllTopicConfigAnswer: "totalTopicNum",
    headers.GetSubscriptionGroupConfigRequest: "group! bname ns nsd",
    headers.GetProducerConnectionListRequest: "producerGroup! bname ns nsd",
    headers.QueryTopicsByConsumerRequest: "group! bname ns nsd",
    headers.QuerySubscriptionByConsumerRequest: "group! topic! bname ns nsd",
    headers.CloneGroupOffsetRequest: "srcGroup! destGroup! topic offline bname ns nsd",
    headers.GetKvConfigRequest: "namespace! key! bname ns nsd",
    headers.GetKvListRequest: "namespace! bname ns nsd",
    headers.CreateUserRequest: "username! bname ns nsd",
    headers.UpdateUserRequest: "username! bname ns nsd",
    headers.DeleteUserRequest: "username! bname ns nsd",
    headers.ListUsersRequest: "filter bname ns nsd",
    headers.CreateAclRequest: "subject! bname ns nsd",
    headers.DeleteAclRequest: "subject! policyType resource bname ns nsd",
    headers.ListAclsRequest: "subjectFilter resourceFilter bname ns nsd",
    headers.GetAclVersionRequest: "bname ns nsd",
    headers.GetAclVersionAnswer: "version! allAclFileVersion",
    headers.GetBrokerRuntimeInfoRequest: "bname ns nsd",
    headers.GetBrokerConfigRequest: "bname ns nsd",
    headers.UpdateBrokerConfigRequest: "bname ns nsd",
    headers.GetNameServerConfigRequest: "bname ns nsd",
    headers.UpdateNameServerConfigRequest: "bname ns nsd",
    headers.WipeWritePermissionRequest: "brokerName! bname ns nsd",
    headers.WipeWritePermissionAnswer: "wipeTopicCount!",
    headers.AddWritePermissionRequest: "brokerName! bname ns nsd",
    headers.AddWritePermissionAnswer: "addTopicCount!",
    headers.PutKvConfigRequest: "namespace! key! value! bname ns nsd",
    headers.DeleteKvConfigRequest: "namespace! key! bname ns nsd",
    headers.PutSubscriptionGroupRequest: "bname ns nsd",
    headers.GetAllSubscriptionGroupRequest: "groupSeq dataVersion maxGroupNum bname ns nsd",
    headers.GetAllSubscriptionGroupAnswer: "totalGroupNum",
    headers.DeleteSubscriptionGroupRequest: "groupName! cleanOffset removeOffset bname ns nsd",
    headers.GetAllProducerInfoRequest: "bname ns nsd",
    headers.PopMessageRequest: "consumerGroup! topic! queueId! maxMsgNums! invisibleTime! pollTime! bornTime!"
    " initMode! expType exp order attemptId bname ns nsd",
    headers.PopMessageAnswer: "popTime! invisibleTime! reviveQid! restNum! startOffsetInfo msgOffsetInfo"
    " orderCountInfo",
    headers.PopLiteMessageRequest: "clientId! consumerGroup! topic! maxMsgNum! invisibleTime! pollTime!"
    " bornTime! attemptId bname ns nsd",
    headers.PopLiteMessageAnswer: "popTime! invisibleTime! reviveQid! orderCountInfo",
    headers.LiteSubscriptionRequest: "bname ns nsd",
    headers.NotifyUnsubscribeLiteRequest: "liteTopic! consumerGroup! clientId! bname ns nsd",
    headers.GetBrokerLiteInfoRequest: "bname ns nsd",
    headers.GetParentTopicInfoRequest: "topic! bname ns nsd",
    headers.GetLiteTopicInfoRequest: "parentTopic! liteTopic! bname ns nsd",
    headers.GetLiteClientInfoRequest: "parentTopic! group! clientId! maxCount bname ns nsd",
    headers.GetLiteGroupInfoRequest: "group! liteTopic topK bname ns nsd",
    headers.TriggerLiteDispatchRequest: "group! clientId bname ns nsd",
    headers.AckMessageRequest: "consumerGroup! topic! queueId! extraInfo! offset! liteTopic bname ns nsd",
    headers.BatchAckMessageRequest: "bname ns nsd",
    headers.QueryAssignmentRequest: "bname ns nsd",
    headers.ChangeInvisibleTimeRequest: "consumerGroup! topic! queueId! extraInfo! offset! invisibleTime!"
    " liteTopic suspend bname ns nsd",
    headers.ChangeInvisibleTimeAnswer: "popTime! invisibleTime! reviveQid!",
}


def strategy_of(hint: Any) -> st.SearchStrategy[Any]:
    choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if typing.get_origin(hint) is typing.Union:
        choices = typing.get_args(hint)
    return st.one_of([st.none() if choice is type(None) else STRATEGIES[choice] for choice in choices])


@cache
def instances(cls: type[Header]) -> st.SearchStrategy[Header]:
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: strategy_of(hints[field.name]) for field in msgspec.structs.fields(cls)}
    # A default takes the place of None, so None stays out where that would change the value.
    for field in msgspec.structs.fields(cls):
        if field.default not in (None, msgspec.NODEFAULT):
            fields[field.name] = fields[field.name].filter(lambda value: value is not None)
    return st.builds(cls, **fields)


@cache
def any_fields(cls: type[Header]) -> st.SearchStrategy[dict[str, str]]:
    values = text | st.sampled_from(["1", "true", "", "-1", "9223372036854775808", "1e3", "9" * 5000])
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names_of(cls), values))


def names_of(cls: type[Header]) -> list[str]:
    return NAMES[cls].replace("!", "").split()


def filled(cls: type[Header]) -> dict[str, str]:
    """Return ext fields with every name of the class."""
    return dict.fromkeys(names_of(cls), "1")


def test_every_class_is_checked_against_java() -> None:
    assert set(NAMES) == set(CLASSES)


def test_names_are_those_of_java() -> None:
    for cls in CLASSES:
        assert set(cls.from_fields(filled(cls)).to_fields()) == set(names_of(cls))


def test_optional_fields_of_java_may_be_missing() -> None:
    for cls in CLASSES:
        for name in NAMES[cls].split():
            fields = filled(cls)
            del fields[name.removesuffix("!")]
            if name.endswith("!"):
                with pytest.raises(ProtocolError, match=f"{cls.__name__}: field '{name[:-1]}' is missing"):
                    cls.from_fields(fields)
            else:
                cls.from_fields(fields)


@settings(max_examples=settings().max_examples * len(CLASSES) // 5)
@given(cls=st.sampled_from(CLASSES), data=st.data())
def test_round_trip(cls: type[Header], data: st.DataObject) -> None:
    header = data.draw(instances(cls))
    fields = header.to_fields()
    assert all(type(name) is str and type(value) is str for name, value in fields.items())
    assert cls.from_fields(fields) == header


@settings(max_examples=settings().max_examples * len(CLASSES) // 5)
@given(cls=st.sampled_from(CLASSES), data=st.data())
def test_any_fields_are_read_or_are_a_protocol_error(cls: type[Header], data: st.DataObject) -> None:
    fields = data.draw(any_fields(cls))
    try:
        header = cls.from_fields(fields)
    except ProtocolError:
        return
    assert cls.from_fields(header.to_fields()) == header


def test_values_are_written_as_java_writes_them() -> None:
    request = headers.PullMessageRequest(
        consumer_group="G",
        topic="T",
        queue_id=3,
        queue_offset=2**40,
        max_msg_nums=32,
        sys_flag=6,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=1_700_000_000_000,
        broker_name="b",
        namespaced=True,
    )
    assert request.to_fields() == {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "3",
        "queueOffset": "1099511627776",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subVersion": "1700000000000",
        "bname": "b",
        "nsd": "true",
    }


def test_batch_header_is_flagged() -> None:
    fields = dict.fromkeys("abcdefgh", "1")
    assert headers.SendBatchMessageRequest.from_fields(fields).to_fields() == fields | {"m": "true"}


@pytest.mark.parametrize("text", ["true", "TRUE", "True"])
def test_true(text: str) -> None:
    assert headers.HeartbeatAnswer.from_fields({"IS_SUPPORT_HEART_BEAT_V2": text}).supports_heartbeat_v2


@pytest.mark.parametrize("text", ["false", "", "1", "yes"])
def test_all_else_is_false_as_in_java(text: str) -> None:
    assert not headers.HeartbeatAnswer.from_fields({"IS_SUPPORT_HEART_BEAT_V2": text}).supports_heartbeat_v2


@pytest.mark.parametrize(
    ("name", "value"),
    [("queueId", "x"), ("queueId", ""), ("queueId", "2147483648"), ("commitOffset", str(2**63))],
)
def test_an_ill_formed_number_is_named(name: str, value: str) -> None:
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "1", "commitOffset": "1", name: value}
    with pytest.raises(ProtocolError, match=f"UpdateConsumerOffsetRequest: field '{name}'"):
        headers.UpdateConsumerOffsetRequest.from_fields(fields)


def test_unknown_fields_are_left_alone() -> None:
    assert headers.OffsetAnswer.from_fields({"offset": "5", "x": "y"}).offset == 5


def test_each_request_knows_a_code() -> None:
    codes = [cls.code for cls in CLASSES if issubclass(cls, Request)]
    assert len(set(codes)) == len(codes)
    assert all(code in RequestCode.__members__.values() for code in codes)


def test_subclasses_have_their_own_codec() -> None:

    class Parent(Header, frozen=True, kw_only=True):
        first: str

    class Child(Parent, frozen=True, kw_only=True):
        second: str

    assert Parent(first="1").to_fields() == {"first": "1"}
    assert Child(first="1", second="2").to_fields() == {"first": "1", "second": "2"}
    assert Child.from_fields({"first": "1", "second": "2"}) == Child(first="1", second="2")
