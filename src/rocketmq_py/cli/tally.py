"""What became of the messages that ``send`` sent, and how that is told."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from rocketmq_py.cli.console import print_line
from rocketmq_py.errors import BrokerError, Delivery, RocketMQError
from rocketmq_py.message import SendResult, SendStatus

if TYPE_CHECKING:
    from rocketmq_py.producer import PendingSend

SEND_TIMEOUT = 15.0
"""Seconds for each message: a whole file of them may keep a broker busy."""


class Tally:
    """Counts results, and with ``verbose`` prints each one.

    Attributes:
        sent: messages that were stored, or handed to the network with ``--oneway``.
        failed: messages that were not, or of which nobody knows.
    """

    def __init__(self, *, verbose: bool = False, stream: TextIO | None = None) -> None:
        self.sent: int = 0
        self.failed: int = 0
        self._verbose = verbose
        self._stream = stream or sys.stderr
        self._statuses: Counter[SendStatus] = Counter()
        self._reasons: dict[tuple[object, ...], _Reason] = {}

    def done(self, pending: PendingSend) -> None:
        """Count a pipelined send that is done."""
        error = pending.error
        if error is None:
            self.stored(pending.result())
        else:
            self.fail(error)

    def stored(self, result: SendResult) -> None:
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

    def fail(self, error: RocketMQError) -> None:
        """Count a message that failed."""
        code = error.code if isinstance(error, BrokerError) else None
        self.refuse(1, error.delivery, str(error), kind=(type(error), code))

    def refuse(self, count: int, delivery: Delivery, text: str, *, kind: tuple[object, ...] = ()) -> None:
        """Count messages that failed for one reason.

        Failures of one ``kind`` and ``delivery`` are told as one, in the words of the first: the
        broker's differ in numbers and times, and there may be many.
        """
        self.failed += count
        self._reasons.setdefault((*kind, delivery), _Reason(delivery, text)).count += count
        if self._verbose:
            self._print(f"FAILED ({delivery.value}) {text}")

    def report(self, seconds: float, *, empty: int = 0) -> None:
        """Print the end result: what was sent, in a time, and what failed for which reasons.

        Args:
            seconds: how long it took.
            empty: lines that were left out.
        """
        if not self._verbose and (self.sent or not self.failed):
            rate = f" ({self.sent / seconds:.0f}/s)" if self.sent > 1 and seconds > 0 else ""
            self._print(f"{_messages(self.sent)} sent in {seconds:.2f} s{rate}")
            if empty:
                self._print(f"{empty} empty {'line' if empty == 1 else 'lines'} left out")
        self.report_failures()

    def report_failures(self) -> None:
        """Print what was not stored as it should be, for which reasons; nothing if all was."""
        for status, count in self._statuses.items():
            self._print(f"{count} of them stored, but the broker answered {status.name}")
        if self.failed:
            self._print(f"rocketmq-py: {self.failed} of {_messages(self.failed + self.sent)} failed:")
            for reason in sorted(self._reasons.values(), key=lambda reason: -reason.count):
                self._print(f"  {reason.count} {reason.what}: {reason.text}")

    def _print(self, line: str) -> None:
        print_line(self._stream, line)


class _Reason:
    """Failures of one kind."""

    def __init__(self, delivery: Delivery, text: str) -> None:
        self.count = 0
        self.text = text
        self.what = "possibly stored" if delivery is Delivery.UNKNOWN else delivery.value


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
