"""The command ``rocketmq-py`` as a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import rocketmq_py
from tests.cli.forking import Ended, Running, run_forked, start_forked

__all__ = ["COMMAND", "ENVIRONMENT", "Ended", "Running", "run_cli", "start_command"]

COMMAND = [sys.executable, "-m", "rocketmq_py"]
ENVIRONMENT = {
    # Without coverage, coloured output, and the user's own clusters.
    **{name: value for name, value in os.environ.items() if not name.startswith(("ROCKETMQ", "NAMESRV"))},
    "PYTHONPATH": str(Path(rocketmq_py.__file__).parent.parent),
    "NO_COLOR": "1",
}


async def run_cli(*arguments: str | bytes, stdin: bytes = b"", env: Mapping[str, str] = {}) -> Ended:
    """Run ``rocketmq-py`` to its end, in a separate process."""
    return await run_forked(arguments, stdin, {**ENVIRONMENT, **env})


async def start_command(*arguments: str, instead: Mapping[int, int] = {}) -> Running:
    """Start ``rocketmq-py`` in a separate process. ``instead`` maps its file descriptors to files."""
    return await start_forked(arguments, ENVIRONMENT, instead)
