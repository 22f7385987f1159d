"""Compression of message bodies. Java: ``CompressorFactory``, ``CompressionType``.

ZLIB is always available, and faster with the extra ``fast-zlib``. LZ4 (in its frame format) and ZSTD need the
extra of their name. Decompression is bounded, so that a small malicious body cannot exhaust a consumer's
memory.
"""

from __future__ import annotations

import enum
import functools
import importlib
import threading
import zlib
from collections.abc import Mapping
from typing import Any, Protocol

from rocketmq_py.errors import ConfigurationError, ProtocolError
from rocketmq_py.protocol.decode_errors import decoder

MAX_UNCOMPRESSED_SIZE = 64 * 1024 * 1024
"""Bytes of the largest body that is decompressed."""

_ZSTD_CHUNK_SIZE = 512
"""Compressed bytes per step. They decompress to at most 22 MiB, by which a step may exceed the limit."""


class CompressionType(enum.IntEnum):
    """The compression of a body. The value is its code in the system flag. Java: ``CompressionType``.

    Every client can read ZLIB. Java's clients read LZ4 and ZSTD from 4.9.4 on, and this client with the extra
    of that name. The Go client reads neither.
    """

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


LEVELS: Mapping[CompressionType, range] = {
    CompressionType.LZ4: range(17),
    CompressionType.ZSTD: range(1, 23),
    CompressionType.ZLIB: range(1, 10),
}
"""The levels of each compression. Higher levels are slower and compress better."""

DEFAULT_LEVELS: Mapping[CompressionType, int] = {
    CompressionType.LZ4: 0,
    CompressionType.ZSTD: 3,
    CompressionType.ZLIB: 5,
}
"""ZLIB: Java's compressLevel. The others: the default of the library. Java's level 5 makes ZSTD slower
without compressing better, and Java does not use it for LZ4."""


class Codec(Protocol):
    """Compresses and decompresses bodies. Thread-safe."""

    def compress(self, data: bytes, level: int) -> bytes:
        """Return the compressed bytes."""

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return the decompressed bytes. Raises ProtocolError like :func:`decompress`."""


def compress(data: bytes, kind: CompressionType = CompressionType.ZLIB, level: int | None = None) -> bytes:
    """Return the compressed bytes. ``level`` is one of the kind's LEVELS, or None for its default.

    Raises:
        ConfigurationError: the extra for this kind is not installed.
    """
    return codec(kind).compress(data, DEFAULT_LEVELS[kind] if level is None else level)


@decoder("a compressed body")
def decompress(data: bytes, kind: CompressionType, limit: int = MAX_UNCOMPRESSED_SIZE) -> bytes:
    """Return the decompressed bytes. Bytes after their end are ignored, as in Java.

    Raises:
        ConfigurationError: the extra for this kind is not installed. The text names it.
        ProtocolError: the bytes are not of this kind, or are truncated, or decompress to more than ``limit``
            bytes.
    """
    return codec(kind).decompress(data, limit)


@functools.cache
def codec(kind: CompressionType) -> Codec:
    """Return the codec of a kind, whose library is imported on first use.

    Raises:
        ConfigurationError: the extra for this kind is not installed. The text names it.
    """
    if kind is CompressionType.ZLIB:
        try:
            return FastZlib()
        except ImportError:
            return Zlib()
    try:
        return Zstd() if kind is CompressionType.ZSTD else Lz4()
    except ImportError:
        extra = kind.name.lower()
        raise ConfigurationError(
            f"a body compressed with {kind.name} needs an extra: install rocketmq-py[{extra}]"
        ) from None


class Zlib:
    """The standard library's zlib."""

    module: Any = zlib

    def compress(self, data: bytes, level: int) -> bytes:
        """Return the compressed bytes."""
        compressed: bytes = self.module.compress(data, level)
        return compressed

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return the decompressed bytes."""
        decompressor = self.module.decompressobj()
        try:
            decompressed: bytes = decompressor.decompress(data, limit + 1)
        except self.module.error as error:
            raise _unreadable(CompressionType.ZLIB, error) from error
        if len(decompressed) > limit:
            raise _too_large(CompressionType.ZLIB, limit)
        if not decompressor.eof:
            raise _unreadable(CompressionType.ZLIB, "it is truncated")
        return decompressed


class FastZlib(Zlib):
    """Intel's ISA-L, which reads and writes the same format in a fraction of the time.

    Only its levels 1 to 3 are useful. They stand for zlib's levels 1 to 3, 4 to 6 and 7 to 9, and compress as
    well as those to within a few percent.
    """

    def __init__(self) -> None:
        self.module: Any = importlib.import_module("isal.isal_zlib")

    def compress(self, data: bytes, level: int) -> bytes:
        """Return the compressed bytes."""
        return super().compress(data, (level + 2) // 3)


class Lz4:
    """The package lz4."""

    def __init__(self) -> None:
        self._frame = importlib.import_module("lz4.frame")

    def compress(self, data: bytes, level: int) -> bytes:
        """Return the compressed bytes."""
        # Java's LZ4FrameInputStream refuses blocks that depend on the previous one.
        compressed: bytes = self._frame.compress(data, compression_level=level, block_linked=False)
        return compressed

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return the decompressed bytes."""
        decompressor = self._frame.LZ4FrameDecompressor()
        pieces = []
        space = limit + 1
        remaining = data
        while not decompressor.eof:
            try:
                # The library allocates this size in advance, so it is not the whole limit.
                piece = decompressor.decompress(remaining, min(space, 4 * len(data) + 65_536))
            except RuntimeError as error:
                raise _unreadable(CompressionType.LZ4, error) from error
            pieces.append(piece)
            space -= len(piece)
            if space <= 0:
                raise _too_large(CompressionType.LZ4, limit)
            if not decompressor.eof and (decompressor.needs_input or not piece):
                raise _unreadable(CompressionType.LZ4, "it is truncated")
            remaining = b""
        return b"".join(pieces)


class Zstd:
    """The package zstandard."""

    def __init__(self) -> None:
        self._zstandard = importlib.import_module("zstandard")
        self._compressors = _ThreadCompressors()

    def compress(self, data: bytes, level: int) -> bytes:
        """Return the compressed bytes."""
        compressor = self._compressors.by_level.get(level)
        if compressor is None:
            compressor = self._compressors.by_level[level] = self._zstandard.ZstdCompressor(level=level)
        compressed: bytes = compressor.compress(data)
        return compressed

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return the decompressed bytes."""
        decompressor = self._zstandard.ZstdDecompressor(max_window_size=MAX_UNCOMPRESSED_SIZE).decompressobj()
        pieces = []
        size = 0
        for position in range(0, len(data), _ZSTD_CHUNK_SIZE):
            try:
                piece = decompressor.decompress(data[position : position + _ZSTD_CHUNK_SIZE])
            except self._zstandard.ZstdError as error:
                raise _unreadable(CompressionType.ZSTD, error) from error
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise _too_large(CompressionType.ZSTD, limit)
            if decompressor.eof:
                return b"".join(pieces)
        raise _unreadable(CompressionType.ZSTD, "it is truncated")


# Fast path: avoids making a compressor for each body, saves 90 % of compressing 4 KiB with ZSTD
# (timeit of Zstd.compress with and without).
class _ThreadCompressors(threading.local):
    """ZSTD compressors of one thread, by level. Threads must not share a compressor."""

    def __init__(self) -> None:
        self.by_level: dict[int, Any] = {}


def _unreadable(kind: CompressionType, reason: object) -> ProtocolError:
    return ProtocolError(f"a {kind.name} body cannot be decompressed: {reason}")


def _too_large(kind: CompressionType, limit: int) -> ProtocolError:
    return ProtocolError(f"a {kind.name} body decompresses to more than {limit} bytes")
