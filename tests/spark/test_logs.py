from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from rocketmq_py.spark.sink import TaskWritten, summary
from rocketmq_py.spark.writing import Written

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
