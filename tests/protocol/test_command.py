from __future__ import annotations

import json

import pytest
from hypothesis import given

from rocketmq_py.codes import LANGUAGE_JAVA, LANGUAGE_PYTHON, RequestCode
from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.protocol.command import (
    MAX_HEADER_SIZE,
    VERSION,
    Command,
    Serialization,
    decode_command,
    encode_request,
    encode_response,
)
from rocketmq_py.protocol.frames import FrameDecoder
from tests.protocol.encoding import encode_command
from tests.protocol.strategies import commands

# Written by Java's RemotingCommand.encode(), the same by 4.9.8 and 5.5.0.
JAVA_COMMAND = Command(
    code=310,
    opaque=7,
    fields={"a": 'gé\x01x\x02€"\\'},
    body=b"hi",
    remark="r\n",
    language=LANGUAGE_JAVA,
    version=513,
)
JAVA_JSON = bytes.fromhex(
    "000000a20000009c7b22636f6465223a3331302c226578744669656c6473223a7b2261223a2267c3a95c7530303031785c75303030"
    "32e282ac5c225c5c227d2c22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565223a372c2272656d"
    "61726b223a22725c6e222c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e22"
    "3a3531337d6869"
)
JAVA_BINARY = bytes.fromhex(
    "0000002f010000290136000201000000070000000000000002720a000000120001610000000b67c3a9017802e282ac225c6869"
)
JAVA_BINARY_ANSWER = bytes.fromhex("00000019010000150000000201fffffffb000000010000000000000000")


def decode(frame: bytes) -> Command:
    (command,) = FrameDecoder().feed(frame)
    return command


def json_frame(header: str) -> bytes:
    encoded = header.encode()
    return (4 + len(encoded)).to_bytes(4, "big") + len(encoded).to_bytes(4, "big") + encoded


def test_java_json_is_read() -> None:
    assert decode(JAVA_JSON) == JAVA_COMMAND


def test_json_is_written_with_javas_members() -> None:
    header, written = (json.loads(frame[8:-2]) for frame in (JAVA_JSON, encode_command(JAVA_COMMAND)))
    assert written == header


def test_java_binary_is_read_and_written() -> None:
    command = decode(JAVA_BINARY)
    assert command.serialization is Serialization.ROCKETMQ
    assert command.fields == JAVA_COMMAND.fields
    assert (command.remark, command.body, command.language) == ("r\n", b"hi", LANGUAGE_JAVA)
    assert encode_command(command) == JAVA_BINARY


def test_java_binary_answer_is_read_and_written() -> None:
    command = decode(JAVA_BINARY_ANSWER)
    assert command.is_response
    assert (command.code, command.opaque, command.fields, command.remark) == (0, -5, {}, None)
    assert encode_command(command) == JAVA_BINARY_ANSWER


@given(commands)
def test_round_trip(command: Command) -> None:
    assert decode(encode_command(command)) == command


@pytest.mark.parametrize("serialization", Serialization)
@pytest.mark.parametrize("oneway", [False, True])
def test_request(serialization: Serialization, oneway: bool) -> None:
    frame = encode_request(34, -1, {"a": "1"}, b"body", oneway=oneway, serialization=serialization)
    command = decode(frame)
    assert command == Command(
        34,
        -1,
        2 if oneway else 0,
        {"a": "1"},
        b"body",
        None,
        LANGUAGE_PYTHON,
        VERSION,
        serialization,
    )
    assert command.is_oneway is oneway
    assert not command.is_response


@pytest.mark.parametrize("serialization", Serialization)
def test_response_has_the_opaque_and_the_serialization_of_its_request(serialization: Serialization) -> None:
    request = Command(34, 77, serialization=serialization)
    answer = decode(encode_response(request, 1, {"a": "1"}, b"body", "why"))
    assert answer.is_response
    assert (answer.opaque, answer.serialization) == (77, serialization)
    assert (answer.code, answer.fields, answer.body, answer.remark) == (1, {"a": "1"}, b"body", "why")


def test_response_needs_only_a_code() -> None:
    answer = decode(encode_response(Command(34, 1), 0))
    assert (answer.code, answer.fields, answer.body, answer.remark) == (0, {}, b"", None)


def test_code_too_large_for_the_binary_header_makes_it_json() -> None:
    frame = encode_request(RequestCode.POP_MESSAGE, 1, {}, serialization=Serialization.ROCKETMQ)
    command = decode(frame)
    assert (command.code, command.serialization) == (200050, Serialization.JSON)


@pytest.mark.parametrize(
    ("name", "code"), [('"JAVA"', 0), ('"PYTHON"', 3), ('"OTHER"', 7), ('"COBOL"', 7), ("null", 0)]
)
def test_language_of_a_json_header(name: str, code: int) -> None:
    assert decode(json_frame(f'{{"code":1,"opaque":2,"language":{name}}}')).language == code


def test_language_without_a_name_is_written_as_other() -> None:
    assert decode(encode_command(Command(1, 1, language=99))).language == 7


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("null", {}),
        ("{}", {}),
        ('{"a":null,"b":"x"}', {"b": "x"}),
        ('{"a":1,"b":true,"c":-1.5,"d":"x"}', {"a": "1", "b": "true", "c": "-1.5", "d": "x"}),
        ('{"a":{"b":[1]}}', {"a": '{"b":[1]}'}),
    ],
)
def test_loose_json_fields_become_texts(fields: str, expected: dict[str, str]) -> None:
    assert decode(json_frame(f'{{"code":1,"opaque":2,"extFields":{fields}}}')).fields == expected


def test_unknown_members_of_a_json_header_are_left_alone() -> None:
    command = decode(json_frame('{"code":1,"opaque":2,"suspended":false,"x":{"y":[]},"body":null}'))
    assert (command.code, command.opaque) == (1, 2)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"code":"x"}',
        '{"code":1,"extFields":[]}',
        '{"code":2147483648}',
        '{"code":1e300}',
        '{"code":1',
        '{"code":1}x',
        '{"code":1,"x":' + "[" * 100_000,
        "[" * 100_000,
        '{"code":1,"extFields":{"a":' + "[" * 100_000,
    ],
    ids=lambda header: header[:24],
)
def test_ill_formed_json_header(header: str) -> None:
    with pytest.raises(ProtocolError):
        decode(json_frame(header))


def test_json_header_that_is_no_utf8() -> None:
    with pytest.raises(ProtocolError):
        decode_command(0, b'{"code":1,"remark":"\xff"}', b"")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "0136000201",
        "013600020100000007000000000000000272",  # the remark breaks off
        "0136000201000000070000000000000000",  # no length of the fields
        "0136000201000000070000000080000000" + "00000000",  # a negative remark
        "013600020100000007000000000000000000000001",  # fields that are not there
        "0136000201000000070000000000000000" + "00000000" + "00",  # something after the fields
        "0136000201000000070000000000000000" + "00000001" + "00",  # half a length
        "0136000201000000070000000000000000" + "00000006" + "ffff00000000",  # a negative name
        "0136000201000000070000000000000000" + "00000006" + "0000ffffffff",  # a negative value
        "0136000201000000070000000000000000" + "00000006" + "00007fffffff",  # a value of 2 GB
        "0136000201000000070000000000000000" + "00000007" + "0001ff00000000",  # a name that is no UTF-8
    ],
)
def test_ill_formed_binary_header(header: str) -> None:
    with pytest.raises(ProtocolError):
        decode_command(1, bytes.fromhex(header), b"")


def test_unknown_serialization() -> None:
    with pytest.raises(ProtocolError, match="serialization 2"):
        decode_command(2, b"{}", b"")


@pytest.mark.parametrize("serialization", Serialization)
def test_half_a_surrogate_pair_is_not_written(serialization: Serialization) -> None:
    with pytest.raises(InvalidMessageError):
        encode_request(1, 1, {"a": "\ud800"}, serialization=serialization)


@pytest.mark.parametrize("serialization", Serialization)
def test_header_that_its_length_cannot_hold_is_not_written(serialization: Serialization) -> None:
    with pytest.raises(InvalidMessageError, match="16777215"):
        encode_request(1, 1, {"a": "x" * (MAX_HEADER_SIZE + 1)}, serialization=serialization)


def test_name_too_long_for_the_binary_header_is_not_written() -> None:
    with pytest.raises(InvalidMessageError):
        encode_request(1, 1, {"x" * 32_768: ""}, serialization=Serialization.ROCKETMQ)


def test_number_too_large_for_the_binary_header_is_not_written() -> None:
    with pytest.raises(InvalidMessageError):
        encode_request(1, 2**31, {}, serialization=Serialization.ROCKETMQ)


def test_no_secret_is_shown() -> None:
    fields = {"AccessKey": "me", "Signature": "c2lnbmVk", "SecurityToken": "token-1", "topic": "T"}
    shown = repr(Command(1, 1, fields=fields, body=b'{"password":"12345678"}'))
    assert "'AccessKey': 'me'" in shown
    assert "'topic': 'T'" in shown
    assert "body=<23 bytes>" in shown
    for secret in ("c2lnbmVk", "token-1", "12345678"):
        assert secret not in shown
