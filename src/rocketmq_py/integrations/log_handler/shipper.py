"""The thread that sends queued records."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from rocketmq_py.blocking import Producer
from rocketmq_py.errors import ClosedError, NameServerError, NoQueueError, RocketMQError, TopicNotFoundError
from rocketmq_py.library_logger import LibraryLogger
from rocketmq_py.message import Message, SendResult
from rocketmq_py.remoting.back_off import BackOff
from rocketmq_py.remoting.nurseries import in_trio_thread

if TYPE_CHECKING:
    from rocketmq_py.integrations.log_handler.handler import RocketMQHandler

OVERHEAD = 512
"""Bytes that a record counts in addition to its text: the message object, and its properties when sent."""
MAX_BATCH_RECORDS = 1000
BACK_OFF: Final = BackOff(0.5, longest=15.0)
"""Seconds before records are sent again."""
UNREACHED_BACK_OFF: Final = BackOff(0.5, longest=1.0)
"""Seconds before records are sent again while no broker can be reached. The send itself waits, too."""
REPORT_SECONDS = 60.0
"""The handler logs at most once in this time that it dropped records."""

_TEMPORARY_ERRORS = (ClosedError, NameServerError, NoQueueError, TopicNotFoundError)
"""Errors after which a record is sent again, in addition to retriable ones."""

logger: Final = LibraryLogger("rocketmq_py.integrations")

_SendOutcome: TypeAlias = SendResult | Exception


class Shipper:
    """Sends queued messages in a daemon thread.

    Each counter has one writer: the handler, under its lock, or the thread. So the thread never needs the
    handler's lock, which others hold while they format a record with any code of the user.

    Args:
        handler: the handler of the records. Log lines have its topic and its number of dropped records.
        open_producer: opens a producer with the settings of the user.
        max_bytes: the limit of the messages that wait or are in flight.
    """

    def __init__(
        self, handler: RocketMQHandler, open_producer: Callable[[], Producer], max_bytes: int
    ) -> None:
        self._handler = handler
        self._open_producer = open_producer
        self._max_bytes = max_bytes
        self._reported_drops = 0
        self._next_report = 0.0
        # Totals. The handler writes the first two, the thread the others.
        self._queued = self._queued_bytes = 0
        self._sent = self._refused = self._settled_bytes = 0
        self._sent_at = -math.inf
        # SimpleQueue is reentrant: signal handlers and finalizers may log at any time.
        self._queue: SimpleQueue[Message | threading.Event | None] = SimpleQueue()
        self._is_stopped = threading.Event()
        self._last_error: Exception | None = None
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._run, name="rocketmq-py log handler", daemon=True)

    # In threads that log

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, message: Message) -> bool:
        """Queue a message, and return whether there was space for it."""
        size = _size(message)
        if self._queued_bytes - self._settled_bytes + size > self._max_bytes:
            return False
        self._queued += 1
        self._queued_bytes += size
        self._queue.put(message)
        return True

    @property
    def dropped(self) -> int:
        """Messages that could not be sent. Once it is stopped, all that are not sent."""
        return self._queued - self._sent if self._is_stopped.is_set() else self._refused

    @property
    def last_error(self) -> Exception | None:
        """The error of the last attempt that failed."""
        return self._last_error

    def mark(self) -> threading.Event:
        """Return an event that is set when all messages queued until now are sent or dropped."""
        event = threading.Event()
        self._queue.put(event)
        return event

    def wait(
        self,
        event: threading.Event,
        timeout: float,
        began: float | None = None,
        latest: float = math.inf,
    ) -> bool:
        """Wait for an event of :meth:`mark`, unless the calling thread is needed for it.

        Return False after ``timeout`` seconds in which no message was sent, counted from ``began`` (None for
        now), or at the time ``latest``.
        """
        if in_trio_thread() or self._thread is threading.current_thread():
            return False
        began = time.monotonic() if began is None else began
        while self._thread.is_alive():
            deadline = min(max(began, self._sent_at) + timeout, latest)
            left = deadline - time.monotonic()
            if event.wait(max(left, 0.0)):
                break
            if left <= 0:
                return False
        return True

    def stop(self) -> None:
        """Drop all messages that are not in flight, also those that are queued later."""
        self._is_stopped.set()

    def close(self, timeout: float) -> None:
        """Send the queued messages, drop the rest as :meth:`wait` gives up, and end the thread."""
        sent = self.mark()
        self._queue.put(None)
        self.wait(sent, timeout)
        self.stop()

    # In the thread

    def _run(self) -> None:
        try:
            while self._ship_next():
                pass
        finally:
            if self._producer is not None:
                self._producer.close()

    def _ship_next(self) -> bool:
        """Wait for messages and send them. Return False at the end of the queue."""
        messages: list[Message] = []
        item = self._queue.get()
        while isinstance(item, Message):
            messages.append(item)
            if len(messages) == MAX_BATCH_RECORDS:
                break
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
        self._send(messages)
        self._report_drops()
        if isinstance(item, threading.Event):
            item.set()
        return item is not None

    def _send(self, messages: Sequence[Message]) -> None:
        """Send messages. Retry after temporary errors until the handler is closed."""
        failures = 0
        while messages and not self._is_stopped.is_set():
            failed: list[Message] = []
            last_error: Exception | None = None
            for message, outcome in zip(messages, self._attempt(messages), strict=True):
                if isinstance(outcome, Exception):
                    last_error = self._last_error = outcome
                    if _is_temporary(outcome):
                        failed.append(message)
                        continue
                self._settle(message, is_dropped=isinstance(outcome, Exception))
            if last_error is not None and not failures:
                logger.warning(
                    "cannot send log records topic=%s records=%d retrying=%d: %s",
                    self._handler.topic, len(messages), len(failed), last_error,
                )  # fmt: skip
            messages = failed
            if messages:
                self._report_drops()
                failures += 1
                is_away = isinstance(last_error, RocketMQError) and last_error._not_reached
                self._is_stopped.wait((UNREACHED_BACK_OFF if is_away else BACK_OFF).after(failures))
        for message in messages:
            self._settle(message, is_dropped=True)

    def _attempt(self, messages: Sequence[Message]) -> Sequence[_SendOutcome]:
        """Send messages, and return the outcome of each. Open a producer if there is none."""
        try:
            if self._producer is None:
                self._producer = self._open_producer()
            outcomes: Sequence[_SendOutcome] = self._producer.send_all(messages)
        except Exception as error:  # noqa: BLE001  # the thread must go on with the next messages
            outcomes = [error] * len(messages)
        if any(isinstance(outcome, ClosedError) for outcome in outcomes):
            self._producer = None  # its background thread has ended; a new producer starts another one
        return outcomes

    def _settle(self, message: Message, *, is_dropped: bool) -> None:
        self._refused += is_dropped
        if not is_dropped:
            self._sent += 1
            self._sent_at = time.monotonic()
        self._settled_bytes += _size(message)

    def _report_drops(self) -> None:
        dropped, now = self._handler.dropped, time.monotonic()
        if dropped > self._reported_drops and now >= self._next_report:
            logger.warning("dropped log records topic=%s dropped=%d", self._handler.topic, dropped)
            self._reported_drops, self._next_report = dropped, now + REPORT_SECONDS


def _is_temporary(error: Exception) -> bool:
    return isinstance(error, _TEMPORARY_ERRORS) or (isinstance(error, RocketMQError) and error.retriable)


def _size(message: Message) -> int:
    return len(message.body) + OVERHEAD
