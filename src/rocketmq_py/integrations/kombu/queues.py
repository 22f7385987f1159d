"""The two kinds of kombu queues: those that workers share, and those that only their process reads.

Each message of a shared queue goes to one worker, which acknowledges it. Each message of an exchange with
queues of single processes goes to every process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rocketmq_py.errors import ClosedError, RocketMQError, UnsupportedByBrokerError
from rocketmq_py.integrations.kombu.cluster import ROUTING_KEY, Cluster, remaining_delay
from rocketmq_py.integrations.kombu.deliveries import (
    MAX_RECEIVED,
    Consumer,
    Delivery,
    PoppingConsumer,
    PushedConsumer,
    read_payload,
)
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

if TYPE_CHECKING:
    from rocketmq_py.integrations.kombu.transport import Transport

logger: Final = LibraryLogger("rocketmq_py.integrations.kombu")


class SharedQueue:
    """A kombu queue in its topic. All channels of a connection share its consumer. Thread-safe.

    Args:
        cluster: the cluster of the topic.
        name: the name of the kombu queue.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name: str = name
        self._group = cluster.create_group(name)
        self._topic = cluster.options.topic_of_queue(name)
        # The consumers' receive() is for one thread at a time.
        self._receiving = threading.Lock()
        self._can_pop = True
        self._is_closed = False
        self._consumer: Consumer | None = None

    def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        """Return deliveries as soon as there are any, or none after ``wait`` seconds.

        Tasks that come before their ETA are sent again with the rest of their delay.

        Raises ClosedError after :meth:`close`, and as ``PopConsumer.receive`` does.
        """
        limit = min(max_messages, MAX_RECEIVED)
        with self._receiving:
            try:
                received = self._opened().receive(limit, wait)
            except UnsupportedByBrokerError:
                self._stop_popping()
                received = self._opened().receive(limit, wait)
        return [delivery for message, delivery in received if self._keep_or_settle(message, delivery)]

    def purge(self) -> int:
        """Drop the messages that were not delivered yet, and return their number."""
        with self._receiving:
            count = self._cluster.backlog(self.name)
            if not self._purge_by_popping():
                if isinstance(self._consumer, PushedConsumer):
                    self._consumer.drop_waiting()
                self._cluster.skip_backlog(self.name)
        return count

    def _purge_by_popping(self) -> bool:
        """Receive and acknowledge all messages. Return False for brokers 4.x, which have no pop."""
        if not self._can_pop:
            return False
        try:
            consumer = self._opened()
            assert isinstance(consumer, PoppingConsumer)
            consumer.purge()
        except UnsupportedByBrokerError:
            self._stop_popping()
            return False
        return True

    def close(self) -> None:
        """Leave the group for good. Unsettled messages come again."""
        self._is_closed = True
        if self._consumer is not None:
            self._consumer.close()

    def suspend(self) -> None:
        """Leave messages to other members of the group until :meth:`receive` is called again."""
        with self._receiving:
            if self._consumer is not None:
                self._consumer.suspend()

    def _opened(self) -> Consumer:
        """Return the consumer. The first call creates it, and it joins the group."""
        if self._is_closed:  # by another thread, while a poller goes on
            raise ClosedError("this queue is closed, because it was deleted or its connection was closed")
        if isinstance(self._consumer, PushedConsumer) and not self._consumer.resume():
            self._consumer = None
        if self._consumer is None:
            kind = PoppingConsumer if self._can_pop else PushedConsumer
            self._consumer = kind(self._cluster, self._topic, self._group)
        return self._consumer

    def _stop_popping(self) -> None:
        """Receive through a PushedConsumer from now on, because brokers 4.x have no pop."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._can_pop = False

    def _keep_or_settle(self, message: ReceivedMessage, delivery: Delivery) -> bool:
        """Return whether a worker may get a delivery now. Otherwise postpone it to its ETA, or reject it."""
        is_readable = bool(delivery.payload)
        if is_readable and not remaining_delay(delivery.payload, time.time()):
            return True
        try:
            if is_readable:
                self._cluster.send(self.name, delivery.payload)
                delivery.acknowledge()
            elif message.corruption is not None:  # another worker may have the package for it
                logger.error(
                    "cannot decompress message %s of topic=%s: %s; it is delivered again",
                    message.message_id, message.topic, message.corruption,
                )  # fmt: skip
                delivery.requeue()
            else:
                logger.error(
                    "message %s of topic=%s was not sent by kombu; it becomes a dead letter",
                    message.message_id, message.topic,
                )  # fmt: skip
                delivery.reject()
        except RocketMQError as error:
            logger.warning(
                "could not postpone or reject message %s of topic=%s: %s; it comes again after %g s",
                message.message_id, message.topic, error, self._cluster.options.visibility_timeout,
            )  # fmt: skip
        return False


class ExchangeListener:
    """Reads the topic of an exchange from the moment on in which it is made.

    No consumer group is joined, so nothing is acknowledged, and nothing is left on the brokers afterwards.
    Until :meth:`start`, messages wait in a bounded buffer or on the broker.

    Args:
        transport: delivers the messages, and raises the error that ends the reading in the user's thread.
        queue: the queue that gets the messages.
        exchange: the exchange.
        wants: whether the queue is bound with a routing key.
    """

    def __init__(
        self, transport: Transport, queue: str, exchange: str, *, wants: Callable[[str], bool]
    ) -> None:
        self._transport = transport
        self._queue = queue
        self._exchange = exchange
        self._wants = wants
        self._stream = transport.cluster.listen(exchange)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Deliver messages from now on, in a thread of its own. Repeatable."""
        if self._thread is None:
            name = f"rocketmq-py exchange {self._exchange}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop reading. The thread ends by itself."""
        self._stream.close()

    def _run(self) -> None:
        try:
            for message in self._stream:
                if not self._wants(message.properties.get(ROUTING_KEY, "")):
                    continue
                try:
                    payload = read_payload(message)
                except ValueError:
                    logger.warning(
                        "message %s of topic=%s was not sent by kombu and is skipped",
                        message.message_id, message.topic,
                    )  # fmt: skip
                else:
                    self._transport.put(self._queue, payload)  # it may wait for space
        except ClosedError:
            pass
        except RocketMQError as error:
            self._transport.fail(error)
