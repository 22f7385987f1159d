"""The sender: attempts, retries and latency faults of all requests of a producer."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from rocketmq_py.client.core import ClientCore
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.errors import (
    BrokerBusyError,
    BrokerError,
    ClosedError,
    Delivery,
    FlowControlError,
    InvalidMessageError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.producer.compression import compress_body
from rocketmq_py.producer.fault_detector import FaultDetector, is_reachable
from rocketmq_py.producer.latency_faults import LatencyFaults
from rocketmq_py.producer.outcome import Outcome, closed_error
from rocketmq_py.producer.request_router import RequestRouter
from rocketmq_py.producer.send import Attempt, Send
from rocketmq_py.producer.send_states import (
    COMPRESSING,
    DONE,
    READY,
    WAITING_FOR_CONNECTION,
    WAITING_FOR_ROUTE,
    WRITTEN,
)
from rocketmq_py.producer.settings import ProducerSettings
from rocketmq_py.producer.statistics import Counters, SendMeter
from rocketmq_py.producer.waiting_requests import WaitingRequests
from rocketmq_py.protocol.sends import SendAnswer
from rocketmq_py.remoting import Answer, Connection

_OFFLOAD_SIZE = 256 * 1024
"""Bodies of at least this size are compressed in a worker thread, so that other tasks can run."""
_COMPRESSION_THREADS = 4
"""The largest number of these threads. Not trio's usual ones: plain ``local_work`` that itself sends a large
message, and other functions of the user, may occupy all of them."""


class Sender:
    """Sends the requests of a producer. Java: ``DefaultMQProducerImpl.sendDefaultImpl``.

    Args:
        client: provides routes, connections and heartbeats. It must be open when something is sent.
        config: the producer's settings.
        rng: chooses the first queue of each topic.

    Attributes:
        counters: the counters behind the producer's statistics.
        faults: the latency-fault table. None without that strategy.
        meter: records the duration of each attempt. None without metrics.
        router: finds the queue and the connection of each request.
        on_answer: handles the answers to attempts.
        on_done: receives the outcome of each send. Set by the Pipeline.
    """

    def __init__(self, client: ClientCore, config: ProducerSettings, rng: random.Random) -> None:
        self._client = client
        self._config = config
        self.counters: Counters = Counters()
        self.meter: SendMeter | None = None
        self.faults: LatencyFaults | None = None
        if config.latency_faults is not None:
            self.faults = LatencyFaults(config.latency_faults, now=trio.current_time, rng=rng)
        self.router: RequestRouter = RequestRouter(client, self.faults, rng)
        self._queues = WaitingRequests(self.router, self)
        self._compression_threads = trio.CapacityLimiter(_COMPRESSION_THREADS)
        # Fast path: one bound method for all requests, saves 5 % of pipelined.
        self.on_answer: Callable[[Attempt, Answer | SendAnswer, float], None] = self._answered
        self.on_done: Callable[[Send, Outcome], None]
        self._nursery: trio.Nursery | None = None
        self._forgotten_at = 0  # the version of the routes when ``faults`` last forgot brokers

    def open(self, nursery: trio.Nursery) -> None:
        """Start. Background retries run in ``nursery``."""
        self._nursery = nursery
        if self.faults is not None and self.faults.policy.detect:
            nursery.start_soon(FaultDetector(self.faults, partial(is_reachable, self._client)).run)

    def abandon(self) -> None:
        """Stop retrying. Outcomes of sends in flight are no longer reported."""
        self._nursery = None

    # Attempts

    def attempt(self, send: Send) -> Awaitable[None] | None:
        """Start the next attempt of a send. ``on_done`` receives the outcome of its last attempt.

        If the request must wait for a connection, for space in its buffer, or for a heartbeat, it is queued
        and written in the background, in the order of the requests for that broker.

        Returns an awaitable only if the route of the topic is unknown, or if there are RPC hooks. If that is
        cancelled, the request is not sent and ``on_done`` is not called.

        Raises ClosedError, InvalidMessageError, and the exceptions of a queue selector, here or when awaited.
        All other errors are outcomes.
        """
        if self._nursery is None:
            raise closed_error()
        attempt = send.start_attempt(trio.current_time())
        route = self._client.routes.get_nowait(send.request.topic)
        if route is None:
            send.enter(WAITING_FOR_ROUTE)
            return self._attempt_when_routed(send)
        try:
            connection = self.router.choose_queue(attempt, route)
            if (
                connection is not None
                and connection.writer.has_space
                and not (self._queues.by_broker and _broker_of(attempt) in self._queues.by_broker)
            ):
                return self.write(attempt, connection)
            send.enter(WAITING_FOR_CONNECTION)
            self._queues.add(attempt, self._nursery)
        except (ClosedError, InvalidMessageError):
            raise
        except RocketMQError as error:
            self.attempt_failed(send, error)
        return None

    def must_wait(self, send: Send) -> bool:
        """Whether :meth:`attempt` would return an awaitable."""
        topic = send.request.topic
        return self._client.routes.get_nowait(topic) is None or bool(self._client.rpc_hooks.all)

    async def _attempt_when_routed(self, send: Send) -> None:
        try:
            await self.router.wait_for_route(send)
        except RocketMQError as error:
            self.attempt_failed(send, error)
            return
        if send.state is DONE:
            return  # the producer was closed meanwhile
        send.enter(READY)
        written = self.attempt(send)
        if written is not None:
            await written

    async def attempt_in_background(self, send: Send) -> None:
        """Start the next attempt of a send in a task of its own. Raises ClosedError and InvalidMessageError.

        An exception of a queue selector becomes an InvalidMessageError.
        """
        try:
            written = self.attempt(send)
            if written is not None:
                await written
        except RocketMQError:
            raise
        except Exception as error:
            if send.selector is None:
                raise
            raise InvalidMessageError(f"the queue selector raised {error!r}") from error

    def write(self, attempt: Attempt, connection: Connection) -> Awaitable[None] | None:
        """Write the request of an attempt. With RPC hooks, return an awaitable that writes it."""
        attempt.on_answer = self.on_answer
        attempt.connection = connection
        attempt.send.enter(WRITTEN)
        if connection.hooks.all:
            return self._write_with_hooks(attempt, connection)
        connection.carry(attempt)
        attempt.is_carried = True
        return None

    async def _write_with_hooks(self, attempt: Attempt, connection: Connection) -> None:
        try:
            await connection.submit_with_hooks(
                attempt.code,
                attempt.fields,
                attempt.body,
                deadline=attempt.deadline,
                timeout=attempt.timeout,
                on_answer=lambda answer: self._answered(attempt, answer, trio.current_time()),
            )
        except (ClosedError, InvalidMessageError):
            raise
        except RocketMQError as error:
            self.attempt_failed(attempt.send, error)

    def _answered(self, attempt: Attempt, answer: Answer | SendAnswer, received_at: float) -> None:
        send = attempt.send
        if send.state is DONE:
            return  # cancelled after RPC hooks were called
        if isinstance(answer, RocketMQError):
            self.attempt_failed(send, answer)
            return
        try:
            stored = attempt.read_answer(answer)
        except RocketMQError as error:
            self.attempt_failed(send, error)
            return
        self._succeeded(attempt, received_at)
        self.on_done(send, stored)

    def attempt_failed(self, send: Send, error: RocketMQError) -> None:
        """Start a task that backs off and makes the next attempt, or reports the error."""
        if send.state is not DONE:
            send.attempt_failed(error)
            send.scope = trio.CancelScope()
            start_soon(self._nursery, self._retry, send, send.scope, error)

    async def _retry(self, send: Send, scope: trio.CancelScope, error: RocketMQError) -> None:
        with scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            while await self._may_retry(send, error):
                send.enter(READY)
                try:
                    await self.attempt_in_background(send)
                except RocketMQError as next_error:
                    error = next_error
                    send.attempt_failed(error)
                else:
                    return
            self.on_done(send, error)

    def cancel(self, send: Send) -> None:
        """Make no further attempt, and ignore the answer of the current one. ``on_done`` is not called."""
        if send.scope is not None:
            send.scope.cancel()
        attempt = send.attempt
        if send.state is WRITTEN and attempt is not None and attempt.is_carried:
            attempt.forget()
        send.enter(DONE)

    async def compress(self, send: Send) -> None:
        """Compress the body. If cancelled, the request is unchanged."""
        compression, request = self._config.compression, send.request
        assert compression is not None
        if len(request.body) < _OFFLOAD_SIZE:
            compressed = compress_body(compression, request.body)
        else:
            compressed = await trio.to_thread.run_sync(
                compress_body, compression, request.body, limiter=self._compression_threads
            )
        send.request = request.compressed(*compressed)
        if send.state is not DONE:  # the producer was closed meanwhile
            send.enter(READY)

    # Oneway sends

    async def send_oneway(self, send: Send) -> None:
        """Write a request to a connection. There is one attempt, and no answer.

        Raises as ``Producer.send`` for errors before the write. If cancelled, the request is not sent.
        """
        if send.state is COMPRESSING:
            await self.compress(send)
        try:
            attempt, connection = await self.router.route(send)
            await trio.lowlevel.checkpoint()
            if not connection.has_space:  # not before the checkpoint: others may have used it meanwhile
                await self._wait_for_space(attempt, connection)
            attempt.connection = connection
            send.enter(WRITTEN)
            await connection.oneway(attempt.code, attempt.fields, attempt.body)
        except RocketMQError as error:
            self.counters.send_failed(error, len(send.request.messages))
            raise
        send.end()
        self.counters.oneway += len(send.request.messages)

    async def _wait_for_space(self, attempt: Attempt, connection: Connection) -> None:
        with trio.move_on_at(attempt.deadline) as scope:
            await connection.wait_for_space()
        if scope.cancelled_caught:
            seconds = attempt.deadline - attempt.started
            raise RequestTimeoutError(connection.address, seconds, Delivery.NOT_SENT)

    # Latency faults and retry decisions

    def _succeeded(self, attempt: Attempt, received_at: float) -> None:
        seconds = received_at - attempt.started
        self.counters.answered(seconds)
        self.counters.last_result = received_at
        if self.meter is not None:
            self.meter.answered(attempt.send.request.topic, seconds)
        faults = self.faults
        if faults is not None and not (faults.all_clear and seconds < faults.tolerated):
            faults.record(_broker_of(attempt), seconds)
            routes = self._client.routes
            if self._forgotten_at != routes.version:
                self._forgotten_at = routes.version
                faults.forget(routes.brokers())

    async def _may_retry(self, send: Send, error: RocketMQError) -> bool:
        """Record a failure, back off if needed, and return whether another attempt is allowed."""
        attempt, topic = send.attempt, send.request.topic
        assert attempt is not None
        if self.meter is not None:
            self.meter.failed(topic, error, trio.current_time() - attempt.started)
        if error._invalidates_route:
            self._client.routes.invalidate(topic)
        is_limited = isinstance(error, FlowControlError)
        if is_limited:
            self.counters.throttled += 1
        # The limit is that of the instance: other brokers are not better.
        is_fault = error.retriable and not is_limited and not error._queue_gone
        if is_fault and self.faults is not None and attempt.queue is not None:
            self.faults.failed(attempt.queue.broker_name, reachable=isinstance(error, BrokerError))
        has_other_broker = self.router.has_other_broker(send)
        is_paused = isinstance(error, BrokerBusyError) or not (error._queue_gone or has_other_broker)
        seconds = send.back_off(error, is_paused=is_paused)
        if seconds is None:
            return False
        resume_at = trio.current_time() + seconds  # not later: the send must not outlive its timeout
        is_outdated = isinstance(error, BrokerError) and error._invalidates_route
        if error._queue_gone or (is_outdated and not has_other_broker):
            # Without another broker, the same one would refuse again. Other queues may be gone, too.
            await self.router.refresh_route(send)
        if is_paused:
            await trio.sleep_until(resume_at)
            if not send.remaining:
                send.end_attempts(error)
                return False
        if has_other_broker or not error._not_reached:  # otherwise it has only waited
            self.counters.retried += 1
        await trio.lowlevel.checkpoint_if_cancelled()  # at the end of the back-off
        return True


def _broker_of(attempt: Attempt) -> str:
    assert attempt.queue is not None
    return attempt.queue.broker_name
