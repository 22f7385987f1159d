"""The push consumer: messages come to the handler by themselves."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable
from typing import Final, Unpack

import trio

from rocketmq_py.arguments import check_instance, check_instances, check_integer
from rocketmq_py.callables import check_methods
from rocketmq_py.client.client import Client, wall_clock_ms
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.consumer.config import DEFAULT_TIMESTAMP_AGE_MS, PushConsumerConfig, PushConsumerOptions
from rocketmq_py.consumer.group.assignment_listener import AssignmentListener
from rocketmq_py.consumer.group.consumer import GroupConsumer
from rocketmq_py.consumer.push.invoker import Handler, check_handler
from rocketmq_py.consumer.push.session import Session
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.message import MessageQueue
from rocketmq_py.names import check_topic, retry_topic
from rocketmq_py.protocol.subscription import make_subscription

logger: Final = logging.getLogger("rocketmq_py.consumer")


class PushConsumer(GroupConsumer):
    """Consumes as a member of a group, which shares the topics' queues. Java: ``DefaultMQPushConsumer``.

    ::

        async with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            await consumer.run(handle)  # async def handle(message); raise = deliver again

    Each message goes to one member of the group, at least once: again if the handler raises, and again
    if it was handled but its offset could not be committed any more. With ``orderly=True`` the messages of
    each queue are handled one after the other, by one member at a time, and what fails is tried again in
    place. With ``broadcasting=True`` each message goes to every member, and what fails is dropped.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            an open client to share.
        *configs: a PushConsumerConfig, and a ClientConfig unless a client is shared; instead of their fields
            as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        assignment_listener: hears which queues this consumer gets and loses; see AssignmentListener.
        rng: the source of randomness, for tests that replay a run.
        now_ms: the clock that subscriptions are dated with, epoch milliseconds.
        **options: the fields of PushConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown, given twice, or outside of what is allowed.
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
        self._made_ms = now_ms()
        self._session: Session | None = None
        self._is_stopped = False  # before it runs
        self._paused = False
        if not self.config.broadcasting:
            retries = retry_topic(self._group)
            self._subscriptions.put(make_subscription(retries, version_ms=self._made_ms))

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more; nothing happens if it is not subscribed."""
        if check_topic(topic) != retry_topic(self._group):
            super().unsubscribe(topic)

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, sorted: those of its group's retry topic as well.

        Where the group pops, number -1 stands for all queues of a broker.
        """
        return [] if self._session is None else self._session.queues()

    async def run(self, handle: Handler) -> None:
        """Join the group and hand its messages to ``handle``, until :meth:`stop` or until cancelled.

        Messages of different queues, and of the same queue unless ``orderly``, are handled at the same time,
        up to ``concurrency`` of them. A broker or name server that fails does not end this: it is logged,
        and tried again.

        Args:
            handle: called with a ReceivedMessage, or with a list of them if ``batch_size`` is set. An async
                function runs as a task; any other callable in a worker thread. When it returns, the messages
                are done with, unless it returns a ConsumeLater or, in order, a Suspend or Rollback; whatever
                else it returns but None ends the run with a ConfigurationError, and they come again. When it
                raises an Exception, that is logged, and they are sent back to the broker, which delivers
                them to the group again later; in order they are tried again in place after
                ``suspend_current_queue``. After ``max_reconsume_times`` of that they go to the group's dead
                letters. Anything else that it raises (SystemExit, KeyboardInterrupt) ends the run.

        Raises:
            ClosedError: the consumer is not open.
            ConfigurationError: ``handle`` cannot be called with what it would get, or returned what says
                nothing (True, False, a text); it runs already; another consumer of this client is in the
                group, or uses the same file for the offsets of a broadcasting group.
            LocalOffsetsError: that file cannot be read.
            SqlFilterRefusedError: a broker does not accept a SQL filter that is subscribed: before the
                group is joined or, if it was subscribed later, while this runs.

        When cancelled, handlers that are running are cancelled, and their messages are delivered again.
        What was handled is committed, and the group left, before this returns; that takes about a third
        of ``close_timeout`` at the most. A thread cannot be cancelled: handlers in threads have half of
        ``close_timeout`` to end before, then they are left alone. It may be run again afterwards.
        """
        self._check_open()
        if self._session is not None:
            raise ConfigurationError("this PushConsumer runs already")
        check_handler(handle, in_lists=self.config.batch_size is not None)
        if self._subscriptions.topics in ([], [retry_topic(self.config.group)]):
            logger.warning(
                "group %s runs with nothing subscribed: no message comes until subscribe() is called",
                self.config.group,
            )
        if self._is_stopped:
            self._is_stopped = False
            await trio.lowlevel.checkpoint()
            return
        timestamp_ms = self.config.consume_timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = self._made_ms - DEFAULT_TIMESTAMP_AGE_MS
        session = Session(
            self.client, self.config, self._subscriptions, timestamp_ms, handle,
            hooks=self._hooks, statistics=self._statistics, listener=self._assignment_listener,
        )  # fmt: skip
        session.pause(self._paused)
        self._session = session
        try:
            await session.run()
        finally:
            self._session = None

    def stop(self) -> None:
        """End :meth:`run`: nothing more is handed out, and it returns when the handlers have ended.

        They have half of ``close_timeout`` for that, then they are cancelled, or left alone if they are in
        threads. May be called by a handler. Where nothing runs, the next run ends at once: it may be about
        to begin in another task or thread.
        """
        if self._session is None:
            self._is_stopped = True
        else:
            self._session.stop()

    def leave_threads(self) -> None:
        """Have a run that is being cancelled not wait for handlers in threads (the doors' affair)."""
        if self._session is not None:
            self._session.leave_threads()

    def pause(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull no more until :meth:`resume`; what has been pulled is still handled. Java: ``suspend``.

        Args:
            queues: only these of the queues that this member has now; those of others are passed over, and
                one that is lost and comes again is not paused any more. None is all, those that come later
                as well.
        """
        self._set_paused(True, queues)

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Go on after :meth:`pause`, with these queues or with all."""
        self._set_paused(False, queues)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return where consumption goes on in a queue, as it was last committed; None if it never was there.

        What was handled since then follows within ``commit_interval``. When broadcasting it is this member's
        own offset, else the group's. 4.x brokers may say 0 of a queue in which the group never was.

        Raises:
            ClosedError: the consumer is not running.
            BrokerError, NoQueueError, ConnectError, ConnectionLostError, RequestTimeoutError: the queue's
                broker does not say it.
        """
        check_instance(queue, "queue", MessageQueue)
        return await self._running().committed(queue)

    def _consumer_queues(self) -> Session | None:
        return self._session

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from ``offset`` in one of this member's queues. Java: ``updateConsumeOffset``.

        What has been pulled of the queue and is not handled yet is forgotten, and what is being handled
        counts no more. The offset is committed at once or, if that fails, with the next commit. One that the
        queue does not have is corrected by the broker.

        Raises:
            ClosedError: the consumer is not running.
            ConfigurationError: the offset is negative.
            NoQueueError: the queue is not one of this member's now.
        """
        check_instance(queue, "queue", MessageQueue)
        offset = check_integer(offset, "offset", lowest=0)
        await self._running().seek(queue, offset)

    def _running(self) -> Session:
        if self._session is None:
            raise ClosedError("this PushConsumer is not running")
        return self._session

    def _subscription_changed(self, topic: str) -> None:
        if self._session is not None:
            self._session.subscription_changed(topic)

    def _set_paused(self, paused: bool, queues: Iterable[MessageQueue] | None) -> None:
        checked = None if queues is None else set(check_instances(queues, "queues", MessageQueue))
        if checked is None:
            self._paused = paused
        if self._session is not None:
            self._session.pause(paused, checked)

    async def _close(self) -> None:
        session = self._session
        if session is not None:
            session.stop()
            await session.ended.wait()
        await super()._close()
