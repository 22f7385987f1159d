from __future__ import annotations

import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from rocketmq_py.cli import main
from rocketmq_py.message import Message
from rocketmq_py.producer import Producer
from tests.cli.command import COMMAND, ENVIRONMENT, run_cli
from tests.cli.conftest import StartCli


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_it_says_where_it_is_and_ends_cleanly(start_cli: StartCli, number: signal.Signals) -> None:
    process = await start_cli(
        *("server", "--namesrv-port", "0", "--port", "0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    line = (await process.stdout.receive_some()).decode()
    found = re.fullmatch(r"ready: name server (127\.0\.0\.1:\d+), broker (127\.0\.0\.1:\d+)\n", line)
    assert found
    async with Producer(found[1]) as producer:
        result = await producer.send(Message("T", b"hello"))
        assert result.queue.broker_name == "broker-a"
        process.send_signal(number)
        assert await process.wait() == 0
    assert await process.stdout.receive_some() == b""
    assert await process.stderr.receive_some() == b""


async def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ended = await run_cli("server", "--namesrv-port", "0", "--port", str(port))
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"rocketmq-py: cannot listen on 127.0.0.1:{port}: ")


async def test_a_wrong_host_is_one_line() -> None:
    ended = await run_cli("server", "--host", "not an address", "--namesrv-port", "0", "--port", "0")
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert "'not an address'" in line


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--host", "::"], ["--advertise", "0.0.0.0"]])
def test_a_host_that_no_client_can_use(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["server", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--advertise must say which one clients use" in result.stderr
    assert "broker_ip1" not in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
async def test_it_ends_when_nobody_can_read_its_ports() -> None:
    with Path("/dev/full").open("w") as full:
        ended = await trio.run_process(
            [*COMMAND, "server", "--namesrv-port", "0", "--port", "0"],
            stdout=full.fileno(), capture_stderr=True, check=False, env=ENVIRONMENT,
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == (b"rocketmq-py: cannot write where the broker listens: No space left on device\n")


async def test_the_old_word_still_starts_it_and_says_the_new_one(start_cli: StartCli) -> None:
    process = await start_cli(
        *("broker", "--namesrv-port", "0", "--port", "0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert (await process.stdout.receive_some()).startswith(b"ready: name server 127.0.0.1:")
    assert b"`rocketmq-py server`" in await process.stderr.receive_some()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
