"""Tracebacks of errors that reach Spark."""

from __future__ import annotations

import inspect
import logging
import socket
import traceback

import pytest

from rocketmq_py.errors import ClosedError, ConnectError, TopicNotFoundError
from rocketmq_py.spark.batch_plan import RangesPartition
from rocketmq_py.spark.source import BatchSource, StreamSource
from rocketmq_py.spark.worker_processes import hides_tracebacks
from tests.spark.fake_clients import FakeOffsetClient, batch_options, stream_options

EMPTY_CLUSTER = FakeOffsetClient({})


def printed(error: BaseException) -> list[str]:
    """Return the lines that Spark prints for an error."""
    return "".join(traceback.format_exception(error)).splitlines()


def test_planning_errors_have_no_inner_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG, "rocketmq_py.spark"),
        pytest.raises(TopicNotFoundError) as of_batch,
    ):
        BatchSource(batch_options(), lambda _: EMPTY_CLUSTER).partitions()
    (record,) = caplog.records
    assert record.exc_info is not None
    with pytest.raises(TopicNotFoundError) as of_stream:
        StreamSource(stream_options(), lambda _: EMPTY_CLUSTER).initialOffset()
    for error in (of_batch.value, of_stream.value):
        lines = printed(error)
        assert not any("discovery.py" in line for line in lines)
        assert lines[-1].startswith("rocketmq_py.errors.TopicNotFoundError: topic 'orders' does not exist")


def test_task_errors_have_no_inner_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        try:
            raise OSError("low-level cause")
        except OSError as error:
            raise ClosedError("the client is closed") from error

    monkeypatch.setattr("rocketmq_py.spark.source_task.read_ranges", fail)
    with pytest.raises(ClosedError) as raised:
        list(StreamSource(stream_options()).read(RangesPartition(())))
    lines = printed(raised.value)
    assert not any("low-level" in line or "in fail" in line for line in lines)
    assert lines[-1].endswith("ClosedError: the client is closed")


def test_unreachable_broker_is_named_with_the_host_that_lacks_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = ConnectError("10.0.0.2:10911", "refused")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("rocketmq_py.spark.source_task.read_ranges", fail)
    for _ in range(2):
        with pytest.raises(ConnectError) as raised:
            list(StreamSource(stream_options()).read(RangesPartition(())))
        text = str(raised.value)
        assert text.startswith("cannot connect to 10.0.0.2:10911: refused. ")
        assert text.endswith(f"run `rocketmq-py check connection` on this host, {socket.gethostname()}")
        assert text.count("check connection") == 1


def test_errors_of_other_classes_keep_their_traceback() -> None:
    @hides_tracebacks
    def fail(_: int) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug") as raised:
        fail(1)
    assert any("in fail" in line for line in printed(raised.value))


def test_decorated_latest_offset_keeps_its_signature() -> None:
    """Spark inspects it to learn which arguments to pass."""
    stream = StreamSource(stream_options(), lambda _: EMPTY_CLUSTER)
    assert list(inspect.signature(stream.latestOffset).parameters) == ["start", "limit"]
