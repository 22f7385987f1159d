"""Programs that call the library from unusual places. One that hangs prints the stacks of its threads."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_py.blocking import Client
from tests.blocking.conftest import ENVIRONMENT, BrokerThread

TIME_LIMIT = float(os.environ.get("HANDOFF_TIME_LIMIT", "300"))
"""Seconds after which a program counts as hanging. The longest take five on an idle machine."""

_WATCHED = """
import faulthandler
faulthandler.dump_traceback_later({limit}, exit=True)
"""


def run_watched(
    program: str, *arguments: str, limit: float = TIME_LIMIT, python: str = sys.executable
) -> tuple[str, str]:
    """Run a program to a good end, and return its output and its errors.

    A program that takes longer than ``limit`` seconds prints the stacks of all threads and fails.
    """
    watched = _WATCHED.format(limit=limit) + textwrap.dedent(program)
    ended = subprocess.run(
        [python, "-c", watched, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
        cwd=Path(__file__).parents[2],  # programs import from tests
    )
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-20000:]}"
    return ended.stdout, ended.stderr


@pytest.fixture
def address() -> Iterator[str]:
    broker = BrokerThread()
    yield broker.start()
    broker.stop()


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        yield client
