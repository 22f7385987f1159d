"""Pulls over a plain socket: the minimum work of any reader.

It sends this client's requests, several in flight, and decodes only the headers of responses. It has no event
loop, no tasks, no timeouts, a single broker, and no error recovery.
"""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Iterator

import attrs

from rocketmq_py.address import split_address
from rocketmq_py.codes import RequestCode
from rocketmq_py.consumer.pull.queue_puller import PullFlag
from rocketmq_py.consumer.read.message_stream import READER_GROUP
from rocketmq_py.consumer.read.offset_ranges import OffsetRange, PullResult
from rocketmq_py.protocol.command import encode_request
from rocketmq_py.protocol.headers import PullMessageRequest

AT_ONCE = 32
"""Messages per pull: the maximum of a broker with default settings."""
MAX_IN_FLIGHT = 32
READ_SIZE = 256 * 1024


@attrs.define(eq=False)
class PlainPulls:
    """Pulls one span to its end. Iterating yields the messages of each answer as it arrives.

    Args:
        address: the broker's.
        span: the range of offsets to pull.

    Raises:
        RuntimeError: the broker returned no messages, or closed the connection.
    """

    address: str
    span: OffsetRange
    _left: deque[tuple[int, int]] = attrs.field(init=False, factory=deque)
    _asked: dict[int, tuple[int, int]] = attrs.field(init=False, factory=dict)
    _opaque: int = attrs.field(init=False, default=0)

    def __iter__(self) -> Iterator[PullResult]:
        span, fields = self.span, self._fields()
        self._left.extend([(at, min(at + AT_ONCE, span.end)) for at in range(span.start, span.end, AT_ONCE)])
        with socket.create_connection(split_address(self.address)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            received = bytearray()
            while self._left or self._asked:
                if len(self._asked) <= MAX_IN_FLIGHT // 2:
                    connection.sendall(self._requests(fields))
                data = connection.recv(READ_SIZE)
                if not data:
                    raise RuntimeError(f"{self.address} closed the connection")
                received += data
                yield from self._answers(received)

    def _fields(self) -> dict[str, str]:
        queue = self.span.queue
        header = PullMessageRequest(
            consumer_group=READER_GROUP,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=0,
            max_msg_nums=AT_ONCE,
            sys_flag=PullFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
        return header.to_fields()

    def _requests(self, common: dict[str, str]) -> bytes:
        frames = []
        while self._left and len(self._asked) < MAX_IN_FLIGHT:
            self._opaque += 1
            self._asked[self._opaque] = asked = self._left.popleft()
            fields = common | {"queueOffset": str(asked[0])}
            frames.append(encode_request(RequestCode.PULL_MESSAGE, self._opaque, fields))
        return b"".join(frames)

    def _answers(self, received: bytearray) -> Iterator[PullResult]:
        """Remove complete frames from the received data. Yields the messages of each."""
        position = 0
        while len(received) - position >= 8:
            size = int.from_bytes(received[position : position + 4], "big")
            if len(received) - position < 4 + size:
                break
            header_size = int.from_bytes(received[position + 5 : position + 8], "big")
            body = position + 8 + header_size
            header = json.loads(received[position + 8 : body])
            position += 4 + size
            yield self._result_of(header, bytes(memoryview(received)[body:position]))
        del received[:position]

    def _result_of(self, header: dict[str, object], body: bytes) -> PullResult:
        opaque, fields = header["opaque"], header["extFields"]
        assert isinstance(opaque, int)
        assert isinstance(fields, dict)
        start, end = self._asked.pop(opaque)
        following = min(int(fields["nextBeginOffset"]), end)
        if header["code"] != 0 or following <= start:
            raise RuntimeError(f"a pull of {self.span} from {start} on brought no messages: {header}")
        if following < end:
            self._left.appendleft((following, end))
        return PullResult(self.span, body, start, following)
