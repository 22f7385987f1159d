from __future__ import annotations

import json
import signal
import sys
from collections.abc import AsyncIterator

import pytest
import trio
from click.testing import CliRunner

from rocketmq_py.cli import main
from rocketmq_py.message import Message, MessageQueue
from rocketmq_py.producer import Producer
from tests.cli.command import run_cli
from tests.cli.conftest import Invoke, StartCli

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
async def producer(address: str) -> AsyncIterator[Producer]:
    async with Producer(address) as producer:
        yield producer


async def read_lines(stream: trio.abc.ReceiveStream, count: int) -> list[bytes]:
    """Read ``count`` lines. Fails if there is more output."""
    data = b""
    while data.count(b"\n") < count:
        piece = await stream.receive_some()
        assert piece, f"the output ended after {data!r}"
        data += piece
    assert data.endswith(b"\n")
    return data.splitlines()


async def test_tail_prints_messages_of_send(address: str) -> None:
    lines = [b"%d" % number for number in range(2000)]
    sent = await run_cli("send", "-n", address, "-t", "T", stdin=b"\n".join(lines))
    assert sent.code == 0
    ended = await run_cli("tail", "-n", address, "-t", "T", "-o", "earliest", "-e", "-f", r"%s\n")
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.lines) == sorted(lines)


async def test_output_formats(address: str) -> None:
    await run_cli("send", "-n", address, "-t", "T", "--tags", "red", "-k", "o-1", "-H", "from=shop", b"\xffx")
    tail = ("tail", "-n", address, "-t", "T", "-o", "earliest", "-e")
    ended = await run_cli(*tail, "-f", r"%t %b %o %g %k %K %h %S %s\0")
    assert ended.out == b"T broker-a 0 red o-1 3 from=shop 2 \xffx\0"
    ended = await run_cli(*tail, "-J")
    line = json.loads(ended.out)
    assert line["topic"] == "T"
    assert line["tags"] == "red"
    assert line["keys"] == ["o-1"]
    assert line["user_properties"] == {"from": "shop"}
    assert line["body_base64"] == "/3g="


async def test_start_positions(address: str, producer: Producer) -> None:
    for body in (b"a", b"b", b"c", b"d"):
        await producer.send(Message("T", body), queue=QUEUE)
    for start, expected in (("2", b"cd"), ("-3", b"bcd")):
        ended = await run_cli("tail", "-n", address, "-t", "T", "-e", "-o", start, "-f", "%s")
        assert (ended.code, ended.out) == (0, expected), start


async def test_count_and_tags(address: str, producer: Producer) -> None:
    for body, tag in ((b"a", "red"), (b"b", "blue"), (b"c", "red"), (b"d", "green"), (b"e", "red")):
        await producer.send(Message("T", body, tag), queue=QUEUE)
    tail = ("tail", "-n", address, "-t", "T", "-o", "earliest")
    ended = await run_cli(*tail, "--tags", "red", "-c", "2")
    assert (ended.code, ended.lines) == (0, [b"a", b"c"])
    ended = await run_cli(*tail, "--tags", "blue || green", "-e")
    assert ended.lines == [b"b", b"d"]


async def test_tail_prints_new_messages_until_ctrl_c(
    address: str, producer: Producer, start_cli: StartCli
) -> None:
    await producer.send(Message("T", b"there before"), queue=QUEUE)
    process = await start_cli("tail", "-n", address, "-t", "T", "-o", "-1")
    assert await read_lines(process.stdout, 1) == [b"there before"]
    await producer.send(Message("T", b"live"), queue=QUEUE)
    assert await read_lines(process.stdout, 1) == [b"live"]
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 130
    assert await process.stderr.receive_some() == b""


@pytest.mark.parametrize("group", [[], ["-G", "readers"]], ids=["alone", "group"])
async def test_tail_ends_when_its_reader_closes_the_output(
    address: str, producer: Producer, start_cli: StartCli, group: list[str]
) -> None:
    await producer.send(Message("T", b"there before"), queue=QUEUE)
    process = await start_cli("tail", "-n", address, "-t", "T", "-o", "earliest", *group)
    await read_lines(process.stdout, 1)
    await process.stdout.aclose()
    if sys.platform != "linux":  # other systems notice it only with the next message
        await producer.send(Message("T", b"one more"), queue=QUEUE)
    assert await process.wait() == 0
    assert await process.stderr.receive_some() == b""


async def test_messages_of_a_group_that_a_closed_output_did_not_take_are_no_warnings(
    address: str, producer: Producer, start_cli: StartCli
) -> None:
    """Their handlers wait, as a pipe has room for a part of them only."""
    for _ in range(40):
        await producer.send(Message("T", b"-" * 10_000), queue=QUEUE)
    process = await start_cli("tail", "-n", address, "-t", "T", "-o", "earliest", "-G", "readers")
    assert await process.stdout.receive_some(1) == b"-"
    await process.stdout.aclose()
    assert await process.wait() == 0
    assert await process.stderr.receive_some() == b""


@pytest.mark.long
async def test_a_command_that_runs_too_long_after_a_signal_is_cut_off_with_a_warning(
    address: str, producer: Producer, start_cli: StartCli
) -> None:
    sent = await producer.send(Message("T", b"1"), queue=QUEUE)
    tail = ("tail", "-n", address, "-t", "T", "-G", "readers", "-o", "earliest", "-x")
    process = await start_cli(*tail, "echo begun; exec sleep 600")
    assert await read_lines(process.stdout, 1) == [b"begun"]
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 143
    cut_off = f"rocketmq-py: handler cut off: message={sent.message_id} topic=T "
    assert (await process.stderr.receive_some()).decode().startswith(cut_off)
    again = await run_cli(*tail, "cat", "-c", "1")
    assert (again.code, again.err, again.lines) == (0, "", [b"1"])


async def test_a_group_continues_at_its_committed_offsets(address: str, producer: Producer) -> None:
    bodies = [b"%03d" % number for number in range(100)]
    for body in bodies:
        await producer.send(Message("T", body))
    tail = ("tail", "-n", address, "-t", "T", "-G", "readers", "-o", "earliest")
    first = await run_cli(*tail, "-c", "30")
    rest = await run_cli(*tail, "-c", "70")
    assert (first.code, first.err, rest.code, rest.err) == (0, "", 0, "")
    assert len(first.lines) == 30
    assert sorted(first.lines + rest.lines) == bodies


async def test_a_new_group_is_warned_about_its_start_position(
    address: str, producer: Producer, start_cli: StartCli
) -> None:
    await producer.send(Message("T", b"there before"))
    tail = ("tail", "-n", address, "-t", "T", "-G", "readers", "-c", "1")
    process = await start_cli(*tail)
    (line,) = await read_lines(process.stderr, 1)
    assert line == (
        b"rocketmq-py: group 'readers' is new to topic 'T' and starts at its end, or at the first message of "
        b"a new topic; use -o earliest to start at the first message"
    )
    process.send_signal(signal.SIGINT)
    await process.wait()
    restarted = await run_cli(*tail, "-o", "earliest")
    assert (restarted.code, restarted.err, restarted.lines) == (0, "", [b"there before"])
    await producer.send(Message("T", b"more"), queue=QUEUE)
    again = await run_cli(*tail)
    assert (again.code, again.err, again.lines) == (0, "", [b"more"])


async def test_a_member_leaves_on_sigterm(address: str, producer: Producer, start_cli: StartCli) -> None:
    await producer.send(Message("T", b"there before"), queue=QUEUE)
    process = await start_cli("tail", "-n", address, "-t", "T", "-G", "readers", "-o", "earliest")
    assert await read_lines(process.stdout, 1) == [b"there before"]
    await producer.send(Message("T", b"live"), queue=QUEUE)
    assert await read_lines(process.stdout, 1) == [b"live"]
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 143
    assert await process.stderr.receive_some() == b""


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("group", [[], ["-G", "readers"]], ids=["alone", "group"])
def test_a_cluster_that_is_down_is_one_line(
    invoke_with_files: Invoke, unused_address: str, group: list[str]
) -> None:
    ended = invoke_with_files("tail", "-n", f"{unused_address};{unused_address}", "-t", "T", *group)
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith("rocketmq-py: no name server answered")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "Missing option '-t'"),
        (["-t", "a b"], "topic 'a b' may hold only"),
        (["-t", "T", "-G", "g!"], "group 'g!' may hold only"),
        (["-t", "T", "-n", "1.2.3.4"], "address '1.2.3.4' is not host:port"),
        (
            ["-t", "T", "-o", "middle"],
            "'middle' is none of earliest, latest, N (an offset), -N (the",
        ),
        (["-t", "T", "-c", "0"], "0 is not in the range"),
        (["-t", "T", "-f", "%s %y"], "the format does not support %y; supported: %s"),
        (["-t", "T", "-f", "%s", "-J"], "-f FORMAT or --json, not both"),
        (["-t", "T", "-G", "g", "-e"], "-e cannot be used with -G"),
        (["-t", "T", "-G", "g", "-o", "-5"], "with -G, -o takes earliest, latest or a time"),
        (["-t", "T", "-G", "g", "-o", "5"], "with -G, -o takes earliest, latest or a time"),
    ],
)
def test_usage_errors(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(main, ["tail", *arguments])
    assert result.exit_code == 2
    assert error in result.stderr
    assert result.stdout == ""
