"""The examples run, and use public names only."""

from __future__ import annotations

import ast
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

import rocketmq_py
from rocketmq_py.broker import EmbeddedBroker

EXAMPLES = Path(__file__).parent.parent / "examples"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(rocketmq_py.__file__).parent.parent)}


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with EmbeddedBroker() as broker:
        yield broker.name_server_address


async def run(*arguments: str) -> list[str]:
    """Run Python to a good end without a word on stderr; return the lines of its output."""
    ended = await trio.run_process(
        [sys.executable, *arguments], capture_stdout=True, capture_stderr=True, check=False, env=ENVIRONMENT
    )
    assert (ended.returncode, ended.stderr.decode()) == (0, "")
    return ended.stdout.decode().splitlines()


async def example(name: str, *arguments: str) -> list[str]:
    return await run(str(EXAMPLES / name), *arguments)


async def test_the_demo() -> None:
    lines = await example("demo.py")
    assert lines[-1] == "All 10002 messages were sent, consumed and printed."
    assert "(10002 lines)" in lines


async def test_send_then_tail_then_consume(address: str) -> None:
    awaited, pipelined, oneway = await example("send.py", address)
    assert awaited.startswith("awaited: SEND_OK, queue ")
    assert pipelined == "pipelined: 100 stored in 4 queues"
    assert oneway == "oneway: on its way"

    lines = await example("tail.py", address)
    *messages, first, _, _, _ = lines
    assert len(messages) == 40
    assert first.startswith("broker-a queue 0: offsets 0 to 2")

    command = [sys.executable, str(EXAMPLES / "consume.py"), address]
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            lambda task_status: trio.run_process(
                command, stdout=PIPE, check=False, env=ENVIRONMENT, task_status=task_status
            )
        )
        assert process.stdout is not None
        consumed = b""
        while consumed.count(b"\n") < 101:  # all but the oneway message, which has no tag
            consumed += await process.stdout.receive_some()
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert b"b'awaited'" in consumed
    assert b"b'oneway'" not in consumed


async def test_a_shared_client(address: str) -> None:
    lines = await example("shared_client.py", address)
    assert sorted(lines) == [f"order {number} billed" for number in range(5)]


async def test_a_users_test_with_the_embedded_broker(tmp_path: Path) -> None:
    # As in a project that has no settings for pytest.
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n")
    lines = await run("-m", "pytest", "-q", "-c", str(settings), str(EXAMPLES / "embedded_broker.py"))
    assert lines[-1].startswith("1 passed")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_only_public_names_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "how is it run?"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rocketmq_py"):
            assert node.module in {"rocketmq_py", "rocketmq_py.broker", "rocketmq_py.errors"}
            if node.module == "rocketmq_py":
                assert {alias.name for alias in node.names} <= set(rocketmq_py.__all__)
