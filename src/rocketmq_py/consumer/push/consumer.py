"""The push consumer, which calls a handler for the messages of a group's topics."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from typing import Final, Unpack

from rocketmq_py.arguments import check_instance, check_instances, check_integer
from rocketmq_py.callables import check_methods
from rocketmq_py.client.client import Client, wall_clock_ms
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.consumer.config import DEFAULT_TIMESTAMP_AGE_MS, PushConsumerConfig, PushConsumerOptions
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.base_consumer import GroupConsumer
from rocketmq_py.consumer.group.subscriptions import pop_retry_topic_of
from rocketmq_py.consumer.push.base_push_consumer import BasePushConsumer
from rocketmq_py.consumer.push.invoker import Handler
from rocketmq_py.consumer.push.session import Session
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.errors import ClosedError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic, retry_topic
from rocketmq_py.protocol.subscription import make_subscription

logger: Final = logging.getLogger("rocketmq_py.consumer")


class PushConsumer(BasePushConsumer[Session], GroupConsumer):
    """Consumes topics as a member of a group and calls a handler. Java: ``DefaultMQPushConsumer``.

    ::

        async with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            await consumer.run(handle)  # async def handle(message); raise = deliver again

    Each message is delivered to one member of the group, at least once. It is delivered again if the handler
    raises, and if its offset could not be committed after it was processed. With ``orderly=True`` the
    messages of each queue are processed one after the other by one member at a time, and failed messages are
    retried in place. With ``broadcasting=True`` each message is delivered to every member, and failed
    messages are dropped.

    Args:
        client: name servers as ``host:port;host:port``, or an open client to share. None reads NAMESRV_ADDR,
            or uses 127.0.0.1:9876 if that is not set.
        *configs: a PushConsumerConfig, and a ClientConfig unless a client is shared. Options may set
            fields that these leave at their defaults.
        group: the consumer group. All its members must subscribe alike.
        assignment_listener: called when queues are assigned to this consumer or revoked.
        rng: the source of randomness, for reproducible tests.
        now_ms: the clock for the versions of subscriptions, epoch milliseconds.
        **options: the fields of PushConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or out of range.
    """

    config: PushConsumerConfig

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: PushConsumerConfig | ClientConfig,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        rng: random.Random | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        super().__init__(
            PushConsumerConfig, client, configs=configs, group=group, options=options, rng=rng, now_ms=now_ms
        )
        if assignment_listener is not None:
            check_methods(assignment_listener, "assignment_listener", AssignmentListener)
        self._assignment_listener = assignment_listener
        self._created_ms = now_ms()
        self._paused = False
        if not self.config.broadcasting:
            retries = retry_topic(self._group)
            self._subscriptions.put(make_subscription(retries, version_ms=self._created_ms))

    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic. Does nothing if the topic is not subscribed."""
        if check_topic(topic) != retry_topic(self._group):
            super().unsubscribe(topic)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues assigned to this member, sorted, with those of the group's retry topic.

        If brokers assign pop to the group, queue -1 stands for all queues of a broker.
        """
        return [] if self._session is None else self._session.queues()

    async def run(self, handle: Handler) -> None:
        """Join the group and call ``handle`` with its messages, until :meth:`stop` or until cancelled.

        Up to ``concurrency`` calls run at the same time. With ``orderly``, calls for the same queue do not
        overlap. Failures of brokers and name servers are logged and retried.

        Args:
            handle: called with a ReceivedMessage, or with a list of them if ``batch_size`` is set. If its
                parameter is annotated with another type (``def handle(order: Order)``, or ``list[Order]``),
                it is called with the decoded body, and a second parameter receives the message. A body that
                cannot be decoded becomes a dead letter with the reason. See ``rocketmq_py.codecs``. An async
                function runs as a task, any other callable in a worker thread. Returning None acknowledges
                the messages, as does CommitOffset with ``orderly``. Returning a ConsumeLater or, with
                ``orderly``, a Suspend or RollbackOffset has them delivered again. Raising an Exception is
                logged, and the messages are sent back to the broker, which delivers them to the group again
                later. With ``orderly`` they are retried in place after ``suspend_current_queue``. After
                ``max_reconsume_times`` failures they become dead letters. A ConsumeResult that this consumer
                does not support counts as a failure. A result that is neither None nor a ConsumeResult, and
                any other exception (SystemExit, KeyboardInterrupt), ends the run, and the messages are
                delivered again.

        Raises:
            ClosedError: the consumer is not open.
            ConfigurationError: ``handle`` has the wrong parameters, no codec supports the annotated type, or
                ``handle`` returned neither None nor a ConsumeResult; the consumer is running already; another
                consumer of this client is in the group, or uses the same file for the offsets of a
                broadcasting group.
            LocalOffsetsError: that file cannot be read.
            SqlFilterRefusedError: a broker does not accept a subscribed SQL filter. Raised before the group
                is joined or, for a later subscription, while this runs.

        When cancelled, running handlers are cancelled, and their messages are delivered again. Offsets are
        committed and the group is left before this returns, which takes up to about a third of
        ``close_timeout``. Threads cannot be cancelled: handlers in threads have half of ``close_timeout`` to
        end, then they are abandoned. The consumer may be run again afterwards.
        """
        self._check_open()
        self._check_not_running()
        handle = prepare_handler(handle, self.config)
        if self._subscribes_nothing:
            logger.warning(
                "no subscription: group=%s: the consumer receives no messages until subscribe() is called",
                self.config.group,
            )
        await self._run_session(lambda: self._make_session(handle))

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull no more until :meth:`resume`. Messages already pulled are still processed. Java: ``suspend``.

        Args:
            queues: the queues to pause. Queues that are not assigned to this member are ignored, and a queue
                that is revoked and assigned again is not paused any more. None pauses all queues, including
                those assigned later.
        """
        self._set_paused(True, queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Resume these queues, or all, after :meth:`pause`."""
        self._set_paused(False, queues)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the committed offset of a queue, or None if no offset was ever committed.

        Processed messages are committed within ``commit_interval``. With ``broadcasting`` this is the offset
        of this member, otherwise that of the group. 4.x brokers may return 0 for a queue without a committed
        offset.

        Raises:
            ClosedError: the consumer is not running.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: the request to
                the queue's broker failed.
        """
        check_instance(queue, "queue", MessageQueue)
        return await self._running_session().committed(queue)

    def _reasons_not_to_consume(self) -> list[str]:
        if self._session is not None and self._subscribes_nothing:
            return ["no topic is subscribed"]
        return self._reasons_not_running()

    @property
    def _subscribes_nothing(self) -> bool:
        return self._subscriptions.topics in ([], [retry_topic(self._group)])

    def _consumer_queues(self) -> Session | None:
        return self._session

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue from ``offset`` in an assigned queue. Java: ``updateConsumeOffset``.

        Pulled messages of the queue that are not processed yet are dropped, and the outcomes of running calls
        are ignored. The offset is committed at once or, if that fails, with the next commit. The broker
        corrects an offset outside the queue.

        Raises:
            ClosedError: the consumer is not running.
            ConfigurationError: the offset is negative.
            NoQueueError: the queue is not assigned to this member, or is popped.
        """
        check_instance(queue, "queue", MessageQueue)
        offset = check_integer(offset, "offset", lowest=0)
        await self._running_session().seek(queue, offset)

    def _make_session(self, handle: Handler) -> Session:
        timestamp_ms = self.config.consume_timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = self._created_ms - DEFAULT_TIMESTAMP_AGE_MS
        session = Session(
            self.client, self.config, self._subscriptions, timestamp_ms, handle,
            hooks=self._hooks, counters=self._counters, listener=self._assignment_listener,
        )  # fmt: skip
        session.pause(self._paused)
        return session

    def _running_session(self) -> Session:
        if self._session is None:
            raise ClosedError("this PushConsumer is not running")
        return self._session

    def _subscription_changed(self, topic: str) -> None:
        if topic not in self._subscriptions:
            self._subscriptions.remove(pop_retry_topic_of(topic, self._group, self.client.namespace))
        if self._session is not None:
            self._session.subscription_changed(topic)

    def _set_paused(self, paused: bool, queues: Iterable[MessageQueue] | None) -> None:
        checked = None if queues is None else set(check_instances(queues, "queues", MessageQueue))
        if checked is None:
            self._paused = paused
        if self._session is not None:
            self._session.pause(paused, checked)
