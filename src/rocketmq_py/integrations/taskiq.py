"""A Taskiq broker: tasks are messages, which workers pop and acknowledge one by one.

::

    broker = RocketMQBroker("127.0.0.1:9876", topic="Tasks", group="workers")

    @broker.task
    async def bill(order: int) -> None: ...

Workers run with ``taskiq worker module:broker``. Needs RocketMQ brokers of 5.x.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, TypeVar, Unpack

from rocketmq_py.aio import Client, PopConsumer, Producer
from rocketmq_py.arguments import check_above_zero, check_integer
from rocketmq_py.client import Client as TrioClient
from rocketmq_py.client.config import ClientOptions
from rocketmq_py.consumer import PoppedMessage
from rocketmq_py.errors import (
    BrokerError,
    ClosedError,
    ConfigurationError,
    InvalidMessageError,
    NameServerError,
    NoQueueError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_py.message import Message
from rocketmq_py.names import check_group, check_topic

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ImportError:
    raise ConfigurationError("the Taskiq broker needs an extra: install rocketmq-py[taskiq]") from None

__all__ = ["RocketMQBroker"]

FIRST_RETRY_DELAY = 0.5
"""Seconds before the second attempt to receive tasks while brokers are away. Each further delay doubles."""
MAX_RETRY_DELAY = 5.0
"""The longest delay between two attempts, in seconds."""
_TEMPORARY_ERRORS = (NameServerError, NoQueueError, TopicNotFoundError)
"""Errors of a receive that is tried again, in addition to retriable ones."""

Number = TypeVar("Number", int, float)

logger: Final = logging.getLogger("rocketmq_py.integrations")


class RocketMQBroker(AsyncBroker):
    """Sends tasks to a topic, and receives them as a member of a consumer group.

    A worker takes a task only when it can run it, and acknowledges it when Taskiq says so (``--ack-type``,
    the label ``ack_type``, ``Context.ack``). While a task runs, its message is kept from other workers. A
    task that is not acknowledged runs again ``invisible`` seconds after its worker has died or the task has
    ended. It also runs again if it takes longer than ``max_task_time`` and ``invisible`` together. After
    ``max_reconsume_times`` it goes to the dead letters of the group.

    Labels of a task:

    - ``delay``: seconds until the task is delivered, also as SmartRetryMiddleware sets it.
    - ``priority``: the priority in a topic of type PRIORITY, on brokers from 5.4.0 on. Not with ``delay``.

    The task's id is the message's key.

    Args:
        name_servers: name servers as ``host:port;host:port``. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        topic: the topic of the tasks.
        group: the consumer group of the workers. A new group begins with the first task of the topic.
        invisible: seconds until an unacknowledged task is delivered again. The worker renews it for a task
            that runs longer.
        max_task_time: seconds after which a task that is still not acknowledged is not renewed any more.
        max_reconsume_times: deliveries after the first one.
        **options: the fields of ClientConfig.

    Raises:
        ConfigurationError: an option is unknown or outside of its range.
    """

    def __init__(
        self,
        name_servers: str | None = None,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        invisible: float = 60.0,
        max_task_time: float = 3600.0,
        max_reconsume_times: int = 16,
        **options: Unpack[ClientOptions],
    ) -> None:
        TrioClient(name_servers, **options)  # never opened: it checks the options
        super().__init__()
        self.topic: str = check_topic(topic)
        self.group: str = check_group(group)
        self.invisible: float = check_above_zero(invisible, "invisible")
        self.max_task_time: float = check_above_zero(max_task_time, "max_task_time")
        self.max_reconsume_times: int = check_integer(max_reconsume_times, "max_reconsume_times", lowest=0)
        self._name_servers = name_servers
        self._options = options
        self._client: Client | None = None
        self._producer: Producer | None = None
        self._consumer: PopConsumer | None = None
        self._renewal: asyncio.Task[None] | None = None
        # A delivery that nothing refers to any more will not be acknowledged, and is not renewed.
        self._deliveries: weakref.WeakSet[_Delivery] = weakref.WeakSet()

    async def startup(self) -> None:
        """Open the connections, and run the startup of the event handlers, middlewares and result backend."""
        self._client = Client(self._name_servers, **self._options)
        await self._client.start()
        self._producer = self._client.producer(self.group)
        await self._producer.start()
        await super().startup()

    async def shutdown(self) -> None:
        """Run the other shutdowns, and close the connections. Tasks without acknowledgement run again."""
        try:
            await super().shutdown()
        finally:
            if self._renewal is not None:
                self._renewal.cancel()
            client, self._client, self._producer, self._consumer = self._client, None, None, None
            if client is not None:
                await client.aclose()

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. Returns when a broker has stored it.

        Raises:
            ClosedError: ``startup`` was not called.
            InvalidMessageError: the label ``delay`` or ``priority`` is invalid.
            RocketMQError: as the producer's ``send``.
        """
        if self._producer is None:
            raise ClosedError("this Taskiq broker is not open; await broker.startup() first")
        await self._producer.send(
            Message(
                self.topic,
                message.message,
                keys=message.task_id,
                delay=_number(message, "delay", float) or 0.0,
                priority=_number(message, "priority", int),
            )
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield tasks as they arrive. Waits and retries while brokers are away or the topic does not exist.

        A task whose body cannot be decompressed is not acknowledged. It becomes a dead letter in the end.

        Raises:
            ClosedError: ``startup`` was not called.
            UnsupportedByBrokerError: a broker is older than 5.0.
            RocketMQError: another error that a retry does not fix.
        """
        consumer = await self._open_consumer()
        delay = FIRST_RETRY_DELAY
        while True:
            try:
                # One at a time: Taskiq asks when it has capacity, and the rest is left to other workers.
                messages = await consumer.receive(max_messages=1, invisible=self.invisible)
            except RocketMQError as error:
                if not (error.retriable or isinstance(error, _TEMPORARY_ERRORS)):
                    raise
                if delay == FIRST_RETRY_DELAY:
                    logger.warning(
                        "cannot receive tasks, retrying topic=%s group=%s: %s", self.topic, self.group, error
                    )
                await asyncio.sleep(delay)
                delay = min(2 * delay, MAX_RETRY_DELAY)
                continue
            delay = FIRST_RETRY_DELAY
            for message in messages:
                if message.corruption is None:
                    yield self._ackable(consumer, message)
                else:  # Taskiq would acknowledge it as a message that is no task
                    logger.error(
                        "cannot decompress a task topic=%s group=%s key=%s: %s; it is delivered again",
                        self.topic, self.group, " ".join(message.keys), message.corruption,
                    )  # fmt: skip

    def _ackable(self, consumer: PopConsumer, message: PoppedMessage) -> AckableMessage:
        delivery = _Delivery(consumer, message, time.monotonic() + self.max_task_time)
        self._deliveries.add(delivery)
        return AckableMessage(data=message.body, ack=delivery.ack)

    async def _open_consumer(self) -> PopConsumer:
        """Open the consumer, once. It stays open until ``shutdown``: tasks are acknowledged until then."""
        if self._client is None:
            raise ClosedError("this Taskiq broker is not open; await broker.startup() first")
        if self._consumer is None:
            consumer = self._client.pop_consumer(
                self.group, consume_from="first", max_reconsume_times=self.max_reconsume_times
            )
            await consumer.start()
            consumer.subscribe(self.topic)
            self._consumer = consumer
            self._renewal = asyncio.create_task(self._renew_deliveries())
        return self._consumer

    async def _renew_deliveries(self) -> None:
        """Keep the messages of running tasks from other workers."""
        while True:
            await asyncio.sleep(self.invisible / 3)
            renewals = [delivery.renew(self.invisible) for delivery in self._deliveries]
            await asyncio.gather(*renewals)


class _Delivery:
    """A message that this worker has taken.

    Args:
        consumer: the consumer that took it.
        message: the message.
        deadline: the monotonic time until which it is renewed.
    """

    def __init__(self, consumer: PopConsumer, message: PoppedMessage, deadline: float) -> None:
        self._consumer = consumer
        self._message = message
        self._deadline = deadline
        self._lock = asyncio.Lock()  # each renewal replaces the receipt that an acknowledgement needs
        self._is_acknowledged = False

    async def ack(self) -> None:
        """Acknowledge the message. Raises as ``PopConsumer.ack``."""
        async with self._lock:
            await self._consumer.ack(self._message)
            self._is_acknowledged = True

    async def renew(self, seconds: float) -> None:
        """Keep an unacknowledged message for ``seconds`` from now. A failure is logged."""
        async with self._lock:
            if self._is_acknowledged or time.monotonic() > self._deadline:
                return
            try:
                self._message = await self._consumer.change_invisible(self._message, seconds)
            except RocketMQError as error:
                if isinstance(error, BrokerError) and not error.retriable:
                    self._deadline = 0.0  # the broker no longer has this delivery
                logger.warning(
                    "cannot keep the task that runs key=%s: %s", " ".join(self._message.keys), error
                )


def _number(message: BrokerMessage, label: str, kind: Callable[[Any], Number]) -> Number | None:
    """Return the value of a label, which Taskiq passes as text. Raises InvalidMessageError."""
    value = message.labels.get(label)
    if value is None:
        return None
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise InvalidMessageError(
            f"task {message.task_name}: the label {label} is {value!r}; it must be a number"
        ) from None
