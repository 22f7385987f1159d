from __future__ import annotations

import re
import shlex
import signal
import socket
from pathlib import Path

import pytest
import trio
import trustme
from click.testing import CliRunner

from rocketmq_py.broker.profiles import PROFILES
from rocketmq_py.cli import main
from rocketmq_py.cli.server import PROFILE_NAMES
from rocketmq_py.credentials import Credentials
from rocketmq_py.errors import BrokerError, TopicNotFoundError
from rocketmq_py.message import Message
from rocketmq_py.producer import Producer
from rocketmq_py.remoting import TLS
from tests.cli.command import COMMAND, ENVIRONMENT, run_cli
from tests.cli.conftest import StartCli


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_server_prints_its_addresses_and_ends_cleanly(
    start_cli: StartCli, number: signal.Signals
) -> None:
    process = await start_cli("server", "--namesrv-port", "0", "--port", "0")
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


async def test_server_can_refuse_automatic_topics(start_cli: StartCli) -> None:
    process = await start_cli(
        *("server", "--namesrv-port", "0", "--port", "0", "-t", "Orders", "--no-auto-create")
    )
    found = re.search(r"name server (\S+),", (await process.stdout.receive_some()).decode())
    assert found
    async with Producer(found[1]) as producer:
        await producer.send(Message("Orders", b"hello"))
        with pytest.raises(TopicNotFoundError):
            await producer.send(Message("Missing", b"hello"))
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


async def test_server_options_for_topics_access_tls_and_logging(start_cli: StartCli, tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    (tmp_path / "secret").write_text("very secret")
    process = await start_cli(
        *("server", "--namesrv-port", "0", "--port", "0", "-t", "Orders:3", "-t", "Others"),
        *("--access-key", "me", "--secret-key", f"@{tmp_path / 'secret'}"),
        *("--tls-cert", str(tmp_path / "own.pem"), "--log-requests"),
    )
    line = (await process.stdout.receive_some()).decode()
    found = re.search(r"name server (\S+),", line)
    assert found, line
    tls = TLS(ca_file=tmp_path / "ca.pem")
    async with Producer(found[1], tls=tls, credentials=Credentials("me", "very secret")) as producer:
        assert len(await producer.queues("Orders")) == 3
        await producer.send(Message("Others", b"hello"))
    async with Producer(found[1], tls=tls, retries=0) as producer:
        with pytest.raises(BrokerError):
            await producer.send(Message("Others", b"unsigned"))
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    log = b"".join([part async for part in process.stderr]).decode()
    assert re.search(
        r"^\d\d:\d\d:\d\d\.\d{3} SEND_MESSAGE_V2 Others from 127\.0\.0\.1:\d+$", log, re.MULTILINE
    )
    assert "secret" not in log


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["-t", "T:0"], "the number of queues of T is 0; it must be from 1 to 65536"),
        (["-t", "a b"], "'a b'"),
        (["-t", "T:4:OTHER"], "message type 'OTHER': value is not in set"),
        (["-t", "T:FIFO:4"], "is not NAME, NAME:QUEUES, NAME:TYPE or NAME:QUEUES:TYPE"),
        (["--profile", "other"], "'other' is not one of 'alibaba-4', "),
        (["--access-key", "me"], "--access-key and --secret-key belong together"),
        (["--tls-key", __file__], "--tls-key needs --tls-cert"),
    ],
)
def test_usage_errors(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(main, ["server", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert error in result.stderr


@pytest.mark.parametrize("name", PROFILES)
async def test_a_profile_prints_the_options_that_clients_need(start_cli: StartCli, name: str) -> None:
    process = await start_cli(
        *("server", "--namesrv-port", "0", "--port", "0", "--profile", name, "-t", "Orders:NORMAL")
    )
    text = ""
    while text.count("\n") < 2:
        text += (await process.stdout.receive_some()).decode()
    found = re.fullmatch(r"ready: name server (\S+), broker \S+\n([^;]+); options of clients: (.*)\n", text)
    assert found
    assert found[2] == PROFILES[name].service
    sent = await start_cli("send", "-t", "Orders", "hello", "-n", found[1], *shlex.split(found[3]))
    assert await sent.wait() == 0
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


def test_the_names_of_profiles_are_those_of_the_broker() -> None:
    assert tuple(PROFILES) == PROFILE_NAMES


async def test_an_invalid_certificate_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "own.pem").write_text("none")
    arguments = ("server", "--namesrv-port", "0", "--port", "0", "--tls-cert", str(tmp_path / "own.pem"))
    ended = await run_cli(*arguments)
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert "own.pem is not a certificate with its private key" in line


async def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ended = await run_cli("server", "--namesrv-port", "0", "--port", str(port))
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith(f"rocketmq-py: cannot listen on 127.0.0.1:{port}: ")
    assert line.endswith(
        "; stop the server that uses the port, or choose others with namesrv_port and port (0: any free port)"
    )


async def test_an_invalid_host_is_one_line() -> None:
    ended = await run_cli("server", "--host", "not an address", "--namesrv-port", "0", "--port", "0")
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert "'not an address'" in line


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--host", "::"], ["--advertise", "0.0.0.0"]])
def test_an_unspecified_host_needs_advertise(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["server", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--advertise must name the one that clients use" in result.stderr
    assert "broker_ip1" not in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
async def test_server_ends_if_it_cannot_print_its_addresses() -> None:
    with Path("/dev/full").open("w") as full:
        ended = await trio.run_process(
            [*COMMAND, "server", "--namesrv-port", "0", "--port", "0"],
            stdout=full.fileno(), capture_stderr=True, check=False, env=ENVIRONMENT,
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == (
        b"rocketmq-py: cannot write the addresses of the broker: No space left on device\n"
    )
