"""The compression setting of a producer."""

from __future__ import annotations

import attrs

from rocketmq_py.arguments import check_choice, positive, whole
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.compression import LEVELS, CompressionType, codec, compress
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG, COMPRESSION_TYPE_SHIFT


def _kind(value: CompressionType | str) -> CompressionType:
    return check_choice(value, "kind", CompressionType)


@attrs.frozen
class Compression:
    """How a producer compresses large bodies. The names of Java's ``DefaultMQProducer`` are in brackets.

    Args:
        over: the smallest size in bytes of a body that is compressed (compressMsgBodyOverHowmuch).
        kind: a CompressionType, or its name such as ``"ZSTD"`` (compressType). Every client reads ZLIB. See
            CompressionType for the others.
        level: the compression level (compressLevel): ZLIB 1 to 9, ZSTD 1 to 22, LZ4 0 to 16. None means the
            usual level of the kind: 5, 3 and 0.

    Raises:
        ConfigurationError: the kind does not have this level, or the extra that it needs is not installed.
    """

    over: int = attrs.field(default=4096, validator=positive)
    kind: CompressionType = attrs.field(default=CompressionType.ZLIB, converter=_kind)
    level: int | None = attrs.field(default=None, validator=attrs.validators.optional(whole))

    def __attrs_post_init__(self) -> None:
        levels = LEVELS[self.kind]
        if self.level is not None and self.level not in levels:
            raise ConfigurationError(
                f"level is {self.level!r}; {self.kind.name} has levels {levels[0]} to {levels[-1]}"
            )
        codec(self.kind)  # a missing extra must raise here, not at the first large message


def compress_body(compression: Compression, body: bytes) -> tuple[bytes, int]:
    """Return the body to send, and the bits of the system flag that describe its compression.

    A body that is below ``over``, or that compression would not shrink, is returned unchanged with 0. Do not
    pass the body of a batch: brokers split batches, and cannot split compressed ones.
    """
    if len(body) < compression.over:
        return body, 0
    compressed = compress(body, compression.kind, compression.level)
    if len(compressed) >= len(body):
        return body, 0
    return compressed, COMPRESSED_FLAG | compression.kind << COMPRESSION_TYPE_SHIFT
