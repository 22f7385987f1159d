from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.codes import ResponseCode
from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.command import RESPONSE_FLAG, Command, Serialization
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.send_answer import SendAnswer
from tests.protocol.encoding import encode_command
from tests.protocol.strategies import commands

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
