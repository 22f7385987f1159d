"""Messages of kombu in messages of RocketMQ, and how brokers 5.x deliver them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

import attrs
from kombu.transport import virtual
from kombu.utils.json import loads

from rocketmq_py.integrations.kombu.cluster import Cluster
from rocketmq_py.message import ReceivedMessage

MAX_RECEIVED: Final = 32
"""Messages that a broker 5.x gives at once."""


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
    acknowledge: Callable[[], object],
    requeue: Callable[[], object],
    reject: Callable[[], object],
) -> Delivery:
    """Return a delivery. Its payload is empty if the message is not one of kombu."""
    try:
        payload = read_payload(message)
    except ValueError:
        payload = {}
    return Delivery(payload, acknowledge, requeue, reject)


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
        return [
            (
                message,
                delivery_of(
                    message,
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
