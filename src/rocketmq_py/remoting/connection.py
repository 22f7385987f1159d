"""One connection that carries many requests at once, in both directions.

Servers use this class. Clients use its subclass in ``client_connection``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from rocketmq_py.address import pack_address
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.credentials import RequestSigner
from rocketmq_py.errors import (
    ConnectionLostError,
    Delivery,
    ProtocolError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.protocol.command import (
    RESPONSE_FLAG,
    Command,
    Serialization,
    encode_request,
    encode_response,
)
from rocketmq_py.protocol.frames import MAX_FRAME_SIZE, FrameDecoder
from rocketmq_py.protocol.sends import SendAnswer
from rocketmq_py.remoting.base_channel import Channel
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.nurseries import open_nursery
from rocketmq_py.remoting.pending_requests import PendingRequest, PendingRequests
from rocketmq_py.remoting.rpc_hooks import RpcHooks
from rocketmq_py.remoting.wire import DEFAULT_MAX_BUFFERED, WIRE_ERRORS, Wire, Writer, reason_of

logger: Final = LibraryLogger("rocketmq_py.remoting")

MAX_SILENT_TIMEOUTS = 3
MAX_SILENT_SECONDS = 2.0
"""A connection is closed as dead after this many timeouts, and this long after the first of them, if nothing
was received in between. The seconds matter for short timeouts, such as that of a message's last attempt:
a slow broker is not a dead one, and closing the connection fails all other pending requests."""
FEW_PENDING = 15
"""If one answer arrives alone and at most this many requests are pending, the next request is written at
once. It does not wait for others to share its system call."""
FLUSH_SECONDS = 1.0
"""How long a closing connection tries to write its buffer."""

Handler: TypeAlias = "Callable[[Connection, Command], None]"
"""Called in the reading task for every request of the peer. It must not block. It answers with
:meth:`Connection.respond`, at once or later. An exception is logged and answered as SYSTEM_ERROR."""
_ANSWERED_BY_MEMBERS: Final = frozenset(
    [RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY]
)
"""Requests that a broker forwards to a member of a group. The answer has the member's version."""
_HEADER_MARGIN = 64 * 1024
"""Bytes that a request may have in addition to its body."""


class Connection(Channel):
    """One end of a connection, of a client or of a server. It works while :meth:`run` runs.

    Senders put frames into the buffer of the writer, which writes all of them in one system call. Answers
    arrive in any order and are matched by their opaque. :class:`Deadlines`, which several connections share,
    times requests out. When the connection breaks, all pending requests fail with ConnectionLostError.

    Args:
        stream: a connected socket, plain or with TLS.
        deadlines: watches the timeouts. Its ``run`` must be running.
        handler: answers the requests of the peer.
        address: the attribute ``address``, instead of the peer's own.
        serialization: the encoding of the headers of requests. An answer has that of its request.
        signer: completes and signs every request, or None. Answers are not signed.
        hooks: called around requests.
        max_buffered: bytes that are buffered before senders wait.
        max_frame_size: a larger frame breaks the connection.
        read_waits_for_space: read no more requests while the buffer of answers is full. Only for servers: if
            both ends did this, each could wait for the other one to read.

    Attributes:
        address: the address that was connected to, or the peer's.
        hooks: called around requests.
        draining: whether the peer has announced that it goes away (GO_AWAY). Only for clients.
        is_usable: whether it takes new requests: it is neither closed nor draining.
        has_received: whether the peer has sent anything.
        peer_version: the peer's version in its first answer, an ordinal of Java's ``MQVersion``, or 0 before
            that.
        peer_is_proxy: whether the peer has answered a heartbeat as a proxy. False before that.
        peer_address, local_address: ``host:port`` of both ends of the socket.
        writer: writes the frames.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        deadlines: Deadlines,
        handler: Handler,
        address: str | None = None,
        serialization: Serialization = Serialization.JSON,
        signer: RequestSigner | None = None,
        hooks: RpcHooks | None = None,
        max_buffered: int = DEFAULT_MAX_BUFFERED,
        max_frame_size: int = MAX_FRAME_SIZE,
        read_waits_for_space: bool = False,
    ) -> None:
        self._wire = wire = Wire(stream)
        super().__init__(address or wire.peer_address, deadlines, RpcHooks() if hooks is None else hooks)
        self._handler = handler
        self._serialization = serialization
        self._signer = signer
        self._read_waits_for_space = read_waits_for_space
        self._decoder = FrameDecoder(max_frame_size)
        self.writer: Writer = Writer(wire, max_buffered)
        self.peer_address: str = wire.peer_address
        self.local_address: str = wire.local_address
        self.draining: bool = False
        self.is_usable: bool = True
        self.has_received: bool = False
        self.peer_version: int = 0
        self.peer_is_proxy: bool = False
        self._requests = PendingRequests(deadlines)
        self._pending = self._requests.by_opaque
        self._opaque = 0
        self._next_is_alone = self._drops_answers = False
        self._silent_timeouts, self._silent_since = 0, 0.0
        self._closed_because: str | None = None
        self._nursery: trio.Nursery | None = None

    def __repr__(self) -> str:
        state = f"closed: {self._closed_because}" if self.is_closed else f"{len(self._pending)} pending"
        return f"<Connection {self.address}, {state}>"

    @property
    def is_closed(self) -> bool:
        """Whether it is closed."""
        return self._closed_because is not None

    @property
    def closed_because(self) -> str:
        """The reason why it is closed, or an empty text."""
        return self._closed_because or ""

    @property
    def peer_packed(self) -> bytes:
        """The peer's IP address and port as encoded in stored messages."""
        return pack_address(self.peer_address)

    @property
    def pending(self) -> int:
        """The number of requests without an answer."""
        return len(self._pending)

    @property
    def has_space(self) -> bool:
        """Whether another request fits into the buffer."""
        return self.writer.has_space

    # Sending

    def carry(self, pending: PendingRequest) -> None:
        """Send a request, which may have been on another channel before. Raises as :meth:`submit`."""
        if not self.is_usable and self._carry_elsewhere(pending):
            return
        if not pending.deadline >= self._requests.watched:  # earlier, or NaN, which watch() refuses
            self._requests.watch(pending.deadline)
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        frame = pending.frame(opaque, self._serialization, self._signer)
        pending.channel, pending.opaque = self, opaque
        writer = self.writer
        pending.buffer_number = writer.buffer_number
        if self._next_is_alone:
            # The last answer arrived alone and few requests are pending: others are unlikely to follow soon.
            self._next_is_alone = False
            pending.frame_index = writer.put_alone(frame)
        else:
            pending.frame_index = writer.put(frame)
        self._pending[opaque] = pending

    def _carry_elsewhere(self, pending: PendingRequest) -> bool:
        """Send a request over another connection, or return False. Raises ConnectionLostError if closed."""
        self._check_open()
        return False

    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a oneway request, even with a full buffer. Hooks are not called. Raises as :meth:`submit`."""
        self._check_open()
        wire = fields if self._signer is None else self._signer.complete(fields, body)
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        frame = encode_request(code, opaque, wire, body, oneway=True, serialization=self._serialization)
        self.writer.put_oneway(frame, (code, fields, body))

    def respond(
        self,
        request: Command,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        remark: str | None = None,
    ) -> None:
        """Answer a request of the peer. Does nothing if it is oneway or the connection is closed.

        Answers are dropped if the buffer is full because the peer does not read them, unless reading waits
        for space.
        """
        if request.is_oneway or self.is_closed:
            return
        if self._read_waits_for_space or self.writer.has_space_for_answers:
            self.writer.put(encode_response(request, code, fields, body, remark))
        elif not self._drops_answers:
            self._drops_answers = True
            logger.warning("dropping answers, which the peer does not read: peer=%s", self.address)

    async def wait_for_space(self) -> None:
        """Wait for space in the buffer. It is no checkpoint if there is some.

        Raises ConnectionLostError if the connection is closed.
        """
        await self.writer.wait_for_space()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed_because is not None:
            raise ConnectionLostError(self.address, self._closed_because, Delivery.NOT_SENT)

    # Answers

    def has_written(self, pending: PendingRequest) -> bool:
        """Whether any byte of the request may have left this process."""
        return pending.buffer_number < self.writer.buffer_number

    def forget(self, pending: PendingRequest) -> None:
        """Drop a request: its answer is ignored, and it is not written if it still waits in the buffer."""
        if self._pending.pop(pending.opaque, None) is not None:
            self.writer.take_back(pending.buffer_number, pending.frame_index)

    def time_out(self, pending: PendingRequest) -> None:
        """Answer a request with RequestTimeoutError, and close the connection if the peer is silent."""
        if self._pending.pop(pending.opaque, None) is None:
            return
        self.writer.take_back(pending.buffer_number, pending.frame_index)
        pending.answered(RequestTimeoutError(self.address, pending.timeout, pending.delivery))
        now = trio.current_time()
        if not self._silent_timeouts:
            self._silent_since = now
        self._silent_timeouts += 1
        if self._silent_timeouts >= MAX_SILENT_TIMEOUTS and now - self._silent_since >= MAX_SILENT_SECONDS:
            self.close(f"{self._silent_timeouts} requests timed out and nothing was received")

    def _handle_answer(self, answer: Command, pending: PendingRequest | None) -> None:
        if not self.peer_version:
            self._learn_version(answer, pending)
        if pending is not None:
            pending.answered(answer)

    def _learn_version(self, answer: Command, pending: PendingRequest | None) -> None:
        if pending is not None and pending.code not in _ANSWERED_BY_MEMBERS:
            self.peer_version = answer.version

    def _handle_request(self, request: Command) -> None:
        # A failing request must not break the connection of the others.
        try:
            self._handler(self, request)
        except RocketMQError as error:
            # Usually the request is malformed, and a traceback would not help.
            logger.warning("request failed peer=%s code=%d: %s", self.address, request.code, error)
            self.respond(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
        except Exception as error:
            logger.exception("request failed peer=%s code=%d", self.address, request.code)
            self.respond(request, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    # Lifecycle

    async def run(self) -> None:
        """Read and write until the connection breaks or is closed, or until cancelled.

        It does not raise errors of the connection: the pending requests get them.
        """
        try:
            async with open_nursery() as nursery:
                self._nursery = nursery
                if self.is_closed:  # it was closed before it ran
                    nursery.cancel_scope.cancel()
                nursery.start_soon(self._write)
                nursery.start_soon(self._read)
        finally:
            self.close("closed here")
            await self._wire.aclose()

    def close(self, reason: str = "closed here") -> None:
        """Close at once. The buffer is dropped, and pending requests fail with ``reason``."""
        if self.is_closed:
            return
        self._closed_because = reason
        self.is_usable = False
        for pending in self._requests.take_all():
            pending.answered(ConnectionLostError(self.address, reason, pending.delivery))
        self.writer.close()
        if self._nursery is not None:
            self._nursery.cancel_scope.cancel()

    def detach(self) -> None:
        """In a forked child, close only the child's descriptor: the parent still uses the connection."""
        self._wire.detach()

    async def aclose(self, reason: str = "closed here") -> None:
        """Write the buffer, for at most FLUSH_SECONDS, then close. When cancelled, close at once."""
        try:
            with trio.move_on_after(FLUSH_SECONDS):
                await self.writer.flush()
        finally:
            self.close(reason)

    async def _write(self) -> None:
        try:
            await self.writer.run()
        except WIRE_ERRORS as error:
            self._lost(reason_of(error))

    def _lost(self, reason: str) -> None:
        """Close after the peer did. A request above the limit of servers is the probable cause."""
        sizes = [len(pending.body) for pending in self._pending.values() if self.has_written(pending)]
        if max(sizes, default=0) > MAX_FRAME_SIZE - _HEADER_MARGIN:
            reason = (
                f"the peer closed the connection during a request of {max(sizes):,} bytes; servers accept "
                f"{MAX_FRAME_SIZE:,} bytes by default (com.rocketmq.remoting.frameMaxLength); send less "
                "at once"
            )
        self.close(reason)

    async def _read(self) -> None:
        try:
            while True:
                data = await self._wire.receive()
                if not data:
                    self._lost(
                        "the peer closed the connection"
                        if self.has_received
                        else self._wire.early_close_reason
                    )
                    return
                self._silent_timeouts = 0
                self.has_received = True
                self.received_at: float = trio.current_time()
                self.deadlines.receipts += 1
                commands = self._decoder.feed_typed(data)
                self._next_is_alone = len(commands) == 1 and len(self._pending) <= FEW_PENDING
                for command in commands:
                    if type(command) is SendAnswer:
                        pending = self._pending.pop(command.opaque, None)
                        # While the peer is going away, _handle_answer closes after the last answer.
                        if pending is not None and pending.takes_send_answers and self.is_usable:
                            pending.answered(command)
                        else:
                            self._handle_answer(command.as_command(), pending)
                        continue
                    assert isinstance(command, Command)
                    if command.flag & RESPONSE_FLAG:
                        self._handle_answer(command, self._pending.pop(command.opaque, None))
                    else:
                        self._handle_request(command)
                if self._read_waits_for_space:
                    await self.wait_for_space()
        except WIRE_ERRORS as error:
            self._lost(reason_of(error))
        except ConnectionLostError:
            return  # closed while waiting for space
        except ProtocolError as error:
            logger.warning("closing connection: invalid data from peer=%s: %s", self.address, error)
            self.close(f"the peer sent invalid data: {error}")
