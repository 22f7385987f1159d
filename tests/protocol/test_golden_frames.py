"""Frames of the Java clients and of real brokers: decoding and encoding them again changes nothing.

``integration/capture.py`` wrote the data, and writes it again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.protocol import bodies, fastjson, headers
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.protocol.command import Command, Serialization
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.headers import Header, Request
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG, decode_messages, encode_message
from tests.protocol.encoding import encode_batch, encode_command

FOLDER = Path(__file__).parents[1] / "data" / "frames"
FILES = sorted(FOLDER.glob("*.jsonl"))


@attrs.frozen
class Frame:
    """A captured frame: the request's code, and the bytes."""

    request_code: int
    data: bytes


def frames_of(file: Path) -> list[Frame]:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [Frame(line["code"], bytes.fromhex(line["hex"])) for line in lines]


def decode(frame: Frame) -> Command:
    (command,) = FrameDecoder().feed(frame.data)
    return command


def same_json(body: bytes, written: bytes) -> None:
    """Check that the body has all encoded members, and that no known member is missing."""
    original, again = fastjson.loads(body), fastjson.loads(written)
    assert _known_members(original, again) == again


NEW_IN_5 = {
    "enableActingMaster", "heartbeatFingerprint", "withoutSub", "onlyThisBroker", "pullOffset", "topicPutTps",
    "filterServerTable", "attributes", "consumeMessageOrderly", "consumeTimeoutMinute", "groupSysFlag",
    "mqPopTable", "userConsumerInfo",
}  # fmt: skip
"""Members that Java 4 omits."""
LEFT_OUT = {"groupRetryPolicy", "minTimeStampStr", "maxTimeStampStr", "consumeTimeStampStr"}
"""Members that the library ignores."""


def _known_members(original: Any, written: Any) -> Any:
    if isinstance(original, dict) and isinstance(written, dict):
        members = {
            name: _known_members(value, written.get(name))
            for name, value in original.items()
            if name not in LEFT_OUT
        }
        added = {name: value for name, value in written.items() if name in NEW_IN_5 and name not in members}
        return members | added
    if isinstance(original, list) and isinstance(written, list) and len(original) == len(written):
        return [_known_members(*pair) for pair in zip(original, written, strict=True)]
    return original


def body_of(kind: Any) -> Callable[[bytes], None]:
    """Return a check that a body decodes as ``kind`` and encodes to the same bytes."""

    def check(data: bytes) -> None:
        same_json(data, kind.decode(data).encode())

    return check


def check_messages(data: bytes) -> None:
    messages = decode_messages(data, "broker-a")
    assert messages
    assert sum(message.store_size for message in messages) == len(data)
    position = 0
    for message in messages:
        assert message.corruption is None
        stored = data[position : position + message.store_size]
        position += message.store_size
        if not int.from_bytes(stored[36:40], "big") & COMPRESSED_FLAG:
            written = encode_message(
                topic=message.topic,
                body=message.body,
                properties=message._encoded_properties,
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
                commit_log_offset=message.commit_log_offset,
                flag=message.flag,
                system_flag=message.system_flag,
                born_time_ms=message.born_time_ms,
                born_address=message._born_address,
                store_time_ms=message.store_time_ms,
                store_address=message._store_address,
                reconsume_times=message.reconsume_times,
                prepared_transaction_offset=message.prepared_transaction_offset,
            )
            assert written == stored


def check_batch(data: bytes) -> None:
    messages = decode_batch(data)
    assert len(messages) > 1
    assert encode_batch(messages) == data


def check_groups(data: bytes) -> None:
    groups = fastjson.loads(data)["subscriptionGroupTable"]
    assert groups
    for group in groups.values():
        body_of(bodies.SubscriptionGroupConfig)(json.dumps(group).encode())


def check_text(data: bytes) -> None:
    assert data


REQUESTS = {
    value.code: value
    for value in [getattr(headers, name) for name in headers.__all__]
    if isinstance(value, type) and issubclass(value, Request) and value is not Request
}
REQUESTS[RequestCode.LITE_PULL_MESSAGE] = headers.PullMessageRequest
REQUESTS[RequestCode.INVOKE_BROKER_TO_RESET_OFFSET] = headers.ResetOffsetRequest
REQUESTS[RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS] = headers.GetConsumerStatusRequest

STORED = {
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
}
PULLED = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}
POPPED = {ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT}
SUCCESS = {ResponseCode.SUCCESS}

ANSWERS: Mapping[int, tuple[type[Header], set[ResponseCode]]] = {
    RequestCode.SEND_MESSAGE: (headers.SendMessageAnswer, STORED),
    RequestCode.SEND_MESSAGE_V2: (headers.SendMessageAnswer, STORED),
    RequestCode.SEND_BATCH_MESSAGE: (headers.SendMessageAnswer, STORED),
    RequestCode.PULL_MESSAGE: (headers.PullMessageAnswer, PULLED),
    RequestCode.LITE_PULL_MESSAGE: (headers.PullMessageAnswer, PULLED),
    RequestCode.QUERY_CONSUMER_OFFSET: (headers.OffsetAnswer, SUCCESS),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: (headers.OffsetAnswer, SUCCESS),
    RequestCode.GET_MAX_OFFSET: (headers.OffsetAnswer, SUCCESS),
    RequestCode.GET_MIN_OFFSET: (headers.OffsetAnswer, SUCCESS),
    RequestCode.GET_EARLIEST_MSG_STORETIME: (headers.GetEarliestStoreTimeAnswer, SUCCESS),
    RequestCode.QUERY_MESSAGE: (headers.QueryMessageAnswer, SUCCESS),
    RequestCode.HEART_BEAT: (headers.HeartbeatAnswer, SUCCESS),
    RequestCode.POP_MESSAGE: (headers.PopMessageAnswer, POPPED),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (headers.ChangeInvisibleTimeAnswer, SUCCESS),
}

REQUEST_BODIES: Mapping[int, Callable[[bytes], None]] = {
    RequestCode.HEART_BEAT: body_of(bodies.Heartbeat),
    RequestCode.LOCK_BATCH_MQ: body_of(bodies.QueueLock),
    RequestCode.UNLOCK_BATCH_MQ: body_of(bodies.QueueLock),
    RequestCode.CHECK_CLIENT_CONFIG: body_of(bodies.CheckClientConfig),
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: body_of(bodies.ResetOffsets),
    RequestCode.QUERY_ASSIGNMENT: body_of(bodies.AssignmentQuery),
    RequestCode.SET_MESSAGE_REQUEST_MODE: body_of(bodies.RequestModeSetting),
    RequestCode.BATCH_ACK_MESSAGE: body_of(bodies.BatchAcks),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: check_messages,
    RequestCode.CHECK_TRANSACTION_STATE: check_messages,
    RequestCode.SEND_BATCH_MESSAGE: check_batch,
    RequestCode.SEND_MESSAGE: check_text,
    RequestCode.SEND_MESSAGE_V2: check_text,
}

ANSWER_BODIES: Mapping[int, Callable[[bytes], None]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: body_of(bodies.TopicRoute),
    RequestCode.GET_BROKER_CLUSTER_INFO: body_of(bodies.ClusterInfo),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: body_of(bodies.TopicList),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: body_of(bodies.ConsumerList),
    RequestCode.LOCK_BATCH_MQ: body_of(bodies.LockedQueues),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: body_of(bodies.ConsumerConnection),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: check_groups,
    RequestCode.GET_TOPIC_STATS_INFO: body_of(bodies.TopicStats),
    RequestCode.GET_CONSUME_STATS: body_of(bodies.ConsumeStats),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: body_of(bodies.ResetOffsets),
    RequestCode.GET_CONSUMER_RUNNING_INFO: body_of(bodies.ConsumerRunningInfo),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: body_of(bodies.ConsumeMessageDirectlyResult),
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: body_of(bodies.ConsumerOffsets),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: body_of(bodies.ConsumerOffsets),
    RequestCode.QUERY_CONSUME_TIME_SPAN: body_of(bodies.ConsumeTimeSpans),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: body_of(bodies.GroupList),
    RequestCode.QUERY_ASSIGNMENT: body_of(bodies.QueueAssignments),
    RequestCode.POP_MESSAGE: check_messages,
    RequestCode.PULL_MESSAGE: check_messages,
    RequestCode.LITE_PULL_MESSAGE: check_messages,
    RequestCode.QUERY_MESSAGE: check_messages,
    RequestCode.VIEW_MESSAGE_BY_ID: check_messages,
}

HOOK_FIELDS = {"ReqT"}
"""Fields that Java's hooks add to all requests."""
DEFAULTS_OF_5 = {"committed": "true", "queueId": "-1", "IS_SUPPORT_HEART_BEAT_V2": "false"}
"""Fields that the library and Java 5 always encode, and Java 4 does not know."""


def test_there_are_frames() -> None:
    names = {file.stem for file in FILES}
    assert names == {
        f"java-{client}-{form}" for client in ("4.9.8", "5.5.0") for form in ("json", "rocketmq")
    }
    assert all(len(frames_of(file)) > 100 for file in FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_frames_encode_unchanged(file: Path) -> None:
    for frame in frames_of(file):
        command = decode(frame)
        written = encode_command(command)
        if command.serialization is Serialization.ROCKETMQ:
            assert written == frame.data
        else:
            assert decode(Frame(frame.request_code, written)) == command
            assert header_members(written) == header_members(frame.data)


def header_members(frame: bytes) -> dict[str, Any]:
    size = int.from_bytes(frame[5:8], "big")
    members: dict[str, Any] = json.loads(frame[8 : 8 + size])
    return {"extFields": {}} | members


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_frames_in_one_stream(file: Path) -> None:
    frames = frames_of(file)
    stream = b"".join([frame.data for frame in frames])
    decoder = FrameDecoder()
    commands = [
        command
        for start in range(0, len(stream), 1000)
        for command in decoder.feed(stream[start : start + 1000])
    ]
    assert commands == [decode(frame) for frame in frames]


def header_kind(frame: Frame, command: Command) -> type[Header] | None:
    """Return the class of the command's header, if it has one."""
    if not command.is_response:
        return REQUESTS.get(frame.request_code)
    kind, codes = ANSWERS.get(frame.request_code, (None, set[ResponseCode]()))
    return kind if command.code in codes else None


def body_check(frame: Frame, command: Command) -> Callable[[bytes], None] | None:
    """Return the check of the command's body, if there is one."""
    if not command.body:
        return None
    return (ANSWER_BODIES if command.is_response else REQUEST_BODIES).get(frame.request_code)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_typed_headers_write_the_same_fields(file: Path) -> None:
    for frame in frames_of(file):
        command = decode(frame)
        kind = header_kind(frame, command)
        if kind is not None:
            fields = {name: value for name, value in command.fields.items() if name not in HOOK_FIELDS}
            written = kind.from_fields(command.fields).to_fields()
            added = {name: value for name, value in written.items() if name not in fields}
            assert written == fields | added
            assert added.items() <= DEFAULTS_OF_5.items()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_bodies_encode_unchanged(file: Path) -> None:
    for frame in frames_of(file):
        command = decode(frame)
        check = body_check(frame, command)
        if check is not None:
            check(command.body)


def test_every_kind_was_captured() -> None:
    frames = [(frame, decode(frame)) for file in FILES for frame in frames_of(file)]
    kinds = {header_kind(frame, command) for frame, command in frames}
    expected = {*REQUESTS.values(), *[kind for kind, _ in ANSWERS.values()]}
    of_lite_topics = {kind for kind in expected if "Lite" in kind.__name__} | {
        headers.GetParentTopicInfoRequest
    }
    of_tools = {kind for kind in expected if kind.__module__.endswith(".administration")}
    assert expected - kinds - of_tools - of_lite_topics <= {headers.SendReplyMessageRequest}, (
        "it has the fields of SendMessageRequest; Java writes it with sendSmartMsg=false only"
    )
    checks = {body_check(frame, command) for frame, command in frames}
    assert {*REQUEST_BODIES.values(), *ANSWER_BODIES.values()} - checks == set()
