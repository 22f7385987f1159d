from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.codes import LANGUAGE_JAVA, RequestCode, ResponseCode
from rocketmq_py.errors import ProtocolError
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.protocol.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, Serialization, encode_response
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.send_request import send_fields
from rocketmq_py.protocol.typed_sends import SendAnswer, SendCommand, answer_template
from tests.protocol.encoding import encode_command
from tests.protocol.strategies import commands, int32, text

FRAMES = Path(__file__).parent.parent / "data" / "frames"
CODE = int(RequestCode.SEND_MESSAGE_V2)
FIELDS = send_fields(
    Message("T", b"b"), MessageQueue("T", "broker-a", 3), producer_group="G", unique_id="U", born_time_ms=1
)
SEND = Command(CODE, 1, 0, FIELDS, b"body")

requests = st.builds(
    Command,
    code=st.sampled_from([CODE, CODE, CODE, int(RequestCode.SEND_BATCH_MESSAGE), 311]),
    opaque=int32,
    flag=st.sampled_from([0, 0, 0, ONEWAY_FLAG, RESPONSE_FLAG]),
    fields=st.dictionaries(st.sampled_from([*FIELDS, "l", "unknown"]), text, max_size=3).map(
        lambda more: FIELDS | more
    ),
    body=st.sampled_from([b"", b"x"]),
    remark=st.none() | text,
    language=st.sampled_from([LANGUAGE_JAVA, 3, 7]),
    version=st.integers(0, 600),
    serialization=st.sampled_from([Serialization.JSON, Serialization.JSON, Serialization.ROCKETMQ]),
)


def decoder() -> FrameDecoder:
    """Return a decoder that has decoded a plain send."""
    decoder = FrameDecoder(decodes_send_requests=True)
    decoder.feed_typed(encode_command(SEND))
    return decoder


def as_command(received: Command | SendAnswer | SendCommand) -> Command:
    return received if isinstance(received, Command) else received.as_command()


def frame_of(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


@given(st.lists(requests | commands, max_size=6), st.integers(1, 1000))
def test_plain_sends_equal_the_generic_commands(sent: list[Command], size: int) -> None:
    data = b"".join([encode_command(command) for command in sent])
    general, typed = FrameDecoder(), decoder()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    expected = [command for piece in pieces for command in general.feed(piece)]
    assert [as_command(one) for piece in pieces for one in typed.feed_typed(piece)] == expected


def test_plain_sends_are_typed_from_the_second_on() -> None:
    sent = [SEND, SEND, Command(int(RequestCode.HEART_BEAT), 2), SEND, SEND]
    received = FrameDecoder(decodes_send_requests=True).feed_typed(b"".join(map(encode_command, sent)))
    assert [type(one) for one in received] == [Command, SendCommand, Command, Command, SendCommand]
    plain = received[1]
    assert isinstance(plain, SendCommand)
    assert (plain.opaque, plain.body, plain.fields.topic, plain.fields.queue_id) == (1, b"body", "T", "3")


def test_plain_sends_are_decoded_only_on_request() -> None:
    received = FrameDecoder().feed_typed(encode_command(SEND) * 2)
    assert received == FrameDecoder(decodes_send_requests=True).feed(encode_command(SEND) * 2) == [SEND, SEND]


@pytest.mark.parametrize(
    "request_",
    [
        Command(CODE, 1, ONEWAY_FLAG, FIELDS),
        Command(CODE, 1, RESPONSE_FLAG, FIELDS),
        Command(CODE, 1, 0, FIELDS | {"Signature": "x"}),
        Command(CODE, 1, 0, FIELDS | {"j": "1"}),
        Command(CODE, 1, 0, FIELDS | {"m": "true"}),
        Command(CODE, 1, 0, {name: value for name, value in FIELDS.items() if name != "e"}),
        Command(CODE, 1, 0, FIELDS, serialization=Serialization.ROCKETMQ),
        Command(int(RequestCode.SEND_MESSAGE), 1, 0, FIELDS),
    ],
    ids=["oneway", "an answer", "signed", "sent again", "a batch", "no queue", "binary", "long names"],
)
def test_other_frames_use_the_generic_decoder(request_: Command) -> None:
    assert decoder().feed_typed(encode_command(request_)) == [request_]


def test_header_with_numbers_uses_the_generic_decoder() -> None:
    fields: dict[str, object] = {**FIELDS, "e": 3, "c": None}
    (received,) = decoder().feed_typed(frame_of(json.dumps({"code": CODE, "extFields": fields}).encode()))
    assert received == Command(
        CODE, 0, 0, {name: value for name, value in FIELDS.items() if name != "c"}, language=0, version=0
    )


def test_garbage_after_a_plain_send_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="cannot be read"):
        decoder().feed_typed(frame_of(b'{"code":310,"extFields":{"a":"\xff"}'))


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_sends_of_java_decode_as_plain_sends(version: str) -> None:
    lines = (FRAMES / f"java-{version}-json.jsonl").read_text(encoding="utf-8").splitlines()
    sent = [bytes.fromhex(line["hex"]) for line in map(json.loads, lines) if line["code"] == CODE]
    requests = [frame for frame in sent if not FrameDecoder().feed(frame)[0].flag]
    received = [one for frame in requests for one in decoder().feed_typed(frame)]
    assert {type(one) for one in received} == {SendCommand}
    assert [as_command(one) for one in received] == [FrameDecoder().feed(frame)[0] for frame in requests]


@given(
    st.dictionaries(text, text, max_size=3),
    st.sampled_from([0, 3, 2**31 - 1]),
    int32,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    text,
)
def test_template_equals_encoding_the_response(
    marks: dict[str, str], queue_id: int, opaque: int, log_offset: int, queue_offset: int, unique_id: str
) -> None:
    template = answer_template(marks, "7F00", queue_id)
    if template is None:
        assert any("\x00" in each for each in (*marks, *marks.values()))
        return
    fields = {
        **marks,
        "msgId": f"7F00{log_offset:016X}",
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "transactionId": unique_id,
    }
    frame = template.frame(opaque, log_offset, queue_offset, unique_id)
    assert frame == encode_response(Command(CODE, opaque), ResponseCode.SUCCESS, fields)


@pytest.mark.parametrize("region", ["%d%b%%", '"opaque":0,', '","n":"\\', "\u2028é\U0001f600"])
def test_template_accepts_any_region(region: str) -> None:
    template = answer_template({"MSG_REGION": region}, "7F00", 1)
    assert template is not None
    (answer,) = FrameDecoder().feed(template.frame(7, 255, 5, "U"))
    assert answer.fields == {
        "MSG_REGION": region,
        "msgId": "7F0000000000000000FF",
        "queueId": "1",
        "queueOffset": "5",
        "transactionId": "U",
    }
    assert (answer.opaque, answer.code, answer.flag) == (7, ResponseCode.SUCCESS, RESPONSE_FLAG)


@pytest.mark.parametrize("region", ["\x00msgId", "\ud800"])
def test_unusual_region_has_no_template(region: str) -> None:
    assert answer_template({"MSG_REGION": region}, "7F00", 1) is None
