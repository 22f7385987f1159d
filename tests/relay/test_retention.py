"""What waits for longer than its broker keeps it is told of."""

from __future__ import annotations

import pytest

from rocketmq_py.message import MessageQueue
from rocketmq_py.relay.entries import Cancellation, Progress, Waiting
from rocketmq_py.relay.retention import HOUR_MS, Retention
from tests.test_message import received

QUEUE = MessageQueue("Buffer", "broker-a", 3)
MESSAGE = received(b"UNIQ_KEY\x01abc\x02", store_time_ms=1000)


def waiting(due_ms: int) -> Waiting:
    return Waiting("abc", due_ms, "T", b"x", "", "", 0, {})


def test_it_is_told_once_for_a_queue(caplog: pytest.LogCaptureFixture) -> None:
    retention = Retention(QUEUE, 72)
    retention.look_at([(MESSAGE, waiting(1000 + 72 * HOUR_MS)), (MESSAGE, Progress(1, 2**62))])
    assert not caplog.messages
    for _ in range(2):
        retention.look_at([(MESSAGE, Cancellation("x")), (MESSAGE, waiting(1001 + 72 * HOUR_MS))])
    (told,) = caplog.messages
    assert "message abc waits for longer than broker-a keeps messages of buffer topic Buffer" in told
    assert "fileReservedTime, 72 h" in told


def test_of_a_broker_that_does_not_say_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Retention(QUEUE, None).look_at([(MESSAGE, waiting(2**62))])
    assert not caplog.messages
