from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from rocketmq_py import Client
from tests.behaviours.conftest import ClusterUnderTest, create_topic
from tests.behaviours.reading import until_readable

COMMAND = [sys.executable, "-m", "rocketmq_py"]
COUNT, COUNT_HERE = 100_000, 10_000
"""Lines, on a real broker and on the embedded one."""

pytestmark = pytest.mark.sockets


async def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return await trio.run_process(
        [*COMMAND, *arguments], stdin=stdin, capture_stdout=True, capture_stderr=True, check=False
    )


async def test_many_lines_go_out_and_come_back_each_once(
    cluster: ClusterUnderTest, client: Client, unique: str
) -> None:
    await create_topic(client, unique, queues=4)
    count = COUNT_HERE if cluster.name == "embedded" else COUNT
    lines = b"".join(b"%d\n" % number for number in range(1, count + 1))
    sent = await run("send", "-n", cluster.address, "-t", unique, stdin=lines)
    assert sent.returncode == 0, sent.stderr
    assert b"%d" % count in sent.stderr.replace(b",", b"")
    await until_readable(client, unique, count=count)
    tailed = await run("tail", "-n", cluster.address, "-t", unique, "-o", "beginning", "-e", "-f", r"%s\n")
    assert tailed.returncode == 0, tailed.stderr
    assert sorted(map(int, tailed.stdout.split())) == list(range(1, count + 1))
