from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import ConfigurationError, ProtocolError
from rocketmq_py.protocol.compression import CompressionType, compress, decompress

KINDS = list(CompressionType)


@given(
    st.sampled_from(KINDS), st.binary(max_size=3000) | st.binary(max_size=5).map(lambda data: data * 50_000)
)
def test_round_trip(kind: CompressionType, data: bytes) -> None:
    assert decompress(compress(data, kind), kind) == data


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_is_kept(kind: CompressionType) -> None:
    compressed = compress(bytes(1_000_000), kind)
    assert decompress(compressed, kind, 1_000_000) == bytes(1_000_000)
    with pytest.raises(ProtocolError, match="more than 999999 bytes"):
        decompress(compressed, kind, 999_999)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("data", [b"ab" * 300, bytes(range(256)) * 500])
def test_what_breaks_off_is_refused(kind: CompressionType, data: bytes) -> None:
    compressed = compress(data, kind)
    for size in {0, 1, 5, len(compressed) // 2, len(compressed) - 1}:
        with pytest.raises(ProtocolError):
            decompress(compressed[:size], kind)


@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_the_end_is_left_alone(kind: CompressionType) -> None:
    assert decompress(compress(b"ab" * 300, kind) + b"rest", kind) == b"ab" * 300


@given(st.sampled_from(KINDS), st.data())
def test_damaged_bytes_are_read_or_are_a_protocol_error(kind: CompressionType, data: st.DataObject) -> None:
    damaged = bytearray(compress(data.draw(st.binary(max_size=300)), kind))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decompress(bytes(damaged), kind)
    except ProtocolError:
        return


@pytest.mark.parametrize(
    ("kind", "module"), [(CompressionType.LZ4, "lz4.frame"), (CompressionType.ZSTD, "zstandard")]
)
def test_a_missing_extra_is_named(
    kind: CompressionType, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for call in (compress, decompress):
        with pytest.raises(ConfigurationError, match=rf"rocketmq-py\[{kind.name.lower()}\]"):
            call(b"", kind)
