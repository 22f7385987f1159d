"""The command as a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import attrs
import trio

import rocketmq_py

COMMAND = [sys.executable, "-m", "rocketmq_py"]
ENVIRONMENT = {
    # Coverage and coloured output are nobody's business here; where the package is, is.
    **{name: value for name, value in os.environ.items() if not name.startswith(("ROCKETMQ", "NAMESRV"))},
    "PYTHONPATH": str(Path(rocketmq_py.__file__).parent.parent),
    "NO_COLOR": "1",
}


@attrs.frozen
class Ended:
    """How a command ended."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()


async def run_cli(*arguments: str | bytes, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ended:
    """Run ``rocketmq-py`` to its end."""
    ended = await trio.run_process(
        [*COMMAND, *arguments],
        stdin=stdin,
        capture_stdout=True,
        capture_stderr=True,
        check=False,
        env={**ENVIRONMENT, **(env or {})},
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr.decode())
