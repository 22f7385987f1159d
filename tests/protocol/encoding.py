"""Encoders for commands and batches that the library only decodes."""

from __future__ import annotations

from collections.abc import Iterable

from rocketmq_py.protocol.batch import BatchedMessage, encode_batched
from rocketmq_py.protocol.command import Command, encode


def encode_command(command: Command) -> bytes:
    """Return the frame of a command of any peer."""
    return encode(
        command.code, command.language, command.version, command.opaque, command.flag, command.remark,
        command.fields, command.body, command.serialization,
    )  # fmt: skip


def encode_batch(messages: Iterable[BatchedMessage]) -> bytes:
    """Return the body of a batch."""
    return b"".join([encode_batched(message.flag, message.body, message.properties) for message in messages])
