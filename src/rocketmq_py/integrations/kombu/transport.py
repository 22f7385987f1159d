"""A kombu connection. It delivers messages in ``drain_events`` or in the event loop of Celery's workers."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kombu import Connection
from kombu.exceptions import OperationalError
from kombu.transport import virtual
from kombu.transport.base import Implements
from kombu.utils.compat import detect_environment

import rocketmq_py
from rocketmq_py.errors import ConfigurationError, TopicNotFoundError
from rocketmq_py.integrations.kombu.channel import Channel
from rocketmq_py.integrations.kombu.cluster import Cluster
from rocketmq_py.integrations.kombu.deliveries import Delivery
from rocketmq_py.integrations.kombu.options import (
    DEFAULT_PORT,
    TransportOptions,
    address_of,
    client_options_of,
)
from rocketmq_py.integrations.kombu.poller import TRANSIENT
from rocketmq_py.integrations.kombu.queues import ExchangeListener, SharedQueue

MAX_INBOX: Final = 1000
"""Messages of exchanges that wait for their consumer here. Further ones wait in the listener."""
DELIVERED_AT_ONCE: Final = 100
"""Deliveries in one turn of the event loop."""


class Transport(virtual.Transport):
    """A kombu connection. Made by ``kombu.Connection("rocketmq://…")``.

    Args:
        client: the kombu connection.
    """

    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "rocketmq"
    driver_name = "rocketmq-py"
    connection_errors: tuple[type[BaseException], ...] = (
        *virtual.Transport.connection_errors,
        OperationalError,
        *TRANSIENT,
    )
    recoverable_connection_errors: tuple[type[BaseException], ...] = connection_errors
    channel_errors: tuple[type[BaseException], ...] = (
        *virtual.Transport.channel_errors,
        TopicNotFoundError,
    )
    recoverable_channel_errors: tuple[type[BaseException], ...] = ()
    implements: Implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    cluster: Cluster

    def __init__(self, client: Connection, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.options: TransportOptions = TransportOptions.of(client.transport_options)
        self.private_queues: set[str] = set()
        self.activity: threading.Condition = threading.Condition()
        self._inboxes: dict[str, deque[Delivery]] = {}
        self._shared: dict[str, SharedQueue] = {}
        self._listeners: dict[str, dict[str, ExchangeListener]] = {}
        self._failure: BaseException | None = None
        self._process_id = os.getpid()
        self._loop: Any = None
        self._wakeup: tuple[socket.socket, socket.socket] | None = None

    def driver_version(self) -> str:
        """Return the version of this library."""
        return rocketmq_py.__version__

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """The port of a URL without one. A URL without a host means the environment variable NAMESRV_ADDR."""
        return {"port": DEFAULT_PORT}

    @property
    def is_of_this_process(self) -> bool:
        """Whether the connection was opened in this process, not in the parent of a forked one."""
        return self._process_id == os.getpid()

    # Opening and closing

    def establish_connection(self) -> Any:
        """Open the client, and check that a name server answers.

        Raises:
            ConfigurationError: the URL or an option is not allowed, or eventlet or gevent is in use.
            NameServerError: no name server answered. Kombu tries the next URL then.
        """
        if (environment := detect_environment()) != "default":
            raise ConfigurationError(
                f"the transport rocketmq needs real threads, which {environment} replaces; use the pools "
                "prefork, threads or solo"
            )
        self._process_id = os.getpid()
        cluster = Cluster(address_of(self.client), self.options, client_options_of(self.client, self.options))
        try:
            cluster.check_reachable()
        except BaseException:
            cluster.close()
            raise
        self.cluster = cluster
        return super().establish_connection()

    def verify_connection(self, connection: Any) -> bool:
        """Return whether the connection can be used: it is open, of this process, and not lost."""
        return self._failure is None and self.is_of_this_process and self.cluster.client.is_open

    def close_connection(self, connection: Any) -> None:
        """Close channels and the client. Unacknowledged messages are requeued."""
        if not self.is_of_this_process:
            return
        super().close_connection(connection)
        for queue in list(self._listeners):
            self.forget(queue)
        for shared in self._shared.values():
            shared.close()
        self._shared.clear()
        self.cluster.close()
        self.unregister_from_event_loop(connection, self._loop)

    # Queues

    def inbox(self, queue: str) -> deque[Delivery]:
        """Return the received messages of a queue that wait for their delivery."""
        return self._inboxes.setdefault(queue, deque())

    def shared_queue(self, queue: str) -> SharedQueue:
        """Return the consumer of a queue, which all channels of the connection share."""
        if queue not in self._shared:
            self._shared[queue] = SharedQueue(self.cluster, queue)
        return self._shared[queue]

    def listen(self, queue: str, exchange: str, wants: Callable[[str], bool]) -> None:
        """Collect the messages of an exchange for a queue from now on."""
        listeners = self._listeners.setdefault(queue, {})
        if exchange not in listeners:
            listeners[exchange] = ExchangeListener(self, queue, exchange, wants=wants)

    def start_listening(self, queue: str) -> None:
        """Start delivering the messages of a queue.

        A private queue that is bound to no exchange receives messages that name it in the default exchange.
        """
        if queue in self.private_queues and not self._listeners.get(queue):
            self.listen(queue, "", lambda routing_key: routing_key == queue)
        for listener in self._listeners.get(queue, {}).values():
            listener.start()

    def stop_listening(self, exchange: str) -> None:
        """Stop receiving messages of an exchange, for all queues."""
        for listeners in self._listeners.values():
            if (listener := listeners.pop(exchange, None)) is not None:
                listener.close()

    def forget(self, queue: str) -> None:
        """Stop receiving messages of a queue."""
        for listener in self._listeners.pop(queue, {}).values():
            listener.close()
        if (shared := self._shared.pop(queue, None)) is not None:
            shared.close()
        self.private_queues.discard(queue)
        with self.activity:
            self._inboxes.pop(queue, None)
            self.activity.notify_all()

    def put(self, queue: str, payload: dict[str, Any]) -> None:
        """Add a message of an exchange to an inbox, once there is space."""
        with self.activity:
            inbox = self.inbox(queue)
            self.activity.wait_for(lambda: len(inbox) < MAX_INBOX or queue not in self._listeners)
            if queue in self._listeners:
                inbox.append(Delivery(payload))
        self.wake()

    def fail(self, error: BaseException) -> None:
        """Let the user's thread raise an error of another thread."""
        with self.activity:
            self._failure = self._failure or error
        self.wake()

    # Delivering

    def wake(self) -> None:
        """Make pollers, ``drain_events`` and the event loop look for work."""
        with self.activity:
            self.activity.notify_all()
            if self._wakeup is not None:
                with suppress(BlockingIOError):  # then it is awake already
                    self._wakeup[1].send(b"\0")

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message.

        Raises:
            socket.timeout: none came within ``timeout`` seconds (None waits without end).
            OperationalError: brokers have been unreachable for ``connection_loss_timeout`` seconds.
            RocketMQError: a broker refuses to give messages, for missing permissions for example.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.activity:
            while (found := self._take()) is None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError("no message came in time")
                self.activity.wait(left)
        found()

    def _take(self) -> Callable[[], None] | None:
        """Remove a message that may be delivered now; return a function that delivers it.

        Called with ``activity`` held. Raises the error of another thread if there is no message.
        """
        for _ in range(len(self.channels)):
            self.channels.append(channel := self.channels.pop(0))  # in turn
            if taken := channel.take():
                self.activity.notify_all()
                return partial(channel.deliver, *taken)
        if isinstance(self._failure, TRANSIENT):
            # Some of them are a TimeoutError, which means here that no message came.
            raise OperationalError(str(self._failure)) from self._failure
        if self._failure is not None:
            raise self._failure
        return None

    def deliver(self, queue: str, payload: dict[str, Any]) -> None:
        """Call the consumer of a queue with a message."""
        self._deliver(payload, queue)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Deliver messages from an event loop of kombu, which Celery's workers run."""
        if self._wakeup is None:
            self._wakeup = socket.socketpair()
            for end in self._wakeup:
                end.setblocking(False)
        self._loop = loop
        loop.add_reader(self._wakeup[0].fileno(), self.on_readable, connection, loop)
        self.wake()

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """Stop delivering messages from an event loop."""
        with self.activity:
            wakeup, self._wakeup, self._loop = self._wakeup, None, None
        if wakeup is not None:
            if loop is not None:
                loop.remove_reader(wakeup[0].fileno())
            for end in wakeup:
                end.close()

    def on_readable(self, connection: Any, loop: Any) -> None:
        """Deliver messages, when the event loop sees that there are some. Raises as ``drain_events``."""
        if self._wakeup is None:
            return
        with suppress(BlockingIOError):
            self._wakeup[0].recv(4096)
        for _ in range(DELIVERED_AT_ONCE):
            with self.activity:
                found = self._take()
            if found is None:
                return
            found()
        self.wake()  # to go on after other events
