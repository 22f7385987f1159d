"""Bringing requests to brokers: choose a queue, try, learn from what comes of it, try again."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.client.routes import Route
from rocketmq_py.errors import (
    BrokerBusyError,
    BrokerError,
    ClosedError,
    Delivery,
    InvalidMessageError,
    RequestTimeoutError,
    RocketMQError,
)
from rocketmq_py.message import SendResult
from rocketmq_py.producer.config import ProducerConfig
from rocketmq_py.producer.fault_detector import FaultDetector, answers
from rocketmq_py.producer.lanes import Lanes, nothing_sent
from rocketmq_py.producer.latency_faults import LatencyFaultPolicy, LatencyFaults
from rocketmq_py.producer.send_request import NotStoreOKError, Outcome, SendRequest, send_result
from rocketmq_py.producer.statistics import Counters
from rocketmq_py.producer.waiting_requests import WaitingRequests
from rocketmq_py.protocol.command import Command
from rocketmq_py.protocol.typed_sends import SendAnswer
from rocketmq_py.remoting import Answer, Connection

_OFFLOAD_SIZE = 256 * 1024
"""Bytes of a body from which on it is compressed in a thread: others should not wait for it."""


class Sender:
    """What all ways of sending share. Java: ``DefaultMQProducerImpl.sendDefaultImpl``.

    Args:
        client: routes, connections and heartbeats; must be open when something is sent.
        config: the producer's settings.
        rng: where turns begin.

    Attributes:
        counters: what is counted.
        faults: what is held against which broker; None without the latency-fault strategy.
        lanes: where requests go.
        on_answer: takes what comes of tries that no task waits for, one object for all requests.
    """

    def __init__(self, client: Client, config: ProducerConfig, rng: random.Random) -> None:
        self._client = client
        self._config = config
        self.counters: Counters = Counters()
        self.faults: LatencyFaults | None = None
        if isinstance(config.latency_faults, LatencyFaultPolicy):
            self.faults = LatencyFaults(config.latency_faults, now=trio.current_time, rng=rng)
        self.lanes: Lanes = Lanes(client, self.faults, rng)
        self._nursery: trio.Nursery | None = None
        self.on_answer: Callable[[SendRequest, Answer | SendAnswer, float], None] = self._answered
        self._now: Callable[[], float] = trio.current_time
        self._waiting: dict[str, WaitingRequests] = {}  # of brokers that pipelined requests wait for
        self._stop_listening: Callable[[], None] | None = None

    def open(self, nursery: trio.Nursery) -> None:
        """Begin: what has to be tried again in the background runs in ``nursery``."""
        self._nursery = nursery
        self._now = trio.lowlevel.current_clock().current_time  # without the way through trio's run
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

    async def deliver(self, request: SendRequest, error: RocketMQError | None = None) -> SendResult:
        """Compress the body if it is large, try until a broker has stored it, and count it.

        ``error`` is what the try came to that :meth:`begin` made. Raises the error of the last try. When
        cancelled, nothing is left waiting.
        """
        if request.may_be_compressed:
            await self.compress(request)
        try:
            if error is None and not request.is_aimed and self.write_now(request):
                # As nearly always: what follows would have come to the same, with more steps between.
                try:
                    result = send_result(request.stored_by(await request.wait()))
                except RocketMQError as failure:
                    result = await self._deliver(request, failure)
                else:
                    self._succeeded(request, self._now())
            else:
                result = await self._deliver(request, error)
        except RocketMQError:
            self.counters.failed += len(request.messages)
            raise
        self.counters.sent += len(request.messages)
        return result

    def write_now(self, request: SendRequest) -> bool:
        """Start the first attempt if it can be written immediately, and return whether it was.

        The answer goes to the waiting task or to ``request.on_answer``. The chosen queue is kept for a later
        attempt. Raises what a queue selector raises.
        """
        if request.form.lanes is None and self._client.routes.get_nowait(request.topic) is None:
            return False
        request.begin_try(self._now())
        try:
            connection = self.lanes.take(request)
            request.is_aimed = True
            if connection is None or not connection.writer.has_space or connection.hooks.all:
                return False
            connection.carry(request)
            request.is_aimed = False
        except RocketMQError:
            return False  # the general path reports it, or retries
        request.address, request.is_written = connection.address, True
        return True

    async def compress(self, request: SendRequest) -> None:
        """Compress the body. When cancelled, it is as it was."""
        compression = self._config.compression
        assert compression is not None
        if len(request.body) < _OFFLOAD_SIZE:
            request.set_compressed(*compression.compress_body(request.body))
        else:
            request.set_compressed(*await trio.to_thread.run_sync(compression.compress_body, request.body))

    async def _deliver(self, request: SendRequest, error: RocketMQError | None = None) -> SendResult:
        """Try until it is stored; ``error`` is what a first try made elsewhere came to."""
        while True:
            if error is not None and not await self._may_try_again(request, error):
                if request.stored is not None:
                    return request.stored
                raise error
            request.begin_try(self._now())
            try:
                connection = await self.lanes.find(request)
                result = send_result(request.stored_by(await self._ask(request, connection)))
            except RocketMQError as failure:
                error = failure
            else:
                self._succeeded(request, self._now())
                return result

    async def _ask(self, request: SendRequest, connection: Connection) -> Command | SendAnswer:
        request.address, request.is_written = connection.address, True
        request.timeout = timeout = max(request.deadline - self._now(), 0.0)
        if connection.hooks.all:
            return await connection.request(request.code, request.fields, request.body, timeout=timeout)
        return await connection.exchange(request, request.deadline)

    # Pipelined

    def submit(self, request: SendRequest) -> Awaitable[None] | None:
        """Write the request, and give the outcome to ``request.on_done`` when it is there.

        Where a connection, space in its buffer, or a heartbeat has to be waited for, that happens in the
        background, in the order of the requests for that broker. What is returned has to be awaited for the
        route of a topic that is not known yet, and for hooks around requests; nearly always it is None. When
        cancelled there, it is not sent, and nobody is told.

        Raises ClosedError, InvalidMessageError, and what a queue selector raises, here or when it is awaited;
        all other errors are outcomes.
        """
        request.begin_try(self._now())
        request.on_answer = self.on_answer
        if request.form.lanes is None and self._client.routes.get_nowait(request.topic) is None:
            return self._submit_when_routed(request)
        try:
            connection = self.lanes.take(request)
            if (
                connection is not None
                and connection.writer.has_space
                and not (self._waiting and self._broker_of(request) in self._waiting)
            ):
                if connection.hooks.all:
                    return self._write(request, connection)
                request.address, request.is_written = connection.address, True
                connection.carry(request)
                return None
            self._enqueue(request)
        except (ClosedError, InvalidMessageError):
            raise
        except RocketMQError as error:
            start_soon(self._nursery, self._try_again, request, error)
        return None

    async def _submit_when_routed(self, request: SendRequest) -> None:
        try:
            await self.lanes.find_route(request)
        except RocketMQError as error:
            start_soon(self._nursery, self._try_again, request, error)
            return
        hooked = self.submit(request)
        if hooked is not None:
            await hooked

    def _enqueue(self, request: SendRequest) -> None:
        """Have it written when its broker takes it, behind all others that wait for that broker."""
        broker_name = self._broker_of(request)
        waiting = self._waiting.get(broker_name)
        if waiting is None:
            waiting = self._waiting[broker_name] = WaitingRequests()
            start_soon(self._nursery, self._write_waiting, broker_name, waiting)
        waiting.add(request)

    async def _write_waiting(self, broker_name: str, waiting: WaitingRequests) -> None:
        while waiting.requests:
            request = waiting.requests[0]
            connection = self.lanes.again(request)
            if connection is None or not connection.has_space:
                await self._wait_for_broker(waiting)
                continue
            waiting.requests.popleft()
            try:
                hooked = self._write(request, connection)
                if hooked is not None:
                    await hooked
            except RocketMQError as error:
                start_soon(self._nursery, self._try_again, request, error)
        del self._waiting[broker_name]

    async def _wait_for_broker(self, waiting: WaitingRequests) -> None:
        """Return when the first that waits may be written, or when it, or others, failed and wait no more."""
        request = waiting.requests[0]
        with waiting.scope_until_one_expires():
            try:
                connection = await self.lanes.connect(request)
                with nothing_sent():
                    await connection.wait_for_space()
            except RocketMQError as error:
                waiting.requests.popleft()
                start_soon(self._nursery, self._try_again, request, error)
        for expired in waiting.take_expired(trio.current_time()):
            broker_name = self._broker_of(expired)
            where = self._client.routes.master_address_nowait(broker_name) or broker_name
            seconds = expired.deadline - expired.started
            timed_out = RequestTimeoutError(where, seconds, Delivery.NOT_SENT)
            start_soon(self._nursery, self._try_again, expired, timed_out)

    def _broker_of(self, request: SendRequest) -> str:
        assert request.queue is not None
        return request.queue.broker_name

    def _write(self, request: SendRequest, connection: Connection) -> Awaitable[None] | None:
        """Leave it with the connection; return what has to be awaited for that, if there are hooks."""
        request.address, request.is_written = connection.address, True
        if connection.hooks.all:
            return self._write_with_hooks(request, connection)
        connection.carry(request)
        return None

    async def _write_with_hooks(self, request: SendRequest, connection: Connection) -> None:
        try:
            await connection.submit_with_hooks(
                request.code,
                request.fields,
                request.body,
                deadline=request.deadline,
                timeout=request.timeout,
                on_answer=lambda answer: self._answered(request, answer, trio.current_time()),
            )
        except (ClosedError, InvalidMessageError):
            raise
        except RocketMQError as error:
            start_soon(self._nursery, self._try_again, request, error)

    def _answered(self, request: SendRequest, answer: Answer | SendAnswer, received_at: float) -> None:
        if isinstance(answer, RocketMQError):
            self._failed(request, answer)
            return
        try:
            stored = request.stored_by(answer)
        except RocketMQError as error:
            self._failed(request, error)
            return
        self._succeeded(request, received_at)
        request.on_done(request, stored)

    def _failed(self, request: SendRequest, error: RocketMQError) -> None:
        """Have other tries follow: in the background, or where the outcome is awaited."""
        if request.is_awaited:
            request.on_done(request, error)
        else:
            start_soon(self._nursery, self._try_again, request, error)

    async def _try_again(self, request: SendRequest, error: RocketMQError) -> None:
        """Go on after a try that failed, where nobody waits."""
        request.in_background = True
        outcome: Outcome
        try:
            outcome = await self._deliver(request, error)
        except RocketMQError as last:
            outcome = last
        request.on_done(request, outcome)

    # Oneway

    async def send_oneway(self, request: SendRequest) -> None:
        """Leave the request with a connection; there is one try, and no answer.

        Raises as :meth:`deliver` for what is known before it is written. When cancelled, it is not sent.
        """
        if request.may_be_compressed:
            await self.compress(request)
        request.begin_try(self._now())
        connection = await self.lanes.find(request)
        if connection.has_space:
            await trio.lowlevel.checkpoint()
        else:
            await self._wait_for_space(request, connection)
        request.address, request.is_written = connection.address, True
        await connection.oneway(request.code, request.fields, request.body)
        self.counters.oneway += len(request.messages)

    async def _wait_for_space(self, request: SendRequest, connection: Connection) -> None:
        end = request.deadline
        with trio.move_on_at(end) as waiting:
            await connection.wait_for_space()
        if waiting.cancelled_caught:
            raise RequestTimeoutError(connection.address, end - request.started, Delivery.NOT_SENT)

    # What was learned

    def _succeeded(self, request: SendRequest, received_at: float) -> None:
        seconds = received_at - request.started
        self.counters.answered(seconds)
        faults = self.faults
        if faults is not None and not (faults.all_clear and seconds < faults.tolerated):
            faults.record(self._broker_of(request), seconds)

    async def _may_try_again(self, request: SendRequest, error: RocketMQError) -> bool:
        """Learn from a failed try; wait before the next where that helps. False if it was the last."""
        if error.invalidates_route:
            self._client.routes.invalidate(request.topic)
        if self.faults is not None and request.queue is not None:
            if isinstance(error, NotStoreOKError):
                self.faults.record(request.queue.broker_name, trio.current_time() - request.started)
            elif error.retriable:
                self.faults.failed(request.queue.broker_name, reachable=isinstance(error, BrokerError))
        back_off = request.failed(error)
        if back_off is None:
            return False
        if isinstance(error, BrokerBusyError) or not self.lanes.has_other_broker(request):
            await trio.sleep(back_off)
        self.counters.retried += 1
        return True
