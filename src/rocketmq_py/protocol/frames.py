"""Splitting a byte stream into commands, however the bytes arrive. Java: ``NettyDecoder``."""

from __future__ import annotations

import struct
from typing import Any

from rocketmq_py.errors import ProtocolError
from rocketmq_py.protocol.command import RESPONSE_FLAG, Command, decode_command
from rocketmq_py.protocol.decode_errors import JSON_ERRORS, decoder
from rocketmq_py.protocol.sends import SendAnswer, decode_send_answer, is_send_answer

MAX_FRAME_SIZE = 16_777_216
"""Bytes of the largest frame, length field included. Java: ``com.rocketmq.remoting.frameMaxLength``."""

_unpack_lengths = struct.Struct(">iI").unpack_from
_PREFIX_SIZE = 8
_HTTP = int.from_bytes(b"HTTP", "big")


class FrameDecoder:
    """Decodes the commands of one direction of one connection.

    Buffers at most one incomplete frame. Refuses an impossible frame as soon as its first eight bytes have
    arrived.

    Args:
        max_frame_size: the largest accepted frame in bytes, length field included.
    """

    def __init__(self, max_frame_size: int = MAX_FRAME_SIZE) -> None:
        self._max_frame_size = max_frame_size
        self._buffer = bytearray()
        self._wanted = _PREFIX_SIZE  # bytes in the buffer before the next frame can be looked at
        self._error: str | None = None
        self._expects_send_answers = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[Command]:
        """Return the commands that ``data`` completes, in order. Often there is none.

        Raises:
            ProtocolError: a length is impossible, or a header cannot be read. Earlier commands in the same
                ``data`` are lost. Every later call raises it too.
        """
        return self._feed(data, typed=False)

    def feed_typed(self, data: bytes | bytearray | memoryview) -> list[Command | SendAnswer]:
        """Return commands like :meth:`feed`, but typed ones where possible.

        The JSON answer to a send that was stored is returned as a SendAnswer if the previous answer was such
        a one, too.
        """
        return self._feed(data, typed=True)

    def _feed(self, data: bytes | bytearray | memoryview, typed: bool) -> list[Any]:
        if self._error is not None:
            raise ProtocolError(self._error)
        buffer = self._buffer
        if buffer:
            buffer += data
            if len(buffer) < self._wanted:
                return []
            data = bytes(buffer)
            buffer.clear()
        elif not isinstance(data, bytes):
            data = bytes(data)
        try:
            return self._split(data, typed)
        except ProtocolError as error:
            self._error = str(error)
            raise

    @decoder("a frame")
    def _split(self, data: bytes, typed: bool) -> list[Command | SendAnswer]:
        commands: list[Command | SendAnswer] = []
        position = 0
        available = len(data)
        self._wanted = _PREFIX_SIZE
        while available - position >= _PREFIX_SIZE:
            # mark: the serialization (8 bits, 0 is JSON) and the size of the header (24 bits).
            length, mark = _unpack_lengths(data, position)
            header_size = mark & 0xFFFFFF
            if not 4 + header_size <= length <= self._max_frame_size - 4:
                raise ProtocolError(self._impossible_length(length, header_size))
            end = position + 4 + length
            if end > available:
                self._wanted = 4 + length
                break
            body_start = position + _PREFIX_SIZE + header_size
            header = data[position + _PREFIX_SIZE : body_start]
            position = end
            if self._expects_send_answers and body_start == end and mark == header_size:
                try:
                    answer = decode_send_answer(header)
                except JSON_ERRORS:
                    pass
                else:
                    commands.append(answer)
                    continue
            command = decode_command(mark >> 24, header, data[body_start:end])
            commands.append(command)
            if typed and command.flag & RESPONSE_FLAG:
                self._expects_send_answers = is_send_answer(command)
        self._buffer += data[position:] if position else data
        return commands

    def _impossible_length(self, length: int, header_size: int) -> str:
        if length == _HTTP:
            return "the stream begins with 'HTTP', as the answers of web servers do"
        if length < 4:
            return f"a frame announces {length} bytes; the length of its header alone takes 4"
        if length > self._max_frame_size - 4:
            return f"a frame announces {length} bytes; at most {self._max_frame_size - 4} are accepted"
        return f"a frame of {length} bytes announces a header of {header_size} bytes"
