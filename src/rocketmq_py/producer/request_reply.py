"""Requests that wait for replies, and replies. Java: ``RequestFutureHolder``, ``MessageUtil``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.client.proxies import unsupported_by_proxy
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import Delivery, InvalidMessageError, ReplyTimeoutError, RocketMQError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage
from rocketmq_py.names import reply_topic
from rocketmq_py.producer.closing import Closing
from rocketmq_py.producer.outcome import FailureLog, closed_error, send_result
from rocketmq_py.producer.pending import PendingReply
from rocketmq_py.producer.pipeline import Pipeline
from rocketmq_py.producer.send import Send
from rocketmq_py.producer.send_states import ANSWERED
from rocketmq_py.producer.sender import Sender
from rocketmq_py.properties import NO_PROPERTIES
from rocketmq_py.property_names import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY_MESSAGE_TYPE,
    REPLY_TO_CLIENT,
    TTL,
)
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PushReplyMessageRequest
from rocketmq_py.protocol.reply import reply_message
from rocketmq_py.remoting import Connection, Deadlines

if TYPE_CHECKING:
    from rocketmq_py.codecs import Codec

_MAX_TTL = (2**31 - 1) / 1000
"""Seconds. The TTL of a request is a number of milliseconds in 32 bits."""


class _Waiting:
    """A request that waits for its reply, and the receiver of the outcome of its send.

    ``tick`` and ``expire`` are for Deadlines.
    """

    __slots__ = ("_replies", "pending", "send", "tick")

    def __init__(self, replies: PendingReplies, pending: PendingReply, send: Send) -> None:
        self._replies = replies
        self.pending = pending
        self.send = send
        self.tick = 0

    def expire(self) -> None:
        """Fail: no reply came in time."""
        error = ReplyTimeoutError(self.send.request.topic, self.send.timeout, self.pending.sent)
        if self.pending.sent is None and not self.send.may_have_arrived:
            error.delivery = Delivery.NOT_SENT
        self._replies._finish(self.pending, error)

    def _succeed(self, result: Any) -> None:
        self.pending.sent = send_result(result)

    def _fail(self, error: RocketMQError, log: FailureLog | None) -> None:
        self._replies._finish(self.pending, error)


class PendingReplies:
    """The requests of a producer that wait for their replies, by correlation id.

    Args:
        client: receives the replies from the brokers.
        sender: sends the requests.
        pipeline: bounds the number of waiting requests.

    Attributes:
        late: the number of replies that arrived after their request had timed out, or twice.
    """

    def __init__(self, client: ClientCore, sender: Sender, pipeline: Pipeline) -> None:
        self._client = client
        self._sender = sender
        self._pipeline = pipeline
        self._deadlines = Deadlines()
        self._waiting: dict[str, _Waiting] = {}
        # The prefix of all correlation ids of this producer. Other producers may share the client.
        self._prefix = f"{client.rng.getrandbits(96):024x}-"
        self._count = 0
        self._known_to: frozenset[str] = frozenset()  # addresses of the brokers that got a heartbeat
        self._heartbeat_lock = trio.Lock()
        self._nursery: trio.Nursery | None = None
        self._stop_serving: Callable[[], None] | None = None
        self.late: int = 0

    def open(self, nursery: trio.Nursery) -> None:
        """Start to accept replies."""
        self._nursery = nursery
        nursery.start_soon(self._deadlines.run)
        self._stop_serving = self._client.add_request_handler(PushReplyMessageRequest, self._accept)

    def close(self, closing: Closing) -> None:
        """Stop accepting replies, and fail the requests that wait for one. ``closing`` logs unsent ones."""
        self._nursery = None
        if self._stop_serving is not None:
            self._stop_serving()
            self._stop_serving = None
        for waiting in list(self._waiting.values()):
            error = closed_error(may_be_stored=waiting.send.may_have_arrived)
            if waiting.pending.sent is None:  # others count as sent
                self._sender.counters.send_failed(error)
                closing.add(waiting.send.request.topic, error)
            self._finish(waiting.pending, error)

    def new_pending(self) -> PendingReply:
        """Return a handle for the reply to a new request."""
        self._count += 1
        return PendingReply(f"{self._prefix}{self._count:x}")

    def properties(self, pending: PendingReply, timeout: float) -> dict[str, str]:
        """Return the system properties of a request."""
        return {
            CORRELATION_ID: pending.correlation_id,
            REPLY_TO_CLIENT: self._client.client_id,
            TTL: str(round(min(timeout, _MAX_TTL) * 1000)),
        }

    async def submit(self, send: Send, pending: PendingReply) -> None:
        """Send a request. ``pending`` receives the reply or the error.

        Raises as :meth:`Sender.attempt`. If cancelled, the request is not sent.
        """
        send.receiver = pending
        if not await self._pipeline.enter(send):
            return
        send.deadline = trio.current_time() + send.timeout
        send.receiver = waiting = _Waiting(self, pending, send)
        send.has_reply = True
        self._waiting[pending.correlation_id] = waiting
        self._deadlines.add(waiting, send.deadline)
        self._client.heartbeats.expect_replies()
        try:
            # Any broker of the routes may have to deliver the reply, so all must know this client.
            is_routed = self._client.routes.get_nowait(send.request.topic) is not None
            if is_routed and self._broker_addresses() <= self._known_to:
                written = self._sender.attempt(send)
                if written is not None:
                    await written
            else:
                start_soon(self._nursery, self._send_after_heartbeats, send)
        except BaseException:
            self.forget(pending)
            raise

    def forget(self, pending: PendingReply) -> None:
        """Stop waiting for a reply. If it still arrives, it counts as late."""
        waiting = self._waiting.pop(pending.correlation_id, None)
        if waiting is not None:
            self._deadlines.remove(waiting)
            self._pipeline.leave(waiting.send)
            if waiting.send.state is ANSWERED:  # otherwise the outcome of the send is still to come
                waiting.send.end()

    def _broker_addresses(self) -> frozenset[str]:
        brokers = self._client.routes.brokers().values()
        return frozenset([address for by_id in brokers for address in by_id.values()])

    async def _send_after_heartbeats(self, send: Send) -> None:
        try:
            await self._send_heartbeats(send)
            self._refuse_proxies()
            await self._sender.attempt_in_background(send)
        except RocketMQError as error:
            self._pipeline.done(send, error)

    async def _send_heartbeats(self, send: Send) -> None:
        """Send a heartbeat to all brokers of the routes, unless they know this client.

        An unreachable broker costs at most half of the request's time, and only once.
        """
        with trio.move_on_after(send.remaining / 2), suppress(RocketMQError):
            await self._client.routes.get(send.request.topic, for_sending=True)
            async with self._heartbeat_lock:
                addresses = self._broker_addresses()
                if not addresses <= self._known_to:
                    try:
                        await self._client.heartbeats.send()
                    finally:
                        self._known_to = addresses

    def _refuse_proxies(self) -> None:
        """Raise UnsupportedByBrokerError if the brokers are behind a proxy, which forwards no replies."""
        for connection in self._client.connections.open_connections():
            if connection.peer_is_proxy:
                self._known_to = frozenset()  # later requests are checked too
                raise unsupported_by_proxy(connection.address, RequestCode.SEND_REPLY_MESSAGE_V2)

    def _finish(self, pending: PendingReply, outcome: ReceivedMessage | RocketMQError) -> None:
        if self._waiting.get(pending.correlation_id) is None:
            return
        self.forget(pending)
        if isinstance(outcome, RocketMQError):
            pending._fail(outcome, self._pipeline.failures)
        else:
            pending._succeed(outcome)

    def _accept(self, connection: Connection, command: Command, header: PushReplyMessageRequest) -> bool:
        """Accept a reply. Return False if it is for another producer of the client."""
        reply = reply_message(header, command.body, self._client.now_ms())
        correlation_id = reply.properties.get(CORRELATION_ID, "")
        if not correlation_id.startswith(self._prefix):
            return False
        connection.respond(command, ResponseCode.SUCCESS)
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            self.late += 1
        else:
            self._sender.counters.last_result = trio.current_time()
            self._finish(waiting.pending, reply)
        return True


def reply_to(
    request: ReceivedMessage,
    body: object,
    codec: Codec | None = None,
    properties: Mapping[str, str] = NO_PROPERTIES,
) -> tuple[Message, dict[str, str], MessageQueue]:
    """Return the reply to a request, its system properties, and its queue.

    The reply goes to the broker of the request, because that broker knows the requesting client. Raises
    InvalidMessageError if the message is not a request.
    """
    received = request.properties
    missing = [name for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT, TTL) if not received.get(name)]
    if missing:
        raise InvalidMessageError(
            f"cannot reply to message {request.message_id} of topic {request.topic!r}; it is not a request, "
            f"because it lacks the properties {', '.join(missing)}"
        )
    topic = reply_topic(received[CLUSTER])
    system_properties = {
        CORRELATION_ID: received[CORRELATION_ID],
        REPLY_TO_CLIENT: received[REPLY_TO_CLIENT],
        TTL: received[TTL],
        MESSAGE_TYPE: REPLY_MESSAGE_TYPE,
    }
    message = (
        Message(topic, cast("bytes", body), properties=properties)
        if codec is None
        else Message.of(topic, body, codec=codec, properties=properties)
    )
    return message, system_properties, MessageQueue(topic, request.broker_name, 0)
