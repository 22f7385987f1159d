"""Pipelined sends of the threads API, with concurrent futures."""

from __future__ import annotations

import threading
from typing import Any

from rocketmq_py.arguments import Duration
from rocketmq_py.blocking.futures import CallbackRunner, ThreadFuture, callback_runner_of
from rocketmq_py.handoff.calls import SIGNAL_CHECK_SECONDS
from rocketmq_py.handoff.send_queue import SendQueue, result_of
from rocketmq_py.handoff.trio_thread import TrioThread
from rocketmq_py.message import Message, SendResult
from rocketmq_py.producer.destinations import Destination
from rocketmq_py.producer.outcome import FailureLog


class ThreadSendFuture(ThreadFuture[SendResult]):
    """A pipelined send. Cancelling it keeps the message from being sent while it waits in the queue.

    Args:
        send_queue: the queue.
        message, size, queue, timeout: see QueuedSend.
    """

    def __init__(
        self,
        send_queue: ThreadSendQueue,
        message: Message,
        size: int,
        queue: Destination | None,
        timeout: Duration | None,
    ) -> None:
        super().__init__(send_queue.thread, send_queue.callback_runner)
        self.message: Message | None = message
        self.size = size
        self.queue = queue
        self.timeout = timeout
        self._send_queue = send_queue

    def _result_of(self, outcome: Any) -> SendResult:
        if isinstance(outcome, SendResult):
            return outcome
        result = result_of(outcome)
        self._outcome = result
        return result

    # In the trio thread

    def _succeed(self, result: Any) -> None:
        """Set the result."""
        self._send_queue.release(self)
        self.finish(result)

    def _fail(self, error: BaseException, log: FailureLog | None = None) -> None:
        """Set the error."""
        self._send_queue.release(self, error)
        super()._fail(error)


class ThreadSendQueue(SendQueue[ThreadSendFuture]):
    """Takes messages from threads; see SendQueue.

    Attributes:
        callback_runner: calls the callbacks of the futures.
    """

    def __init__(self, thread: TrioThread, *args: Any, **kwargs: Any) -> None:
        super().__init__(thread, *args, **kwargs)
        self.callback_runner: CallbackRunner = callback_runner_of(thread)

    def send(
        self, message: Message, queue: Destination | None, timeout: Duration | None = None
    ) -> ThreadSendFuture:
        """Queue a message when there is space. If the wait is interrupted, it is not sent.

        Raises InvalidMessageError and ClosedError.
        """
        size = self.check(message)
        if not self.has_space(size):
            self._wait_for_space(size)
        future = ThreadSendFuture(self, message, size, queue, timeout)
        self.add(future)
        return future

    def _wait_for_space(self, size: int) -> None:
        if self.thread.is_current:
            return  # a hook that sends: the trio thread cannot wait for itself
        while not self.has_space(size):
            self.check_open()
            woken = threading.Lock()
            woken.acquire()
            if self.must_wait(woken.release, size) and not woken.acquire(timeout=SIGNAL_CHECK_SECONDS):
                self.thread.watchdog.check()
        self.check_open()
