from __future__ import annotations

import copy
import pickle
import sys
import zlib
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import InvalidMessageError, ProtocolError
from rocketmq_py.message import ReceivedMessage
from rocketmq_py.protocol import stored_message
from rocketmq_py.protocol.compression import MAX_UNCOMPRESSED_SIZE, codec
from rocketmq_py.protocol.stored_message import (
    BLANK_MAGIC,
    BORN_HOST_V6_FLAG,
    COMPRESSED_FLAG,
    INNER_BATCH_FLAG,
    MAGIC_V2,
    NEED_UNWRAP_FLAG,
    PULL_BUDGET,
    STORE_HOST_V6_FLAG,
    decode_messages,
    decode_within_budget,
    encode_message,
    properties_of,
)
from tests.protocol import java_messages as java
from tests.protocol.strategies import int32, int64, text

V4 = bytes((10, 0, 0, 1)) + (10911).to_bytes(4, "big")
V6 = bytes(range(16)) + (10911).to_bytes(4, "big")


def decode(data: bytes) -> ReceivedMessage:
    (message,) = decode_messages(data, "broker-a")
    return message


def stored(
    body: bytes = b"body", *, topic: str = "T", system_flag: int = 0, properties: bytes = b""
) -> bytes:
    return encode_message(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=3,
        queue_offset=11,
        commit_log_offset=500,
        flag=0,
        system_flag=system_flag,
        born_time_ms=1,
        born_address=V4,
        store_time_ms=2,
        store_address=V4,
    )


def numbered(data: bytes, queue_offset: int) -> bytes:
    return data[:20] + queue_offset.to_bytes(8, "big") + data[28:]


def patched(data: bytes, position: int, value: int, size: int = 4) -> bytes:
    return data[:position] + value.to_bytes(size, "big", signed=True) + data[position + size :]


def encode_again(message: ReceivedMessage) -> bytes:
    return encode_message(
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


def test_java_message() -> None:
    message = decode(java.PLAIN)
    assert attrs.asdict(message) == {
        "topic": "Té",
        "body": b"hello",
        "broker_name": "broker-a",
        "queue_id": 3,
        "queue_offset": 11,
        "commit_log_offset": 123456789012,
        "flag": 9,
        "system_flag": 0,
        "born_time_ms": 1_700_000_000_000,
        "_born_address": bytes.fromhex("0a0000010000c350"),
        "store_time_ms": 1_700_000_000_001,
        "_store_address": bytes.fromhex("0a00000200002a9f"),
        "reconsume_times": 2,
        "prepared_transaction_offset": 4,
        "body_crc": zlib.crc32(b"hello") & 0x7FFFFFFF,
        "store_size": len(java.PLAIN),
        "_encoded_properties": b"KEYS\x01k1\x02TAGS\x01A\x02",
        "corruption": None,
    }
    assert (message.tags, message.keys) == ("A", ("k1",))
    assert (message.born_host, message.store_host) == ("10.0.0.1:50000", "10.0.0.2:10911")
    assert message.offset_message_id == "0A00000200002A9F0000001CBE991A14"


def test_java_4_leaves_the_last_separator_out() -> None:
    assert dict(decode(java.PLAIN_OF_4).properties) == {"KEYS": "k1", "TAGS": "A"}


@pytest.mark.parametrize(
    ("data", "born", "store"),
    [
        (java.V6_BORN, "[2001:db8::1]:50000", "10.0.0.2:10911"),
        (java.V6_BOTH, "[2001:db8::1]:50000", "[2001:db8::2]:10911"),
    ],
)
def test_java_message_with_ipv6_hosts(data: bytes, born: str, store: str) -> None:
    message = decode(data)
    assert (message.born_host, message.store_host) == (born, store)
    assert (message.body, message.reconsume_times, message.tags) == (b"hello", 2, "A")
    assert encode_again(message) == data


def test_java_offset_message_id_of_ipv6() -> None:
    expected = "20010DB800000000000000000000000200002A9F0000001CBE991A14"
    assert decode(java.V6_BOTH).offset_message_id == expected


@pytest.mark.parametrize(
    ("data", "package"), [(java.LZ4, "lz4"), (java.ZSTD, "zstandard"), (java.ZLIB, "zlib")]
)
def test_java_compressed_body(data: bytes, package: str) -> None:
    pytest.importorskip(package, reason="an extra is not installed")
    message = decode(data)
    assert message.body == b"ab" * 300
    assert message.system_flag == 0
    assert message.corruption is None


def test_compressed_without_a_type_is_zlib() -> None:
    message = decode(stored(zlib.compress(b"x" * 100), system_flag=COMPRESSED_FLAG | 0x8))
    assert (message.body, message.system_flag) == (b"x" * 100, 0x8)


def test_java_empty_body() -> None:
    assert decode(java.EMPTY).body == b""
    assert decode(stored(b"", system_flag=COMPRESSED_FLAG)).corruption is None


def test_java_inner_batch_is_opened() -> None:
    first, second = decode_messages(java.INNER_BATCH, "broker-a")
    assert (first.body, first.flag, first.queue_offset, first.tags) == (b"one", 5, 11, "A")
    assert (second.body, second.flag, second.queue_offset, second.tags) == (b"two", 0, 12, "")
    assert (first.topic, first.queue_id, first.commit_log_offset, first.system_flag) == (
        "Té",
        3,
        123456789012,
        0,
    )


def test_compressed_inner_batch_is_opened() -> None:
    flags = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG | COMPRESSED_FLAG
    messages = decode_messages(stored(zlib.compress(java.BATCH_BODY), system_flag=flags), "b")
    assert [message.body for message in messages] == [b"one", b"two"]


@pytest.mark.parametrize("flag", [INNER_BATCH_FLAG, NEED_UNWRAP_FLAG])
def test_only_both_flags_make_an_inner_batch(flag: int) -> None:
    assert decode(stored(java.BATCH_BODY, system_flag=flag)).body == java.BATCH_BODY


def test_an_inner_batch_that_does_not_decompress_is_one_corrupt_message() -> None:
    (corrupt,) = decode_messages(stored(b"nothing", system_flag=0x40 | 0x80 | COMPRESSED_FLAG), "b")
    assert corrupt.corruption is not None
    assert corrupt.body == b"nothing"


def test_invalid_inner_batch_is_one_corrupt_message() -> None:
    data = stored(b"nothing", system_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG) + java.PLAIN
    corrupt, sound = decode_messages(data, "b")
    assert corrupt.corruption is not None
    assert (corrupt.body, sound.body, sound.corruption) == (b"nothing", b"hello", None)


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"x", 0, "ZLIB"),
        (zlib.compress(b"x" * 100)[:-1], 3, "is truncated"),
        (b"x" * 20, 1, "LZ4"),
        (b"x" * 20, 2, "ZSTD"),
        (lambda: zlib.compress(bytes(MAX_UNCOMPRESSED_SIZE + 1), 1), 3, "more than 67108864 bytes"),
        (b"x", 5, "type 5"),
    ],
)
def test_a_body_that_cannot_be_unpacked_leaves_the_others_alone(
    body: bytes | Callable[[], bytes], kind: int, reason: str
) -> None:
    body = body() if callable(body) else body
    system_flag = COMPRESSED_FLAG | kind << 8
    data = java.PLAIN + stored(body, system_flag=system_flag) + java.PLAIN
    before, corrupt, after = decode_messages(data, "b")
    assert corrupt.corruption is not None
    assert reason in corrupt.corruption
    assert (corrupt.body, corrupt.system_flag) == (body, system_flag)
    assert (before.body, after.body) == (b"hello", b"hello")
    assert (before.corruption, after.corruption) == (None, None)


@pytest.mark.parametrize(
    ("data", "module", "extra"),
    [(java.LZ4, "lz4.frame", "rocketmq-py[lz4]"), (java.ZSTD, "zstandard", "rocketmq-py[zstd]")],
)
def test_missing_extra_is_named(
    data: bytes, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    message, other = decode_messages(data + java.PLAIN, "b")
    assert message.corruption is not None
    assert extra in message.corruption
    assert other.body == b"hello"


@given(
    st.fixed_dictionaries(
        {
            "topic": st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
            "body": st.binary(max_size=50),
            "properties": st.binary(max_size=50),
            "queue_id": int32,
            "queue_offset": int64,
            "commit_log_offset": int64,
            "flag": int32,
            "system_flag": st.sampled_from([0, 0x4, 0x8, 0xC, 0x2, 0x40, 0x80, 0x300]),
            "born_time_ms": int64,
            "born_address": st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20),
            "store_time_ms": int64,
            "store_address": st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20),
            "reconsume_times": int32,
            "prepared_transaction_offset": int64,
        }
    )
)
def test_round_trip(values: dict[str, object]) -> None:
    data = encode_message(**values)  # type: ignore[arg-type]  # the strategy has the right types
    message = decode(data)
    assert encode_again(message) == data
    assert properties_of(data) == values["properties"]
    decoded = {name.removeprefix("_"): value for name, value in attrs.asdict(message).items()}
    decoded["properties"] = decoded["encoded_properties"]
    v6 = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
    assert {name: decoded[name] for name in values} | {"system_flag": decoded["system_flag"] & ~v6} == values
    assert message.store_size == len(data)


def test_all_decoders_return_the_same_message() -> None:
    data = stored(properties=b"TAGS\x01A\x02")
    quick, general = decode(data), stored_message._decode(data, 0, len(data), "broker-a")
    assert attrs.asdict(quick) == attrs.asdict(general)
    again = [
        copy.copy(quick),
        copy.deepcopy(quick),
        pickle.loads(pickle.dumps(quick)),
        attrs.evolve(quick),
        attrs.evolve(quick, reconsume_times=0),
    ]
    assert [attrs.asdict(message) for message in again] == [attrs.asdict(general)] * len(again)
    assert {repr(message) for message in [*again, quick]} == {repr(general)}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        quick.queue_id = 7  # type: ignore[misc]
    with pytest.raises(AttributeError, match="colour"):
        quick.colour  # type: ignore[attr-defined]  # noqa: B018
    assert attrs.evolve(quick, queue_id=7).queue_id == 7


ALIKE = [
    stored(b"body", properties=b"TAGS\x01A\x02"),
    stored(b"ydob", properties=b"KEYS\x01A\x02"),
    stored(b"body", topic="U", properties=b"TAGS\x01A\x02"),
    stored(b"bod", topic="TT", properties=b"TAGS\x01A\x02"),  # the same size as a whole, as the next one
    stored(b"body", properties=b"TAGS\x01A"),
    stored(b"body\x02", properties=b"TAGS\x01A"),
    stored(b"body", topic="TT", properties=b"TAGS\x01A"),
    stored(b"body", system_flag=COMPRESSED_FLAG, properties=b"TAGS\x01A\x02"),
    stored(b"body", system_flag=0x4, properties=b"TAGS\x01A\x02"),
    stored(b"body", topic="t" * 200),
    stored(b"", topic=""),
    java.PLAIN,
    java.V6_BOTH,
    java.INNER_BATCH,
]
"""Messages so similar that a decoder which reuses earlier results might confuse them."""


@given(st.lists(st.tuples(st.sampled_from(ALIKE), st.integers(1, 4)), max_size=6))
def test_messages_are_the_same_whatever_comes_before_them(runs: list[tuple[bytes, int]]) -> None:
    data = [numbered(one, offset) for one, count in runs for offset in range(count)]
    together = decode_messages(b"".join(data), "broker-a")
    by_itself = [message for one in data for message in decode_messages(one, "broker-a")]
    assert [attrs.asdict(message) for message in together] == [attrs.asdict(one) for one in by_itself]


def test_padding_before_the_next_message_is_skipped() -> None:
    padded = patched(java.PLAIN + b"\0\0", 0, len(java.PLAIN) + 2)
    messages = decode_messages(padded * 3 + java.PLAIN * 3, "broker-a")
    assert len(messages) == 6
    assert len({(one.topic, one.body, one._encoded_properties) for one in messages}) == 1


def test_java_message_encodes_unchanged() -> None:
    assert encode_again(decode(java.PLAIN)) == java.PLAIN


def test_a_long_topic_makes_the_second_form() -> None:
    short, long = stored(topic="t" * 127), stored(topic="t" * 128)
    assert short[4:8] != MAGIC_V2.to_bytes(4, "big", signed=True) == long[4:8]
    assert [message.topic for message in decode_messages(short + long, "b")] == ["t" * 127, "t" * 128]


def test_ipv6_flags_follow_the_addresses() -> None:
    data = stored(system_flag=BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)
    assert decode(data).system_flag == 0


@pytest.mark.parametrize("cut", range(1, len(java.PLAIN)))
def test_truncated_message_is_not_skipped_silently(cut: int) -> None:
    data = java.PLAIN + java.V6_BOTH[:cut]
    with pytest.raises(ProtocolError, match=f"at byte {len(java.PLAIN)} "):
        decode_messages(data, "b")


def zeros(size: int) -> bytes:
    return stored(zlib.compress(bytes(size), 1), system_flag=COMPRESSED_FLAG)


def test_bodies_are_unpacked_until_the_budget_is_used() -> None:
    large = zeros(PULL_BUDGET // 2)
    data = b"".join([numbered(java.PLAIN, 1), *[numbered(large, number) for number in range(2, 6)]])
    answer = decode_within_budget(data, "b")
    assert [(message.queue_offset, len(message.body)) for message in answer.messages] == [
        (1, 5), (2, PULL_BUDGET // 2), (3, PULL_BUDGET // 2), (4, PULL_BUDGET // 2)
    ]  # fmt: skip
    assert answer.continue_at == 5
    assert len(decode_messages(data, "b")) == 5


@pytest.mark.long
def test_the_first_message_is_always_there() -> None:
    one, two = numbered(zeros(MAX_UNCOMPRESSED_SIZE), 1), numbered(zeros(1), 2)
    answer = decode_within_budget(one + two, "b")
    assert [len(message.body) for message in answer.messages] == [MAX_UNCOMPRESSED_SIZE]
    assert answer.continue_at == 2


def test_uncompressed_messages_use_no_budget() -> None:
    data = b"".join([numbered(java.V6_BOTH, number) for number in range(50)])
    answer = decode_within_budget(data, "b", budget=1)
    assert [message.queue_offset for message in answer.messages] == list(range(50))
    assert answer.continue_at is None


def test_decompression_of_queried_messages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = zeros(10_000) * 2
    assert len(decode_messages(data, "b")) == 2
    monkeypatch.setattr(stored_message, "ALL_MESSAGES_BUDGET", 9_000)
    with pytest.raises(ProtocolError, match="decompress to more than 9000 bytes: ask for fewer"):
        decode_messages(data, "b")


EMPTY_INNER = (22).to_bytes(4, "big") + bytes(18)
INNER_FLAGS = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG | COMPRESSED_FLAG


@pytest.mark.long
def test_a_batch_of_more_messages_than_brokers_count_is_corrupt() -> None:
    def batch(count: int) -> bytes:
        return stored(zlib.compress(EMPTY_INNER * count), system_flag=INNER_FLAGS)

    bomb = batch(MAX_UNCOMPRESSED_SIZE // 22)
    assert len(bomb) < 200_000
    message, other = decode_messages(bomb + java.PLAIN, "b")
    assert "has more than 32767 messages" in str(message.corruption)
    assert other.body == b"hello"
    *inner, other = decode_messages(batch(32_767) + java.PLAIN, "b")
    assert [message.queue_offset for message in inner] == list(range(11, 11 + 32_767))
    assert other.body == b"hello"


@pytest.mark.long
def test_small_messages_of_batches_use_the_budget_that_they_take_in_memory() -> None:
    batch = stored(zlib.compress(EMPTY_INNER * 32_767), system_flag=INNER_FLAGS)
    answer = decode_within_budget(batch * 20, "b")
    assert len(answer.messages) == 5 * 32_767, "of each, 3.7 MB"
    assert answer.continue_at == 11


def test_a_blank_rest_ends_the_list() -> None:
    blank = (200).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big", signed=True) + bytes(192)
    assert len(decode_messages(java.PLAIN + blank + java.PLAIN, "b")) == 1


def test_empty_input_is_no_message() -> None:
    assert decode_messages(b"", "b") == []


@pytest.mark.parametrize(
    "data",
    [
        patched(java.PLAIN, 4, 0),  # another magic
        patched(java.PLAIN, 0, 0),
        patched(java.PLAIN, 0, -1),
        patched(java.PLAIN, 0, 91),  # shorter than its body
        patched(java.PLAIN, 84, -1),  # the body's length
        patched(java.PLAIN, 84, 2**31 - 1),
        patched(java.PLAIN, 93, 100, 1),  # the topic's length
        patched(java.PLAIN, 97, 100, 2),  # the properties' length
        patched(java.PLAIN, 97, -1, 2),
        patched(
            stored(b"", topic=""), 36, BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
        ),  # too short for IPv6 hosts
    ],
)
@pytest.mark.parametrize("before", [b"", java.PLAIN * 2])
def test_contradictions_are_protocol_errors(before: bytes, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_messages(before + data, "b")


@given(st.data())
def test_damaged_messages_are_read_or_are_a_protocol_error(data: st.DataObject) -> None:
    whole = [
        java.PLAIN,
        java.V6_BOTH,
        java.LZ4,
        java.ZSTD,
        java.ZLIB,
        java.INNER_BATCH,
        stored(topic="t" * 200),
    ]
    damaged = bytearray(b"".join(data.draw(st.lists(st.sampled_from(whole), min_size=1, max_size=3))))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        messages = decode_messages(bytes(damaged), "b")
    except ProtocolError:
        return
    for message in messages:
        assert isinstance(message.properties, object)
        assert isinstance(message.born_host, str)


@given(st.binary(max_size=300))
def test_garbage_is_read_or_is_a_protocol_error(data: bytes) -> None:
    try:
        decode_messages(data, "b")
    except ProtocolError:
        return


@given(text)
def test_properties_of_any_text(value: str) -> None:
    message = decode(stored(properties=f"a\x01{value}".encode()))
    assert isinstance(message.properties["a"], str)


def test_properties_that_are_no_utf8_are_read() -> None:
    assert decode(stored(properties=b"a\x01\xff\x02")).properties["a"] == "\ufffd"


@pytest.mark.parametrize("values", [{"topic": "t" * 65_536}, {"properties": bytes(32_768)}])
def test_values_out_of_range_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidMessageError):
        stored(**values)  # type: ignore[arg-type]  # each value has its parameter's type
