"""The logging handler and its JSON formatter.

``shipper`` sends the queued records. This module flushes them at the end of a process.
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
from datetime import UTC, datetime
from functools import partial
from typing import Any, Unpack

from rocketmq_py import producer
from rocketmq_py.blocking import Producer
from rocketmq_py.handoff.trio_thread import EXIT_LIMIT
from rocketmq_py.integrations.log_handler.shipper import Shipper
from rocketmq_py.message import Message
from rocketmq_py.names import check_topic
from rocketmq_py.producer.settings import USUAL_LINGER, ProducerOptions

DEFAULT_GROUP = "LOGGING"
DEFAULT_MAX_BYTES = 8 * 1024 * 1024
EMPTY_TEXT = b"\n"
"""The body of a record without text: brokers refuse an empty one."""
_NOT_IN_TAGS = re.compile(r"[^\w.%-]+", re.ASCII)
_STANDARD_ATTRIBUTES = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}
)


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object.

    It has the keys ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, ``file``, ``line``,
    ``function``, ``process`` and ``thread``, the record's attributes from ``extra``, and, if there are any,
    ``exception`` and ``stack``. Values that JSON does not have are written as their ``str()``. An attribute
    from ``extra`` with one of these names is left out.
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
            fields = {name: _as_json_value(value) for name, value in fields.items()}
            return json.dumps(fields, ensure_ascii=False, default=str)


def _as_json_value(value: object) -> object:
    """Return a value of ``extra``, or its ``str()`` if JSON cannot have it."""
    try:
        json.dumps(value, allow_nan=False, default=str)
    except (TypeError, ValueError):
        return str(value)
    return value


class RocketMQHandler(logging.Handler):
    """Sends each log record as a message, in batches and in the background.

    Logging never waits for a broker. Records are queued, and a thread sends them. It retries while brokers
    are away. Records that exceed ``max_in_flight_bytes`` meanwhile are dropped and counted. A record may be
    sent twice if the connection fails before its acknowledgement.

    The text is formatted by a :class:`JsonFormatter`, or by the formatter that ``setFormatter`` sets, and is
    encoded as UTF-8. The message's tag is the name of the record's level, so consumers can subscribe to
    ``ERROR || CRITICAL``. Records of ``rocketmq_py`` itself are ignored: sending them would log again.

    Closing the handler, ``logging.shutdown()`` and the end of the process send the queued records. They give
    up after ``close_timeout`` seconds in which none was acknowledged, and the end of the process after 60
    seconds. Records that cannot be sent until then are dropped and counted, and one line on standard error
    says how many, because a log line may have no other handler. A forked child has a thread and connections
    of its own, and never sends records of its parent.

    Args:
        topic: the topic of all records.
        address: name servers as ``host:port;host:port``. None reads NAMESRV_ADDR, else 127.0.0.1:9876.
        level: records below this level are ignored.
        group: the producer group.
        **options: the settings of a Producer and of its Client. ``max_in_flight_bytes`` (here 8 MiB by
            default) limits the records that wait or are in flight. ``linger`` is 0.005 by default.
            ``close_timeout`` (5 seconds by default) is the time without an acknowledgement after which
            :meth:`flush` and :meth:`close` give up.

    Raises:
        ConfigurationError: an option is unknown or outside of its range.
    """

    def __init__(
        self,
        topic: str,
        address: str | None = None,
        *,
        level: int | str = logging.NOTSET,
        group: str = DEFAULT_GROUP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        options = {"linger": USUAL_LINGER, "max_in_flight_bytes": DEFAULT_MAX_BYTES, **options}
        # Never opened. It checks the options here, where the mistake is, and not in the thread.
        config = producer.Producer(address, group=group, **options).settings
        super().__init__(level)
        self.topic: str = check_topic(topic)
        self.setFormatter(JsonFormatter())
        self._max_bytes = config.max_in_flight_bytes
        self._close_timeout = config.close_timeout
        self._open_producer = partial(Producer, address, group=group, **options)
        self._is_closed = False
        self._reset()
        _handlers.add(self)

    def _reset(self) -> None:
        """Start without a shipper: at first, and in a forked child."""
        self._shipper: Shipper | None = None
        self._dropped = 0
        self._has_written_drops = False
        self._busy = threading.local()

    @property
    def dropped(self) -> int:
        """The number of records that this process dropped.

        They did not fit ``max_in_flight_bytes``, could not be formatted, were refused by the broker, were not
        sent in time when the handler closed, or were logged after that.
        """
        return self._dropped + (0 if self._shipper is None else self._shipper.dropped)

    def handle(self, record: logging.LogRecord) -> bool:
        """Emit a record, unless it is one of ``rocketmq_py`` or a filter refuses it."""
        # Before the handler's lock: ``logging.shutdown`` holds it while it waits for the threads that send.
        if record.name.partition(".")[0] == "rocketmq_py":
            return False
        return super().handle(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record. It never waits for a broker and never raises.

        A record that is logged while this thread formats another one, for example by the ``__str__`` of an
        argument, is dropped.
        """
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
        body = self.format(record).encode(errors="backslashreplace") or EMPTY_TEXT
        return Message(self.topic, body, _NOT_IN_TAGS.sub("_", record.levelname))

    def _add(self, message: Message) -> bool:
        """Queue a message. Return False if there is no space, or the handler is closed."""
        if self._is_closed:
            return False
        if self._shipper is None:
            shipper = Shipper(self, self._open_producer, self._max_bytes)
            shipper.start()
            self._shipper = shipper
            _finish_at_end_of_worker()
        return self._shipper.add(message)

    def flush(self) -> None:
        """Wait until the records that were logged until now are acknowledged; see ``close_timeout``.

        In a hook or selector of a producer, which its background thread calls, it does not wait.
        """
        if self._shipper is not None and not self._is_closed:
            self._shipper.wait(self._shipper.mark(), self._close_timeout)

    def close(self) -> None:
        """Send the queued records; see ``close_timeout``. The rest is dropped. Repeatable."""
        if not self._is_closed:
            self._is_closed = True
            if self._shipper is not None:
                self._shipper.close(self._close_timeout)
                self._write_drops()
        _handlers.discard(self)
        super().close()

    def _write_drops(self) -> None:
        """Write to standard error how many records were dropped, at most once, when no more are sent."""
        shipper = self._shipper
        if shipper is None or self._has_written_drops or not self.dropped or sys.stderr is None:
            return
        self._has_written_drops = True
        reason = "" if shipper.last_error is None else f": {shipper.last_error}"
        print(
            f"rocketmq_py: dropped log records topic={self.topic} dropped={self.dropped}{reason}",
            file=sys.stderr,
        )


# The end of a process, and forks

_handlers: weakref.WeakSet[RocketMQHandler] = weakref.WeakSet()


def _finish_all() -> None:
    """Send the records that all handlers have queued. Drop those that are logged later."""
    waiting = [
        (handler, shipper, shipper.mark())
        for handler in list(_handlers)
        if (shipper := handler._shipper) is not None
    ]
    began = time.monotonic()
    for handler, shipper, mark in waiting:
        shipper.wait(mark, handler._close_timeout, began, began + EXIT_LIMIT)
        shipper.stop()
        handler._write_drops()


def _reset_all() -> None:
    """Forget the parent's threads and records in a child that was just forked."""
    for handler in list(_handlers):
        handler._reset()


_pids_with_finalizer: set[int] = set()
"""Processes that have registered the finalizer. A forked child inherits the set, but not the registration."""


def _finish_at_end_of_worker() -> None:
    """Finish at the end of a multiprocessing worker, which does not run atexit functions."""
    process: Any = sys.modules.get("multiprocessing.process")
    util: Any = sys.modules.get("multiprocessing.util")
    if (
        process is None
        or util is None
        or process.parent_process() is None
        or os.getpid() in _pids_with_finalizer
    ):
        return
    _pids_with_finalizer.add(os.getpid())
    util.Finalize(None, _finish_all, exitpriority=20)  # before the producers are closed, with 10


if hasattr(os, "register_at_fork"):  # Windows cannot fork
    os.register_at_fork(after_in_child=_reset_all)
atexit.register(_finish_all)  # atexit calls it before the producers are closed: that was registered earlier
