"""One connection that carries many requests at once, in both directions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import trio

from rocketmq_py.address import pack_address
from rocketmq_py.codes import ResponseCode
from rocketmq_py.credentials import Credentials, signed
from rocketmq_py.errors import (
    ConnectionLostError,
    Delivery,
    ProtocolError,
    RequestTimeoutError,
    RocketMQError,
    denies_access,
)
from rocketmq_py.protocol.command import (
    RESPONSE_FLAG,
    Command,
    Serialization,
    encode_request,
    encode_response,
)
from rocketmq_py.protocol.frames import MAX_FRAME_SIZE, FrameDecoder
from rocketmq_py.protocol.typed_sends import SendAnswer, SendCommand
from rocketmq_py.remoting.channel import Channel
from rocketmq_py.remoting.credential_source import CredentialSource, CredentialsUnavailableError
from rocketmq_py.remoting.deadlines import Deadlines
from rocketmq_py.remoting.pending_requests import PendingRequest, PendingRequests
from rocketmq_py.remoting.rpc_hooks import RpcContext, RpcHooks
from rocketmq_py.remoting.running import open_nursery
from rocketmq_py.remoting.wire import WIRE_ERRORS, Wire, reason_of
from rocketmq_py.remoting.writer import DEFAULT_MAX_BUFFERED, Writer

logger: Final = logging.getLogger("rocketmq_py.remoting")

MAX_SILENT_TIMEOUTS = 3
MAX_SILENT_SECONDS = 2.0
"""So many time-outs with nothing received in between, and so many seconds after the first of them, and the
connection counts as dead. The seconds matter where time-outs are short, as those of a message's last try
are: a slow broker is not a dead one, and closing the connection fails whatever else waits on it."""
FEW_PENDING = 15
"""Where one answer comes alone and no more requests than these wait, the next one is written at once."""
FLUSH_SECONDS = 1.0
"""How long a closing connection tries to write what is still buffered."""

Handler: TypeAlias = "Callable[[Connection, Command], None]"
"""Called in the reader's task for every request of the peer: it must not block. It answers with
:meth:`Connection.respond`, at once or later; what it raises is logged and answered as SYSTEM_ERROR."""
SendHandler: TypeAlias = "Callable[[Connection, SendCommand], bytes | None]"
"""Called in the same way for a plain send. It returns the frame that answers it, or None to have the general
handler called."""


class Connection(Channel):
    """One connection, symmetrical: a client's and a server's end are the same class.

    Requests are written together: whoever sends leaves its bytes with the writer task, which takes all
    that has piled up for one system call. Answers come back in any order and are matched by their
    opaque. Time-outs are the business of the :class:`Deadlines` that several connections share.

    It works while :meth:`run` runs. When the connection breaks, every waiting request is answered with
    ConnectionLostError at once.

    Args:
        stream: a connected socket, plain or with TLS.
        deadlines: watches the time-outs; its ``run`` must be under way.
        handler: answers the requests of the peer.
        send_handler: answers plain sends, in fewer steps.
        address: what ``address`` says, instead of the peer's own.
        serialization: how the headers of requests are written; an answer follows its request.
        credentials: the identity that signs requests, or None. Answers are not signed.
        credential_source: renews the credentials when the peer denies access, or None.
        hooks: what is called around requests.
        successor: gives what carries on when the peer goes away (GO_AWAY): another connection to the
            address. Without it, GO_AWAY is an answer like others.
        max_buffered: bytes that may pile up before senders wait.
        max_frame_size: a longer frame breaks the connection.
        read_waits_for_space: read no more requests while answers pile up. For a server's end only:
            if both ends did it, each could wait for the other to read.

    Attributes:
        address: the peer as it was dialled, or as it connected.
        hooks: what is called around requests.
        draining: the peer has announced that it goes away (GO_AWAY): ask it nothing new.
        is_usable: whether new requests are for it: it is neither closed nor draining.
        has_received: whether the peer ever sent anything.
        peer_version: the peer's version as its answers have it, an ordinal of Java's ``MQVersion``; 0
            before the first answer.
        writer: writes what is sent.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        *,
        deadlines: Deadlines,
        handler: Handler,
        send_handler: SendHandler | None = None,
        address: str | None = None,
        serialization: Serialization = Serialization.JSON,
        credentials: Credentials | None = None,
        credential_source: CredentialSource | None = None,
        hooks: RpcHooks | None = None,
        successor: Callable[[], Channel] | None = None,
        max_buffered: int = DEFAULT_MAX_BUFFERED,
        max_frame_size: int = MAX_FRAME_SIZE,
        read_waits_for_space: bool = False,
    ) -> None:
        self._wire = wire = Wire(stream)
        super().__init__(address or wire.peer_address, deadlines, RpcHooks() if hooks is None else hooks)
        self._handler = handler
        self._send_handler = send_handler
        self._serialization = serialization
        self._credentials = credentials
        self._credential_source = credential_source
        self._signed_before_renewal: set[int] = set()
        self._successor = successor
        self._read_waits_for_space = read_waits_for_space
        self._decoder = FrameDecoder(max_frame_size, decodes_sends=send_handler is not None)
        self.writer: Writer = Writer(wire, max_buffered)
        self.peer_address: str = wire.peer_address
        self.local_address: str = wire.local_address
        self.draining: bool = False
        self.is_usable: bool = True
        self._onward: Callable[[], Channel] | None = None
        self.has_received: bool = False
        self.peer_version: int = 0
        self._requests = PendingRequests(deadlines, self.time_out)
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
        """Whether it can carry nothing any more."""
        return self._closed_because is not None

    @property
    def closed_because(self) -> str:
        """Why it is closed; an empty text while it is open."""
        return self._closed_because or ""

    @property
    def peer_packed(self) -> bytes:
        """The peer's IP address and port in the form that stored messages hold."""
        return pack_address(self.peer_address)

    @property
    def pending(self) -> int:
        """How many requests wait for an answer."""
        return len(self._pending)

    @property
    def has_space(self) -> bool:
        """Whether the buffer takes another request without growing past its bound."""
        return self.writer.has_space

    # Sending

    def carry(self, pending: PendingRequest) -> None:
        """Write a request: a new one, or one that was given to another channel before."""
        if not self.is_usable:
            if self._onward is not None:
                self._onward().carry(pending)
                return
            self._check_open()
        if not pending.deadline >= self._requests.watched:
            self._requests.watch(pending.deadline)
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        frame = pending.frame(opaque, self._serialization, self._credentials)
        pending.channel, pending.opaque = self, opaque
        writer = self.writer
        pending.turn = writer.turn
        if self._next_is_alone:
            # One answer came alone, and few are missing: what is asked next will be alone, too, and gains
            # nothing from the writer's turn.
            self._next_is_alone = False
            pending.place = writer.put_alone(frame)
        else:
            pending.place = writer.put(frame)
        self._pending[opaque] = pending

    async def oneway(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request that has no answer; waits only while the buffer is full.

        Raises as :meth:`submit`. A cancellation while waiting means: not sent.
        """
        await self.wait_for_space()
        if not self.hooks.all:
            self.oneway_nowait(code, fields, body)
            return
        context = RpcContext(address=self.address, code=code, fields=dict(fields), body=body, oneway=True)
        await self.hooks.before(context)
        self.oneway_nowait(code, context.fields, body)
        await self.hooks.after(context)

    def oneway_nowait(self, code: int, fields: Mapping[str, str], body: bytes = b"") -> None:
        """Send a request that has no answer, however full the buffer is. Hooks are not called.

        Raises as :meth:`submit`.
        """
        if self._onward is not None:
            self._onward().oneway_nowait(code, fields, body)
            return
        self._check_open()
        wire = fields if self._credentials is None else signed(fields, body, self._credentials)
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
        """Answer a request of the peer. Nothing happens if it was oneway or the connection is closed.

        Where reading goes on while answers pile up, those of a peer that does not read them are dropped.
        """
        if request.is_oneway or self.is_closed:
            return
        if self._read_waits_for_space or self.writer.has_space_for_answers:
            self.writer.put(encode_response(request, code, fields, body, remark))
        elif not self._drops_answers:
            self._drops_answers = True
            logger.warning("%s asks and does not read the answers: they are dropped", self.address)

    async def wait_for_space(self) -> None:
        """Wait until the buffer is below its bound. Does not yield to others when it already is.

        Raises ConnectionLostError when the connection is or gets closed.
        """
        await self.writer.wait_for_space()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed_because is not None and self._onward is None:
            raise ConnectionLostError(self.address, self._closed_because, Delivery.NOT_SENT)

    # Answers

    def has_written(self, pending: PendingRequest) -> bool:
        """Whether any byte of the request can have left this process."""
        return pending.turn < self.writer.turn

    def forget(self, pending: PendingRequest) -> None:
        """Stop waiting for the answer of ``pending``, and do not send it if it has not been written yet."""
        if self._pending.pop(pending.opaque, None) is not None:
            self.writer.take_back(pending.turn, pending.place)

    def time_out(self, pending: PendingRequest) -> None:
        """Answer ``pending`` with RequestTimeoutError, and break the connection if it has gone silent."""
        if self._pending.pop(pending.opaque, None) is None:
            return
        self.writer.take_back(pending.turn, pending.place)
        pending.answered(RequestTimeoutError(self.address, pending.timeout, pending.delivery))
        now = trio.current_time()
        if not self._silent_timeouts:
            self._silent_since = now
        self._silent_timeouts += 1
        if self._silent_timeouts >= MAX_SILENT_TIMEOUTS and now - self._silent_since >= MAX_SILENT_SECONDS:
            self.close(f"{self._silent_timeouts} requests timed out and nothing was received")

    def _answered(self, answer: Command, pending: PendingRequest | None) -> None:
        self.peer_version = answer.version
        if answer.code == ResponseCode.GO_AWAY:
            self._sent_away(answer, pending)
        elif pending is not None:
            if self._credential_source is not None and denies_access(answer.code, answer.remark):
                self._access_denied(answer, pending, self._credential_source)
            else:
                pending.answered(answer)
        if self.draining and not self._pending:
            self._close_when_written("the peer goes away")

    def _asked(self, request: Command) -> None:
        # One request that fails must not end the connection that carries all the others.
        try:
            self._handler(self, request)
        except RocketMQError as error:
            # What the peer asked is malformed, as a rule: nothing that a traceback would say more of.
            logger.warning("%s: request %d failed: %s", self.address, request.code, error)
            self.respond(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
        except Exception as error:
            logger.exception("%s: request %d failed", self.address, request.code)
            self.respond(request, ResponseCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _sent(self, send: SendCommand) -> None:
        assert self._send_handler is not None
        try:
            frame = self._send_handler(self, send)
        except Exception as error:
            logger.exception("%s: request %d failed", self.address, send.code)
            remark = f"{type(error).__name__}: {error}"
            self.respond(send.as_command(), ResponseCode.SYSTEM_ERROR, remark=remark)
            return
        if frame is None:
            self._asked(send.as_command())
        elif self._closed_because is None:
            self.writer.put(frame)

    # A peer that denies access

    def _access_denied(self, answer: Command, pending: PendingRequest, source: CredentialSource) -> None:
        """Send a denied request again if its credentials are not the newest ones, else renew them first."""
        if pending.opaque in self._signed_before_renewal:
            self._signed_before_renewal.remove(pending.opaque)
            self._hand_over(pending)
            return
        assert self._nursery is not None
        assert self._credentials is not None
        # It stays in the table, where it times out and a cancellation finds it.
        self._pending[pending.opaque] = pending
        self._nursery.start_soon(self._renew_credentials, answer, pending, source, self._credentials)

    async def _renew_credentials(
        self, answer: Command, pending: PendingRequest, source: CredentialSource, denied: Credentials
    ) -> None:
        """Renew the credentials and send a denied request again. Without new ones, deliver the denial."""
        opaque = pending.opaque
        try:
            credentials = await source.renew(denied)
        except CredentialsUnavailableError as error:
            logger.warning("cannot renew credentials address=%s: %s", self.address, error)
            credentials = None
        is_waiting = self._pending.get(opaque) is pending
        if is_waiting:
            del self._pending[opaque]
        if credentials is not None and self._credentials is denied:
            self._credentials = credentials
            self._signed_before_renewal = set(self._pending)
        if is_waiting and credentials is not None:
            self._hand_over(pending)
        elif is_waiting:
            pending.answered(answer)

    # A peer that goes away

    def _sent_away(self, answer: Command, pending: PendingRequest | None) -> None:
        """The peer did not do what was asked, nor will it do more: another connection carries that.

        Java: ``NettyRemotingClient.invokeImpl``, which tries once more and no oftener, too.
        """
        is_first = not self.draining
        self.draining = True
        self.is_usable = False
        self._onward = self._successor
        if pending is not None:
            if self._onward is None or pending.was_sent_away:
                pending.answered(answer)
            else:
                pending.was_sent_away = True
                self._hand_over(pending)
        if is_first and self._onward is not None:
            # What has not been written need not be refused first; and a oneway request would be lost there.
            for unwritten in [one for one in self._pending.values() if not self.has_written(one)]:
                del self._pending[unwritten.opaque]
                self.writer.take_back(unwritten.turn, unwritten.place)
                self._hand_over(unwritten)
            for code, fields, body in self.writer.take_back_oneways():
                try:
                    self.oneway_nowait(code, fields, body)
                except RocketMQError as error:
                    logger.info("%s goes away; the oneway request %d is lost: %s", self.address, code, error)

    def _hand_over(self, pending: PendingRequest) -> None:
        try:
            self.carry(pending)
        except RocketMQError as error:
            pending.answered(error)

    # Life

    async def run(self) -> None:
        """Read and write until the connection breaks or is closed, or this is cancelled.

        Never raises for a fault of the connection: whoever waits on it is told instead.
        """
        try:
            async with open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._write)
                nursery.start_soon(self._read)
        finally:
            self.close("closed here")
            await self._wire.aclose()

    def close(self, reason: str = "closed here") -> None:
        """Close at once: what is buffered is dropped, and every waiting request is told why."""
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
        """Give up the socket without a word, in a child process: the connection is its parent's."""
        self._wire.detach()

    async def aclose(self, reason: str = "closed here") -> None:
        """Write what is buffered, for at most FLUSH_SECONDS, then close. When cancelled, close at once."""
        try:
            with trio.move_on_after(FLUSH_SECONDS):
                await self.writer.flush()
        finally:
            self.close(reason)

    def _close_when_written(self, reason: str) -> None:
        if self.writer.is_flushed or self._nursery is None:
            self.close(reason)
        else:
            self._nursery.start_soon(self.aclose, reason)

    async def _write(self) -> None:
        try:
            await self.writer.run()
        except WIRE_ERRORS as error:
            self.close(reason_of(error))

    async def _read(self) -> None:
        try:
            while True:
                data = await self._wire.receive()
                if not data:
                    self.close("the peer closed it" if self.has_received else self._wire.closed_unheard)
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
                        if pending is not None and pending.takes_send_answers and not self.draining:
                            pending.answered(command)
                        else:
                            self._answered(command.as_command(), pending)
                        continue
                    if type(command) is SendCommand:
                        self._sent(command)
                        continue
                    assert isinstance(command, Command)
                    if command.flag & RESPONSE_FLAG:
                        self._answered(command, self._pending.pop(command.opaque, None))
                    else:
                        self._asked(command)
                if self._read_waits_for_space:
                    await self.wait_for_space()
        except WIRE_ERRORS as error:
            self.close(reason_of(error))
        except ConnectionLostError:
            return  # closed while waiting for space
        except ProtocolError as error:
            logger.warning("%s: not RocketMQ's protocol: %s", self.address, error)
            self.close(f"it sent what is not RocketMQ's protocol: {error}")
