"""The push consumer, which calls a handler for the messages of a group's topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Unpack

from rocketmq_py.arguments import check_instance, check_instances
from rocketmq_py.callables import check_methods
from rocketmq_py.client.client import Client
from rocketmq_py.client.lifespan import from_any_thread
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.base_consumer import GroupConsumer
from rocketmq_py.consumer.group.membership import LEAVE_SECONDS
from rocketmq_py.consumer.push.base_push_consumer import BasePushConsumer
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.session import Session
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.consumer.read.offset_queries import check_place
from rocketmq_py.consumer.settings import PushConsumerOptions, PushConsumerSettings
from rocketmq_py.errors import ClosedError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic, retry_topic
from rocketmq_py.position import Position, check_position
from rocketmq_py.protocol.subscription import make_subscription
from rocketmq_py.shown_settings import takes_settings

logger: Final = LibraryLogger("rocketmq_py.consumer")


@takes_settings(PushConsumerSettings, ClientSettings)
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
        group: the consumer group. All members must have the same subscriptions.
        assignment_listener: called when queues are assigned to this consumer or revoked.
        **options: the settings of a PushConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or out of range.
    """

    _settings: PushConsumerSettings

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        super().__init__(PushConsumerSettings, client, group=group, options=options)
        self._close_timeout: float = self._settings.close_timeout + LEAVE_SECONDS  # of closing as a whole
        if assignment_listener is not None:
            check_methods(assignment_listener, "assignment_listener", AssignmentListener)
        self._assignment_listener = assignment_listener
        self._created_ms = self._client.now_ms()
        self._paused = False
        if not self._settings.broadcasting:
            retries = retry_topic(self._group)
            self._subscriptions.put(make_subscription(retries, version_ms=self._created_ms))

    @property
    def settings(self) -> PushConsumerSettings:
        """The settings."""
        return self._settings

    @from_any_thread
    def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic. Does nothing if the topic is not subscribed."""
        if check_topic(topic) != retry_topic(self._group):
            super().unsubscribe(topic)

    @property
    @from_any_thread
    def assignment(self) -> list[MessageQueue]:
        """The queues assigned to this member, sorted, with those of the group's retry topic.

        If brokers assign pop to the group, queue -1 stands for all queues of a broker.
        """
        return [] if self._session is None else self._session.assignment()

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
                ``max_reconsume_times`` failures they become dead letters. Any other result counts as a
                failure. Any other exception (SystemExit, KeyboardInterrupt) ends the run, and the messages
                are delivered again.

        Raises:
            ClosedError: the consumer is not open.
            ConfigurationError: ``handle`` has the wrong parameters, or no codec supports the annotated type;
                the consumer is running already; another consumer of this client is in the group, or uses the
                same file for the offsets of a broadcasting group.
            StoreError: that file cannot be read.
            SqlFilterRefusedError: a broker does not accept a subscribed SQL filter. Raised before the group
                is joined or, for a later subscription, while this runs.

        When cancelled, running handlers are cancelled, or abandoned if they run in threads, and their
        messages are delivered again. A warning names each of them. Offsets are committed and the group is
        left before this returns, which takes at most 3 seconds. The consumer may be run again afterwards.
        """
        self._check_open()
        self._check_not_running()
        handle = prepare_handler(handle, self._settings)
        if self._subscribes_nothing:
            logger.warning(
                "no subscription: group=%s: the consumer receives no messages until subscribe() is called",
                self._settings.group,
            )
        await self._run_session(lambda: self._make_session(handle))

    @from_any_thread
    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull no more until :meth:`resume`. Messages already pulled are still processed. Java: ``suspend``.

        Args:
            queues: the queues to pause. Queues that are not assigned to this member are ignored, and a queue
                that is revoked and assigned again is not paused any more. None pauses all queues, including
                those assigned later.
        """
        self._set_paused(True, queues)

    @from_any_thread
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

    async def seek(self, queue: MessageQueue, position: Position | str | int) -> None:
        """Continue an assigned queue at a position. Java: ``updateConsumeOffset``.

        Pulled messages of the queue that are not processed yet are dropped, and the outcomes of running calls
        are ignored. The offset is committed at once or, if that fails, with the next commit. The broker
        corrects an offset outside the queue.

        Args:
            queue: the queue.
            position: any Position, ``"earliest"``, ``"latest"``, or an offset. A time is that of the first
                message stored then or later.

        Raises:
            ClosedError: the consumer is not running.
            ConfigurationError: the position is invalid.
            NoQueueError: the queue is not assigned to this member, or is popped.
            BrokerError, ConnectError, ConnectionLostError, RequestTimeoutError: the broker could not be asked
                for the offset of the position. The consumer continues where it was.
        """
        check_instance(queue, "queue", MessageQueue)
        target = check_place(position, "position", now_ms=self._client.now_ms())
        await self._running_session().seek(queue, target)

    def _make_session(self, handle: Handler) -> Session:
        consume_from = check_position(self._settings.consume_from, "consume_from", now_ms=self._created_ms)
        session = Session(
            self._client, self._settings, self._subscriptions, consume_from, handle,
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
            self._subscriptions.remove(self._client.namespace.popped_topic(topic, self._group))
        if self._session is not None:
            self._session.subscription_changed(topic)

    def _set_paused(self, paused: bool, queues: Iterable[MessageQueue] | None) -> None:
        checked = None if queues is None else set(check_instances(queues, "queues", MessageQueue))
        if checked is None:
            self._paused = paused
        if self._session is not None:
            self._session.pause(paused, checked)
