from __future__ import annotations

import contextlib
import importlib
import random
import sys
import threading
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_py.errors import ConfigurationError, ProtocolError
from rocketmq_py.protocol.compression import (
    DEFAULT_LEVELS,
    LEVELS,
    CompressionType,
    FastZlib,
    Lz4,
    Zlib,
    Zstd,
    codec,
    compress,
    decompress,
)

CODECS: list[Zlib | Lz4 | Zstd] = [Zlib(), FastZlib()]
"""One codec of each kind whose extra is installed. The two ZLIB codecs behave the same."""
KINDS = [CompressionType.ZLIB]
for kind, extra in ((CompressionType.LZ4, Lz4), (CompressionType.ZSTD, Zstd)):
    with contextlib.suppress(ModuleNotFoundError):
        CODECS.append(extra())
        KINDS.append(kind)
NAMES = [type(one).__name__ for one in CODECS]
LARGE = 1 << 30
ANY_LEVEL = 1

codecs = pytest.mark.parametrize("one", CODECS, ids=NAMES)
data_to_pack = st.binary(max_size=3000) | st.binary(max_size=5).map(lambda data: data * 50_000)


@pytest.fixture
def forget_codecs() -> Iterator[None]:
    """Reload the codecs for this test, and again for the next one."""
    codec.cache_clear()
    yield
    codec.cache_clear()


@given(st.sampled_from(KINDS), data_to_pack)
def test_round_trip(kind: CompressionType, data: bytes) -> None:
    assert decompress(compress(data, kind), kind) == data


@given(st.sampled_from(CODECS), st.data(), data_to_pack)
def test_round_trip_at_each_level(one: Zlib | Lz4 | Zstd, draw: st.DataObject, data: bytes) -> None:
    level = draw.draw(st.sampled_from(LEVELS[kind_of(one)]))
    assert one.decompress(one.compress(data, level), LARGE) == data


def kind_of(one: Zlib | Lz4 | Zstd) -> CompressionType:
    return {Lz4: CompressionType.LZ4, Zstd: CompressionType.ZSTD}.get(type(one), CompressionType.ZLIB)


@given(data_to_pack, st.sampled_from(LEVELS[CompressionType.ZLIB]))
def test_the_two_zlibs_read_each_other(data: bytes, level: int) -> None:
    assert zlib.decompress(FastZlib().compress(data, level)) == data
    assert FastZlib().decompress(zlib.compress(data, level), LARGE) == data


@pytest.mark.parametrize("kind", CompressionType)
def test_the_usual_level_is_a_level(kind: CompressionType) -> None:
    assert DEFAULT_LEVELS[kind] in LEVELS[kind]


@pytest.mark.parametrize(("level", "expected"), [(1, 1), (3, 1), (4, 2), (6, 2), (7, 3), (9, 3)])
def test_levels_of_the_fast_zlib(level: int, expected: int) -> None:
    data = random.Random(1).choices([b"some", b"words", b"of", b"all", b"sorts"], k=2000)
    text = b" ".join(data)
    assert FastZlib().compress(text, level) == importlib.import_module("isal.isal_zlib").compress(
        text, expected
    )


def test_lz4_blocks_stand_alone_as_java_wants_them() -> None:
    pytest.importorskip("lz4", reason="the extra lz4 is not installed")
    frame = compress(random.Random(1).randbytes(200_000), CompressionType.LZ4)
    assert frame[4] & 0b0010_0000, "the bit of the frame's descriptor that says so"


@codecs
def test_decompression_respects_the_limit(one: Zlib | Lz4 | Zstd) -> None:
    compressed = one.compress(bytes(1_000_000), ANY_LEVEL)
    assert one.decompress(compressed, 1_000_000) == bytes(1_000_000)
    with pytest.raises(ProtocolError, match="more than 999999 bytes"):
        one.decompress(compressed, 999_999)


@codecs
@pytest.mark.parametrize("data", [b"ab" * 300, bytes(range(256)) * 500])
def test_truncated_data_is_refused(one: Zlib | Lz4 | Zstd, data: bytes) -> None:
    compressed = one.compress(data, ANY_LEVEL)
    for size in {0, 1, 5, len(compressed) // 2, len(compressed) - 1}:
        with pytest.raises(ProtocolError):
            one.decompress(compressed[:size], LARGE)


@codecs
def test_bytes_after_the_end_are_ignored(one: Zlib | Lz4 | Zstd) -> None:
    assert one.decompress(one.compress(b"ab" * 300, ANY_LEVEL) + b"rest", LARGE) == b"ab" * 300


@given(st.sampled_from(CODECS), st.data())
def test_damaged_bytes_decode_or_raise_protocol_error(one: Zlib | Lz4 | Zstd, data: st.DataObject) -> None:
    damaged = bytearray(one.compress(data.draw(st.binary(max_size=300)), ANY_LEVEL))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        one.decompress(bytes(damaged), 1 << 20)
    except ProtocolError:
        return


def test_threads_compress_concurrently() -> None:
    pytest.importorskip("zstandard", reason="the extra zstd is not installed")
    bodies = [random.Random(number).randbytes(1000) * 50 for number in range(4)]
    results: dict[int, set[bytes]] = {number: set() for number in range(4)}

    def work(number: int) -> None:
        for _ in range(50):
            results[number].add(compress(bodies[number], CompressionType.ZSTD))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, body in enumerate(bodies):
        (compressed,) = results[number]
        assert decompress(compressed, CompressionType.ZSTD) == body


@pytest.mark.parametrize(
    ("kind", "module"), [(CompressionType.LZ4, "lz4.frame"), (CompressionType.ZSTD, "zstandard")]
)
@pytest.mark.usefixtures("forget_codecs")
def test_missing_extra_is_named(kind: CompressionType, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=rf"rocketmq-py\[{kind.name.lower()}\]"):
        compress(b"", kind)
    with pytest.raises(ConfigurationError, match=rf"rocketmq-py\[{kind.name.lower()}\]"):
        decompress(b"", kind)


@pytest.mark.usefixtures("forget_codecs")
def test_fast_zlib_is_used_if_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(codec(CompressionType.ZLIB), FastZlib)
    codec.cache_clear()
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert type(codec(CompressionType.ZLIB)) is Zlib
    assert decompress(compress(b"ab" * 300), CompressionType.ZLIB) == b"ab" * 300


@pytest.mark.parametrize("kind", KINDS)
def test_a_codec_is_loaded_once(kind: CompressionType) -> None:
    assert codec(kind) is codec(kind)
