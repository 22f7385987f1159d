"""Compressed bodies. Java: ``CompressorFactory``, ``CompressionType``.

ZLIB is always there; LZ4 (its frame format) and ZSTD are extras of this package. What is unpacked is bounded,
so that a few bytes of a malicious sender do not take a consumer's memory.
"""

from __future__ import annotations

import enum
import importlib
import zlib
from typing import Any

from rocketmq_py.errors import ConfigurationError, ProtocolError

MAX_UNCOMPRESSED_SIZE = 64 * 1024 * 1024
"""Bytes of a body that are unpacked at most."""

_PIECE = 512  # bytes of ZSTD fed at once: they cannot become more than 22 MiB


class CompressionType(enum.IntEnum):
    """How a body is compressed; the value is what the system flag says. Java: ``CompressionType``."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compress(data: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = 5) -> bytes:
    """Return the compressed bytes; ``level`` is that of the kind, and LZ4 needs none.

    Raises:
        ConfigurationError: the extra for this kind is not installed.
    """
    if kind is CompressionType.ZLIB:
        return zlib.compress(data, level)
    if kind is CompressionType.ZSTD:
        compressed: bytes = _extra("zstandard", kind).ZstdCompressor(level=level).compress(data)
    else:
        compressed = _extra("lz4.frame", kind).compress(data)
    return compressed


def decompress(data: bytes, kind: CompressionType, limit: int = MAX_UNCOMPRESSED_SIZE) -> bytes:
    """Return the bytes that were compressed. What follows their end is left alone, as Java does.

    Raises:
        ConfigurationError: the extra for this kind is not installed; the text names it.
        ProtocolError: the bytes are not of this kind or end too early, or more than ``limit`` bytes come out.
    """
    if kind is CompressionType.ZLIB:
        return _unzlib(data, limit)
    if kind is CompressionType.ZSTD:
        return _unzstd(_extra("zstandard", kind), data, limit)
    return _unlz4(_extra("lz4.frame", kind), data, limit)


def _extra(module: str, kind: CompressionType) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        extra = kind.name.lower()
        raise ConfigurationError(
            f"a body compressed with {kind.name} needs an extra: install rocketmq-py[{extra}]"
        ) from None


def _unzlib(data: bytes, limit: int) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise _unreadable(CompressionType.ZLIB, error) from error
    if len(unpacked) > limit:
        raise _too_large(CompressionType.ZLIB, limit)
    if not unpacker.eof:
        raise _unreadable(CompressionType.ZLIB, "it ends too early")
    return unpacked


def _unlz4(lz4: Any, data: bytes, limit: int) -> bytes:
    unpacker = lz4.LZ4FrameDecompressor()
    pieces = []
    room = limit + 1
    fed = data
    while not unpacker.eof:
        try:
            piece = unpacker.decompress(fed, min(room, 4 * len(data) + 65_536))
        except RuntimeError as error:
            raise _unreadable(CompressionType.LZ4, error) from error
        pieces.append(piece)
        room -= len(piece)
        if room <= 0:
            raise _too_large(CompressionType.LZ4, limit)
        if not unpacker.eof and (unpacker.needs_input or not piece):
            raise _unreadable(CompressionType.LZ4, "it ends too early")
        fed = b""
    return b"".join(pieces)


def _unzstd(zstandard: Any, data: bytes, limit: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_UNCOMPRESSED_SIZE).decompressobj()
    pieces = []
    size = 0
    for position in range(0, len(data), _PIECE):
        try:
            piece = unpacker.decompress(data[position : position + _PIECE])
        except zstandard.ZstdError as error:
            raise _unreadable(CompressionType.ZSTD, error) from error
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_large(CompressionType.ZSTD, limit)
        if unpacker.eof:
            return b"".join(pieces)
    raise _unreadable(CompressionType.ZSTD, "it ends too early")


def _unreadable(kind: CompressionType, reason: object) -> ProtocolError:
    return ProtocolError(f"a body that should be {kind.name} cannot be unpacked: {reason}")


def _too_large(kind: CompressionType, limit: int) -> ProtocolError:
    return ProtocolError(f"a {kind.name} body unpacks to more than {limit} bytes")
