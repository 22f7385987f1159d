from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_py.spark.batch_source import BatchSource
from rocketmq_py.spark.sink import TaskWritten, summary
from rocketmq_py.spark.writing import Written
from tests.spark.clusters import batch_options

PROGRAM = """
import logging
from rocketmq_py.spark.logs import show_log
show_log()
show_log()
logging.getLogger("rocketmq_py.spark").info("batch 7")
logging.getLogger("rocketmq_py.client").warning("lost")
"""


@pytest.mark.parametrize(("level", "lines"), [(None, 2), ("warning", 1), ("nonsense", 2)])
def test_where_nothing_is_set_up(level: str | None, lines: int) -> None:
    env = {} if level is None else {"ROCKETMQ_LOG_LEVEL": level}
    command = [sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    said = ended.stderr.splitlines()
    assert len(said) == lines
    assert said[-1].endswith("WARNING rocketmq_py.client: lost")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("BatchSink({}, None, 'j').commit([])", "INFO rocketmq_py.spark: job j: 0 rows"),
        ("BatchSink({}, None, 'j').abort([])", "WARNING rocketmq_py.spark: job j is aborted: 0 rows"),
        ("StreamSink({}, None).commit([], 3)", "INFO rocketmq_py.spark: batch 3: 0 rows"),
        ("StreamSink({}, None).abort([], 3)", "WARNING rocketmq_py.spark: batch 3 is aborted: 0 rows"),
    ],
)
def test_a_process_of_spark_that_only_commits(call: str, line: str) -> None:
    program = f"from rocketmq_py.spark.sink import BatchSink, StreamSink; {call}"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert line in ended.stderr


def test_where_a_reader_arrives(tmp_path: Path) -> None:
    reader = BatchSource(batch_options())
    (tmp_path / "reader").write_bytes(pickle.dumps(reader))
    program = """
import logging, pickle, sys
reader = pickle.load(open(sys.argv[1], "rb"))
logging.getLogger("rocketmq_py.spark").warning("lost")
"""
    command = [sys.executable, "-c", program, str(tmp_path / "reader")]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ended.stderr.endswith(" WARNING rocketmq_py.spark: lost\n")


def test_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    from rocketmq_py.spark.logs import show_log

    before = list(logging.getLogger("rocketmq_py").handlers)
    show_log()
    assert logging.getLogger("rocketmq_py").handlers == before


def test_what_a_batch_says() -> None:
    messages = [
        TaskWritten(0, Written(5, 50, 1, 1.5, 1.0)),
        None,
        TaskWritten(2, Written(6, 60, 0, 2.0, 2.0)),
    ]
    assert summary(messages) == (
        "11 rows (110 bytes) sent by 2 tasks, and 1 tasks that did not end, 1 of them sent again, 3.50 s "
        "waited in all, 2.00 s for the slowest"
    )
