"""Bringing requests to brokers: choose a queue, try, learn from what comes of it, try again."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import trio

from rocketmq_py.client.instance import ClientInstance
from rocketmq_py.client.routes import Route
from rocketmq_py.errors import (
    BrokerBusyError,
    BrokerError,
    ClosedError,
    Delivery,
    InvalidMessageError,
    NoQueueError,
    RequestTimeoutError,
    RocketMQError,
    UnsupportedByBrokerError,
)
from rocketmq_py.message import MessageQueue, SendResult
from rocketmq_py.producer.config import ProducerConfig
from rocketmq_py.producer.fault_detector import FaultDetector, answers
from rocketmq_py.producer.latency_faults import LatencyFaultPolicy, LatencyFaults
from rocketmq_py.producer.queue_choice import FaultAwareRoundRobin, RoundRobin
from rocketmq_py.producer.sending import NotStoreOKError, Outcome, Sending
from rocketmq_py.producer.statistics import Counters
from rocketmq_py.remoting import Answer, Connection

FIRST_TIMER_VERSION = 412
"""Brokers keep exact times from 5.0.0 on (Java: the ordinal of ``MQVersion.V5_0_0_SNAPSHOT``)."""


class Sender:
    """What all ways of sending share. Java: ``DefaultMQProducerImpl.sendDefaultImpl``.

    Args:
        client: routes, connections and heartbeats; must be open when something is sent.
        config: the producer's settings.
        rng: where turns begin.

    Attributes:
        counters: what is counted.
        faults: what is held against which broker; None without the latency-fault strategy.
    """

    def __init__(self, client: ClientInstance, config: ProducerConfig, rng: random.Random) -> None:
        self._client = client
        self._config = config
        self.counters = Counters()
        self.faults: LatencyFaults | None = None
        self._choice: RoundRobin | FaultAwareRoundRobin = RoundRobin(rng)
        if isinstance(config.latency_faults, LatencyFaultPolicy):
            self.faults = LatencyFaults(config.latency_faults, now=trio.current_time, rng=rng)
            self._choice = FaultAwareRoundRobin(self.faults, rng)
        self._nursery: trio.Nursery | None = None
        self._stop_listening: Callable[[], None] | None = None

    def open(self, nursery: trio.Nursery) -> None:
        """Begin: what has to be tried again in the background runs in ``nursery``."""
        self._nursery = nursery
        if self.faults is not None:
            self._stop_listening = self._client.on_route(self._forget_brokers)
            if self.faults.policy.detect:
                nursery.start_soon(FaultDetector(self.faults, partial(answers, self._client)).run)

    def abandon(self) -> None:
        """End: nothing is tried any more, and nobody is told of outcomes."""
        self._nursery = None
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None

    def _forget_brokers(self, _: Route) -> None:
        assert self.faults is not None
        self.faults.forget(self._client.routes.brokers())

    # Awaited

    async def deliver(self, sending: Sending, error: RocketMQError | None = None) -> SendResult:
        """Try until a broker has stored it; ``error`` is what a first try made elsewhere came to.

        Raises the error of the last try. When cancelled, nothing is left waiting.
        """
        while True:
            if error is not None and not await self._may_try_again(sending, error):
                if sending.stored is not None:
                    return sending.stored
                raise error
            sending.begin_try()
            try:
                queue, connection = self._aim_nowait(sending) or await self._aim(sending)
                fields = sending.fields_for(queue, connection.address)
                timeout = max(sending.end_of_try - trio.current_time(), 0.0)
                answer = await connection.request(sending.code, fields, sending.body, timeout=timeout)
                result = sending.result(answer)
            except RocketMQError as failure:
                error = failure
            else:
                self._succeeded(sending)
                return result

    # Pipelined

    async def submit(self, sending: Sending) -> None:
        """Write the request, and give the outcome to ``sending.on_done`` when it is there.

        Waits only for a route, a connection, and room in its buffer. When cancelled, it is not sent, and
        nobody is told. Raises ClosedError, and what a queue selector raises; all other errors are outcomes.
        """
        sending.begin_try()
        try:
            queue, connection = self._aim_nowait(sending) or await self._aim(sending)
            fields = sending.fields_for(queue, connection.address)
            if not connection.writer.has_room:
                await self._room_before_end_of_try(connection, sending)
            deadline = sending.end_of_try
            timeout = sending.timeout if sending.try_timeout is None else sending.try_timeout
            on_answer = partial(self._answered, sending)
            if connection.hooks.all:
                await connection.submit_with_hooks(
                    sending.code,
                    fields,
                    sending.body,
                    deadline=deadline,
                    timeout=timeout,
                    on_answer=on_answer,
                )
            else:
                connection.submit(
                    sending.code,
                    fields,
                    sending.body,
                    deadline=deadline,
                    timeout=timeout,
                    on_answer=on_answer,
                )
        except (ClosedError, InvalidMessageError):
            raise
        except RocketMQError as error:
            self._try_again_in_background(sending, error)

    def _answered(self, sending: Sending, answer: Answer) -> None:
        if isinstance(answer, RocketMQError):
            self._try_again_in_background(sending, answer)
            return
        try:
            result = sending.result(answer)
        except RocketMQError as error:
            self._try_again_in_background(sending, error)
        else:
            self._succeeded(sending)
            assert sending.on_done is not None
            sending.on_done(result)

    def _try_again_in_background(self, sending: Sending, error: RocketMQError) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(self._deliver_in_background, sending, error)

    async def _deliver_in_background(self, sending: Sending, error: RocketMQError) -> None:
        outcome: Outcome
        try:
            outcome = await self.deliver(sending, error)
        except RocketMQError as last:
            outcome = last
        assert sending.on_done is not None
        sending.on_done(outcome)

    # Oneway

    async def send_oneway(self, sending: Sending) -> None:
        """Leave the request with a connection; there is one try, and no answer.

        Raises as :meth:`deliver` for what is known before it is written. When cancelled, it is not sent.
        """
        sending.begin_try()
        queue, connection = self._aim_nowait(sending) or await self._aim(sending)
        fields = sending.fields_for(queue, connection.address)
        if connection.has_room:
            await trio.lowlevel.checkpoint()
        else:
            await self._room_before_end_of_try(connection, sending)
        await connection.oneway(sending.code, fields, sending.body)
        self.counters.oneway += len(sending.messages)

    # Where to

    def _choose(self, route: Route, sending: Sending) -> MessageQueue:
        if sending.fixed_queue is not None:
            return sending.fixed_queue
        if sending.selector is None:
            return self._choice.choose(route, sending.failed_broker)
        if not route.write_queues:
            raise NoQueueError(f"topic {route.topic!r} has no queue that may be written to and has a master")
        queue = sending.selector(route.write_queues, sending.messages[0])
        if not isinstance(queue, MessageQueue) or queue.topic != route.topic:
            raise InvalidMessageError(f"the selector chose {queue!r}, no queue of topic {route.topic!r}")
        sending.fixed_queue = queue
        return queue

    def _aim_nowait(self, sending: Sending) -> tuple[MessageQueue, Connection] | None:
        """Choose a queue and return the connection to its broker, if nothing has to be waited for."""
        route = self._client.routes.get_nowait(sending.topic)
        if route is None or (sending.fixed_queue is None and not route.write_queues):
            return None
        queue = self._choose(route, sending)
        address = self._client.routes.master_address_nowait(queue.broker_name)
        channel = self._client.brokers.channel(address) if address else None
        connection = self._client.connections.get_nowait(channel) if channel else None
        if connection is None or (sending.wants_heartbeat and not self._is_introduced(connection, sending)):
            return None
        return queue, connection

    async def _aim(self, sending: Sending) -> tuple[MessageQueue, Connection]:
        """As `_aim_nowait`, asking a name server, dialling and introducing this client as needed."""
        with trio.move_on_at(sending.deadline) as waiting:
            route = await self._client.routes.get(sending.topic, for_sending=True)
        if waiting.cancelled_caught:
            names = self._client.name_servers.addresses
            raise RequestTimeoutError(names, sending.timeout, Delivery.NOT_SENT)
        sending.begin_try()  # how long the name server took is not held against the broker
        sending.queue = queue = self._choose(route, sending)
        address = self._client.brokers.channel(self._client.routes.broker_address(queue.broker_name))
        connection = await self._client.connections.get_before(address, sending.end_of_try)
        if sending.wants_heartbeat:
            await self._introduce(connection, sending)
        return queue, connection

    def _is_introduced(self, connection: Connection, sending: Sending) -> bool:
        return self._client.heartbeats.is_heard_on(connection) and not _is_too_old(connection, sending)

    async def _introduce(self, connection: Connection, sending: Sending) -> None:
        """Have the broker know this client's groups, and see that it can do what is wanted of it."""
        timeout = max(sending.end_of_try - trio.current_time(), 0.0)
        await self._client.heartbeats.ensure_heard(connection, timeout=timeout)
        if _is_too_old(connection, sending):
            raise UnsupportedByBrokerError(
                f"{connection.address} is older than 5.0 and would deliver a message with an exact time at "
                "once; use delay_level"
            )

    async def _room_before_end_of_try(self, connection: Connection, sending: Sending) -> None:
        end = sending.end_of_try
        with trio.move_on_at(end) as waiting:
            await connection.wait_for_room()
        if waiting.cancelled_caught:
            raise RequestTimeoutError(connection.address, end - sending.started, Delivery.NOT_SENT)

    # What was learned

    def _succeeded(self, sending: Sending) -> None:
        seconds = trio.current_time() - sending.started
        self.counters.answered(seconds)
        if self.faults is not None:
            assert sending.queue is not None
            self.faults.record(sending.queue.broker_name, seconds)

    async def _may_try_again(self, sending: Sending, error: RocketMQError) -> bool:
        """Learn from a failed try; wait before the next where that helps. False if it was the last."""
        if error.spoils_route:
            self._client.routes.spoil(sending.topic)
        if self.faults is not None and sending.queue is not None:
            if isinstance(error, NotStoreOKError):
                self.faults.record(sending.queue.broker_name, trio.current_time() - sending.started)
            elif error.retriable:
                self.faults.failed(sending.queue.broker_name, reachable=isinstance(error, BrokerError))
        back_off = sending.failed(error)
        if back_off is None:
            return False
        if isinstance(error, BrokerBusyError) or not self._has_other_broker(sending):
            await trio.sleep(back_off)
        self.counters.retried += 1
        return True

    def _has_other_broker(self, sending: Sending) -> bool:
        route = self._client.routes.get_nowait(sending.topic)
        if route is None or sending.fixed_queue is not None:
            return False
        return any(queue.broker_name != sending.failed_broker for queue in route.write_queues)


def _is_too_old(connection: Connection, sending: Sending) -> bool:
    return sending.is_timed and connection.peer_version < FIRST_TIMER_VERSION
