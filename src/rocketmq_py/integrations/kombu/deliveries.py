"""Messages of kombu in messages of RocketMQ, and how brokers deliver them.

Brokers 5.x deliver by pop (:class:`PoppingConsumer`). Brokers 4.x assign each of a topic's queues to one
member of the group (:class:`PushedConsumer`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

import attrs
from kombu.transport import virtual
from kombu.utils.json import loads

from rocketmq_py.consumer import ConsumeLater
from rocketmq_py.consumer.group.handler_results import DEAD_LETTER
from rocketmq_py.integrations.kombu.cluster import Cluster
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

MAX_RECEIVED: Final = 32
"""Messages that a broker 5.x gives at once."""

logger: Final = LibraryLogger("rocketmq_py.integrations.kombu")


def _nothing() -> None:
    pass


@attrs.frozen(eq=False)
class Delivery:
    """A message in the form of kombu's virtual transports, with functions that settle it.

    Attributes:
        payload: the message, with a delivery tag of its own.
        acknowledge: makes the message not come again. Raises as ``PopConsumer.ack`` does.
        requeue: makes the message come again soon, to any worker. Raises as ``PopConsumer.change_invisible``
            does.
        reject: makes the message a dead letter. Raises as ``PopConsumer.ack`` does.
    """

    payload: dict[str, Any]
    acknowledge: Callable[[], object] = _nothing
    requeue: Callable[[], object] = _nothing
    reject: Callable[[], object] = _nothing


def read_payload(message: ReceivedMessage) -> dict[str, Any]:
    """Return the kombu message in a RocketMQ message.

    Raises:
        ValueError: the message is not one of this transport.
    """
    try:
        payload: dict[str, Any] = loads(message.body)
        properties = payload["properties"]
        properties["delivery_info"]["redelivered"] = message.reconsume_times > 0
        encoding = properties.get("body_encoding")
        if encoding and encoding.lower() != "utf-8":
            virtual.Channel.codecs[encoding].decode(payload["body"])  # it raises here, not in the worker
    except Exception as error:  # another program's message may break kombu's decoders in any way
        raise ValueError("it is not a message of kombu") from error
    # A tag for each delivery: a message may come again while the worker still has it.
    where = f"{message.broker_name}-{message.queue_id}-{message.queue_offset}"
    properties["delivery_tag"] = f"{where}-{time.monotonic_ns()}"
    return payload


def delivery_of(
    message: ReceivedMessage,
    expires: float,
    acknowledge: Callable[[], object],
    requeue: Callable[[], object],
    reject: Callable[[], object],
) -> Delivery:
    """Return a delivery. Its payload is empty if the message is not one of kombu.

    A warning is logged if it is acknowledged after ``expires``, a time of the monotonic clock.
    """
    try:
        payload = read_payload(message)
    except ValueError:
        payload = {}
    return Delivery(payload, partial(_acknowledge, message, expires, acknowledge), requeue, reject)


def _acknowledge(message: ReceivedMessage, expires: float, acknowledge: Callable[[], object]) -> None:
    late = time.monotonic() - expires
    if late > 0:  # brokers accept it without an error
        logger.warning(
            "acknowledged %.1f s after the visibility timeout: message=%s topic=%s key=%s: it is delivered "
            "again. Raise visibility_timeout, or prefetch less",
            late, message.message_id, message.topic, " ".join(message.keys),
        )  # fmt: skip
    acknowledge()


class Consumer(Protocol):
    """Receives the messages of a queue from brokers 5.x or 4.x."""

    def receive(self, max_messages: int, wait: float) -> list[tuple[ReceivedMessage, Delivery]]:
        """Return messages as soon as there are any, or none after ``wait`` seconds."""

    def suspend(self) -> None:
        """Leave messages to other members until :meth:`receive` is called again.

        Messages that were received can be settled.
        """

    def close(self) -> None:
        """Leave the group."""


class PoppingConsumer:
    """Receives messages from brokers 5.x, each with a visibility timeout."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._options = cluster.options
        self._consumer = cluster.client.pop_consumer(
            group=group,
            consume_from="earliest",
            max_reconsume_times=cluster.options.max_reconsume_times,
        )
        self._consumer.subscribe(topic)

    def receive(self, max_messages: int, wait: float) -> list[tuple[ReceivedMessage, Delivery]]:
        """Return messages as soon as there are any, or none after ``wait`` seconds."""
        consumer = self._consumer
        messages = consumer.receive(
            max_messages=max_messages, invisible=self._options.visibility_timeout, wait=wait
        )
        expires = time.monotonic() + self._options.visibility_timeout
        return [
            (
                message,
                delivery_of(
                    message,
                    expires,
                    partial(consumer.ack, message),
                    partial(consumer.change_invisible, message, 0.0),
                    partial(consumer._call, consumer._target._reject, message),
                ),
            )
            for message in messages
        ]

    def suspend(self) -> None:
        """Do nothing: messages that are not asked for go to other members."""

    def purge(self) -> None:
        """Receive and acknowledge until nothing comes."""
        while messages := self._consumer.receive(invisible=self._options.visibility_timeout, wait=0.5):
            self._consumer.ack(*messages)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


MAX_PUSHED: Final = 64
"""Messages of a queue that one worker can have unacknowledged: each occupies a thread."""
RETRY_SOON: Final = ConsumeLater(delay_level=1)


@attrs.define(eq=False)
class _Pushed:
    """A message whose handler call waits for its outcome.

    Attributes:
        message: the message.
        expires: when it is sent back, on the monotonic clock.
        outcome: what the handler call returns.
        settled: set when it may return.
        is_received: whether :meth:`PushedConsumer.receive` has returned the message.
    """

    message: ReceivedMessage
    expires: float
    outcome: ConsumeLater | None = RETRY_SOON
    settled: threading.Event = attrs.field(factory=threading.Event)
    is_received: bool = False


class PushedConsumer:
    """Receives messages from brokers 4.x.

    A handler call waits in its thread until the user has settled the message. The offset that the consumer
    commits is that of the first unsettled message, so a killed worker's messages come again.

    Args:
        cluster: where the topic is.
        topic: the topic.
        group: the consumer group.
    """

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._timeout = cluster.options.visibility_timeout
        self._waiting: SimpleQueue[_Pushed] = SimpleQueue()
        self._changed = threading.Condition()  # guards the following
        self._unsettled: set[_Pushed] = set()
        self._is_closed = False
        self._leaving: threading.Thread | None = None
        self._consumer = cluster.client.push_consumer(
            group=group,
            consume_from="earliest",
            concurrency=MAX_PUSHED,
            consume_timeout=math.inf,  # the handler itself returns in time
            max_reconsume_times=cluster.options.max_reconsume_times,
        )
        self._consumer.subscribe(topic)
        self._run = self._consumer.start(self._handle)

    def _handle(self, message: ReceivedMessage) -> ConsumeLater | None:
        """Wait until a message is settled. Called in a thread for each message."""
        pushed = _Pushed(message, time.monotonic() + self._timeout)
        with self._changed:
            if self._is_closed:
                return RETRY_SOON
            self._unsettled.add(pushed)
        self._waiting.put(pushed)
        pushed.settled.wait(self._timeout)
        with self._changed:
            self._unsettled.discard(pushed)
            self._changed.notify_all()
            return pushed.outcome

    def _settle(self, pushed: _Pushed, outcome: ConsumeLater | None) -> None:
        """Let a handler call return."""
        with self._changed:
            pushed.outcome = outcome
            pushed.settled.set()

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
            with self._changed:
                if not self._is_closed and time.monotonic() < pushed.expires:  # else it is sent back
                    pushed.is_received = True
                    found.append(pushed)
        return [
            (
                pushed.message,
                delivery_of(
                    pushed.message,
                    pushed.expires,
                    partial(self._settle, pushed, None),
                    partial(self._settle, pushed, RETRY_SOON),
                    partial(self._settle, pushed, ConsumeLater(DEAD_LETTER)),
                ),
            )
            for pushed in found
        ]

    def drop_waiting(self) -> None:
        """Acknowledge the messages that :meth:`receive` has not returned yet."""
        while True:
            try:
                self._settle(self._waiting.get_nowait(), None)
            except Empty:
                break

    def suspend(self) -> None:
        """Pull no more, and leave the group when the user has settled all messages that were received.

        Until then the group's other members do not get the queues of this one.
        """
        with self._changed:
            if self._leaving is not None or self._is_closed:
                return
            self._leaving = threading.Thread(
                target=self._leave, name="rocketmq-py kombu leaving", daemon=True
            )
            self._leaving.start()
        self._consumer.pause()

    def resume(self) -> bool:
        """Go on after :meth:`suspend`. Returns False if the consumer has left the group: make another one."""
        with self._changed:
            leaving, self._leaving = self._leaving, None
            self._changed.notify_all()
        if leaving is not None:
            leaving.join()
            if not self._is_closed:
                self._consumer.resume()
        return not self._is_closed

    def _leave(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._leaving is None or not self._has_received())
            if self._leaving is None:
                return
        self.close()

    def _has_received(self) -> bool:
        return any(pushed.is_received for pushed in self._unsettled)

    def close(self) -> None:
        """Leave the group. Messages that are not settled are sent back."""
        with self._changed:
            self._is_closed = True
            for pushed in self._unsettled:
                pushed.settled.set()
        self._consumer.close()
