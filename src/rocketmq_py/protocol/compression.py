"""Compressed bodies. Java: ``CompressorFactory``, ``CompressionType``.

ZLIB is always there, and faster where the extra ``fast-zlib`` is; LZ4 (its frame format) and ZSTD are extras
of this package. What is unpacked is bounded, so that a few bytes of a malicious sender do not take a
consumer's memory.
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
from rocketmq_py.protocol.decoding import decoder

MAX_UNCOMPRESSED_SIZE = 64 * 1024 * 1024
"""Bytes of a body that are unpacked at most."""

_PIECE = 512  # bytes of ZSTD fed at once: they cannot become more than 22 MiB


class CompressionType(enum.IntEnum):
    """How a body is compressed; the value is what the system flag says. Java: ``CompressionType``.

    ZLIB is the one that every client can read. LZ4 and ZSTD are read by Java's from 4.9.4 on, not by the Go
    client, and here where the extra of that name is installed.
    """

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


LEVELS: Mapping[CompressionType, range] = {
    CompressionType.LZ4: range(17),
    CompressionType.ZSTD: range(1, 23),
    CompressionType.ZLIB: range(1, 10),
}
"""The levels of each kind; a higher one takes longer and makes less of it."""

DEFAULT_LEVELS: Mapping[CompressionType, int] = {
    CompressionType.LZ4: 0,
    CompressionType.ZSTD: 3,
    CompressionType.ZLIB: 5,
}
"""ZLIB's is Java's compressLevel, the others are those of their libraries: Java's 5 would make ZSTD slower
without making less of it, and is not used for LZ4."""


class Codec(Protocol):
    """Packs and unpacks bodies of one kind; any thread may use it."""

    def compress(self, data: bytes, level: int) -> bytes:
        """Return the compressed bytes."""

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return the bytes that were compressed; ProtocolError as that of the function ``decompress``."""


def compress(data: bytes, kind: CompressionType = CompressionType.ZLIB, level: int | None = None) -> bytes:
    """Return the compressed bytes; ``level`` is one of the kind's LEVELS, None its usual one.

    Raises:
        ConfigurationError: the extra for this kind is not installed.
    """
    return codec(kind).compress(data, DEFAULT_LEVELS[kind] if level is None else level)


@decoder("a compressed body")
def decompress(data: bytes, kind: CompressionType, limit: int = MAX_UNCOMPRESSED_SIZE) -> bytes:
    """Return the bytes that were compressed. What follows their end is left alone, as Java does.

    Raises:
        ConfigurationError: the extra for this kind is not installed; the text names it.
        ProtocolError: the bytes are not of this kind or end too early, or more than ``limit`` bytes come out.
    """
    return codec(kind).decompress(data, limit)


@functools.cache
def codec(kind: CompressionType) -> Codec:
    """Return what packs and unpacks this kind: loaded when it is first asked for, then kept.

    Raises:
        ConfigurationError: the extra for this kind is not installed; the text names it.
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
        """Return the bytes that were compressed."""
        unpacker = self.module.decompressobj()
        try:
            unpacked: bytes = unpacker.decompress(data, limit + 1)
        except self.module.error as error:
            raise _unreadable(CompressionType.ZLIB, error) from error
        if len(unpacked) > limit:
            raise _too_large(CompressionType.ZLIB, limit)
        if not unpacker.eof:
            raise _unreadable(CompressionType.ZLIB, "it ends too early")
        return unpacked


class FastZlib(Zlib):
    """Intel's ISA-L, which writes and reads the same format in a fraction of the time.

    It has levels 1 to 3 that are worth having: zlib's 1 to 3 become its 1, 4 to 6 its 2, 7 to 9 its 3. Its
    results are as small as zlib's to within a few percent.
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
        # Java's LZ4FrameInputStream refuses blocks that need the one before them.
        compressed: bytes = self._frame.compress(data, compression_level=level, block_linked=False)
        return compressed

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return the bytes that were compressed."""
        unpacker = self._frame.LZ4FrameDecompressor()
        pieces = []
        space = limit + 1
        fed = data
        while not unpacker.eof:
            try:
                piece = unpacker.decompress(fed, min(space, 4 * len(data) + 65_536))
            except RuntimeError as error:
                raise _unreadable(CompressionType.LZ4, error) from error
            pieces.append(piece)
            space -= len(piece)
            if space <= 0:
                raise _too_large(CompressionType.LZ4, limit)
            if not unpacker.eof and (unpacker.needs_input or not piece):
                raise _unreadable(CompressionType.LZ4, "it ends too early")
            fed = b""
        return b"".join(pieces)


class Zstd:
    """The package zstandard."""

    def __init__(self) -> None:
        self._zstandard = importlib.import_module("zstandard")
        self._kept = _Compressors()

    def compress(self, data: bytes, level: int) -> bytes:
        """Return the compressed bytes."""
        compressor = self._kept.of_level.get(level)
        if compressor is None:
            compressor = self._kept.of_level[level] = self._zstandard.ZstdCompressor(level=level)
        compressed: bytes = compressor.compress(data)
        return compressed

    def decompress(self, data: bytes, limit: int) -> bytes:
        """Return the bytes that were compressed."""
        unpacker = self._zstandard.ZstdDecompressor(max_window_size=MAX_UNCOMPRESSED_SIZE).decompressobj()
        pieces = []
        size = 0
        for position in range(0, len(data), _PIECE):
            try:
                piece = unpacker.decompress(data[position : position + _PIECE])
            except self._zstandard.ZstdError as error:
                raise _unreadable(CompressionType.ZSTD, error) from error
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise _too_large(CompressionType.ZSTD, limit)
            if unpacker.eof:
                return b"".join(pieces)
        raise _unreadable(CompressionType.ZSTD, "it ends too early")


class _Compressors(threading.local):
    """A thread's ZSTD compressors, by level: threads must not share one; making one is half of the work."""

    def __init__(self) -> None:
        self.of_level: dict[int, Any] = {}


def _unreadable(kind: CompressionType, reason: object) -> ProtocolError:
    return ProtocolError(f"a body that should be {kind.name} cannot be unpacked: {reason}")


def _too_large(kind: CompressionType, limit: int) -> ProtocolError:
    return ProtocolError(f"a {kind.name} body unpacks to more than {limit} bytes")
