from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.properties import MAX_ENCODED_SIZE, decode_properties
from rocketmq_py.protocol.batch import BatchedMessage, bare_size, decode_batch, encode_bare, encode_batched
from rocketmq_py.protocol.command import RESPONSE_FLAG, Command, Serialization, encode_request
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.headers import (
    SendBatchMessageRequest,
    SendMessageRequest,
    SendMessageRequestV2,
    read_stored_position,
)
from rocketmq_py.protocol.sends import (
    SendAnswer,
    SendRequestBuilder,
    batch_properties,
    encode_message_properties,
    send_fields,
)
from tests.protocol import java_messages as java
from tests.protocol.encoding import encode_batch, encode_command
from tests.protocol.strategies import commands, int32, int64, text

QUEUE = MessageQueue("T", "broker-a", 3)
ID = "0A000001234500000000000012340000"


def test_fields_of_a_send() -> None:
    message = Message("T", b"body", tags="A", keys=["k1", "k2"], properties={"x": "y"}, flag=9)
    fields = send_fields(message, QUEUE, producer_group="G", unique_id=ID, born_time_ms=1_700_000_000_000)
    assert fields == {
        "a": "G",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "3",
        "f": "0",
        "g": "1700000000000",
        "h": "9",
        "i": f"UNIQ_KEY\x01{ID}\x02WAIT\x01true\x02TAGS\x01A\x02KEYS\x01k1 k2\x02x\x01y\x02",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }


def test_the_typed_header_writes_the_same() -> None:
    fields = send_fields(
        Message("%RETRY%C", b"body"),
        QUEUE,
        producer_group="G",
        unique_id=ID,
        born_time_ms=1,
        default_topic="D",
        default_topic_queues=8,
        system_flag=0x301,
        reconsume_times=2,
        max_reconsume_times=16,
        system_properties={"RETRY_TOPIC": "T"},
    )
    header = SendMessageRequestV2.from_fields(fields)
    assert header.to_fields() == fields
    assert (header.default_topic, header.default_topic_queue_nums, header.sys_flag) == ("D", 8, 0x301)
    assert (header.reconsume_times, header.max_reconsume_times) == (2, 16)
    assert header.properties is not None
    assert decode_properties(header.properties)["RETRY_TOPIC"] == "T"


def test_long_names_are_those_of_the_first_form() -> None:
    long, short = [
        SendRequestBuilder(code, "G", "T").fields(3, "broker-a", born_time_ms=1, properties="p")
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
    ]
    header = SendMessageRequest.from_fields(long)
    assert header.to_fields() == long
    short_header = SendMessageRequestV2.from_fields(short)
    assert short_header.to_fields() == short
    names = ["producer_group", "topic", "queue_id", "properties", "reconsume_times", "broker_name"]
    assert [getattr(header, name) for name in names] == [getattr(short_header, name) for name in names]


def test_fields_of_a_batch() -> None:
    form = SendRequestBuilder(RequestCode.SEND_BATCH_MESSAGE, "G", "T")
    fields = form.fields(3, "broker-a", born_time_ms=1, properties=batch_properties(wait_store_ok=False))
    header = SendBatchMessageRequest.from_fields(fields)
    assert header.to_fields() == fields
    assert header.batch is True
    assert header.properties == "WAIT\x01false\x02"
    assert (header.topic, header.queue_id, header.broker_name) == ("T", 3, "broker-a")


@given(
    st.sampled_from(
        [
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE,
            RequestCode.SEND_REPLY_MESSAGE_V2,
        ]
    ),
    st.tuples(text, text, text),
    st.booleans(),
    st.tuples(st.integers(0, 2**31 - 1), int64, int32, int32, st.integers(0, 2**31 - 1)),
    text,
    st.binary(max_size=50),
)
def test_template_equals_encoding_the_fields(
    code: int,
    names: tuple[str, str, str],
    unit_mode: bool,
    numbers: tuple[int, int, int, int, int],
    properties: str,
    body: bytes,
) -> None:
    group, topic, broker_name = names
    queue_id, born_time_ms, flag, system_flag, opaque = numbers
    form = SendRequestBuilder(code, group, topic, default_topic_queues=7, unit_mode=unit_mode)
    template = form.template(queue_id, broker_name)
    if template is None:
        assert any("\x00" in name for name in names)
        return
    fields = form.fields(
        queue_id,
        broker_name,
        born_time_ms=born_time_ms,
        properties=properties,
        flag=flag,
        system_flag=system_flag,
    )
    assert template.frame(opaque, born_time_ms, properties, flag, system_flag, body) == encode_request(
        code, opaque, fields, body
    )


@pytest.mark.parametrize("name", ["%d%b%%", '"opaque":0,', '","n":"\\', "%RETRY%G", "\u2028é\U0001f600"])
def test_template_accepts_any_name(name: str) -> None:
    form = SendRequestBuilder(RequestCode.SEND_MESSAGE_V2, name, name)
    template = form.template(1, name)
    assert template is not None
    fields = form.fields(1, name, born_time_ms=2, properties=name)
    assert template.frame(3, 2, name, 0, 0, b"b") == encode_request(form.code, 3, fields, b"b")


@pytest.mark.parametrize("name", ["\x00flag", "\ud800", "x" * 100_000])
def test_unusual_names_have_no_template(name: str) -> None:
    assert SendRequestBuilder(RequestCode.SEND_MESSAGE_V2, "G", "T").template(0, name) is None


def test_attributes_become_properties() -> None:
    message = Message("T", b"body", delay_level=3, wait_store_ok=False)
    encoded = encode_message_properties(message, ID)
    assert decode_properties(encoded) == {"UNIQ_KEY": ID, "WAIT": "false", "DELAY": "3"}
    encoded = encode_message_properties(Message("T", b"body", priority=5), ID)
    assert decode_properties(encoded) == {"UNIQ_KEY": ID, "WAIT": "true", "_SYS_MSG_PRIORITY_": "5"}


@pytest.mark.parametrize("letter", ["x", "é", "\U0001f600"])
def test_properties_are_bounded_in_bytes(letter: str) -> None:
    rest = len(encode_message_properties(Message("T", b"b", properties={"p": "x"}), ID)) - 1
    room = MAX_ENCODED_SIZE - rest
    width = len(letter.encode())
    filled = letter * (room // width) + "x" * (room % width)
    encoded = encode_message_properties(Message("T", b"b", properties={"p": filled}), ID)
    assert len(encoded.encode()) == MAX_ENCODED_SIZE
    with pytest.raises(InvalidMessageError, match="32768 bytes; at most 32767"):
        encode_message_properties(Message("T", b"b", properties={"p": filled + "x"}), ID)


def test_java_batch_is_read_and_written() -> None:
    messages = decode_batch(java.BATCH_BODY)
    assert messages == [
        BatchedMessage(5, b"one", b"KEYS\x01k\x02WAIT\x01true\x02TAGS\x01A\x02"),
        BatchedMessage(0, b"two", b"WAIT\x01true\x02"),
    ]
    assert encode_batch(messages) == java.BATCH_BODY


batched = st.builds(BatchedMessage, int32, st.binary(max_size=30), st.binary(max_size=30))


@given(st.lists(batched, max_size=5))
def test_batch_round_trip(messages: list[BatchedMessage]) -> None:
    assert decode_batch(encode_batch(messages)) == messages


@given(st.lists(batched, min_size=1, max_size=3), st.data())
def test_a_damaged_batch_is_read_or_is_a_protocol_error(
    messages: list[BatchedMessage], data: st.DataObject
) -> None:
    damaged = bytearray(encode_batch(messages))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_batch(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))
    except ProtocolError:
        return


@given(st.binary(max_size=60))
def test_garbage_is_read_or_is_a_protocol_error(data: bytes) -> None:
    try:
        decode_batch(data)
    except ProtocolError:
        return


def test_properties_in_a_batch_are_bounded() -> None:
    with pytest.raises(InvalidMessageError, match="at most 32767"):
        encode_batch([BatchedMessage(0, b"", bytes(32_768))])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"queueId": "-1"}, "queueId '-1' and queueOffset '5' are not a position in a queue"),
        ({"queueOffset": str(2**63)}, "queueOffset '9223372036854775808' are not a position"),
        ({"queueId": str(2**31)}, "not a position"),
        ({"queueId": "²"}, "not a position"),
        ({"queueOffset": "9" * 5000}, r"999… \(5002 characters\) are not a position"),
        ({"queueOffset": ""}, "not a position"),
    ],
)
def test_send_responses_with_an_invalid_position_are_refused(changes: dict[str, str], text: str) -> None:
    fields = {"msgId": "id", "queueId": "3", "queueOffset": "5"}
    assert read_stored_position(fields) == ("id", 3, 5)
    with pytest.raises(ProtocolError, match=text):
        read_stored_position(fields | changes)


@pytest.mark.parametrize("name", ["msgId", "queueId", "queueOffset"])
def test_send_responses_without_a_position_are_refused(name: str) -> None:
    fields = {"msgId": "id", "queueId": "3", "queueOffset": "5"}
    del fields[name]
    with pytest.raises(ProtocolError, match=f"field '{name}' is missing"):
        read_stored_position(fields)


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1), st.sampled_from([32, 56, 300]))
def test_bare_messages_of_a_batch_encode_like_others(bodies: list[bytes], size: int) -> None:
    unique_ids = [f"{place:0{size}X}" for place in range(len(bodies))]
    general = []
    for body, unique_id in zip(bodies, unique_ids, strict=True):
        # An argument that equals its default but is another object, which is compared like any other.
        bare, looked_at = Message("T", body), Message("T", body, delay=float("0"))
        assert (bare._is_bare, looked_at._is_bare) == (True, False)
        assert bare == looked_at
        properties = encode_message_properties(looked_at, unique_id)
        assert encode_message_properties(bare, unique_id) == properties
        general.append(encode_batched(0, body, properties.encode()))
    assert encode_bare(bodies, unique_ids) == b"".join(general)
    assert bare_size(bodies, unique_ids) == len(b"".join(general))


STORED = {"msgId": "id", "queueId": "3", "queueOffset": "5"}
ANSWER = Command(0, 1, RESPONSE_FLAG, STORED)
_NAMES = [*STORED, "transactionId", "recallHandle", "batchUniqId", "MSG_REGION", "TRACE_ON", "unknown"]

answers = st.builds(
    Command,
    code=st.sampled_from([0, 1, 10, 12, 13, int(ResponseCode.GO_AWAY), -1]),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.sampled_from([RESPONSE_FLAG, RESPONSE_FLAG, 0, 3]),
    fields=st.dictionaries(st.sampled_from(_NAMES), st.text(max_size=5), max_size=5).map(
        lambda more: STORED | more
    ),
    body=st.sampled_from([b"", b"", b"x"]),
    remark=st.none() | st.text(max_size=5),
    language=st.sampled_from([0, 3, 7]),
    version=st.integers(0, 600),
    serialization=st.sampled_from([Serialization.JSON, Serialization.JSON, Serialization.ROCKETMQ]),
)


def as_commands(received: list[Command | SendAnswer]) -> list[Command]:
    return [one if isinstance(one, Command) else one.as_command() for one in received]


@given(st.lists(answers | commands, max_size=6), st.integers(1, 1000))
def test_send_responses_equal_the_generic_commands(sent: list[Command], size: int) -> None:
    data = b"".join([encode_command(command) for command in (ANSWER, *sent)])
    general, typed = FrameDecoder(), FrameDecoder()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    expected = [command for piece in pieces for command in general.feed(piece)]
    assert as_commands([one for piece in pieces for one in typed.feed_typed(piece)]) == expected


def test_send_responses_are_typed_after_another_send_response() -> None:
    first, second, other, third = FrameDecoder().feed_typed(
        b"".join(map(encode_command, (ANSWER, ANSWER, Command(0, 2, RESPONSE_FLAG, {}), ANSWER)))
    )
    assert [type(one) for one in (first, second, other, third)] == [Command, SendAnswer, Command, Command]


@pytest.mark.parametrize(
    "answer",
    [
        Command(int(ResponseCode.GO_AWAY), 1, RESPONSE_FLAG, STORED),
        Command(0, 1, 0, STORED),
        Command(0, 1, RESPONSE_FLAG, STORED | {"unknown": "x"}),
        Command(0, 1, RESPONSE_FLAG, STORED, b"body"),
        Command(0, 1, RESPONSE_FLAG, STORED, serialization=Serialization.ROCKETMQ),
    ],
    ids=["gone away", "a request", "another field", "a body", "binary"],
)
def test_other_frames_use_the_generic_decoder(answer: Command) -> None:
    _, received = FrameDecoder().feed_typed(encode_command(ANSWER) + encode_command(answer))
    assert received == answer


@pytest.mark.parametrize(
    "place",
    [
        {"queueId": "-1"},
        {"queueId": str(2**31)},
        {"queueId": "x"},
        {"queueId": " 3"},
        {"queueOffset": ""},
        {"queueOffset": str(2**63)},
        {"queueOffset": "0x5"},
    ],
    ids=str,
)
def test_unusual_positions_use_the_generic_decoder(place: dict[str, str]) -> None:
    answer = Command(0, 1, RESPONSE_FLAG, STORED | place)
    _, received = FrameDecoder().feed_typed(encode_command(ANSWER) + encode_command(answer))
    assert received == answer


def test_positions_encoded_as_numbers_are_equal() -> None:
    header = b'{"code":0,"extFields":{"msgId":"id","queueId":3,"queueOffset":5},"flag":1,"opaque":7}'
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    _, received = FrameDecoder().feed_typed(encode_command(ANSWER) + frame)
    assert isinstance(received, SendAnswer)
    assert (received.opaque, received.stored.queue_id, received.stored.queue_offset) == (7, 3, 5)
    assert received.as_command().fields == STORED


def test_garbage_after_a_response_is_a_protocol_error() -> None:
    header = b'{"code":0,"extFields":{"msgId":"\xff"}'
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    with pytest.raises(ProtocolError, match="cannot be read"):
        FrameDecoder().feed_typed(encode_command(ANSWER) + frame)
