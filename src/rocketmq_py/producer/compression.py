"""When and how a producer compresses bodies."""

from __future__ import annotations

import attrs

from rocketmq_py.arguments import check_choice, positive, whole
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.protocol.compression import DEFAULT_LEVELS, LEVELS, CompressionType, codec
from rocketmq_py.protocol.stored_message import COMPRESSED_FLAG, COMPRESSION_TYPE_SHIFT


def _kind(value: CompressionType | str) -> CompressionType:
    return check_choice(value, "kind", CompressionType)


@attrs.frozen
class Compression:
    """Compresses bodies that are large enough. Java: ``DefaultMQProducer``, whose names stand in brackets.

    Args:
        over: bytes from which on a body is compressed (compressMsgBodyOverHowmuch).
        kind: a CompressionType, or its name such as ``"ZSTD"`` (compressType). Every client reads ZLIB; see
            CompressionType for the others.
        level: how hard to try (compressLevel): ZLIB 1 to 9, ZSTD 1 to 22, LZ4 0 to 16. None is the usual
            one of the kind: 5, 3 and 0.

    Raises:
        ConfigurationError: the kind has no such level, or its extra is not installed; the text says which.
    """

    over: int = attrs.field(default=4096, validator=positive)
    kind: CompressionType = attrs.field(default=CompressionType.ZLIB, converter=_kind)
    level: int | None = attrs.field(default=None, validator=attrs.validators.optional(whole))

    def __attrs_post_init__(self) -> None:
        levels = LEVELS[self.kind]
        if self.level is not None and self.level not in levels:
            raise ConfigurationError(
                f"{self.kind.name} has no level {self.level!r}; {levels[0]} to {levels[-1]} are allowed"
            )
        codec(self.kind)  # an extra that is missing should be missed here, not at the first large message

    def compress_body(self, body: bytes) -> tuple[bytes, int]:
        """Return what to send for a body, and the bits of the system flag that say how it is compressed.

        A body that is too small, or that would not get smaller, is returned as it is, with 0. Not for the
        body of a batch: brokers take it apart, and cannot when it is compressed.
        """
        if len(body) < self.over:
            return body, 0
        level = DEFAULT_LEVELS[self.kind] if self.level is None else self.level
        compressed = codec(self.kind).compress(body, level)
        if len(compressed) >= len(body):
            return body, 0
        return compressed, COMPRESSED_FLAG | self.kind << COMPRESSION_TYPE_SHIFT
