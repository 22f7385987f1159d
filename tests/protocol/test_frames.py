from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.command import Command, encode_request
from rocketmq_py.protocol.frames import MAX_FRAME_SIZE, FrameDecoder
from tests.protocol.encoding import encode_command
from tests.protocol.strategies import commands

FRAME = encode_request(34, 5, {"a": "1"}, b"body")


def feed_pieces(data: bytes, cuts: list[int]) -> list[Command]:
    decoder = FrameDecoder()
    found = []
    start = 0
    for cut in [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]:
        found += decoder.feed(data[start:cut])
        start = cut
    return found


@given(st.lists(commands, max_size=6), st.lists(st.integers(0, 10_000), max_size=10))
def test_any_slicing_gives_the_same_commands(sent: list[Command], cuts: list[int]) -> None:
    data = b"".join([encode_command(command) for command in sent])
    assert feed_pieces(data, cuts) == sent


@given(st.lists(commands, min_size=1, max_size=3))
def test_byte_by_byte_gives_the_same_commands(sent: list[Command]) -> None:
    data = b"".join([encode_command(command) for command in sent])
    decoder = FrameDecoder()
    assert [command for byte in data for command in decoder.feed(bytes([byte]))] == sent


def outcome(pieces: Sequence[bytes | bytearray]) -> list[Command] | None:
    """Return the commands, or None for a ProtocolError."""
    decoder = FrameDecoder()
    try:
        return [command for piece in pieces for command in decoder.feed(piece)]
    except ProtocolError:
        return None


def garbage() -> st.SearchStrategy[bytes]:
    """Bytes that get past the first checks in different measure."""
    header = st.binary(max_size=60)
    wild = st.builds(
        lambda kind, data, rest, lie: (
            (4 + len(data) + len(rest) + lie).to_bytes(4, "big", signed=True)
            + bytes([kind])
            + len(data).to_bytes(3, "big")
            + data
            + rest
        ),
        st.integers(0, 2),
        header | st.just(b'{"code":1,"extFields":{"a":1}}'),
        st.binary(max_size=10),
        st.integers(-5, 5),
    )
    return st.lists(st.binary(max_size=40) | wild | st.just(FRAME), max_size=4).map(b"".join)


@given(garbage())
def test_garbage_parses_or_is_a_protocol_error_whole_or_byte_by_byte(data: bytes) -> None:
    assert outcome([data]) == outcome([bytes([byte]) for byte in data])


@given(st.data())
def test_a_damaged_frame_parses_or_is_a_protocol_error(data: st.DataObject) -> None:
    frame = bytearray(encode_command(data.draw(commands)))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    assert outcome([bytes(frame)]) == outcome([frame[:9], frame[9:]])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_kinds_of_bytes(kind: type[bytes] | type[bytearray] | type[memoryview]) -> None:
    decoder = FrameDecoder()
    found = decoder.feed(kind(FRAME + FRAME[:5])) + decoder.feed(kind(FRAME[5:]))
    assert [command.body for command in found] == [b"body", b"body"]
    assert all(type(command.body) is bytes for command in found)


def test_the_fed_buffer_may_be_used_again() -> None:
    decoder = FrameDecoder()
    buffer = bytearray(FRAME[:10])
    decoder.feed(buffer)
    buffer[:] = bytes(10)
    (command,) = decoder.feed(FRAME[10:])
    assert command.body == b"body"


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 3, 2**31 - 1, MAX_FRAME_SIZE - 3])
def test_impossible_lengths_are_refused_on_arrival(length: int) -> None:
    with pytest.raises(ProtocolError, match=str(length)):
        FrameDecoder().feed(length.to_bytes(4, "big", signed=True) + bytes(4))


def test_header_longer_than_its_frame() -> None:
    with pytest.raises(ProtocolError, match="of 10 bytes announces a header of 7 bytes"):
        FrameDecoder().feed((10).to_bytes(4, "big") + (7).to_bytes(4, "big"))


def test_the_largest_frame_is_accepted() -> None:
    body_size = 1000 - len(encode_request(34, 5, {}))
    frame = encode_request(34, 5, {}, bytes(body_size))
    assert len(FrameDecoder(1000).feed(frame)) == 1
    with pytest.raises(ProtocolError, match="at most 995"):
        FrameDecoder(999).feed(frame[:8])


def test_a_large_frame_in_many_pieces() -> None:
    frame = encode_request(34, 5, {}, bytes(4_000_000))
    decoder = FrameDecoder()
    found = []
    for start in range(0, len(frame), 16_384):
        found += decoder.feed(frame[start : start + 16_384])
    assert [len(command.body) for command in found] == [4_000_000]


def test_after_an_error_it_stays_unusable() -> None:
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError) as first:
        decoder.feed(bytes(8))
    with pytest.raises(ProtocolError) as second:
        decoder.feed(FRAME)
    assert str(first.value) == str(second.value)


def test_empty_input_yields_no_command() -> None:
    assert FrameDecoder().feed(b"") == []
