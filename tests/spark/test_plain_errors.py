"""What users see of an error."""

from __future__ import annotations

import inspect
import logging
import traceback

import pytest

from rocketmq_py.errors import ClosedError, TopicNotFoundError
from rocketmq_py.spark.batch_source import BatchSource
from rocketmq_py.spark.partitions import SpansPartition, rows_of
from rocketmq_py.spark.plain_errors import plainly
from rocketmq_py.spark.stream_source import StreamSource
from tests.spark.clusters import PlainCluster, batch_options, stream_options

NONE = PlainCluster({})


def shown(error: BaseException) -> list[str]:
    """Return the lines that Spark shows of it."""
    return "".join(traceback.format_exception(error)).splitlines()


def test_planning_says_what_is_wrong_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "rocketmq_py.spark"),
        pytest.raises(TopicNotFoundError) as of_batch,
    ):
        BatchSource(batch_options(), lambda _: NONE).partitions()
    (record,) = caplog.records
    assert record.exc_info is not None
    with pytest.raises(TopicNotFoundError) as of_stream:
        StreamSource(stream_options(), lambda _: NONE).initialOffset()
    for error in (of_batch.value, of_stream.value):
        lines = shown(error)
        assert not any("survey.py" in line for line in lines)
        assert lines[-1].startswith("rocketmq_py.errors.TopicNotFoundError: topic 'orders' does not exist")


def test_a_task_does_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        try:
            raise OSError("what is below")
        except OSError as error:
            raise ClosedError("what is above") from error

    monkeypatch.setattr("rocketmq_py.spark.reading.read_spans", fail)
    with pytest.raises(ClosedError) as raised:
        list(rows_of(batch_options(), SpansPartition(())))
    lines = shown(raised.value)
    assert not any("below" in line or "in fail" in line for line in lines)
    assert lines[-1].endswith("ClosedError: what is above")


def test_other_errors_keep_their_way() -> None:
    @plainly
    def fail(_: int) -> None:
        raise ValueError("a mistake of ours")

    with pytest.raises(ValueError, match="of ours") as raised:
        fail(1)
    assert any("in fail" in line for line in shown(raised.value))


def test_spark_still_sees_what_latest_offset_takes() -> None:
    stream = StreamSource(stream_options(), lambda _: NONE)
    assert list(inspect.signature(stream.latestOffset).parameters) == ["start", "limit"]
