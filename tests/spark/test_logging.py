"""Log output in the Python processes that Spark starts."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from rocketmq_py.spark.piece_sender import WriteSummary
from rocketmq_py.spark.sink import TaskCommitMessage, describe_tasks
from rocketmq_py.spark.source import BatchSource
from rocketmq_py.spark.worker_processes import log_to_stderr
from tests.spark.fake_clients import batch_options

PROGRAM = """
import logging
from rocketmq_py.spark.worker_processes import log_to_stderr
log_to_stderr()
log_to_stderr()
logging.getLogger("rocketmq_py.spark").info("batch 7")
logging.getLogger("rocketmq_py.client").warning("lost")
"""


@pytest.mark.parametrize(("level", "lines"), [(None, 2), ("warning", 1), ("nonsense", 2)])
def test_log_goes_to_stderr_if_logging_is_not_configured(level: str | None, lines: int) -> None:
    env = {name: value for name, value in os.environ.items() if name != "ROCKETMQ_LOG_LEVEL"}
    env |= {} if level is None else {"ROCKETMQ_LOG_LEVEL": level}
    command = [sys.executable, "-c", PROGRAM]
    process = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    logged = process.stderr.splitlines()
    assert len(logged) == lines
    assert logged[-1].endswith("WARNING rocketmq_py.client: lost")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("batch.commit([])", "INFO rocketmq_py.spark: wrote job=j: rows=0"),
        ("batch.abort([])", "WARNING rocketmq_py.spark: aborted job=j: rows=0"),
        ("stream.commit([], 3)", "INFO rocketmq_py.spark: wrote batch=3: rows=0"),
        ("stream.abort([], 3)", "WARNING rocketmq_py.spark: aborted batch=3: rows=0"),
    ],
)
def test_log_goes_to_stderr_in_a_process_that_only_commits(call: str, line: str) -> None:
    program = f"""
from rocketmq_py.spark.options import ConnectionOptions
from rocketmq_py.spark.sink import BatchSink, StreamSink
from rocketmq_py.spark.sink_options import SinkOptions
options = SinkOptions(connection=ConnectionOptions(name_server="ns:9876"), job_id="j")
batch, stream = BatchSink({{}}, options), StreamSink({{}}, options)
{call}
"""
    process = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert line in process.stderr


def test_log_goes_to_stderr_where_a_reader_is_unpickled(tmp_path: Path) -> None:
    reader = BatchSource(batch_options())
    (tmp_path / "reader").write_bytes(pickle.dumps(reader))
    program = """
import logging, pickle, sys
reader = pickle.load(open(sys.argv[1], "rb"))
logging.getLogger("rocketmq_py.spark").warning("lost")
"""
    command = [sys.executable, "-c", program, str(tmp_path / "reader")]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    assert process.stderr.endswith(" WARNING rocketmq_py.spark: lost\n")


def test_configured_logging_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    handlers = list(logging.getLogger("rocketmq_py").handlers)
    log_to_stderr()
    assert logging.getLogger("rocketmq_py").handlers == handlers


def test_log_line_of_a_batch() -> None:
    messages = [
        TaskCommitMessage(0, WriteSummary(5, 50, 1, 1.5, 1.0, 7)),
        None,
        TaskCommitMessage(2, WriteSummary(6, 60, 0, 2.0, 2.0)),
    ]
    assert describe_tasks(messages) == (
        "rows=11 bytes=110 resent=1 dead_letters=7 tasks=2 unfinished_tasks=1 send_seconds=3.50 "
        "slowest_send_seconds=2.00"
    )
