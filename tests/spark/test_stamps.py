from __future__ import annotations

from collections.abc import Mapping

import attrs
import pyspark
import pytest

from rocketmq_py.errors import ConfigurationError
from rocketmq_py.spark.stamps import Origin, Stamp, task_origin


@attrs.frozen
class Task:
    """Stands in for Spark's TaskContext."""

    properties: Mapping[str, str]

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 3

    def attemptNumber(self) -> int:  # noqa: N802
        return 1

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name)


def run_as(task: Task | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: task)


def test_a_task_of_a_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(Task({"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}), monkeypatch)
    origin = task_origin(None)
    assert origin == Origin("q", 7, 3, 1)
    assert Stamp.parse(f"{origin.numbered}12") == Stamp("q", 7, 3, "12")
    assert Stamp.parse(f"{origin.named}a/b") == Stamp("q", 7, None, "a/b")


def test_a_task_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(Task({"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}), monkeypatch)
    assert task_origin("job") == Origin("job", 0, 3, 1)


@pytest.mark.parametrize("properties", [{}, {"sql.streaming.queryId": "q"}, {"streaming.sql.batchId": "7"}])
def test_a_batch_that_spark_does_not_name(
    monkeypatch: pytest.MonkeyPatch, properties: Mapping[str, str]
) -> None:
    run_as(Task(properties), monkeypatch)
    with pytest.raises(ConfigurationError, match="the option stamp=false sends them without"):
        task_origin(None)
    assert task_origin(None, is_stamped=False).partition == 3


def test_outside_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(None, monkeypatch)
    with pytest.raises(ConfigurationError, match="in no task of Spark's"):
        task_origin("job")


@pytest.mark.parametrize("text", ["", "q", "q/1/2", "q/x/2/3", "q/1/x/3"])
def test_what_is_no_stamp(text: str) -> None:
    with pytest.raises(ValueError):
        Stamp.parse(text)
