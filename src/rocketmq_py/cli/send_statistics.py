"""Rate limit and results of the messages that ``send`` and ``bench`` send."""

from __future__ import annotations

import math
import sys
from collections import Counter
from typing import TYPE_CHECKING, TextIO

import attrs

from rocketmq_py.cli.console import print_line
from rocketmq_py.client.flow_control import RateLimiter
from rocketmq_py.errors import BrokerError, Delivery, InvalidMessageError, RocketMQError
from rocketmq_py.message import SendResult, SendStatus

if TYPE_CHECKING:
    from rocketmq_py.producer import PendingSend

MAX_REASONS = 10
"""Reasons from which on further invalid messages are reported together."""
SEND_TIMEOUT = 15.0
"""Seconds for each message. Longer than the client's default, since a large file can overload a broker."""


def rate_limiter(rate: float | None) -> RateLimiter:
    """Return a limiter to ``rate`` sends per second, or without a limit if that is None.

    Catching up after a delay would send a burst, so that only one send may be early.
    """
    return RateLimiter(math.inf if rate is None else rate, burst_seconds=0.0 if rate is None else 1 / rate)


class SendStatistics:
    """Counts the results of sends, and prints each one if ``verbose``.

    Attributes:
        sent: messages that were stored, or written to the network with ``--oneway``.
        failed: messages that were not stored, or may not have been.
    """

    def __init__(self, *, verbose: bool = False, stream: TextIO | None = None) -> None:
        self.sent: int = 0
        self.failed: int = 0
        self._verbose = verbose
        self._stream = stream or sys.stderr
        self._statuses: Counter[SendStatus] = Counter()
        self._reasons: dict[tuple[object, ...], _FailureReason] = {}

    def record(self, pending: PendingSend) -> None:
        """Count a pipelined send that has completed."""
        error = pending.exception()
        if error is None:
            self.record_stored(pending.result())
        else:
            self.record_failure(error)

    def record_stored(self, result: SendResult) -> None:
        """Count a message that a broker stored."""
        self.sent += 1
        if result.status is not SendStatus.SEND_OK:
            self._statuses[result.status] += 1
        if self._verbose:
            queue = result.queue
            self._print(
                f"{result.status.name} {result.message_id} broker={queue.broker_name} "
                f"queue={queue.queue_id} offset={result.queue_offset}"
            )

    def record_failure(self, error: RocketMQError) -> None:
        """Count a message that failed."""
        text = str(error)
        if isinstance(error, InvalidMessageError):
            # The texts name the faults, and the lines of the input that have them.
            kind: tuple[object, ...] = (type(error), text)
            if (*kind, error.delivery) not in self._reasons and len(self._reasons) >= MAX_REASONS:
                kind, text = (type(error),), f"other invalid messages, such as: {text}"
        else:
            kind = (type(error), error.code if isinstance(error, BrokerError) else None)
        self.record_failures(1, error.delivery, text, kind=kind)

    def record_failures(
        self, count: int, delivery: Delivery, text: str, *, kind: tuple[object, ...] = ()
    ) -> None:
        """Count messages that failed for the same reason.

        Failures of the same ``kind`` and ``delivery`` are reported as one, with the first one's text. The
        texts of brokers differ in numbers and times, and there may be many of them.
        """
        self.failed += count
        self._reasons.setdefault((*kind, delivery), _FailureReason(delivery, text)).count += count
        if self._verbose:
            self._print(f"FAILED ({delivery.value}) {text}")

    def report(self, seconds: float, *, empty: int = 0) -> None:
        """Print the summary: number of messages, rate, and failures by reason.

        Args:
            seconds: the duration of all sends.
            empty: number of empty lines that were skipped.
        """
        if not self._verbose and (self.sent or not self.failed):
            rate = f" ({self.sent / seconds:.0f}/s)" if self.sent > 1 and seconds > 0 else ""
            self._print(f"{_messages(self.sent)} sent in {seconds:.2f} s{rate}")
            if empty:
                self._print(f"{empty} empty {'line' if empty == 1 else 'lines'} skipped")
        self.report_failures()

    def report_failures(self) -> None:
        """Print the messages that failed, by reason, and those that were stored with a warning status."""
        for status, count in self._statuses.items():
            self._print(f"{_messages(count)} stored with status {status.name}")
        if self.failed:
            self._print(f"rocketmq-py: {self.failed} of {_messages(self.failed + self.sent)} failed:")
            for reason in sorted(self._reasons.values(), key=lambda reason: -reason.count):
                self._print(f"  {reason.count} {reason.delivery_text}: {reason.text}")

    def _print(self, line: str) -> None:
        print_line(self._stream, line)


@attrs.define
class _FailureReason:
    """Failures of the same kind."""

    delivery: Delivery
    text: str
    count: int = 0

    @property
    def delivery_text(self) -> str:
        return "possibly stored" if self.delivery is Delivery.UNKNOWN else self.delivery.value


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
