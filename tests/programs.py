"""Run Python programs as users do: in a process of their own, against a broker of the test."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import trio

import rocketmq_py

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(rocketmq_py.__file__).parent.parent)}


async def run(*arguments: str) -> list[str]:
    """Run Python with these arguments and return the lines of its output.

    The program must exit with 0 and print nothing to stderr.
    """
    ended = await trio.run_process(
        [sys.executable, *arguments], capture_stdout=True, capture_stderr=True, check=False, env=ENVIRONMENT
    )
    outcome = ended.returncode, ended.stderr.decode()
    assert outcome == (0, ""), outcome  # pytest does not explain assertions outside of tests
    return ended.stdout.decode().splitlines()
