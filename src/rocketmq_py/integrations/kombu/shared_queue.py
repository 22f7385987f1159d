"""Queues that workers share: each message goes to one of them, and is acknowledged."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

import attrs
from kombu.utils.json import loads

from rocketmq_py.consumer import ConsumeFrom, ConsumeLater
from rocketmq_py.errors import RocketMQError, UnsupportedByBrokerError
from rocketmq_py.integrations.kombu.cluster import Cluster
from rocketmq_py.integrations.kombu.delays import remaining
from rocketmq_py.message import ReceivedMessage

MAX_RECEIVED: Final = 32
"""Messages that a broker 5.x gives at once."""
MAX_PUSHED: Final = 64
"""Messages of a queue that one worker can have unacknowledged on brokers 4.x: each occupies a thread."""
RETRY_SOON: Final = ConsumeLater(delay_level=1)

logger: Final = logging.getLogger("rocketmq_py.integrations.kombu")


def _nothing() -> None:
    pass


@attrs.frozen(eq=False)
class Delivery:
    """A message as kombu's virtual transports have it, and what settles it.

    Attributes:
        payload: the message, with a delivery tag of its own.
        acknowledge: makes the message not come again. Raises as ``PopConsumer.ack`` does.
        requeue: makes the message come again soon, to any worker. Raises as ``PopConsumer.change_invisible``
            does.
    """

    payload: dict[str, Any]
    acknowledge: Callable[[], object] = _nothing
    requeue: Callable[[], object] = _nothing


def read_payload(message: ReceivedMessage) -> dict[str, Any]:
    """Return the kombu message in a RocketMQ message.

    Raises:
        ValueError: the message is not one of this transport.
    """
    payload: dict[str, Any] = loads(message.body)
    properties = payload.get("properties") if isinstance(payload, dict) else None
    if not isinstance(properties, dict) or not isinstance(properties.get("delivery_info"), dict):
        raise ValueError("it is not a message of kombu")
    # A tag for each delivery: a message may come again while the worker still has it.
    where = f"{message.broker_name}-{message.queue_id}-{message.queue_offset}"
    properties["delivery_tag"] = f"{where}-{time.monotonic_ns()}"
    properties["delivery_info"]["redelivered"] = message.reconsume_times > 0
    return payload


class Consumer(Protocol):
    """Receives the messages of a queue from brokers 5.x or 4.x."""

    def receive(self, max_messages: int, wait: float) -> list[tuple[ReceivedMessage, Delivery]]:
        """Return messages as soon as there are any, or none after ``wait`` seconds."""

    def close(self) -> None:
        """Leave the group."""


class SharedQueue:
    """A kombu queue in its topic. Members of the connection share one consumer. Thread-safe.

    Args:
        cluster: where the queue is.
        name: the kombu queue.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name: str = name
        self._group = cluster.create_group(name)
        self._topic = cluster.options.topic_of_queue(name)
        # The consumers' receive() is for one thread at a time.
        self._receiving = threading.Lock()
        self._can_pop = True
        self._consumer: Consumer | None = None

    def receive(self, max_messages: int, wait: float) -> list[Delivery]:
        """Return deliveries as soon as there are any, or none after ``wait`` seconds.

        Tasks that come before their ETA are sent again with the rest of their delay.

        Raises as ``PopConsumer.receive`` does.
        """
        limit = min(max_messages, MAX_RECEIVED)
        with self._receiving:
            try:
                received = self._opened().receive(limit, wait)
            except UnsupportedByBrokerError:
                self._stop_popping()
                received = self._opened().receive(limit, wait)
        return [delivery for message, delivery in received if self._is_deliverable(message, delivery)]

    def purge(self) -> int:
        """Drop the messages that were not delivered yet, and return how many they were."""
        with self._receiving:
            count = self._cluster.backlog(self.name)
            try:
                consumer = self._opened() if self._can_pop else self._consumer
                if isinstance(consumer, PoppingConsumer):
                    consumer.purge()
                    return count
            except UnsupportedByBrokerError:
                self._stop_popping()
                consumer = None
            if isinstance(consumer, PushedConsumer):
                consumer.drop_waiting()
            self._cluster.skip_backlog(self.name)
        return count

    def close(self) -> None:
        """Leave the group. Unsettled messages come again."""
        if self._consumer is not None:
            self._consumer.close()

    def _opened(self) -> Consumer:
        """Return the consumer, which joins the group when it is needed first."""
        if self._consumer is None:
            kind = PoppingConsumer if self._can_pop else PushedConsumer
            self._consumer = kind(self._cluster, self._topic, self._group)
        return self._consumer

    def _stop_popping(self) -> None:
        """Consume as brokers 4.x allow it from now on."""
        self.close()
        self._consumer = None
        self._can_pop = False

    def _is_deliverable(self, message: ReceivedMessage, delivery: Delivery) -> bool:
        """Return whether a delivery may be handed out. If not, it is settled here."""
        is_readable = bool(delivery.payload)
        if is_readable and not remaining(delivery.payload, time.time()):
            return True
        try:
            if is_readable:
                self._cluster.send(self.name, delivery.payload)
                delivery.acknowledge()
            else:
                logger.error(
                    "message %s of topic=%s was not sent by kombu; rejecting it until it is a dead letter",
                    message.message_id, message.topic,
                )  # fmt: skip
                delivery.requeue()
        except RocketMQError as error:
            logger.warning(
                "could not postpone or reject message %s of topic=%s: %s; it comes again after %g s",
                message.message_id, message.topic, error, self._cluster.options.visibility_timeout,
            )  # fmt: skip
        return False


def _delivery_of(
    message: ReceivedMessage, acknowledge: Callable[[], object], requeue: Callable[[], object]
) -> Delivery:
    """Return a delivery. Its payload is empty if the message is not one of kombu."""
    try:
        payload = read_payload(message)
    except ValueError:
        payload = {}
    return Delivery(payload, acknowledge, requeue)


class PoppingConsumer:
    """Receives messages from brokers 5.x, each with a visibility timeout."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._options = cluster.options
        self._consumer = cluster.client.pop_consumer(
            group=group,
            consume_from=ConsumeFrom.FIRST,
            max_reconsume_times=cluster.options.max_redeliveries,
        )
        self._consumer.subscribe(topic)

    def receive(self, max_messages: int, wait: float) -> list[tuple[ReceivedMessage, Delivery]]:
        """Return messages as soon as there are any, or none after ``wait`` seconds."""
        consumer = self._consumer
        messages = consumer.receive(
            max_messages=max_messages, invisible=self._options.visibility_timeout, wait=wait
        )
        return [
            (
                message,
                _delivery_of(
                    message, partial(consumer.ack, message), partial(consumer.change_invisible, message, 0.0)
                ),
            )
            for message in messages
        ]

    def purge(self) -> None:
        """Receive and acknowledge until nothing comes."""
        while messages := self._consumer.receive(invisible=self._options.visibility_timeout, wait=0.5):
            self._consumer.ack(*messages)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


@attrs.define(eq=False)
class _Pushed:
    """A message whose handler call waits for its outcome."""

    message: ReceivedMessage
    expires: float
    outcome: ConsumeLater | None = RETRY_SOON
    settled: threading.Event = attrs.field(factory=threading.Event)

    def settle(self, outcome: ConsumeLater | None) -> None:
        """Let the handler call return."""
        self.outcome = outcome
        self.settled.set()


class PushedConsumer:
    """Receives messages from brokers 4.x, which assign queues to members.

    A handler call waits in its thread until the worker has settled the message. The offset that the consumer
    commits is that of the first unsettled message, so a killed worker's messages come again.
    """

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._timeout = cluster.options.visibility_timeout
        self._waiting: SimpleQueue[_Pushed] = SimpleQueue()
        self._unsettled: set[_Pushed] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._consumer = cluster.client.push_consumer(
            group=group,
            consume_from=ConsumeFrom.FIRST,
            concurrency=MAX_PUSHED,
            consume_timeout=self._timeout,
            max_reconsume_times=cluster.options.max_redeliveries,
        )
        self._consumer.subscribe(topic)
        self._run = self._consumer.start(self._handle)

    def _handle(self, message: ReceivedMessage) -> ConsumeLater | None:
        """Wait until a message is settled. Called in a thread for each message."""
        pushed = _Pushed(message, time.monotonic() + self._timeout)
        with self._lock:
            if self._is_closed:
                return RETRY_SOON
            self._unsettled.add(pushed)
        self._waiting.put(pushed)
        # The consumer itself sends the message back when the time is over.
        pushed.settled.wait(self._timeout)
        with self._lock:
            self._unsettled.discard(pushed)
        return pushed.outcome

    def receive(self, max_messages: int, wait: float) -> list[tuple[ReceivedMessage, Delivery]]:
        """Return messages as soon as there are any, or none after ``wait`` seconds."""
        if self._run.done():
            self._run.result()  # raises the error that ended the run
        found: list[_Pushed] = []
        deadline = time.monotonic() + wait
        while len(found) < max_messages:
            try:
                left = 0.0 if found else max(deadline - time.monotonic(), 0.0)
                pushed = self._waiting.get(timeout=left) if left else self._waiting.get_nowait()
            except Empty:
                break
            if time.monotonic() < pushed.expires:  # else it was sent back while it waited here
                found.append(pushed)
        return [
            (
                pushed.message,
                _delivery_of(
                    pushed.message, partial(pushed.settle, None), partial(pushed.settle, RETRY_SOON)
                ),
            )
            for pushed in found
        ]

    def drop_waiting(self) -> None:
        """Acknowledge the messages that :meth:`receive` has not returned yet."""
        while True:
            try:
                self._waiting.get_nowait().settle(None)
            except Empty:
                break

    def close(self) -> None:
        """Leave the group. What is not settled is sent back."""
        with self._lock:
            self._is_closed = True
            unsettled = list(self._unsettled)
        for pushed in unsettled:
            pushed.settle(RETRY_SOON)
        self._consumer.close()
