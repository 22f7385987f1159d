"""The error and the warnings for lost offsets."""

from __future__ import annotations

import logging

import pytest

from rocketmq_py.errors import DataLossError
from rocketmq_py.spark.batch_plan import batch_backlog
from rocketmq_py.spark.discovery import LostOffsets, data_loss_error, report_losses
from tests.spark.fake_clients import queue

QUEUES = [queue(queue_id=number) for number in range(4)]


def test_data_loss_error_names_topic_broker_queue_and_offsets() -> None:
    with pytest.raises(DataLossError) as raised:
        raise data_loss_error([LostOffsets(QUEUES[3], 5, 8), LostOffsets(QUEUES[0], 1, 2)])
    assert str(raised.value) == (
        "offsets 5 to 7 of queue 3 of topic 'orders' on broker 'broker-a' are not there: the broker does not "
        "have them any more; 1 more queue has lost offsets; set failOnDataLoss to false to continue without "
        "them"
    )
    assert "offsets from 5 on of queue 0" in str(data_loss_error([LostOffsets(QUEUES[0], 5, None, "gone")]))


def test_data_loss_error_counts_queues_and_not_losses() -> None:
    # The first queue lost offsets before its first message and after its end.
    one, two = {QUEUES[0]: (3, 9)}, {QUEUES[0]: (3, 9), QUEUES[1]: (3, 9)}
    losses = batch_backlog(dict.fromkeys(one, 0), dict.fromkeys(one, 20), one).losses
    assert [(loss.first, loss.end) for loss in losses] == [(0, 3), (9, 20)]
    assert "more queue" not in str(data_loss_error(losses))
    losses = batch_backlog(dict.fromkeys(two, 0), dict.fromkeys(two, 20), two).losses
    assert len(losses) == 4
    assert "; 1 more queue has lost offsets; " in str(data_loss_error(losses))


def test_losses_raise_an_error_or_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    losses = [LostOffsets(QUEUES[number], 1, 2) for number in range(3)]
    with pytest.raises(DataLossError, match="2 more queues have lost offsets; set failOnDataLoss"):
        report_losses(losses, fail=True)
    report_losses([], fail=True)
    with caplog.at_level(logging.WARNING, "rocketmq_py.spark"):
        report_losses(losses, fail=False)
    assert len(caplog.records) == 3
    assert all("set failOnDataLoss" not in record.getMessage() for record in caplog.records)
