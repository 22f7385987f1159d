"""Bringing requests to brokers: choose a queue, try, learn from what comes of it, try again."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
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
from rocketmq_py.producer.send_request import NotStoreOKError, Outcome, SendRequest
from rocketmq_py.producer.statistics import Counters
from rocketmq_py.remoting import Answer, Connection

_OFFLOAD_SIZE = 256 * 1024
"""Bytes of a body from which on it is compressed in a thread: others should not wait for it."""

FIRST_TIMER_VERSION = 412
"""Brokers keep exact times from 5.0.0 on (Java: the ordinal of ``MQVersion.V5_0_0_SNAPSHOT``)."""


class _Line:
    """Pipelined requests that wait for one broker, in their order."""

    def __init__(self) -> None:
        self.requests: deque[tuple[SendRequest, MessageQueue]] = deque()
        self._scope = trio.CancelScope()

    def add(self, request: SendRequest, queue: MessageQueue) -> None:
        """Put one behind all others."""
        self.requests.append((request, queue))
        if request.end_of_try < self._scope.deadline:
            self._scope.deadline = request.end_of_try

    def scope_until_one_expires(self) -> trio.CancelScope:
        """Return a scope that ends when the time of any of them is up, of those that are added, too."""
        self._scope = trio.CancelScope(deadline=min([request.end_of_try for request, _ in self.requests]))
        return self._scope

    def take_expired(self, now: float) -> list[tuple[SendRequest, MessageQueue]]:
        """Remove and return those whose time is up."""
        expired = [one for one in self.requests if one[0].end_of_try <= now]
        if expired:
            self.requests = deque([one for one in self.requests if one[0].end_of_try > now])
        return expired


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

    def __init__(self, client: Client, config: ProducerConfig, rng: random.Random) -> None:
        self._client = client
        self._config = config
        self.counters = Counters()
        self.faults: LatencyFaults | None = None
        self._choice: RoundRobin | FaultAwareRoundRobin = RoundRobin(rng)
        if isinstance(config.latency_faults, LatencyFaultPolicy):
            self.faults = LatencyFaults(config.latency_faults, now=trio.current_time, rng=rng)
            self._choice = FaultAwareRoundRobin(self.faults, rng)
        self._nursery: trio.Nursery | None = None
        self._lines: dict[str, _Line] = {}  # of brokers that pipelined requests wait for
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

    async def deliver(self, request: SendRequest) -> SendResult:
        """Compress the body if it is large, try until a broker has stored it, and count it.

        Raises the error of the last try. When cancelled, nothing is left waiting.
        """
        if request.may_be_compressed:
            await self.compress(request)
        try:
            result = await self._deliver(request)
        except RocketMQError:
            self.counters.failed += len(request.messages)
            raise
        self.counters.sent += len(request.messages)
        return result

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
            request.begin_try()
            try:
                queue, connection = await self._aim(request)
                fields = request.fields_for(queue, connection.address)
                timeout = max(request.end_of_try - trio.current_time(), 0.0)
                answer = await connection.request(request.code, fields, request.body, timeout=timeout)
                result = request.result(answer)
            except RocketMQError as failure:
                error = failure
            else:
                self._succeeded(request)
                return result

    # Pipelined

    async def submit(self, request: SendRequest) -> None:
        """Write the request, and give the outcome to ``request.on_done`` when it is there.

        Waits only for the route of a topic that is not known yet. Where a connection, space in its buffer, or
        a heartbeat has to be waited for, that happens in the background, in the order of the requests for
        that broker. When cancelled, it is not sent, and nobody is told.

        Raises ClosedError, InvalidMessageError, and what a queue selector raises; all other errors are
        outcomes.
        """
        request.begin_try()
        try:
            route = self._client.routes.get_nowait(request.topic) or await self._find_route(request)
            queue = self._choose(route, request)
            connection = self._connection_nowait(request, queue)
            if connection is None or queue.broker_name in self._lines or not connection.writer.has_space:
                self._line_up(request, queue)
            else:
                hooked = self._write(request, queue, connection)
                if hooked is not None:
                    await hooked
        except (ClosedError, InvalidMessageError):
            raise
        except RocketMQError as error:
            start_soon(self._nursery, self._try_again, request, error)

    def _line_up(self, request: SendRequest, queue: MessageQueue) -> None:
        """Have it written when its broker takes it, behind all others that wait for that broker."""
        request.queue = queue
        line = self._lines.get(queue.broker_name)
        if line is None:
            line = self._lines[queue.broker_name] = _Line()
            start_soon(self._nursery, self._run_line, queue.broker_name, line)
        line.add(request, queue)

    async def _run_line(self, broker_name: str, line: _Line) -> None:
        while line.requests:
            request, queue = line.requests[0]
            connection = self._connection_nowait(request, queue)
            if connection is None or not connection.has_space:
                await self._wait_for_broker(line)
                continue
            line.requests.popleft()
            try:
                hooked = self._write(request, queue, connection)
                if hooked is not None:
                    await hooked
            except RocketMQError as error:
                start_soon(self._nursery, self._try_again, request, error)
        del self._lines[broker_name]

    async def _wait_for_broker(self, line: _Line) -> None:
        """Return when the first in a line may be written, or when it, or others, failed and left the line."""
        request, queue = line.requests[0]
        with line.scope_until_one_expires():
            try:
                with _nothing_sent():
                    connection = await self._connect(request, queue)
                    await connection.wait_for_space()
            except RocketMQError as error:
                line.requests.popleft()
                start_soon(self._nursery, self._try_again, request, error)
        for expired, queue in line.take_expired(trio.current_time()):
            where = self._client.routes.master_address_nowait(queue.broker_name) or queue.broker_name
            seconds = expired.end_of_try - expired.started
            timed_out = RequestTimeoutError(where, seconds, Delivery.NOT_SENT)
            start_soon(self._nursery, self._try_again, expired, timed_out)

    def _write(
        self, request: SendRequest, queue: MessageQueue, connection: Connection
    ) -> Awaitable[None] | None:
        """Leave it with the connection; return what has to be awaited for that, if there are hooks."""
        fields = request.fields_for(queue, connection.address)
        deadline = request.end_of_try
        timeout = request.timeout if request.try_timeout is None else request.try_timeout
        on_answer = partial(self._answered, request)
        if connection.hooks.all:
            return connection.submit_with_hooks(
                request.code, fields, request.body, deadline=deadline, timeout=timeout, on_answer=on_answer
            )
        connection.submit(
            request.code, fields, request.body, deadline=deadline, timeout=timeout, on_answer=on_answer
        )
        return None

    def _answered(self, request: SendRequest, answer: Answer) -> None:
        if isinstance(answer, RocketMQError):
            start_soon(self._nursery, self._try_again, request, answer)
            return
        try:
            result = request.result(answer)
        except RocketMQError as error:
            start_soon(self._nursery, self._try_again, request, error)
        else:
            self._succeeded(request)
            assert request.on_done is not None
            request.on_done(result)

    async def _try_again(self, request: SendRequest, error: RocketMQError) -> None:
        """Go on after a try that failed, where nobody waits."""
        request.in_background = True
        outcome: Outcome
        try:
            outcome = await self._deliver(request, error)
        except RocketMQError as last:
            outcome = last
        assert request.on_done is not None
        request.on_done(outcome)

    # Oneway

    async def send_oneway(self, request: SendRequest) -> None:
        """Leave the request with a connection; there is one try, and no answer.

        Raises as :meth:`deliver` for what is known before it is written. When cancelled, it is not sent.
        """
        if request.may_be_compressed:
            await self.compress(request)
        request.begin_try()
        queue, connection = await self._aim(request)
        if connection.has_space:
            await trio.lowlevel.checkpoint()
        else:
            await self._wait_for_space(request, connection)
        fields = request.fields_for(queue, connection.address)
        await connection.oneway(request.code, fields, request.body)
        self.counters.oneway += len(request.messages)

    # Where to

    def _choose(self, route: Route, request: SendRequest) -> MessageQueue:
        if request.fixed_queue is not None:
            return request.fixed_queue
        if request.selector is None:
            return self._choice.choose(route, request.failed_broker)
        if not route.write_queues:
            raise NoQueueError(f"topic {route.topic!r} has no queue that may be written to and has a master")
        try:
            queue = request.selector(route.write_queues, request.messages[0])
        except RocketMQError:
            raise
        except Exception as error:
            if not request.in_background:
                raise
            raise InvalidMessageError(f"the queue selector raised {error!r}") from error
        if not isinstance(queue, MessageQueue) or queue.topic != route.topic:
            raise InvalidMessageError(f"the selector chose {queue!r}, no queue of topic {route.topic!r}")
        request.fixed_queue = queue
        return queue

    async def _aim(self, request: SendRequest) -> tuple[MessageQueue, Connection]:
        """Choose a queue and return the connection to its broker; ask, dial, introduce where needed."""
        route = self._client.routes.get_nowait(request.topic) or await self._find_route(request)
        request.queue = queue = self._choose(route, request)
        connection = self._connection_nowait(request, queue)
        if connection is None:
            with _nothing_sent():
                connection = await self._connect(request, queue)
        return queue, connection

    async def _find_route(self, request: SendRequest) -> Route:
        with trio.move_on_at(request.deadline) as waiting, _nothing_sent():
            route = await self._client.routes.get(request.topic, for_sending=True)
        if waiting.cancelled_caught:
            names = self._client.name_servers.addresses
            raise RequestTimeoutError(names, request.timeout, Delivery.NOT_SENT)
        request.begin_try()  # how long the name server took is not held against the broker
        return route

    def _connection_nowait(self, request: SendRequest, queue: MessageQueue) -> Connection | None:
        address = self._client.routes.master_address_nowait(queue.broker_name)
        channel = self._client.brokers.channel(address) if address else None
        connection = self._client.connections.get_nowait(channel) if channel else None
        if connection is None or (request.wants_heartbeat and not self._is_introduced(connection, request)):
            return None
        return connection

    async def _connect(self, request: SendRequest, queue: MessageQueue) -> Connection:
        address = self._client.brokers.channel(self._client.routes.broker_address(queue.broker_name))
        connection = await self._client.connections.get_before(address, request.end_of_try)
        if request.wants_heartbeat:
            await self._introduce(connection, request)
        return connection

    def _is_introduced(self, connection: Connection, request: SendRequest) -> bool:
        return self._client.heartbeats.is_heard_on(connection) and not _is_too_old(connection, request)

    async def _introduce(self, connection: Connection, request: SendRequest) -> None:
        """Have the broker know this client's groups, and see that it can do what is wanted of it."""
        timeout = max(request.end_of_try - trio.current_time(), 0.0)
        await self._client.heartbeats.ensure_heard(connection, timeout=timeout)
        if _is_too_old(connection, request):
            raise UnsupportedByBrokerError(
                f"{connection.address} is older than 5.0 and would deliver a message with an exact time at "
                "once; use delay_level, or a relay (delay_relay)"
            )

    async def keeps_times(self, topic: str) -> bool:
        """Ask whether all brokers that messages of a topic may go to keep exact times (5.x).

        Within ``send_timeout``. Raises what a send raises that finds no broker.
        """
        timeout = self._config.send_timeout
        end = trio.current_time() + timeout
        with trio.move_on_at(end) as waiting, _nothing_sent():
            route = await self._client.routes.get(topic, for_sending=True)
            for broker_name in dict.fromkeys(queue.broker_name for queue in route.write_queues):
                address = self._client.brokers.channel(self._client.routes.broker_address(broker_name))
                connection = await self._client.connections.get_before(address, end)
                left = max(end - trio.current_time(), 0.0)
                await self._client.heartbeats.ensure_heard(connection, timeout=left)
                if connection.peer_version < FIRST_TIMER_VERSION:
                    return False
        if waiting.cancelled_caught:
            raise RequestTimeoutError(self._client.name_servers.addresses, timeout, Delivery.NOT_SENT)
        return True

    async def _wait_for_space(self, request: SendRequest, connection: Connection) -> None:
        end = request.end_of_try
        with trio.move_on_at(end) as waiting:
            await connection.wait_for_space()
        if waiting.cancelled_caught:
            raise RequestTimeoutError(connection.address, end - request.started, Delivery.NOT_SENT)

    # What was learned

    def _succeeded(self, request: SendRequest) -> None:
        seconds = trio.current_time() - request.started
        self.counters.answered(seconds)
        if self.faults is not None:
            assert request.queue is not None
            self.faults.record(request.queue.broker_name, seconds)

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
        if isinstance(error, BrokerBusyError) or not self._has_other_broker(request):
            await trio.sleep(back_off)
        self.counters.retried += 1
        return True

    def _has_other_broker(self, request: SendRequest) -> bool:
        route = self._client.routes.get_nowait(request.topic)
        if route is None or request.fixed_queue is not None:
            return False
        return any(queue.broker_name != request.failed_broker for queue in route.write_queues)


@contextmanager
def _nothing_sent() -> Iterator[None]:
    """Mark errors: what failed was not the message's own request, whatever is known of that one's."""
    try:
        yield
    except RocketMQError as error:
        error.delivery = Delivery.NOT_SENT
        raise


def _is_too_old(connection: Connection, request: SendRequest) -> bool:
    return request.is_timed and connection.peer_version < FIRST_TIMER_VERSION
