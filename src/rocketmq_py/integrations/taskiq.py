"""A Taskiq broker: tasks are messages, which workers pop and acknowledge one by one.

::

    broker = RocketMQBroker("127.0.0.1:9876", topic="Tasks", group="workers")

    @broker.task
    async def bill(order: int) -> None: ...

Workers run with ``taskiq worker module:broker``. Needs RocketMQ brokers of 5.x.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final, TypeVar, Unpack

from rocketmq_py.admin import AlreadyExistsError
from rocketmq_py.aio import Client, PopConsumer, Producer
from rocketmq_py.arguments import Duration, check_above_zero, check_flag, check_integer, optional, seconds
from rocketmq_py.client import ClientCore
from rocketmq_py.client.settings import ClientOptions
from rocketmq_py.codecs import describe_validation_error
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
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import Message
from rocketmq_py.names import check_group, check_topic
from rocketmq_py.remoting.back_off import BackOff

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ImportError:
    raise ConfigurationError("the Taskiq broker needs an extra: install rocketmq-py[taskiq]") from None

__all__ = ["RocketMQBroker"]

BACK_OFF: Final = BackOff(0.5, longest=5.0)
"""Seconds between two attempts to receive tasks."""
UNREACHED_BACK_OFF: Final = BackOff(0.5, longest=1.0)
"""Seconds between two attempts while no broker can be reached. The request itself waits, too."""
_TEMPORARY_ERRORS = (NameServerError, NoQueueError, TopicNotFoundError)
"""Errors of a receive that is tried again, in addition to retriable ones."""

Number = TypeVar("Number", int, float)

logger: Final = LibraryLogger("rocketmq_py.integrations")


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
        address: name servers as ``host:port;host:port``. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        topic: the topic of the tasks.
        group: the consumer group of the workers. A new group begins with the first task of the topic.
        invisible: seconds until an unacknowledged task is delivered again. The worker renews it for a task
            that runs longer.
        max_task_time: seconds after which a task that is still not acknowledged is not renewed any more.
        max_reconsume_times: deliveries after the first one.
        create_topic: whether a worker creates the topic if it is missing. If False, it waits for it.
        queues_per_topic: message queues on each broker of a topic that is created.
        start_deliver_time: send the time of delayed tasks also as ``__STARTDELIVERTIME``, by which some
            managed services deliver. None: if the address is of such a service.
        **options: the settings of a Client.

    Raises:
        ConfigurationError: an option is unknown or outside of its range.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        invisible: Duration = 60.0,
        max_task_time: Duration = 3600.0,
        max_reconsume_times: int = 16,
        create_topic: bool = True,
        queues_per_topic: int = 8,
        start_deliver_time: bool | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        ClientCore(address, **options)  # never opened: it checks the options
        super().__init__()
        self.topic: str = check_topic(topic)
        self.group: str = check_group(group)
        self.invisible: float = check_above_zero(seconds(invisible), "invisible")
        self.max_task_time: float = check_above_zero(seconds(max_task_time), "max_task_time")
        self.max_reconsume_times: int = check_integer(max_reconsume_times, "max_reconsume_times", lowest=0)
        self.create_topic: bool = check_flag(create_topic, "create_topic")
        self.queues_per_topic: int = check_integer(queues_per_topic, "queues_per_topic", lowest=1)
        self.start_deliver_time: bool | None = optional(check_flag, start_deliver_time, "start_deliver_time")
        self._address = address
        self._options = options
        self._client: Client | None = None
        self._producer: Producer | None = None
        self._consumer: PopConsumer | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._has_topic = False
        # A delivery that nothing refers to any more will not be acknowledged, and is not renewed.
        self._deliveries: weakref.WeakSet[_Delivery] = weakref.WeakSet()

    async def startup(self) -> None:
        """Open the connections, and run the startup of the event handlers, middlewares and result backend."""
        self._client = Client(self._address, **self._options)
        await self._client.start()
        self._producer = self._client.producer(self.group, start_deliver_time=self.start_deliver_time)
        await self._producer.start()
        await super().startup()

    async def shutdown(self) -> None:
        """Run the other shutdowns, and close the connections. Tasks without acknowledgement run again.

        The worker waits for running tasks before it calls this: ``--wait-tasks-timeout``, by default without
        a limit. A warning names each task that it has not waited for, and ``cut_off`` of the consumer's
        statistics and metrics counts them.
        """
        try:
            await super().shutdown()
        finally:
            for delivery in self._deliveries:
                delivery.warn_if_unfinished(self.group)
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
        """Yield tasks as they arrive. Creates a missing topic, and retries while brokers are away.

        A message that is not a task becomes a dead letter. A task whose body cannot be decompressed is
        delivered again, because another worker may have the package for it.

        Raises:
            ClosedError: ``startup`` was not called.
            UnsupportedByBrokerError: a broker is older than 5.0.
            RocketMQError: another error that a retry does not fix.
        """
        consumer = await self._open_consumer()
        failures = 0
        while True:
            try:
                # One at a time: Taskiq asks when it has capacity, and the rest is left to other workers.
                messages = await consumer.receive(max_messages=1, invisible=self.invisible)
            except RocketMQError as error:
                if isinstance(error, TopicNotFoundError) and await self._create_topic():
                    continue
                if not (error.retriable or isinstance(error, _TEMPORARY_ERRORS)):
                    raise
                if not failures:
                    logger.warning(
                        "cannot receive tasks, retrying topic=%s group=%s: %s", self.topic, self.group, error
                    )
                failures += 1
                await asyncio.sleep((UNREACHED_BACK_OFF if error._not_reached else BACK_OFF).after(failures))
                continue
            failures = 0
            for message in messages:
                if await self._is_task(consumer, message):
                    yield self._ackable(consumer, message)

    async def _create_topic(self) -> bool:
        """Create the topic, at most once. Return whether it was created, or by another worker meanwhile."""
        if not self.create_topic or self._has_topic or self._client is None:
            return False
        try:
            async with self._client.admin() as admin:
                await admin.topics.create(self.topic, queues=self.queues_per_topic)
        except AlreadyExistsError:
            pass
        except RocketMQError as error:
            logger.warning("cannot create the topic of tasks topic=%s: %s", self.topic, error)
            return False
        self._has_topic = True
        return True

    async def _is_task(self, consumer: PopConsumer, message: PoppedMessage) -> bool:
        """Return whether a message is a task. Taskiq would acknowledge another one."""
        if message.corruption is not None:
            logger.error(
                "cannot decompress a task topic=%s group=%s key=%s: %s; it is delivered again",
                self.topic, self.group, " ".join(message.keys), message.corruption,
            )  # fmt: skip
            return False
        try:
            self.formatter.loads(message.body).parse_labels()
        except Exception as error:  # noqa: BLE001  # another program's message may break a formatter in any way
            logger.error(
                "a message is not a task, and becomes a dead letter topic=%s group=%s message=%s: %s",
                self.topic, self.group, message.message_id, describe_validation_error(error),
            )  # fmt: skip
        else:
            return True
        try:
            await consumer._call(consumer._target._reject, message)
        except RocketMQError as error:
            logger.warning(
                "cannot make a message a dead letter, it is delivered again topic=%s group=%s message=%s: %s",
                self.topic, self.group, message.message_id, error,
            )  # fmt: skip
        return False

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
                self.group, consume_from="earliest", max_reconsume_times=self.max_reconsume_times
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

    def warn_if_unfinished(self, group: str) -> None:
        """Log and count that a task is cut off, unless it was acknowledged."""
        if not self._is_acknowledged:
            message = self._message
            self._consumer._target._counters.of(message.topic).cut_off += 1
            logger.warning(
                "task cut off: group=%s message=%s topic=%s broker=%s queue=%d offset=%d key=%s: it runs "
                "again",
                group, message.message_id, message.topic, message.broker_name, message.queue_id,
                message.queue_offset, " ".join(message.keys),
            )  # fmt: skip

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
