"""Push, lite pull, pop and lite topic consumers for threads."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from rocketmq_py import consumer
from rocketmq_py.arguments import Duration
from rocketmq_py.blocking.generated_methods import (
    LitePullConsumerMethods,
    LiteTopicConsumerMethods,
    LiteTopicPushConsumerMethods,
    PopConsumerMethods,
    PushConsumerMethods,
)
from rocketmq_py.blocking.hosted import Hosted
from rocketmq_py.callables import check_methods, is_async
from rocketmq_py.client.settings import ClientSettings
from rocketmq_py.consumer import (
    AssignmentListener,
    ConsumerHook,
    ConsumerStatistics,
    LitePullConsumerOptions,
    LiteTopicConsumerOptions,
    LiteTopicPushConsumerOptions,
    PopConsumerOptions,
    PoppedMessage,
    PushConsumerOptions,
)
from rocketmq_py.consumer.lite.settings import LiteTopicConsumerSettings, LiteTopicPushConsumerSettings
from rocketmq_py.consumer.lite_pull.consumer import DEFAULT_MAX_MESSAGES, is_leaving
from rocketmq_py.consumer.lite_pull.settings import LitePullConsumerSettings
from rocketmq_py.consumer.pop.receiver import MAX_MESSAGES
from rocketmq_py.consumer.pop.settings import PopConsumerSettings
from rocketmq_py.consumer.push.handler import Handler
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.consumer.settings import PushConsumerSettings
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.handoff.calls import ThreadCall
from rocketmq_py.handoff.hosted import Target, with_sections_of
from rocketmq_py.handoff.undelivered_messages import Fetch, Undelivered, UndeliveredPolls
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import MessageQueue, ReceivedMessage
from rocketmq_py.shown_settings import takes_settings

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client

logger: Final = LibraryLogger("rocketmq_py.blocking")

Item = TypeVar("Item")
Result = TypeVar("Result")


class BaseConsumer(Hosted[Target]):
    """The base class of the consumers."""

    def add_hook(self, hook: ConsumerHook) -> Callable[[], None]:
        """Add a hook that the trio thread calls for each batch of messages. Returns its remover."""
        target: Any = self._target
        remove: Callable[[], None] = self._call_plain(target.add_hook, hook)
        return remove

    def _check_listener(self, listener: AssignmentListener | None) -> None:
        """Check that the methods of a listener are plain ones, which worker threads can call."""
        if listener is not None:
            check_methods(listener, "assignment_listener", AssignmentListener)
            if is_async(listener.on_assigned) or is_async(listener.on_revoked):
                raise ConfigurationError("assignment_listener has plain methods here, no async ones")

    def _fetch(
        self, undelivered: Undelivered[Item], function: Callable[[], Awaitable[list[Item]]]
    ) -> list[Item]:
        """Return the messages that an async function fetches in the trio thread.

        If interrupted, the next calls return them.
        """
        fetch = Fetch(undelivered, function)
        try:
            self._call(fetch.run)
            return fetch.result()
        except BaseException:
            fetch.interrupt()
            raise

    @property
    def statistics(self) -> ConsumerStatistics:
        """The counters since it was opened, and the state of each queue."""
        statistics: ConsumerStatistics = self._get("statistics")
        return statistics


class ReceivingConsumer(BaseConsumer[Target]):
    """The base class of PopConsumer and LiteTopicConsumer: the program receives and acknowledges messages."""

    @with_sections_of(consumer.PopConsumer.holding)
    def holding(self, message: PoppedMessage, *, invisible: Duration = 60.0) -> AbstractContextManager[None]:
        """Keep a message invisible for as long as the ``with`` block runs, then acknowledge it.

        The trio thread renews the invisible time, whatever the calling thread does.
        """
        target: Any = self._target
        return self._entered(target.holding(message, invisible=invisible))


class HandlerConsumer(BaseConsumer[Target]):
    """The base class of the consumers that call a handler."""

    @property
    def _any_target(self) -> Any:
        return self._target

    def run(self, handle: Handler) -> None:
        """Join the group and call ``handle`` for its messages, until :meth:`stop`.

        Ctrl-C, or another exception in the waiting thread, stops the run and is raised after its end. A
        second one does not wait for handlers.

        Args:
            handle: a plain function, which runs in the consumer's own threads. It is called with a
                ReceivedMessage, or with a list of them if ``batch_size`` is set. If its parameter is
                annotated with another type, it is called with the decoded body, and a second parameter
                receives the message. Returning None acknowledges the messages. An exception has them
                delivered again, and they become dead letters after ``max_reconsume_times`` failures.
                Returning a ConsumeLater, or a Suspend for ordered messages and lite topics, has them
                delivered again after a chosen time.

        Raises:
            ClosedError: the consumer is not open.
            ConfigurationError: ``handle`` is async, which needs an event loop, has the wrong parameters or
                returned another value, the consumer is running already, or another consumer of this client
                is in the group.
            StoreError: the offset file of a broadcasting consumer cannot be read.
            SqlFilterRefusedError: a broker does not accept a subscribed SQL filter.
        """
        if callable(handle):
            handle = prepare_handler(handle, self._any_target.settings)
        # Only now: a wrapper such as Deduplicate is async only after its preparation.
        if not callable(handle) or is_async(handle):
            raise ConfigurationError(
                "handle must be a plain function that takes a message; async handlers need rocketmq_py.aio"
            )
        self._check_open()
        self._thread.check_may_wait()
        self._run_until_stopped(ThreadCall(self._thread, partial(self._any_target.run, handle)))

    def start(self, handle: Handler) -> Future[None]:
        """Call :meth:`run` in a new thread. Returns a future that is done when the run has ended."""
        ended: Future[None] = Future()
        ended.set_running_or_notify_cancel()

        def work() -> None:
            try:
                self.run(handle)
            except BaseException as error:  # noqa: BLE001  # the future has it
                logger.error(
                    "consumer stopped group=%s error=%s: %s",
                    self._any_target.settings.group, type(error).__name__, error,
                )  # fmt: skip
                ended.set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=work, name="rocketmq-py consumer", daemon=True).start()
        return ended

    def close(self) -> None:
        """Stop as ``stop()`` does, wait until the run has ended, and close.

        Waits up to ``close_timeout`` for running handlers. If interrupted, it does not wait for them any
        longer, and closing goes on in the background. It may be called again.
        """
        try:
            super().close()
        except BaseException:
            self._closing_interrupted()
            raise

    def _stop_waiting(self) -> None:
        super()._stop_waiting()
        self._any_target._stop_waiting()

    def _run_until_stopped(self, run: ThreadCall[None]) -> None:
        try:
            self._thread.post(run)
            run.wait()
        except BaseException:  # Ctrl-C
            if not self._thread.is_usable:  # it was not posted, or has ended
                raise
            try:
                self._thread.post(partial(self._stop, run))
                run.wait()
            except BaseException:  # a second one
                self._thread.post(run.cancel)
                run.wait()
                raise
            raise
        run.outcome()

    def _stop(self, run: ThreadCall[None]) -> None:
        """Stop a run, if it has not ended."""
        if run.has_ended:
            return  # stop() would end the next run
        if run.has_started:
            self._any_target.stop()
        else:
            run.cancel()


@takes_settings(PushConsumerSettings, ClientSettings)
class PushConsumer(PushConsumerMethods, HandlerConsumer[consumer.PushConsumer]):
    """``rocketmq_py.PushConsumer`` for threads: calls plain handlers in a pool of threads.

    ::

        with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            consumer.run(handle)  # def handle(message): an exception means "deliver again"

    Options, errors and guarantees are those of the trio PushConsumer. It starts threads as it needs them, up
    to ``concurrency``. Handlers may block, and may call this API.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            a ``rocketmq_py.blocking.Client`` to share.
        group: the consumer group. All members must have the same subscriptions.
        assignment_listener: a worker thread calls its methods when queues are assigned or revoked.
        **options: the settings of a PushConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        self._check_listener(assignment_listener)
        target = consumer.PushConsumer(
            shared, group=group, assignment_listener=assignment_listener, **options
        )
        super().__init__(target, parent)

    @property
    def settings(self) -> PushConsumerSettings:
        """The settings."""
        return self._target.settings

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted, with those of the group's retry topic."""
        assignment: list[MessageQueue] = self._get("assignment")
        return assignment


@takes_settings(LitePullConsumerSettings, ClientSettings)
class LitePullConsumer(LitePullConsumerMethods, BaseConsumer[consumer.LitePullConsumer]):
    """``rocketmq_py.LitePullConsumer`` for threads: returns messages to polls.

    ::

        with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            for message in consumer:  # or: consumer.poll()
                ...

    Options, errors and guarantees are those of the trio LitePullConsumer. An interrupted poll loses no
    messages: the next one returns them. Only one thread may poll at a time.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            a ``rocketmq_py.blocking.Client`` to share.
        group: the consumer group. All members must have the same subscriptions.
        assignment_listener: a worker thread calls its methods when queues are assigned or revoked.
        **options: the settings of a LitePullConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        **options: Unpack[LitePullConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        self._check_listener(assignment_listener)
        target = consumer.LitePullConsumer(
            shared, group=group, assignment_listener=assignment_listener, **options
        )
        self._undelivered: UndeliveredPolls = UndeliveredPolls(target, self._check_open)
        super().__init__(target, parent)

    @property
    def settings(self) -> LitePullConsumerSettings:
        """The settings."""
        return self._target.settings

    @with_sections_of(consumer.LitePullConsumer.poll)
    def poll(
        self,
        *,
        max_messages: int = DEFAULT_MAX_MESSAGES,
        wait: Duration = 5.0,
    ) -> list[ReceivedMessage]:
        """Return the next messages, or none after ``wait``. Acknowledges those of the previous poll.

        When interrupted, no message is lost: the next poll returns it.
        """
        undelivered = self._undelivered
        return self._fetch(undelivered, partial(undelivered.poll, max_messages, wait))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        (message,) = self._fetch(self._undelivered, self._undelivered.next_message)
        return message

    def _call(self, function: Callable[..., Awaitable[Result]], *args: Any, **kwargs: Any) -> Result:
        method: Callable[[], Awaitable[Result]] = partial(function, *args, **kwargs)
        result: Result = super()._call(self._undelivered.call, method)
        return result

    def _has_undelivered(self) -> bool:
        return bool(self._undelivered)

    def _check_open(self) -> None:
        if not is_leaving(self._target):  # its assignment listener may still commit
            super()._check_open()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted."""
        assignment: list[MessageQueue] = self._get("assignment")
        return assignment


@takes_settings(PopConsumerSettings, ClientSettings)
class PopConsumer(PopConsumerMethods, ReceivingConsumer[consumer.PopConsumer]):
    """``rocketmq_py.PopConsumer`` for threads: pops messages, which are invisible to others for a time (5.x).

    Options, errors and guarantees are those of the trio PopConsumer. An interrupted ``receive`` loses no
    messages: the next one returns them.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            a ``rocketmq_py.blocking.Client`` to share.
        group: the consumer group. All members must have the same subscriptions.
        **options: the settings of a PopConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        **options: Unpack[PopConsumerOptions],
    ) -> None:
        shared, parent = self._shared_client(client)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered(self._check_open)
        super().__init__(consumer.PopConsumer(shared, group=group, **options), parent)

    @property
    def settings(self) -> PopConsumerSettings:
        """The settings."""
        return self._target.settings

    @with_sections_of(consumer.PopConsumer.receive)
    def receive(
        self,
        topic: str | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        invisible: Duration = 60.0,
        wait: Duration = 15.0,
    ) -> list[PoppedMessage]:
        """Return messages as soon as there are any. A message that is not acknowledged in time comes again.

        When interrupted, no message is lost: the next call returns it.
        """
        receive = partial(
            self._target.receive, topic, max_messages=max_messages, invisible=invisible, wait=wait
        )
        taken = self._undelivered.take(max_messages, lambda message: topic in (None, message.topic))
        return taken or self._fetch(self._undelivered, receive)


@takes_settings(LiteTopicConsumerSettings, ClientSettings)
class LiteTopicConsumer(LiteTopicConsumerMethods, ReceivingConsumer[consumer.LiteTopicConsumer]):
    """``rocketmq_py.LiteTopicConsumer`` for threads: receives messages of lite topics on request (5.5).

    Options, errors and guarantees are those of the trio LiteTopicConsumer. An interrupted ``receive`` loses
    no messages: the next one returns them.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            a ``rocketmq_py.blocking.Client`` to share.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        parent: the parent topic, of type LITE. Java: ``bindTopic``.
        **options: the settings of a LiteTopicConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid, or ``group`` is missing.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        parent: str,
        **options: Unpack[LiteTopicConsumerOptions],
    ) -> None:
        shared, owner = self._shared_client(client)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered(self._check_open)
        super().__init__(consumer.LiteTopicConsumer(shared, group=group, parent=parent, **options), owner)

    @property
    def settings(self) -> LiteTopicConsumerSettings:
        """The settings."""
        return self._target.settings

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics."""
        lite_topics: frozenset[str] = self._get("lite_topics")
        return lite_topics

    @with_sections_of(consumer.LiteTopicConsumer.receive)
    def receive(
        self, *, max_messages: int = MAX_MESSAGES, invisible: Duration = 60.0, wait: Duration = 15.0
    ) -> list[PoppedMessage]:
        """Receive messages of the subscribed lite topics as soon as there are any.

        When interrupted, no message is lost: the next call returns it.
        """
        receive = partial(self._target.receive, max_messages=max_messages, invisible=invisible, wait=wait)
        return self._undelivered.take(max_messages) or self._fetch(self._undelivered, receive)


@takes_settings(LiteTopicPushConsumerSettings, ClientSettings)
class LiteTopicPushConsumer(LiteTopicPushConsumerMethods, HandlerConsumer[consumer.LiteTopicPushConsumer]):
    """``rocketmq_py.LiteTopicPushConsumer`` for threads: a pool of threads calls the handler (5.5).

    ::

        with LiteTopicPushConsumer("127.0.0.1:9876", group="agents", parent="Sessions") as consumer:
            consumer.subscribe_lite("session-42")
            consumer.run(handle)  # def handle(message); raise = handle again

    Options, errors and guarantees are those of the trio LiteTopicPushConsumer.

    Args:
        client: name servers as ``host:port;host:port``, or None for NAMESRV_ADDR or 127.0.0.1:9876, or
            a ``rocketmq_py.blocking.Client`` to share.
        group: the consumer group. Its attribute ``lite.bind.topic`` must name the parent topic.
        parent: the parent topic, of type LITE. Java: ``bindTopic``.
        **options: the settings of a LiteTopicPushConsumer, and those of a Client unless one is shared.

    Raises:
        ConfigurationError: an option is unknown or not valid, or ``group`` is missing.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *,
        group: str | None = None,
        parent: str,
        **options: Unpack[LiteTopicPushConsumerOptions],
    ) -> None:
        shared, owner = self._shared_client(client)
        super().__init__(consumer.LiteTopicPushConsumer(shared, group=group, parent=parent, **options), owner)

    @property
    def settings(self) -> LiteTopicPushConsumerSettings:
        """The settings."""
        return self._target.settings

    @property
    def lite_topics(self) -> frozenset[str]:
        """The subscribed lite topics."""
        lite_topics: frozenset[str] = self._get("lite_topics")
        return lite_topics
