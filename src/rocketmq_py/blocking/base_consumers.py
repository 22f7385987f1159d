"""The base classes of the consumers: runs of handlers, and interruptible fetching."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from rocketmq_py import consumer
from rocketmq_py.arguments import Duration
from rocketmq_py.blocking.hosted import Hosted, written_for
from rocketmq_py.callables import check_methods, is_async
from rocketmq_py.consumer import AssignmentListener, PoppedMessage
from rocketmq_py.consumer.push.handler import PlainHandler
from rocketmq_py.consumer.push.typed_handlers import prepare_handler
from rocketmq_py.errors import ConfigurationError
from rocketmq_py.handoff import hosted_consumer as base
from rocketmq_py.handoff.calls import ThreadCall
from rocketmq_py.handoff.forwarding import with_sections_of
from rocketmq_py.handoff.hosted import Target
from rocketmq_py.handoff.undelivered_messages import Fetch
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import ReceivedMessage

logger: Final = LibraryLogger("rocketmq_py.blocking")

P = ParamSpec("P")
Item = TypeVar("Item")


class BaseConsumer(base.BaseConsumer[Target], Hosted[Target]):
    """The base class of the consumers."""

    def _plain_listener(self, listener: AssignmentListener | None) -> AssignmentListener | None:
        """Return a listener, after a check that it has plain methods, which worker threads can call."""
        if listener is not None:
            check_methods(listener, "assignment_listener", AssignmentListener)
            if is_async(listener.on_assigned) or is_async(listener.on_revoked):
                raise ConfigurationError("assignment_listener has plain methods here, no async ones")
        return listener


class HandlerConsumer(base.HandlerConsumer[Target], BaseConsumer[Target]):
    """The base class of the consumers that call a handler."""

    def run(self, handle: PlainHandler) -> None:
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
            ConfigurationError: ``handle`` is async, which needs an event loop, or has the wrong parameters,
                the consumer is running already, or another consumer of this client is in the group.
            StoreError: the offset file of a broadcasting consumer cannot be read.
            SqlFilterRefusedError: a broker does not accept a subscribed SQL filter.
        """
        prepared: Any = handle
        if callable(handle):
            prepared = prepare_handler(handle, self._any_target.settings)
        # Only now: a wrapper such as Deduplicate is async only after its preparation.
        if not callable(prepared) or is_async(prepared):
            raise ConfigurationError(
                "handle must be a plain function that takes a message; async handlers need rocketmq_py.aio"
            )
        self._check_open()
        self._thread.check_may_wait()
        self._run_until_stopped(ThreadCall(self._thread, partial(self._any_target.run, prepared)))

    def start(self, handle: PlainHandler) -> Future[None]:
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


class FetchingConsumer(base.FetchingConsumer[Target], BaseConsumer[Target]):
    """The base class of the consumers that return messages to calls."""

    def _fetch(self, function: Callable[[], Awaitable[list[Item]]]) -> list[Item]:
        """Return the messages that an async function fetches in the trio thread.

        If interrupted, the next calls return them.
        """
        fetch = Fetch(self._undelivered, function)
        try:
            self._call(fetch.run)
            return fetch.result()
        except BaseException:
            fetch.interrupt()
            raise


def fetching(
    method: Callable[Concatenate[Any, P], Awaitable[list[Item]]],
) -> Callable[Concatenate[Any, P], list[Item]]:
    """Return a method that fetches messages, as the method of a trio class.

    If it is interrupted, the next call returns them.
    """
    name = method.__name__

    @written_for(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> list[Item]:
        fetched: list[Item] = self._fetch(partial(getattr(self._undelivered, name), *args, **kwargs))
        return fetched

    return call


class ReceivingConsumer(base.ReceivingConsumer[Target], FetchingConsumer[Target]):
    """The base class of PopConsumer and LiteTopicConsumer: the program receives and acknowledges messages."""

    @with_sections_of(consumer.PopConsumer.holding)
    def holding(self, message: PoppedMessage, *, invisible: Duration = 60.0) -> AbstractContextManager[None]:
        """Keep a message invisible for as long as the ``with`` block runs, then acknowledge it.

        The trio thread renews the invisible time, whatever the calling thread does.
        """
        return self._entered(self._any_target.holding(message, invisible=invisible))


class PollingConsumer(base.PollingConsumer, FetchingConsumer[consumer.LitePullConsumer]):
    """The base class of LitePullConsumer: the program polls, or iterates over messages."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        (message,) = self._fetch(self._undelivered.next_message)
        return message
