"""The warning for messages that are due after their broker deletes them."""

from __future__ import annotations

import pytest

pytest.importorskip("rocksdict", reason="the extra relay is not installed")

from rocketmq_py.message import MessageQueue
from rocketmq_py.relay.buffer_entries import Cancellation, DelayedMessage, Progress
from rocketmq_py.relay.retention import HOUR_MS, RetentionMonitor
from tests.test_message import received

QUEUE = MessageQueue("Buffer", "broker-a", 3)
MESSAGE = received(b"UNIQ_KEY\x01abc\x02", store_time_ms=1000)


def delayed(due_ms: int) -> DelayedMessage:
    return DelayedMessage("abc", due_ms, "T", b"x", "", "", 0, {})


def test_the_warning_is_logged_once_for_each_queue(caplog: pytest.LogCaptureFixture) -> None:
    monitor = RetentionMonitor(QUEUE, 72)
    monitor.check([(MESSAGE, delayed(1000 + 72 * HOUR_MS)), (MESSAGE, Progress(1, 2**62))])
    assert not caplog.messages
    for _ in range(2):
        monitor.check([(MESSAGE, Cancellation("x")), (MESSAGE, delayed(1001 + 72 * HOUR_MS))])
    (text,) = caplog.messages
    assert "message is due after its broker deletes it" in text
    assert "id=abc broker=broker-a topic=Buffer queue=3 fileReservedTime=72 h" in text


def test_there_is_no_warning_if_the_retention_time_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    RetentionMonitor(QUEUE, None).check([(MESSAGE, delayed(2**62))])
    assert not caplog.messages
