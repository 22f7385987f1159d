"""Decoders return a value or raise ProtocolError for any bytes that a peer sends."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rocketmq_py.error_texts import shortened
from rocketmq_py.errors import ConfigurationError, InvalidMessageError, ProtocolError
from rocketmq_py.protocol import bodies, fastjson, headers
from rocketmq_py.protocol.batch import decode_batch
from rocketmq_py.protocol.bodies import ResetOffsets, TopicRoute
from rocketmq_py.protocol.compression import CompressionType, decompress
from rocketmq_py.protocol.decode_errors import decoder
from rocketmq_py.protocol.frames import FrameDecoder
from rocketmq_py.protocol.handles import PoppedOffsets, RecallHandle, ReceiptHandle
from rocketmq_py.protocol.headers import Header, PushReplyMessageRequest
from rocketmq_py.protocol.message_id import OffsetMessageId
from rocketmq_py.protocol.reply import reply_message
from rocketmq_py.protocol.stored_message import decode_messages
from rocketmq_py.protocol.trace import read_records
from tests.protocol import java_messages as java
from tests.protocol.test_bodies import DIALECT, STANDARD, AnyBody
from tests.protocol.test_golden_frames import FILES, frames_of

HOSTILE_TEXTS = ["²", "٣", "1_0", " 1", "9" * 5000, "-" + "9" * 30, "1e999", "nan", "\ud800", "\0", "[", ""]
HOSTILE_JSON = [
    r'"\ud800"', r'"\udfff\ud800"', r'{"\ud800":1}', "9" * 5000, "-" + "9" * 400, "1e999", "-0", "1.5e400",
    "null", "{}", "[]", '{{"a":1}:2}', "{[1]:2}", "{1.5:2}", "{null:2}", '"²"', "NaN", "{:}", '"\\x"',
    *["[" * depth + "]" * depth for depth in (60, 70, 300, 500, 950, 3000)],
    *['{"a":' * depth + "1" + "}" * depth for depth in (60, 70, 300, 500, 950, 3000)],
    *["{0:" * depth + "1" + "}" * depth for depth in (60, 70, 300, 950)],
]  # fmt: skip
KINDS: list[type[AnyBody]] = [getattr(bodies, name) for name in bodies.__all__]
KINDS = [kind for kind in KINDS if isinstance(kind, type) and hasattr(kind, "decode")]
HEADERS: list[type[Header]] = [getattr(headers, name) for name in headers.__all__]
HEADERS = [cls for cls in HEADERS if isinstance(cls, type) and issubclass(cls, Header)]

ALL_TEXTS: dict[str, Callable[[str], object]] = {
    "ReceiptHandle": ReceiptHandle.parse,
    "PoppedOffsets starts": PoppedOffsets.parse,
    "PoppedOffsets offsets": lambda text: PoppedOffsets.parse(None, text),
    "PoppedOffsets counts": lambda text: PoppedOffsets.parse(None, None, text),
    "OffsetMessageId": lambda text: OffsetMessageId.parse(text).broker_address,
    "RecallHandle": RecallHandle.decode,
}
TEXTS = [
    "0 1700000000000 60000 0 0 broker-a 1 5", "0 0 5;1 1 7", "0 0 5,6;1 1 7", "0 qo3%120 5;0 3 1",
    "0A00000200002A9F0000001CBE991A14", "dGVzdA==", "djEgdCBiIDEgVQ==", "FF" * 16, "00" * 28,
]  # fmt: skip
ALL_BYTES: dict[str, Callable[[bytes], object]] = {
    "stored messages": lambda data: decode_messages(data, "b"),
    "a batch": decode_batch,
    "frames": lambda data: FrameDecoder().feed(data),
    "trace": read_records,
    "JSON": fastjson.loads,
    **{kind.name: lambda data, kind=kind: decompress(data, kind, 1 << 16) for kind in CompressionType},  # type: ignore[misc]
}
BYTES = [
    java.PLAIN, java.V6_BOTH, java.LZ4, java.ZSTD, java.ZLIB, java.INNER_BATCH, java.BATCH_BODY,
    *[frame.data for file in FILES for frame in frames_of(file)[:40]],
]  # fmt: skip


@contextmanager
def only_protocol_errors() -> Iterator[None]:
    """Allow only the errors that decoders raise, including those for invalid user input."""
    text = ""
    try:
        yield
    except (ProtocolError, ConfigurationError, InvalidMessageError) as error:
        text = str(error)
    assert len(text.encode()) < 2000, "the error is too long for a log line or a response"


@st.composite
def damaged(draw: st.DrawFn, whole: list[bytes]) -> bytes:
    data = bytearray(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 4)))
        data[start:end] = draw(st.binary(max_size=6))
    return bytes(data)


@given(st.sampled_from(sorted(ALL_BYTES)), st.binary(max_size=300) | damaged(BYTES))
@settings(max_examples=4 * settings().max_examples)
def test_bytes_are_read_or_are_a_protocol_error(name: str, data: bytes) -> None:
    with only_protocol_errors():
        ALL_BYTES[name](data)


@given(
    st.sampled_from(sorted(ALL_TEXTS)),
    st.text() | st.sampled_from(TEXTS + HOSTILE_TEXTS) | damaged([text.encode() for text in TEXTS]).map(repr),
    st.sampled_from([*HOSTILE_TEXTS, *TEXTS]),
    st.integers(0, 40),
)
@settings(max_examples=4 * settings().max_examples)
def test_texts_are_read_or_are_a_protocol_error(name: str, text: str, piece: str, place: int) -> None:
    for whole in (text, text[:place] + piece + text[place + 1 :], " ".join([piece] * 8)):
        with only_protocol_errors():
            ALL_TEXTS[name](whole)


@given(
    st.sampled_from(HEADERS),
    st.data(),
)
@settings(max_examples=3 * settings().max_examples)
def test_headers_are_read_or_are_a_protocol_error(cls: type[Header], data: st.DataObject) -> None:
    values = st.sampled_from(HOSTILE_TEXTS + TEXTS + ["0", "1", "true"]) | st.text(max_size=5)
    fields = {field.encode_name: data.draw(values) for field in msgspec.structs.fields(cls)}
    with only_protocol_errors():
        header = cls.from_fields(fields)
        if isinstance(header, PushReplyMessageRequest):
            reply_message(header, b"x", 0)


def _hostile_bodies() -> Iterator[tuple[type[AnyBody], bytes]]:
    """Yield each body with each member and each key replaced by each hostile value."""
    for kind, text in STANDARD + DIALECT:
        whole = fastjson.loads(text.encode())
        assert isinstance(whole, dict)
        written = {
            name: f"{json.dumps(name)}:{json.dumps(value)}"
            for name, value in whole.items()
            if not _has_queues_as_keys(value)
        }
        for hostile in HOSTILE_JSON:
            yield kind, hostile.encode()
            for name in whole:
                members = ",".join((written | {name: f"{json.dumps(name)}:{hostile}"}).values())
                yield kind, f"{{{members}}}".encode()
                yield kind, f"{{0:1,{members}}}".encode()  # read as fastjson's dialect
                yield kind, f'{{"{name}":{{{{"topic":{hostile}}}:{hostile}}}}}'.encode()


def _has_queues_as_keys(value: Any) -> bool:
    """Return whether the value has keys that JSON cannot encode."""
    return isinstance(value, dict) and any(
        not isinstance(key, str) or _has_queues_as_keys(inner) for key, inner in value.items()
    )


@pytest.mark.long
def test_bodies_with_hostile_members_are_read_or_are_a_protocol_error() -> None:
    for kind, data in _hostile_bodies():
        with only_protocol_errors():
            kind.decode(data).encode()


@given(
    st.sampled_from(KINDS),
    st.binary(max_size=60) | damaged([text.encode() for _, text in STANDARD + DIALECT]),
)
@settings(max_examples=4 * settings().max_examples)
@example(TopicRoute, b'{"x":' * 500 + b"1" + b"}" * 500)
@example(ResetOffsets, b'{"offsetTable":' * 950 + b"1" + b"}" * 950)
def test_bodies_are_read_or_are_a_protocol_error(kind: type[AnyBody], data: bytes) -> None:
    with only_protocol_errors():
        kind.decode(data).encode()


def test_a_body_is_read_from_a_deep_stack_too() -> None:
    """Nested JSON must not exceed the recursion limit, even with less stack left than in a test."""
    room = sys.getrecursionlimit() - 150

    def from_depth(depth: int, data: bytes) -> None:
        if depth:
            return from_depth(depth - 1, data)
        with pytest.raises(ProtocolError):
            TopicRoute.decode(data)
        return None

    from_depth(room - len(inspect.stack(0)), b'{"x":{' + b'"a":[' * 40 + b"1" + b"]" * 40 + b"}}")


def test_half_a_surrogate_pair_is_no_text() -> None:
    for text in (r'{"topic":"\ud83d"}', r'{0:"\ud83d"}', r'{{"topic":"\udc00"}:1}'):
        with pytest.raises(ProtocolError, match="surrogate"):
            fastjson.loads(text.encode())
    assert fastjson.loads(rb'{0:"\ud83d\ude00"}') == {"0": "😀"}


@attrs.frozen
class _Failing:
    error: Exception

    @decoder("a body")
    def read(self) -> None:
        raise self.error


def test_other_exceptions_become_protocol_errors() -> None:
    for error in (RecursionError("too deep"), KeyError("x"), ValueError("x" * 10_000), AssertionError()):
        with pytest.raises(ProtocolError, match="a body cannot be read: ") as caught:
            _Failing(error).read()
        assert caught.value.__cause__ is error
        assert len(str(caught.value)) < 300


def test_library_errors_are_not_wrapped() -> None:
    for error in (ConfigurationError("x"), InvalidMessageError("y"), ProtocolError("z"), MemoryError()):
        with pytest.raises(type(error)) as caught:
            _Failing(error).read()
        assert caught.value is error


def test_long_texts_of_peers_are_shortened() -> None:
    assert shortened("short") == "short"
    assert shortened("x" * 1_000_000) == "x" * 200 + "… (1000000 characters)"
