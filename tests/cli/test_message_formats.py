from __future__ import annotations

import json

import pytest

from rocketmq_py.cli.console import Control
from rocketmq_py.cli.message_formats import DEFAULT_FORMAT, compile_format, json_line
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.properties import encode_properties

PROPERTIES = {
    "TAGS": "red",
    "KEYS": "o-1 o-2",
    "UNIQ_KEY": "7F01",
    "source": "shop",
    "Ä": "1,2",
    "WAIT": "true",
}


def received(
    body: bytes = b"hello",
    *,
    properties: dict[str, str] | None = None,
    corruption: str | None = None,
) -> ReceivedMessage:
    return ReceivedMessage(
        topic="T",
        body=body,
        broker_name="broker-a",
        queue_id=3,
        queue_offset=42,
        commit_log_offset=1000,
        flag=0,
        system_flag=0,
        born_time_ms=1_700_000_000_000,
        born_address=bytes([127, 0, 0, 1, 0, 0, 0, 1]),
        store_time_ms=1_700_000_000_005,
        store_address=bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F]),
        reconsume_times=2,
        prepared_transaction_offset=0,
        body_crc=0,
        store_size=200,
        encoded_properties=encode_properties(PROPERTIES if properties is None else properties).encode(),
        corruption=corruption,
    )


def rendered(text: str, message: ReceivedMessage) -> bytes:
    return b"".join(compile_format(text)(message))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s", b"hello"),
        ("%S", b"5"),
        ("%k", b"o-1 o-2"),
        ("%K", b"7"),
        ("%t", b"T"),
        ("%p", b"3"),
        ("%b", b"broker-a"),
        ("%o", b"42"),
        ("%T", b"1700000000005"),
        ("%h", "source=shop,Ä=1,2".encode()),
        ("%g", b"red"),
        ("%i", b"7F01"),
        ("%%", b"%"),
        ("100%%%s%%s", b"100%hello%s"),
        ("%t[%p] @%o: %s", b"T[3] @42: hello"),
        (r"%s\n\t\r\0\\n", b"hello\n\t\r\0\\n"),
        (r"\x41\xff\x25\x25s%s", b"A\xff%%shello"),
        ("\udcff%s", b"\xffhello"),  # a byte of the command line that is not UTF-8
        ("naïve\n", "naïve\n".encode()),
        ("", b""),
        (DEFAULT_FORMAT, b"hello\n"),
    ],
)
def test_letters_and_escapes(text: str, expected: bytes) -> None:
    assert rendered(text, received()) == expected


def test_a_body_is_copied_byte_for_byte() -> None:
    body = bytes(range(256))
    assert rendered("%s", received(body)) == body
    assert rendered("<%s|%S>", received(body)) == b"<" + body + b"|256>"


def test_control_characters_of_the_format_are_marked_as_such() -> None:
    parts = compile_format(r"\x1b[1m%t\x1b[0m %s\n")(received(b"\x1b[2J"))
    assert [(part, isinstance(part, Control)) for part in parts] == [
        (b"\x1b[1m", True),
        (b"T", False),
        (b"\x1b[0m ", True),
        (b"\x1b[2J", False),
        (b"\n", True),
    ]


def test_missing_fields_are_empty() -> None:
    bare = received(properties={})
    assert rendered("%k|%K|%g|%h", bare) == b"|-1||"
    assert rendered("%i", bare) == b"7F00000100002A9F00000000000003E8"  # the offset message id


@pytest.mark.parametrize(
    ("text", "named"), [("%s %z", "%z"), ("%s%", "%"), (r"\q", r"\q"), ("x\\", "\\"), (r"\x4", r"\x")]
)
def test_an_unsupported_letter_or_escape_is_named(text: str, named: str) -> None:
    with pytest.raises(ValueError) as caught:
        compile_format(text)
    assert str(caught.value).startswith(f"the format does not support {named};")


def test_a_json_line() -> None:
    line = b"".join(json_line(received()))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert list(json.loads(line).items()) == [
        ("topic", "T"),
        ("broker_name", "broker-a"),
        ("queue_id", 3),
        ("queue_offset", 42),
        ("message_id", "7F01"),
        ("store_time_ms", 1_700_000_000_005),
        ("born_time_ms", 1_700_000_000_000),
        ("reconsume_times", 2),
        ("tags", "red"),
        ("keys", ["o-1", "o-2"]),
        ("user_properties", {"source": "shop", "Ä": "1,2"}),
        ("body", "hello"),
    ]


def test_a_binary_body_is_base64_in_json() -> None:
    line = json.loads(b"".join(json_line(received(b"\xff\x00"))))
    assert line["body_base64"] == "/wA="
    assert "body" not in line


def test_a_corrupt_body_is_reported_in_json() -> None:
    line = json.loads(b"".join(json_line(received(b"x", corruption="incorrect header check"))))
    assert list(line.items())[-2:] == [("body", "x"), ("corruption", "incorrect header check")]
