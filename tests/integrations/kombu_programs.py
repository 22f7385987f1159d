"""Kombu as programs use it, for tests of the transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kombu import Connection, Consumer, Exchange, Producer, Queue

import rocketmq_py.integrations.kombu  # noqa: F401  # registers rocketmq://

PATIENCE = 30.0
"""Seconds until a message that should come is missed."""
QUIET = 1.5
"""Seconds without a message after which none comes."""


def connect(address: str, **options: Any) -> Connection:
    """Open a connection to the cluster at an address."""
    return Connection(f"rocketmq://{address}", transport_options={"wait_time_seconds": 0.2, **options})


def job_queue(name: str, **options: Any) -> Queue:
    """Return a durable queue with a direct exchange of its own."""
    return Queue(name, Exchange(name, type="direct"), routing_key=name, **options)


def publish(connection: Connection, queue: Queue, *bodies: Any, **options: Any) -> None:
    """Send messages to a queue."""
    producer = Producer(connection.default_channel)
    for body in bodies:
        producer.publish(
            body, exchange=queue.exchange, routing_key=queue.routing_key, declare=[queue], **options
        )


class Receiver:
    """Consumes queues on its own channel.

    Args:
        connection: the connection of the channel.
        queues: the queues to consume.
        act: called with each message. By default it acknowledges.
        prefetch: the channel's prefetch count.
    """

    def __init__(
        self,
        connection: Connection,
        *queues: Queue,
        act: Callable[[Any], object] = lambda message: message.ack(),
        prefetch: int = 0,
        no_ack: bool = False,
    ) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.channel = connection.channel()
        self.act = act
        self.channel.basic_qos(0, prefetch, False)
        self.consumer = Consumer(self.channel, list(queues), on_message=self._receive, no_ack=no_ack)
        self.consumer.consume()

    def _receive(self, message: Any) -> None:
        self.messages.append(message)
        self.act(message)

    @property
    def bodies(self) -> list[Any]:
        return [message.payload for message in self.messages]

    def wait_for(self, count: int) -> list[Any]:
        """Return the bodies of all messages once there are so many."""
        while len(self.messages) < count:
            self.connection.drain_events(timeout=PATIENCE)
        return self.bodies

    def drain(self, quiet: float = QUIET) -> list[Any]:
        """Return the bodies of all messages once none has come for a while."""
        try:
            while True:
                self.connection.drain_events(timeout=quiet)
        except TimeoutError:
            return self.bodies

    def close(self) -> None:
        self.channel.close()


def keep(message: Any) -> None:
    """Neither acknowledge a message nor reject it."""
