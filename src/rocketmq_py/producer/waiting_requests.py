"""Requests that wait, in order, for the connection to their broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from typing import Protocol

import trio

from rocketmq_py.client.lifespan import start_soon
from rocketmq_py.errors import RocketMQError
from rocketmq_py.producer.request_router import RequestRouter, nothing_sent
from rocketmq_py.producer.send import Attempt, Send
from rocketmq_py.producer.send_states import DONE
from rocketmq_py.remoting import Connection


class AttemptOwner(Protocol):
    """The sender that makes the attempts of requests."""

    def write(self, attempt: Attempt, connection: Connection) -> Awaitable[None] | None:
        """Write the request of an attempt. With RPC hooks, return an awaitable that writes it."""

    def attempt_failed(self, send: Send, error: RocketMQError) -> None:
        """Start a task that backs off and makes the next attempt, or reports the error."""


class WaitingRequests:
    """A FIFO queue of requests for each broker that cannot take requests at the moment.

    A request waits for a dial, for a heartbeat, or for space in the connection's buffer. If its attempt times
    out meanwhile, it leaves the queue. When the producer closes, the queues are dropped. The Pipeline fails
    their requests.

    Args:
        router: finds the connections.
        sender: writes the requests, and retries those whose attempt fails.

    Attributes:
        by_broker: the queues, by broker name. Requests for these brokers must be queued.
    """

    def __init__(
        self,
        router: RequestRouter,
        sender: AttemptOwner,
    ) -> None:
        self._router = router
        self._sender = sender
        self.by_broker: dict[str, BrokerQueue] = {}

    def add(self, attempt: Attempt, nursery: trio.Nursery | None) -> None:
        """Queue a request behind all others for its broker. A task in ``nursery`` writes them."""
        assert attempt.queue is not None
        broker_name = attempt.queue.broker_name
        queue = self.by_broker.get(broker_name)
        if queue is None:
            queue = self.by_broker[broker_name] = BrokerQueue()
            start_soon(nursery, self._write_queued, broker_name, queue)
        queue.add(attempt)

    async def _write_queued(self, broker_name: str, queue: BrokerQueue) -> None:
        while queue.attempts:
            attempt = queue.attempts[0]
            if attempt.send.state is DONE:  # cancelled
                queue.attempts.popleft()
                continue
            connection = self._router.connection_nowait(attempt)
            if connection is None or not connection.has_space:
                await self._wait_for_connection(queue)
                continue
            queue.attempts.popleft()
            try:
                write_with_hooks = self._sender.write(attempt, connection)
                if write_with_hooks is not None:
                    await write_with_hooks
            except RocketMQError as error:
                self._sender.attempt_failed(attempt.send, error)
        del self.by_broker[broker_name]

    async def _wait_for_connection(self, queue: BrokerQueue) -> None:
        """Wait until the first request can be written, or until requests of the queue have failed."""
        attempt = queue.attempts[0]
        with queue.scope_until_next_deadline():
            try:
                connection = await self._router.connect(attempt)
                with nothing_sent():
                    await connection.wait_for_space()
            except RocketMQError as error:
                queue.attempts.popleft()
                self._sender.attempt_failed(attempt.send, error)
        for expired in queue.take_expired(trio.current_time()):
            self._sender.attempt_failed(expired.send, self._router.not_connected(expired))


class BrokerQueue:
    """The queued requests for one broker."""

    def __init__(self) -> None:
        self.attempts: deque[Attempt] = deque()
        self._scope = trio.CancelScope()

    def add(self, attempt: Attempt) -> None:
        """Append a request. Its deadline may end the current :meth:`scope_until_next_deadline` earlier."""
        self.attempts.append(attempt)
        if attempt.deadline < self._scope.deadline:
            self._scope.deadline = attempt.deadline

    def scope_until_next_deadline(self) -> trio.CancelScope:
        """Return a scope that is cancelled at the earliest deadline of a queued request."""
        self._scope = trio.CancelScope(deadline=min([attempt.deadline for attempt in self.attempts]))
        return self._scope

    def take_expired(self, now: float) -> list[Attempt]:
        """Remove and return the requests whose deadline has passed."""
        expired = [attempt for attempt in self.attempts if attempt.deadline <= now]
        if expired:
            self.attempts = deque([attempt for attempt in self.attempts if attempt.deadline > now])
        return expired
