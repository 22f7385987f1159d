"""Stamps, and the identity of a task."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pyspark
import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.stamps import Stamp, TaskIdentity, current_task


@attrs.frozen
class FakeTaskContext:
    """A fake of Spark's TaskContext."""

    properties: Mapping[str, str]

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 3

    def attemptNumber(self) -> int:  # noqa: N802
        return 1

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name)


def run_in(context: FakeTaskContext | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: context)


def test_identity_of_a_task_of_a_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(FakeTaskContext({"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}), monkeypatch)
    task = current_task(None)
    assert task == TaskIdentity("q", 7, 3, 1)
    assert Stamp.parse(f"{task.row_number_prefix}12") == Stamp("q", 7, 3, "12")
    assert Stamp.parse(f"{task.row_id_prefix}a/b") == Stamp("q", 7, None, "a/b")


def test_identity_of_a_task_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(FakeTaskContext({"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}), monkeypatch)
    assert current_task("job") == TaskIdentity("job", 0, 3, 1)


@pytest.mark.parametrize("properties", [{}, {"sql.streaming.queryId": "q"}, {"streaming.sql.batchId": "7"}])
def test_stamping_needs_the_query_and_batch_from_spark(
    monkeypatch: pytest.MonkeyPatch, properties: Mapping[str, str]
) -> None:
    run_in(FakeTaskContext(properties), monkeypatch)
    with pytest.raises(ConfigurationError, match="set the option stamp=false to send messages without"):
        current_task(None)
    assert current_task(None, is_stamped=False).partition == 3


def test_current_task_outside_of_a_task_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(None, monkeypatch)
    with pytest.raises(ConfigurationError, match="only write inside a Spark task"):
        current_task("job")


@pytest.mark.parametrize("text", ["", "q", "q/1/2", "q/x/2/3", "q/1/x/3"])
def test_invalid_stamps_are_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        Stamp.parse(text)
