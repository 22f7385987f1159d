"""A ``logging.Handler`` that sends log records to a topic, and never blocks the program that logs.

::

    handler = RocketMQHandler("AppLogs", "127.0.0.1:9876")
    logging.getLogger().addHandler(handler)

:class:`RocketMQHandler` formats a record in the thread that logs, and queues it. :class:`_Shipper` sends the
queued records in a thread of its own.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias, Unpack

from rocketmq_py import producer
from rocketmq_py.blocking import BatchingProducer
from rocketmq_py.errors import ClosedError, NameServerError, NoQueueError, RocketMQError, TopicNotFoundError
from rocketmq_py.handoff.trio_thread import in_trio_thread
from rocketmq_py.message import Message, SendResult
from rocketmq_py.names import check_topic
from rocketmq_py.producer.batching_config import BatchingOptions

__all__ = ["JsonFormatter", "RocketMQHandler"]

DEFAULT_GROUP = "LOGGING"
OVERHEAD = 512
"""Bytes that a record counts in addition to its text: the message object, and its properties when sent."""
MAX_BATCH_RECORDS = 1000
FIRST_RETRY_DELAY = 0.5
"""Seconds before records are sent again. Each further delay is twice as long, up to MAX_RETRY_DELAY."""
MAX_RETRY_DELAY = 15.0
REPORT_SECONDS = 60.0
"""The handler logs at most once in this time that it dropped records."""

_TEMPORARY_ERRORS = (ClosedError, NameServerError, NoQueueError, TopicNotFoundError)
"""Errors after which a record is sent again, in addition to retriable ones."""
_NOT_IN_TAGS = re.compile(r"[^\w.%-]+", re.ASCII)
_STANDARD_ATTRIBUTES = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}
)

logger: Final = logging.getLogger("rocketmq_py.integrations")


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object.

    It has the keys ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, ``file``, ``line``,
    ``function``, ``process`` and ``thread``, the record's attributes from ``extra``, and, if there are any,
    ``exception`` and ``stack``. Values that JSON does not have are written as their ``str()``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON, in one line."""
        fields: dict[str, object] = {
            name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES
        }
        fields |= {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "file": record.pathname,
            "line": record.lineno,
            "function": record.funcName,
            "process": record.process,
            "thread": record.threadName,
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            fields["exception"] = record.exc_text
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        try:
            return json.dumps(fields, ensure_ascii=False, allow_nan=False, default=str)
        except (TypeError, ValueError):  # a NaN, a cycle, or a key that is not a str, in ``extra``
            return json.dumps({name: str(value) for name, value in fields.items()}, ensure_ascii=False)


class RocketMQHandler(logging.Handler):
    """Sends each log record as a message, in batches and in the background.

    Logging never waits for a broker. Records are queued, and a thread sends them. It retries while brokers
    are away. Records that exceed ``max_buffered_bytes`` meanwhile are dropped and counted. A record may be
    sent twice if the connection fails before its acknowledgement.

    The text is formatted by a :class:`JsonFormatter`, or by the formatter that ``setFormatter`` sets, and is
    encoded as UTF-8. The message's tag is the name of the record's level, so consumers can subscribe to
    ``ERROR || CRITICAL``. Records of ``rocketmq_py`` itself are ignored: sending them would log again.

    Closing the handler, ``logging.shutdown()`` and the end of the process send the queued records, within
    ``close_timeout``. A forked child has a thread and connections of its own, and never sends records of its
    parent.

    Args:
        topic: the topic of all records.
        name_servers: name servers as ``host:port;host:port``. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        level: records below this level are ignored.
        group: the producer group.
        **options: the fields of BatchingConfig, ProducerConfig and ClientConfig. ``max_buffered_bytes`` (8
            MiB by default) limits the records that wait or are in flight. ``close_timeout`` (5 seconds by
            default) limits :meth:`flush` and :meth:`close`.

    Raises:
        ConfigurationError: an option is unknown or outside of its range.
    """

    def __init__(
        self,
        topic: str,
        name_servers: str | None = None,
        *,
        level: int | str = logging.NOTSET,
        group: str = DEFAULT_GROUP,
        **options: Unpack[BatchingOptions],
    ) -> None:
        # Never opened. It checks the options here, where the mistake is, and not in the thread.
        checked = producer.BatchingProducer(name_servers, group=group, **options)
        super().__init__(level)
        self.topic: str = check_topic(topic)
        self.setFormatter(JsonFormatter())
        self._max_bytes = checked.config.max_buffered_bytes
        self._close_timeout = checked.producer.config.close_timeout
        self._open_producer = partial(BatchingProducer, name_servers, group=group, **options)
        self._busy = threading.local()
        self._is_closed = False
        self._forget()
        _handlers.add(self)

    def _forget(self) -> None:
        """Start anew in a forked child, which has neither the thread nor the parent's queued records."""
        self._shipper: _Shipper | None = None
        self._dropped = 0
        self._busy = threading.local()

    @property
    def dropped(self) -> int:
        """The number of records that this process dropped.

        They did not fit ``max_buffered_bytes``, could not be formatted, were refused by the broker, were not
        sent in time when the handler closed, or were logged after that.
        """
        return self._dropped + (0 if self._shipper is None else self._shipper.dropped)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record. It never waits for a broker and never raises.

        A record that is logged while this thread formats another one, for example by the ``__str__`` of an
        argument, is dropped.
        """
        if record.name.partition(".")[0] == "rocketmq_py":
            return
        if getattr(self._busy, "is_emitting", False):
            self._dropped += 1
            return
        self._busy.is_emitting = True
        try:
            if not self._add(self._message(record)):
                self._dropped += 1
        except Exception:  # noqa: BLE001  # logging never raises into the program
            self._dropped += 1
            self.handleError(record)
        finally:
            self._busy.is_emitting = False

    def _message(self, record: logging.LogRecord) -> Message:
        body = self.format(record).encode(errors="backslashreplace")
        return Message(self.topic, body, _NOT_IN_TAGS.sub("_", record.levelname))

    def _add(self, message: Message) -> bool:
        """Queue a message. Return False if there is no space, or the handler is closed."""
        if self._is_closed:
            return False
        if self._shipper is None:
            shipper = _Shipper(self.topic, self._open_producer, self._max_bytes, lambda: self.dropped)
            shipper.start()
            self._shipper = shipper
            _finish_at_end_of_worker()
        return self._shipper.add(message)

    def flush(self) -> None:
        """Wait until the records that were logged until now are acknowledged, for at most ``close_timeout``.

        In a hook or selector of a producer, which its background thread calls, it does not wait.
        """
        if self._shipper is not None and not self._is_closed:
            self._shipper.wait(self._shipper.mark(), self._close_timeout)

    def close(self) -> None:
        """Send the queued records, for at most ``close_timeout``. The rest is dropped. Repeatable."""
        if self._shipper is not None and not self._is_closed:
            self._is_closed = True
            self._shipper.close(self._close_timeout)
        self._is_closed = True
        _handlers.discard(self)
        super().close()


_SendOutcome: TypeAlias = SendResult | Exception


class _Shipper:
    """Sends queued messages in a daemon thread.

    Each counter has one writer: the handler, under its lock, or the thread. So no lock is shared with a
    thread that formats a record, which may run any code of the user.

    Args:
        topic: the topic, for log lines.
        open_producer: opens a producer.
        max_bytes: the limit of the messages that wait or are in flight.
        count_dropped: returns the number of records that the handler dropped, for log lines.

    Attributes:
        dropped: messages that could not be sent.
    """

    def __init__(
        self,
        topic: str,
        open_producer: Callable[[], BatchingProducer],
        max_bytes: int,
        count_dropped: Callable[[], int],
    ) -> None:
        self.dropped: int = 0
        self._topic = topic
        self._open_producer = open_producer
        self._max_bytes = max_bytes
        self._count_dropped = count_dropped
        self._reported_drops = 0
        self._next_report = 0.0
        self._queued_bytes = 0  # in total; the handler writes it
        self._settled_bytes = 0  # in total; the thread writes it
        # SimpleQueue is reentrant: signal handlers and finalizers may log at any time.
        self._queue: SimpleQueue[Message | threading.Event | None] = SimpleQueue()
        self._is_stopped = threading.Event()
        self._producer: BatchingProducer | None = None
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
        self._queued_bytes += size
        self._queue.put(message)
        return True

    def mark(self) -> threading.Event:
        """Return an event that is set when all messages queued until now are sent or dropped."""
        event = threading.Event()
        self._queue.put(event)
        return event

    def wait(self, event: threading.Event, timeout: float) -> bool:
        """Wait for an event of :meth:`mark`, unless the calling thread is needed for it."""
        if in_trio_thread() or self._thread is threading.current_thread():
            return False
        return not self._thread.is_alive() or event.wait(timeout)

    def stop(self) -> None:
        """Drop all messages that are not in flight, also those that are queued later."""
        self._is_stopped.set()

    def close(self, timeout: float) -> None:
        """Send the queued messages for at most ``timeout`` seconds, drop the rest, and end the thread."""
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
        delay = FIRST_RETRY_DELAY
        while messages and not self._is_stopped.is_set():
            failed: list[Message] = []
            last_error: Exception | None = None
            for message, outcome in zip(messages, self._attempt(messages), strict=True):
                if isinstance(outcome, Exception):
                    last_error = outcome
                    if _is_temporary(outcome):
                        failed.append(message)
                        continue
                self._settle(message, is_dropped=isinstance(outcome, Exception))
            if last_error is not None and delay == FIRST_RETRY_DELAY:
                logger.warning(
                    "cannot send log records topic=%s records=%d retrying=%d: %s",
                    self._topic, len(messages), len(failed), last_error,
                )  # fmt: skip
            messages = failed
            if messages:
                self._report_drops()
                self._is_stopped.wait(delay)
                delay = min(2 * delay, MAX_RETRY_DELAY)
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
        self.dropped += is_dropped
        self._settled_bytes += _size(message)

    def _report_drops(self) -> None:
        dropped, now = self._count_dropped(), time.monotonic()
        if dropped > self._reported_drops and now >= self._next_report:
            logger.warning("dropped log records topic=%s dropped=%d", self._topic, dropped)
            self._reported_drops, self._next_report = dropped, now + REPORT_SECONDS


def _is_temporary(error: Exception) -> bool:
    return isinstance(error, _TEMPORARY_ERRORS) or (isinstance(error, RocketMQError) and error.retriable)


def _size(message: Message) -> int:
    return len(message.body) + OVERHEAD


# The end of a process, and forks

_handlers: weakref.WeakSet[RocketMQHandler] = weakref.WeakSet()


def _finish_all() -> None:
    """Send the records that all handlers have queued. Drop those that are logged later."""
    marks = [
        (handler, shipper, shipper.mark())
        for handler in list(_handlers)
        if (shipper := handler._shipper) is not None
    ]
    began = time.monotonic()
    for handler, shipper, event in marks:
        shipper.wait(event, max(began + handler._close_timeout - time.monotonic(), 0.0))
        shipper.stop()


def _forget_all() -> None:
    """Forget the parent's threads and records in a child that was just forked."""
    for handler in list(_handlers):
        handler._forget()


_workers: set[int] = set()
"""This process, once it finishes its handlers at the end of a multiprocessing worker."""


def _finish_at_end_of_worker() -> None:
    """Finish at the end of a multiprocessing worker, which does not run atexit functions."""
    process: Any = sys.modules.get("multiprocessing.process")
    util: Any = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None or os.getpid() in _workers:
        return
    _workers.add(os.getpid())
    util.Finalize(None, _finish_all, exitpriority=20)  # before the producers are closed, with 10


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_finish_all)  # atexit calls it before the producers are closed: that was registered earlier
