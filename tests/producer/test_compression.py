from __future__ import annotations

import random
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("lz4", reason="the extra lz4 is not installed")

pytest.importorskip("zstandard", reason="the extra zstd is not installed")

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.producer.compression import Compression, compress_body
from rocketmq_py.protocol.compression import CompressionType, codec, decompress

KINDS = list(CompressionType)


@pytest.mark.parametrize(
    ("kind", "flag"),
    [(CompressionType.LZ4, 0x101), (CompressionType.ZSTD, 0x201), (CompressionType.ZLIB, 0x301)],
)
def test_bodies_from_the_bound_on_are_compressed_and_flagged(kind: CompressionType, flag: int) -> None:
    compression = Compression(kind=kind)
    body, bits = compress_body(compression, b"x" * 4096)
    assert bits == flag
    assert len(body) < 100
    assert decompress(body, kind) == b"x" * 4096
    assert compress_body(compression, b"x" * 4095) == (b"x" * 4095, 0)


def test_a_body_that_compression_would_not_shrink_is_unchanged() -> None:
    body = random.Random(1).randbytes(8192)
    for kind in KINDS:
        sent, bits = compress_body(Compression(kind=kind), body)
        assert sent is body
        assert bits == 0


@given(st.sampled_from(KINDS), st.integers(1, 300), st.binary(min_size=1, max_size=20), st.integers(1, 40))
def test_the_sent_body_decompresses_to_the_original(
    kind: CompressionType, over: int, piece: bytes, times: int
) -> None:
    body = piece * times
    sent, bits = compress_body(Compression(over, kind), body)
    assert len(sent) <= len(body)
    assert (decompress(sent, CompressionType(bits >> 8)) if bits else sent) == body


@pytest.mark.parametrize(
    ("kind", "level", "allowed"),
    [
        (CompressionType.ZLIB, 0, "1 to 9"),
        (CompressionType.ZLIB, 10, "1 to 9"),
        (CompressionType.ZSTD, 0, "1 to 22"),
        (CompressionType.ZSTD, 23, "1 to 22"),
        (CompressionType.LZ4, -1, "0 to 16"),
        (CompressionType.LZ4, 17, "0 to 16"),
    ],
)
def test_a_level_that_the_kind_does_not_have_is_rejected(
    kind: CompressionType, level: int, allowed: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"level is {level}; {kind.name} has levels {allowed}"):
        Compression(kind=kind, level=level)


def test_a_level_is_used() -> None:
    text = b" ".join(random.Random(1).choices([b"some", b"words", b"of", b"all", b"sorts"], k=5000))
    quick, _ = compress_body(Compression(kind=CompressionType.ZSTD, level=1), text)
    small, _ = compress_body(Compression(kind=CompressionType.ZSTD, level=22), text)
    assert len(small) < len(quick)


def test_a_bound_of_zero_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="over is 0"):
        Compression(over=0)


def test_a_missing_extra_fails_in_the_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    codec.cache_clear()
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigurationError, match=r"install rocketmq-py\[zstd\]"):
        Compression(kind=CompressionType.ZSTD)
