"""Cutting a stream of bytes into commands, whatever the pieces in which it comes (Java: ``NettyDecoder``)."""

from __future__ import annotations

import struct
from typing import Any

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.command import RESPONSE_FLAG, Command, decode_command
from rocketmq_py.protocol.decoding import decoder
from rocketmq_py.protocol.plain_send import NO_PLAIN_SEND, PlainSend, decode_plain_send, is_plain_send
from rocketmq_py.protocol.send_answer import (
    NO_SEND_ANSWER,
    SendAnswer,
    decode_send_answer,
    is_send_answer,
)

MAX_FRAME_SIZE = 16_777_216
"""Bytes of a frame with its length field. Java: ``com.rocketmq.remoting.frameMaxLength``."""

_unpack_lengths = struct.Struct(">iI").unpack_from
_PREFIX_SIZE = 8
_HTTP = int.from_bytes(b"HTTP", "big")


class FrameDecoder:
    """Takes the bytes of one direction of one connection and gives back the commands in them.

    It holds at most one frame that is not complete, and refuses an impossible one as soon as its first eight
    bytes have come.

    Args:
        max_frame_size: the largest frame accepted, in bytes, its length field included.
        reads_sends: whether :meth:`feed_typed` returns plain sends as what they are, too.
    """

    def __init__(self, max_frame_size: int = MAX_FRAME_SIZE, *, reads_sends: bool = False) -> None:
        self._max_frame_size = max_frame_size
        self._held = bytearray()
        self._wanted = _PREFIX_SIZE  # bytes held before there is something to be done
        self._broken: str | None = None
        self._expects_send_answers = False  # as the last answer was one, and the next will be
        self._reads_sends = reads_sends
        self._expects_sends = False  # the same

    def feed(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """Return the commands that ``data`` completes, in their order; none is normal.

        Raises:
            ProtocolError: a length is impossible, or a header cannot be read. Commands of the same
                ``data`` before that place are lost. From then on every call raises it.
        """
        return self._feed(data, typed=False)

    def feed_typed(self, data: bytes | bytearray | memoryview) -> list[Command | SendAnswer | PlainSend]:
        """As :meth:`feed`, but return answers to sends as what they are, as soon as the first has come.

        And plain sends, if the decoder was told so.
        """
        return self._feed(data, typed=True)

    def _feed(self, data: bytes | bytearray | memoryview, typed: bool) -> list[Any]:
        if self._broken is not None:
            raise ProtocolError(self._broken)
        held = self._held
        if held:
            held += data
            if len(held) < self._wanted:
                return []
            data = bytes(held)
            held.clear()
        elif not isinstance(data, bytes):
            data = bytes(data)
        try:
            return self._cut(data, typed)
        except ProtocolError as error:
            self._broken = str(error)
            raise

    @decoder("a frame")
    def _cut(self, data: bytes, typed: bool) -> list[Command | SendAnswer | PlainSend]:
        commands: list[Command | SendAnswer | PlainSend] = []
        position = 0
        available = len(data)
        self._wanted = _PREFIX_SIZE
        while available - position >= _PREFIX_SIZE:
            length, mark = _unpack_lengths(data, position)
            header_size = mark & 0xFFFFFF
            if not 4 + header_size <= length <= self._max_frame_size - 4:
                raise ProtocolError(self._complaint(length, header_size))
            end = position + 4 + length
            if end > available:
                self._wanted = 4 + length
                break
            body_start = position + _PREFIX_SIZE + header_size
            header = data[position + _PREFIX_SIZE : body_start]
            position = end
            if self._expects_send_answers and body_start == end and mark == header_size:
                try:
                    commands.append(decode_send_answer(header))
                    continue
                except NO_SEND_ANSWER:
                    pass
            elif self._expects_sends and mark == header_size:
                try:
                    send = decode_plain_send(header)
                except NO_PLAIN_SEND:
                    pass
                else:
                    send.header, send.body = header, data[body_start:end]
                    commands.append(send)
                    continue
            command = decode_command(mark >> 24, header, data[body_start:end])
            commands.append(command)
            if typed:
                if command.flag & RESPONSE_FLAG:
                    self._expects_send_answers = is_send_answer(command)
                else:
                    self._expects_sends = self._reads_sends and is_plain_send(command)
        self._held += data[position:] if position else data
        return commands

    def _complaint(self, length: int, header_size: int) -> str:
        if length == _HTTP:
            return "it begins with 'HTTP', as the answers of web servers do"
        if length < 4:
            return f"a frame says that {length} bytes follow; its header's length alone takes 4"
        if length > self._max_frame_size - 4:
            return f"a frame says that {length} bytes follow; at most {self._max_frame_size - 4} are accepted"
        return f"a frame of {length} bytes says that its header has {header_size}"
