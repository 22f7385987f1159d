"""Consumers of groups, for threads."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, Unpack

from rocketmq_py import client as core
from rocketmq_py import consumer
from rocketmq_py.blocking.declaring import blocking
from rocketmq_py.blocking.hosted import Hosted, shared_client
from rocketmq_py.callables import is_async
from rocketmq_py.client.config import ClientConfig
from rocketmq_py.client.user_calls import call_in_thread
from rocketmq_py.consumer import (
    AssignmentListener,
    ConsumerHook,
    ConsumerStatistics,
    LitePullConsumerConfig,
    LitePullConsumerOptions,
    PopConsumerConfig,
    PopConsumerOptions,
    PoppedMessage,
    PushConsumerConfig,
    PushConsumerOptions,
)
from rocketmq_py.consumer.lite_pull.consumer import MAX_POLLED
from rocketmq_py.consumer.pop.consumer import MAX_MESSAGES
from rocketmq_py.consumer.push.invoker import Handler
from rocketmq_py.errors import ClosedError, ConfigurationError
from rocketmq_py.handoff.calls import ThreadCall
from rocketmq_py.handoff.hosted import ForwardingListener, Target, Undelivered, plain
from rocketmq_py.message import MessageQueue, ReceivedMessage

if TYPE_CHECKING:
    from rocketmq_py.blocking.client import Client

logger: Final = logging.getLogger("rocketmq_py.blocking")


P = ParamSpec("P")


class _Consumer(Hosted[Target]):
    """What the consumers have in common."""

    @property
    def _client(self) -> core.Client:
        target: Any = self._target
        client: core.Client = target.client
        return client

    def add_hook(self, hook: ConsumerHook) -> Callable[[], None]:
        """Have a hook called around what is consumed, in the trio thread; returns what removes it."""
        target: Any = self._target
        remove: Callable[[], None] = self._call_plain(target.add_hook, hook)
        return remove

    def _forwarding(self, listener: AssignmentListener | None) -> AssignmentListener | None:
        """Return what has a listener, whose methods are plain here, called in a thread of its own."""
        if listener is None:
            return None
        if is_async(listener.on_assigned) or is_async(listener.on_revoked):
            raise ConfigurationError("assignment_listener has plain methods here, no async ones")
        return ForwardingListener(listener, partial(call_in_thread, abandon_on_cancel=True))

    @property
    def statistics(self) -> ConsumerStatistics:
        """What it has done until now, and how far it is."""
        statistics: ConsumerStatistics = self._get("statistics")
        return statistics


class PushConsumer(_Consumer[consumer.PushConsumer]):
    """``rocketmq_py.PushConsumer`` for threads: handlers are plain functions, called in threads of its own.

    ::

        with PushConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            consumer.run(handle)  # def handle(message); raise = deliver again

    Options, errors and promises are those of the trio PushConsumer. There are as many threads as are needed,
    up to ``concurrency``. They may use everything that is blocking.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            a blocking Client to share.
        *configs: a PushConsumerConfig, and a ClientConfig unless a client is shared; instead of their
            fields as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        assignment_listener: hears which queues this consumer gets and loses, in a thread of its own.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of PushConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: PushConsumerConfig | ClientConfig,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        rng: random.Random | None = None,
        **options: Unpack[PushConsumerOptions],
    ) -> None:
        shared, parent = shared_client(client)
        listener = self._forwarding(assignment_listener)
        target = consumer.PushConsumer(
            shared, *configs, group=group, assignment_listener=listener, rng=rng, **options
        )
        super().__init__(target, parent)

    @property
    def config(self) -> PushConsumerConfig:
        """Its settings."""
        return self._target.config

    subscribe: Final = plain(consumer.PushConsumer.subscribe)
    unsubscribe: Final = plain(consumer.PushConsumer.unsubscribe)
    stop: Final = plain(consumer.PushConsumer.stop)
    pause: Final = plain(consumer.PushConsumer.pause)
    resume: Final = plain(consumer.PushConsumer.resume)
    committed: Final = blocking(consumer.PushConsumer.committed)
    seek: Final = blocking(consumer.PushConsumer.seek)
    begin_offsets: Final = blocking(consumer.PushConsumer.begin_offsets)
    end_offsets: Final = blocking(consumer.PushConsumer.end_offsets)
    lag: Final = blocking(consumer.PushConsumer.lag)
    check_sql: Final = blocking(consumer.PushConsumer.check_sql)

    def run(self, handle: Handler) -> None:
        """Join the group and hand its messages to ``handle``, until :meth:`stop`.

        Ctrl-C (any exception in the waiting thread) is as :meth:`stop`, and is raised when the run has ended;
        a second one does not wait for handlers. Otherwise as the trio PushConsumer's ``run``: what handlers
        return and raise, and errors. ConfigurationError for an async handler, which needs a loop.
        """
        if not callable(handle) or is_async(handle):
            raise ConfigurationError("handle is a plain function here, which takes a message")
        self._check_open()
        self._thread.check_may_wait()
        self._run_until_stopped(ThreadCall(self._thread, partial(self._target.run, handle)))

    def start(self, handle: Handler) -> Future[None]:
        """Run it in a thread of its own until :meth:`stop` or :meth:`close`; the future has its end."""
        ended: Future[None] = Future()
        ended.set_running_or_notify_cancel()

        def work() -> None:
            try:
                self.run(handle)
            except BaseException as error:  # noqa: BLE001  # the future has it
                logger.error("the run of a consumer of group %s has ended: %s", self.config.group, error)
                ended.set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=work, name="rocketmq-py consumer", daemon=True).start()
        return ended

    def _run_until_stopped(self, run: ThreadCall[None]) -> None:
        try:
            self._thread.post(run)
            run.wait()
        except ClosedError:
            raise
        except BaseException:  # Ctrl-C
            self._thread.post(partial(self._stop, run))
            try:
                run.wait()
            except BaseException:  # a second one
                self._thread.post(self._target.abandon_threads)
                self._thread.post(run.cancel)
                run.wait()
                raise
            raise
        run.outcome()

    def _stop(self, run: ThreadCall[None]) -> None:
        """Stop a run, unless it has ended: stop() would then end the next one."""
        if run.has_started and not run.has_ended:
            self._target.stop()
        elif not run.has_ended:
            run.cancel()

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has now, sorted: those of its group's retry topic as well."""
        queues: list[MessageQueue] = self._get("queues")
        return queues


def _seek(method: Callable[Concatenate[Any, P], Awaitable[None]]) -> Callable[Concatenate[Any, P], None]:
    """Return the method for one that seeks: what came for an interrupted poll counts no more."""
    seek = blocking(method)

    @wraps(seek)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
        seek(self, *args, **kwargs)
        self._drop_undelivered(args[0] if args else kwargs["queue"])

    return call


class LitePullConsumer(_Consumer[consumer.LitePullConsumer]):
    """``rocketmq_py.LitePullConsumer`` for threads: gives messages when it is asked for them.

    ::

        with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            consumer.subscribe("TopicTest", "A || B")
            for message in consumer:  # or: consumer.poll()
                ...

    Options, errors and promises are those of the trio LitePullConsumer. What came for a poll that was
    interrupted is what the next one returns. One thread polls
    at a time.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            a blocking Client to share.
        *configs: a LitePullConsumerConfig, and a ClientConfig unless a client is shared; instead of their
            fields as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        assignment_listener: hears which queues this consumer gets and loses, in a thread of its own.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of LitePullConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: LitePullConsumerConfig | ClientConfig,
        group: str | None = None,
        assignment_listener: AssignmentListener | None = None,
        rng: random.Random | None = None,
        **options: Unpack[LitePullConsumerOptions],
    ) -> None:
        shared, parent = shared_client(client)
        listener = self._forwarding(assignment_listener)
        target = consumer.LitePullConsumer(
            shared, *configs, group=group, assignment_listener=listener, rng=rng, **options
        )
        self._undelivered: Undelivered[ReceivedMessage] = Undelivered()
        super().__init__(target, parent)

    @property
    def config(self) -> LitePullConsumerConfig:
        """Its settings."""
        return self._target.config

    subscribe: Final = plain(consumer.LitePullConsumer.subscribe)
    unsubscribe: Final = plain(consumer.LitePullConsumer.unsubscribe)
    pause: Final = plain(consumer.LitePullConsumer.pause)
    resume: Final = plain(consumer.LitePullConsumer.resume)
    assign: Final = blocking(consumer.LitePullConsumer.assign)
    seek: Final = _seek(consumer.LitePullConsumer.seek)
    seek_to_begin: Final = _seek(consumer.LitePullConsumer.seek_to_begin)
    seek_to_end: Final = _seek(consumer.LitePullConsumer.seek_to_end)
    seek_to_time: Final = _seek(consumer.LitePullConsumer.seek_to_time)
    queues: Final = blocking(consumer.LitePullConsumer.queues)
    offset_at: Final = blocking(consumer.LitePullConsumer.offset_at)
    commit: Final = blocking(consumer.LitePullConsumer.commit)
    committed: Final = blocking(consumer.LitePullConsumer.committed)
    position: Final = blocking(consumer.LitePullConsumer.position)
    begin_offsets: Final = blocking(consumer.LitePullConsumer.begin_offsets)
    end_offsets: Final = blocking(consumer.LitePullConsumer.end_offsets)
    lag: Final = blocking(consumer.LitePullConsumer.lag)
    check_sql: Final = blocking(consumer.LitePullConsumer.check_sql)

    def poll(
        self,
        *,
        max_messages: int = MAX_POLLED,
        timeout: float | None = None,
    ) -> list[ReceivedMessage]:
        """Return the next messages, or none if none came in time; what was polled before is done with.

        Arguments and errors are those of the trio LitePullConsumer's ``poll``. When interrupted, no message
        is lost: what has come is returned by the next one.
        """
        if not self._undelivered:
            self._call(
                self._undelivered.fetch,
                partial(self._target.poll, max_messages=max_messages, timeout=timeout),
            )
        return self._undelivered.take(max_messages)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        if not self._undelivered:
            self._call(self._undelivered.fetch_one, self._target.__anext__)
        (message,) = self._undelivered.take(1)
        return message

    def _has_undelivered(self) -> bool:
        return bool(self._undelivered)

    def _drop_undelivered(self, queue: object) -> None:
        self._undelivered.drop(lambda message: message.queue == queue)

    def _check_open(self) -> None:
        if not self._target.is_leaving:  # its listener may commit until the end
            super()._check_open()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer has now, sorted."""
        assignment: list[MessageQueue] = self._get("assignment")
        return assignment


class PopConsumer(_Consumer[consumer.PopConsumer]):
    """``rocketmq_py.PopConsumer`` for threads: takes a group's messages, each its own for a time (5.x).

    Options, errors and promises are those of the trio PopConsumer. What came for a ``receive`` that was
    interrupted is what the next one returns.

    Args:
        client: name servers as ``host:port;host:port`` (None reads NAMESRV_ADDR, else 127.0.0.1:9876), or
            a blocking Client to share.
        *configs: a PopConsumerConfig, and a ClientConfig unless a client is shared; instead of their
            fields as keywords, or beside some of them.
        group: the consumer group. All its members must subscribe alike.
        rng: the source of randomness, for tests that replay a run.
        **options: the fields of PopConsumerConfig, and those of ClientConfig unless a client is shared.

    Raises:
        ConfigurationError: an option is unknown or outside of what is allowed.
    """

    def __init__(
        self,
        client: str | Client | None = None,
        *configs: PopConsumerConfig | ClientConfig,
        group: str | None = None,
        rng: random.Random | None = None,
        **options: Unpack[PopConsumerOptions],
    ) -> None:
        shared, parent = shared_client(client)
        self._undelivered: Undelivered[PoppedMessage] = Undelivered()
        super().__init__(consumer.PopConsumer(shared, *configs, group=group, rng=rng, **options), parent)

    @property
    def config(self) -> PopConsumerConfig:
        """Its settings."""
        return self._target.config

    subscribe: Final = plain(consumer.PopConsumer.subscribe)
    unsubscribe: Final = plain(consumer.PopConsumer.unsubscribe)
    ack: Final = blocking(consumer.PopConsumer.ack)
    change_invisible: Final = blocking(consumer.PopConsumer.change_invisible)
    begin_offsets: Final = blocking(consumer.PopConsumer.begin_offsets)
    end_offsets: Final = blocking(consumer.PopConsumer.end_offsets)
    lag: Final = blocking(consumer.PopConsumer.lag)
    check_sql: Final = blocking(consumer.PopConsumer.check_sql)

    def receive(
        self,
        topic: str | None = None,
        *,
        max_messages: int = MAX_MESSAGES,
        invisible: float = 60.0,
        wait: float = 15.0,
    ) -> list[PoppedMessage]:
        """Take messages, as soon as there are any; each comes again if it is not acknowledged in time.

        Arguments and errors are those of the trio PopConsumer's ``receive``. When interrupted, no message is
        lost: what has come is returned by the next one.
        """
        if not self._undelivered:
            receive = partial(
                self._target.receive, topic, max_messages=max_messages, invisible=invisible, wait=wait
            )
            self._call(self._undelivered.fetch, receive)
        return self._undelivered.take(max_messages)
