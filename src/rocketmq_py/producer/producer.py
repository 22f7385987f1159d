"""The producer: awaited, pipelined and oneway sends."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Unpack

import trio

from rocketmq_py.client.config import ClientConfig, split_options
from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.member import Member
from rocketmq_py.client.routes import Route
from rocketmq_py.errors import (
    BrokerBusyError,
    ClosedError,
    Delivery,
    InvalidMessageError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.message import Message, MessageQueue, SendResult
from rocketmq_py.producer.config import DEFAULT_GROUP, ProducerConfig, ProducerOptions
from rocketmq_py.producer.in_flight import InFlight
from rocketmq_py.producer.pending import PendingSend
from rocketmq_py.producer.queue_choice import RoundRobin
from rocketmq_py.producer.sending import Sending
from rocketmq_py.protocol.send_request import send_fields
from rocketmq_py.remoting.connection import Answer, Connection


class Producer(Member):
    """Sends messages. Java: ``DefaultMQProducer``.

    Use it inside ``async with``; leaving waits until what is in flight has its result, for at most
    ``close_timeout`` seconds. Any number of tasks may send through one producer at the same time.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        group: the producer group.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of ProducerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: ClientInstance | str | None = None,
        *,
        group: str = DEFAULT_GROUP,
        rng: random.Random | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        own, shared = split_options(options, ProducerConfig, ClientConfig)
        super().__init__(client, rng, shared)
        self.config = ProducerConfig(group=group, **own)
        self._round_robin = RoundRobin(rng or self.client.rng)
        self._in_flight = InFlight(self.config.max_in_flight, self.config.max_in_flight_bytes)

    async def send(
        self, message: Message, *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        Args:
            message: what to send.
            queue: send to this queue and no other; None chooses one, and another broker's after a failure.
            timeout: seconds for all tries together, instead of the setting ``send_timeout``.

        Raises:
            InvalidMessageError: no broker would take the message; nothing was sent.
            TopicNotFoundError, NoQueueError, NameServerError: there is nowhere to send it.
            BrokerError: the broker refused it. ConnectError, ConnectionLostError, RequestTimeoutError.
                Their ``delivery`` says what is known: not sent, refused, or unknown.
            ClosedError: the producer is not open.

        When cancelled, nothing is left waiting; a request that was written may still be stored.
        """
        self._check_open()
        return await self._deliver(self._begin(message, queue, timeout, self.config.retries))

    async def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
        on_done: Callable[[PendingSend], None] | None = None,
    ) -> PendingSend:
        """Send a message without waiting for the broker: waits only for a place in flight.

        Messages that one task sends leave in that order, but a broker's threads may store them in another:
        where order matters, await each. The result, or the error after the last try, is in the
        PendingSend: await it, or give ``on_done``, which is called with it when it is done.

        Raises:
            InvalidMessageError, ClosedError: at once. All else is the PendingSend's.

        When cancelled while it waits, the message is not sent.
        """
        self._check_open()
        sending = self._begin(message, queue, timeout, self.config.retries_pipelined)
        pending = PendingSend()
        if on_done is not None:
            pending.add_done_callback(on_done)
        await self._in_flight.enter(pending, len(message.body))
        try:
            self._check_open()  # it may have been closed meanwhile
            aim = self._aim_nowait(sending) or await self._aim(sending)
            if not aim[1].has_room:
                await self._room_before(aim[1], sending)
        except (ClosedError, trio.Cancelled):
            self._in_flight.leave(pending)
            raise
        except RocketMQError as error:
            self._failed(sending, pending, error)
        else:
            self._submit(sending, pending, *aim)
        return pending

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send a message that no broker answers: it may be lost, and nobody will know.

        Returns when the message is in the connection's buffer. Raises as :meth:`send` for what is known
        before that; there is one try. When cancelled, the message is not sent.
        """
        self._check_open()
        sending = self._begin(message, queue, None, 0)
        chosen, connection = self._aim_nowait(sending) or await self._aim(sending)
        if connection.has_room:
            await trio.lowlevel.checkpoint()
        else:
            await self._room_before(connection, sending)
        connection.oneway_nowait(sending.code, sending.begin(chosen), message.body)

    @property
    def in_flight(self) -> int:
        """How many pipelined sends have neither succeeded nor failed yet."""
        return len(self._in_flight)

    # Lifespan

    async def _open(self) -> None:
        await super()._open()
        self.client.heartbeats.add_producer(self.config.group)

    async def _close(self) -> None:
        await self._in_flight.all_left()
        await self.client.heartbeats.remove_producer(self.config.group)
        await super()._close()

    def _abandon(self) -> None:
        for pending in self._in_flight.abandon():
            pending.resolve(_abandoned())

    # One message's way

    def _begin(
        self, message: Message, queue: MessageQueue | None, timeout: float | None, retries: int
    ) -> Sending:
        if len(message.body) > self.config.max_message_size:
            raise InvalidMessageError(
                f"the body has {len(message.body)} bytes; max_message_size is {self.config.max_message_size}"
            )
        if queue is not None and queue.topic != message.topic:
            raise InvalidMessageError(f"queue {queue} is not one of topic {message.topic!r}")
        unique_id = self.client.unique_ids.next()
        fields = send_fields(
            message,
            queue or MessageQueue(message.topic, "", 0),  # each try fills in its own
            producer_group=self.config.group,
            unique_id=unique_id,
            born_time_ms=self.client.now_ms(),
            default_topic_queues=self.client.config.default_topic_queues,
        )
        return Sending(
            message,
            fields,
            unique_id,
            timeout=self.config.send_timeout if timeout is None else timeout,
            retries=retries,
            queue=queue,
        )

    def _choose(self, route: Route, sending: Sending) -> MessageQueue:
        return sending.fixed_queue or self._round_robin.choose(route, sending.failed_broker)

    def _aim_nowait(self, sending: Sending) -> tuple[MessageQueue, Connection] | None:
        """Choose a queue and return the connection to its broker, if nothing has to be waited for."""
        route = self.client.routes.get_nowait(sending.message.topic)
        if route is None or (sending.fixed_queue is None and not route.write_queues):
            return None
        queue = self._choose(route, sending)
        address = self.client.routes.master_address_nowait(queue.broker_name)
        connection = self.client.connections.get_nowait(address) if address else None
        return None if connection is None else (queue, connection)

    async def _aim(self, sending: Sending) -> tuple[MessageQueue, Connection]:
        """As `_aim_nowait`, asking a name server and dialling as needed, before the deadline."""
        with trio.move_on_at(sending.deadline) as waiting:
            route = await self.client.routes.get(sending.message.topic, for_sending=True)
        if waiting.cancelled_caught:
            names = self.client.name_servers.addresses
            raise RequestTimeoutError(names, sending.timeout, Delivery.NOT_SENT)
        sending.queue = queue = self._choose(route, sending)
        address = self.client.routes.broker_address(queue.broker_name)
        return queue, await self.client.connections.get_before(address, sending.deadline)

    async def _deliver(self, sending: Sending, error: RocketMQError | None = None) -> SendResult:
        """Try until a broker has stored it; ``error`` is what a first try made elsewhere came to."""
        while True:
            if error is not None:
                await self._after(error, sending)
            try:
                queue, connection = self._aim_nowait(sending) or await self._aim(sending)
                answer = await connection.request(
                    sending.code, sending.begin(queue), sending.message.body, timeout=sending.remaining
                )
                return sending.result(answer, connection.address)
            except RocketMQError as failure:
                error = failure

    async def _after(self, error: RocketMQError, sending: Sending) -> None:
        """Learn from a failed try; wait before the next where that helps, or raise if it was the last."""
        if error.spoils_route:
            self.client.routes.spoil(sending.message.topic)
        back_off = sending.failed(error)
        if back_off is None:
            raise error
        if isinstance(error, BrokerBusyError) or not self._has_other_broker(sending):
            await trio.sleep(back_off)

    def _has_other_broker(self, sending: Sending) -> bool:
        route = self.client.routes.get_nowait(sending.message.topic)
        if route is None or sending.fixed_queue is not None:
            return False
        return any(queue.broker_name != sending.failed_broker for queue in route.write_queues)

    # Pipelined sends

    async def _room_before(self, connection: Connection, sending: Sending) -> None:
        with trio.move_on_at(sending.deadline) as waiting:
            await connection.wait_for_room()
        if waiting.cancelled_caught:
            raise RequestTimeoutError(connection.address, sending.timeout, Delivery.NOT_SENT)

    def _submit(
        self, sending: Sending, pending: PendingSend, queue: MessageQueue, connection: Connection
    ) -> None:
        try:
            connection.submit(
                sending.code,
                sending.begin(queue),
                sending.message.body,
                deadline=sending.deadline,
                timeout=sending.timeout,
                on_answer=partial(self._answered, sending, pending, connection.address),
            )
        except RocketMQError as error:
            self._failed(sending, pending, error)

    def _answered(self, sending: Sending, pending: PendingSend, address: str, answer: Answer) -> None:
        if isinstance(answer, RocketMQError):
            self._failed(sending, pending, answer)
            return
        try:
            result = sending.result(answer, address)
        except RocketMQError as error:
            self._failed(sending, pending, error)
        else:
            self._done(pending, result)

    def _failed(self, sending: Sending, pending: PendingSend, error: RocketMQError) -> None:
        if pending.done:
            return  # abandoned when the producer was closed
        self.nursery.start_soon(self._deliver_in_background, sending, pending, error)

    async def _deliver_in_background(
        self, sending: Sending, pending: PendingSend, error: RocketMQError
    ) -> None:
        outcome: SendResult | RocketMQError
        try:
            outcome = await self._deliver(sending, error)
        except RocketMQError as last:
            outcome = last
        self._done(pending, outcome)

    def _done(self, pending: PendingSend, outcome: SendResult | RocketMQError) -> None:
        if not pending.done:
            self._in_flight.leave(pending)
            pending.resolve(outcome)


def _abandoned() -> RocketMQError:
    error = ClosedError("the producer was closed before the broker answered")
    error.delivery = Delivery.UNKNOWN
    return error
