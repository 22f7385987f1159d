"""Requests that wait for replies, and replies to them. Java: ``RequestFutureHolder``, ``MessageUtil``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import trio

from rocketmq_py import properties as names
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.errors import Delivery, InvalidMessageError, ReplyTimeoutError, RocketMQError
from rocketmq_py.message import Message, MessageQueue, ReceivedMessage
from rocketmq_py.names import reply_topic
from rocketmq_py.producer.pending import PendingReply
from rocketmq_py.producer.pipeline import Pipeline
from rocketmq_py.producer.send_request import Outcome, SendRequest, send_result
from rocketmq_py.producer.sender import Sender
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.headers import PushReplyMessageRequest
from rocketmq_py.protocol.reply import reply_message
from rocketmq_py.remoting import Connection, Deadlines

_LONGEST_TTL = (2**31 - 1) / 1000
"""Seconds that a request says to wait where there is no end: what fits 32 bits of milliseconds."""


class _Waiting:
    """A request that waits for its reply until its deadline."""

    __slots__ = ("expire", "pending", "request", "tick")

    def __init__(self, pending: PendingReply, request: SendRequest, expire: Callable[[], None]) -> None:
        self.pending = pending
        self.request = request
        self.expire = expire
        self.tick = 0


class Requests:
    """The requests of one producer that wait for their replies.

    Args:
        client: gets the replies from the brokers.
        sender: brings the requests to the brokers.
        pipeline: bounds how many wait at the same time.

    Attributes:
        late: replies that came when nobody waited for them any more: too late, or once more.
    """

    def __init__(self, client: Client, sender: Sender, pipeline: Pipeline) -> None:
        self._client = client
        self._sender = sender
        self._pipeline = pipeline
        self._deadlines = Deadlines()
        self._waiting: dict[str, _Waiting] = {}
        # Tells the replies to this producer from those to others of the same client, late ones too.
        self._token = f"{client.rng.getrandbits(96):024x}-"
        self._count = 0
        self._greeted: frozenset[str] = frozenset()
        self._greeting = trio.Lock()
        self._nursery: trio.Nursery | None = None
        self._stop_serving: Callable[[], None] | None = None
        self.late: int = 0

    def open(self, nursery: trio.Nursery) -> None:
        """Begin to take replies."""
        self._nursery = nursery
        nursery.start_soon(self._deadlines.run)
        self._stop_serving = self._client.serve(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take)

    def close(self) -> None:
        """Take no replies any more. The pending ones are the affair of the pipeline."""
        self._nursery = None
        if self._stop_serving is not None:
            self._stop_serving()
            self._stop_serving = None
        self._waiting.clear()

    def new_pending(self) -> PendingReply:
        """Return what will have the reply to a new request."""
        self._count += 1
        return PendingReply(f"{self._token}{self._count:x}")

    def properties(self, pending: PendingReply, timeout: float) -> dict[str, str]:
        """Return the properties that make a message a request."""
        return {
            names.CORRELATION_ID: pending.correlation_id,
            names.REPLY_TO_CLIENT: self._client.client_id,
            names.TTL: str(round(min(timeout, _LONGEST_TTL) * 1000)),
        }

    async def submit(
        self,
        request: SendRequest,
        pending: PendingReply,
        on_sent: Callable[[SendRequest, Outcome], None] | None = None,
    ) -> None:
        """Send a request; ``pending`` gets the reply, or what failed. ``on_sent`` gets the send's outcome.

        Raises as :meth:`Sender.submit`. When cancelled, nothing is sent, and nobody waits.
        """
        request.pending = pending
        await self._pipeline.enter(request)
        request.begin_try(trio.current_time())
        waiting = _Waiting(pending, request, partial(self._expire, pending, request))
        self._waiting[pending.correlation_id] = waiting
        self._deadlines.add(waiting, request.send_deadline)
        request.wants_heartbeat = True
        self._client.heartbeats.expect_replies()
        request.on_done = partial(self._sent, pending, on_sent)
        try:
            if request.may_be_compressed:
                await self._sender.compress(request)
            if self._client.routes.get_nowait(request.topic) and self._brokers() <= self._greeted:
                waiting_for = self._sender.submit(request)
                if waiting_for is not None:
                    await waiting_for
            else:
                start_soon(self._nursery, self._greet_and_submit, request)
        except BaseException:
            self.forget(pending)
            raise

    def forget(self, pending: PendingReply) -> None:
        """Stop waiting for a reply; one that still comes is late."""
        waiting = self._waiting.pop(pending.correlation_id, None)
        if waiting is not None:
            self._deadlines.remove(waiting)
            self._pipeline.leave(waiting.request)

    def _brokers(self) -> frozenset[str]:
        brokers = self._client.routes.brokers().values()
        return frozenset([address for by_id in brokers for address in by_id.values()])

    async def _greet_and_submit(self, request: SendRequest) -> None:
        request.in_background = True
        try:
            await self._greet_brokers(request)
            waiting_for = self._sender.submit(request)
            if waiting_for is not None:
                await waiting_for
        except RocketMQError as error:
            request.on_done(request, error)

    async def _greet_brokers(self, request: SendRequest) -> None:
        """Have all brokers in use know this client: who replies chooses which of them brings the reply.

        One that cannot be reached costs half of the request's time at most, and only the first time.
        """
        with trio.move_on_after(request.remaining / 2), suppress(RocketMQError):
            await self._client.routes.get(request.topic, for_sending=True)
            async with self._greeting:
                brokers = self._brokers()
                if not brokers <= self._greeted:
                    try:
                        await self._client.heartbeats.send()
                    finally:
                        self._greeted = brokers

    def _sent(
        self,
        pending: PendingReply,
        on_sent: Callable[[SendRequest, Outcome], None] | None,
        request: SendRequest,
        outcome: Outcome,
    ) -> None:
        if isinstance(outcome, RocketMQError):
            self._resolve(pending, outcome)
        else:
            pending.sent = send_result(outcome)
        if on_sent is not None:
            on_sent(request, outcome)

    def _expire(self, pending: PendingReply, request: SendRequest) -> None:
        error = ReplyTimeoutError(request.topic, request.send_timeout, pending.sent)
        if pending.sent is None and not request.may_have_arrived:
            error.delivery = Delivery.NOT_SENT
        self._resolve(pending, error)

    def _resolve(self, pending: PendingReply, outcome: ReceivedMessage | RocketMQError) -> bool:
        if self._waiting.get(pending.correlation_id) is None:
            return False
        self.forget(pending)
        pending.resolve(outcome, self._pipeline.failures)
        return True

    def _take(self, connection: Connection, command: Command) -> bool:
        header = PushReplyMessageRequest.from_fields(command.fields)
        reply = reply_message(header, command.body, self._client.now_ms())
        correlation_id = reply.properties.get(names.CORRELATION_ID, "")
        if not correlation_id.startswith(self._token):
            return False
        connection.respond(command, ResponseCode.SUCCESS)
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            self.late += 1
        else:
            self._resolve(waiting.pending, reply)
        return True


def reply_to(request: ReceivedMessage, body: bytes) -> tuple[Message, dict[str, str], MessageQueue]:
    """Return the reply to a request, its system properties, and the queue that it goes to.

    It goes through the broker that the request came from, which is in contact with who asked.
    Raises InvalidMessageError if the message is no request.
    """
    properties = request.properties
    wanted = (names.CLUSTER, names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL)
    missing = [name for name in wanted if not properties.get(name)]
    if missing:
        raise InvalidMessageError(
            f"message {request.message_id} of topic {request.topic!r} is no request that can be replied to: "
            f"it has no {', '.join(missing)}"
        )
    topic = reply_topic(properties[names.CLUSTER])
    system_properties = {name: properties[name] for name in wanted[1:]}
    system_properties[names.MESSAGE_TYPE] = names.REPLY_MESSAGE_TYPE
    return Message(topic, body), system_properties, MessageQueue(topic, request.broker_name, 0)
