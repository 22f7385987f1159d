from __future__ import annotations

import os
import pty
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from click.testing import CliRunner

from rocketmq_py.cli import main, send_loop
from rocketmq_py.codes import RequestCode, ResponseCode
from rocketmq_py.properties import decode_properties
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection
from tests.cli.command import run_cli
from tests.cli.conftest import StartCli
from tests.cli.forking import Ended
from tests.scripted import scripted_cluster, store


@attrs.define(eq=False)
class Receiver:
    """A broker that records sends. ``answer`` answers them."""

    answer: Callable[[Connection, Command], None] = store
    address: str = ""
    sends: list[Command] = attrs.field(factory=list)
    _arrived: trio.Event = attrs.field(factory=trio.Event)

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self.sends]

    def handle(self, connection: Connection, request: Command) -> None:
        if request.code == RequestCode.SEND_MESSAGE_V2:
            self.sends.append(request)
            self._arrived.set()
            self._arrived = trio.Event()
        self.answer(connection, request)

    async def wait_for(self, count: int) -> None:
        while len(self.sends) < count:
            await self._arrived.wait()


@asynccontextmanager
async def receiving(answer: Callable[[Connection, Command], None] = store) -> AsyncIterator[Receiver]:
    receiver = Receiver(answer)
    async with scripted_cluster(receiver.handle) as cluster:
        receiver.address = cluster.address
        yield receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


async def test_send_sets_tag_keys_properties_and_body(receiver: Receiver) -> None:
    ended = await run_cli(
        *("send", "-n", receiver.address, "-t", "T", "--tags", "red", "-k", "o-1", "--key", "o-2"),
        *("-H", "source=shop", "-H", "formula=a=b", b"h\xffllo"),
    )
    assert (ended.code, ended.out) == (0, b"")
    assert ended.err.startswith("1 message sent in ")
    (request,) = receiver.sends
    assert request.body == b"h\xffllo"
    assert request.fields["b"] == "T"
    properties = decode_properties(request.fields["i"])
    assert properties["TAGS"] == "red"
    assert properties["KEYS"] == "o-1 o-2"
    assert properties["source"] == "shop"
    assert properties["formula"] == "a=b"


async def test_each_line_of_stdin_is_a_message(receiver: Receiver) -> None:
    lines = [b"%d" % number for number in range(2000)]
    ended = await run_cli(
        "send", "-t", "T", stdin=b"\n".join(lines) + b"\n\n", env={"NAMESRV_ADDR": receiver.address}
    )
    assert ended.code == 0
    assert sorted(receiver.bodies) == sorted(lines)
    summary, note = ended.err.splitlines()
    assert summary.startswith("2000 messages sent in ")
    assert summary.endswith("/s)")
    assert note == "1 empty line skipped"


async def test_lines_are_sent_as_soon_as_they_arrive(receiver: Receiver, start_cli: StartCli) -> None:
    process = await start_cli("send", "-n", receiver.address, "-t", "T")
    for count, line in enumerate([b"first\n", b"second\n", b"third\n"], 1):
        await process.stdin.send_all(line)
        await receiver.wait_for(count)
    await process.stdin.send_all(b"without a newline")
    await process.stdin.aclose()
    assert await process.wait() == 0
    assert receiver.bodies == [b"first", b"second", b"third", b"without a newline"]


async def test_count_limits_lines_and_repeats_a_body(receiver: Receiver, start_cli: StartCli) -> None:
    # This stdin stays open. Only the count ends the command.
    process = await start_cli("send", "-n", receiver.address, "-t", "T", "-c", "2")
    await process.stdin.send_all(b"a\nb\nc\n")
    assert await process.wait() == 0
    assert receiver.bodies == [b"a", b"b"]
    ended = await run_cli("send", "-n", receiver.address, "-t", "T", "-c", "3", "x")
    assert ended.code == 0
    assert receiver.bodies == [b"a", b"b", b"x", b"x", b"x"]


async def test_a_file_is_one_message(receiver: Receiver, tmp_path: Path) -> None:
    content = bytes(range(256)) * 10
    file = tmp_path / "message"
    file.write_bytes(content)
    ended = await run_cli("send", "-n", receiver.address, "-t", "T", "-f", str(file), "-v")
    assert ended.code == 0
    assert receiver.bodies == [content]
    status, message_id, *rest = ended.err.split()
    assert status == "SEND_OK"
    assert message_id == decode_properties(receiver.sends[0].fields["i"])["UNIQ_KEY"]
    assert rest == ["broker=broker-a", f"queue={receiver.sends[0].fields['e']}", "offset=0"]


async def test_oneway_sends_oneway_requests(receiver: Receiver) -> None:
    ended = await run_cli("send", "-n", receiver.address, "-t", "T", "--oneway", stdin=b"a\nb\nc\n")
    assert ended.code == 0
    await receiver.wait_for(3)
    assert sorted(receiver.bodies) == [b"a", b"b", b"c"]
    assert all(request.is_oneway for request in receiver.sends)


async def test_failures_are_summarized_by_reason() -> None:
    def answer(connection: Connection, request: Command) -> None:
        if request.body == b"bad":
            connection.respond(request, ResponseCode.MESSAGE_ILLEGAL, remark="not allowed")
        else:
            store(connection, request)

    async with receiving(answer) as receiver:
        too_long = b"x" * (4 * 1024 * 1024 + 1)
        ended = await run_cli(
            "send", "-n", receiver.address, "-t", "T", stdin=b"bad\ngood\nbad\n" + too_long + b"\n"
        )
    assert ended.code == 1
    summary, total, *reasons = ended.err.splitlines()
    assert summary.startswith("1 message sent")
    assert total == "rocketmq-py: 3 of 4 messages failed:"
    refused, not_sent = reasons
    assert refused.startswith("  2 refused: 127.0.0.1:")
    assert refused.endswith(" answered MESSAGE_ILLEGAL (13): not allowed")
    assert not_sent == "  1 not sent: the line is longer than 4 MiB"


@pytest.mark.usefixtures("short_timeouts")
@pytest.mark.parametrize("options", [[], ["--oneway"]], ids=str)
def test_a_cluster_that_is_down_is_one_line(
    invoke_with_files: Callable[..., Ended],
    unused_address: str,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(send_loop, "SEND_TIMEOUT", 0.2)
    ended = invoke_with_files("send", "-n", unused_address, "-t", "T", *options, stdin=b"a\n" * 10_000)
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    assert line.startswith("rocketmq-py: the first message failed: no name server answered")
    assert "Connection refused" in line


async def test_it_stops_if_the_first_message_is_refused() -> None:
    def answer(connection: Connection, request: Command) -> None:
        connection.respond(request, ResponseCode.NO_PERMISSION, remark="read only\nSee the FAQ")

    async with receiving(answer) as receiver:
        ended = await run_cli("send", "-n", receiver.address, "-t", "T", stdin=b"a\nb\n")
    assert ended.code == 1
    (line,) = ended.err.splitlines()
    assert "NO_PERMISSION (16): read only See the FAQ" in line
    assert set(receiver.bodies) == {b"a"}


async def test_ctrl_c_prints_the_summary(receiver: Receiver, start_cli: StartCli) -> None:
    process = await start_cli("send", "-n", receiver.address, "-t", "T")
    await process.stdin.send_all(b"a\nb\n")
    await receiver.wait_for(2)
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 130
    assert (await process.stderr.receive_some()).startswith(b"2 messages sent in ")


async def test_progress_is_shown_on_a_terminal(receiver: Receiver, start_cli: StartCli) -> None:
    terminal, other_end = pty.openpty()
    process = await start_cli("send", "-n", receiver.address, "-t", "T", instead={2: other_end})
    os.close(other_end)
    await process.stdin.send_all(b"a\nb\n")
    shown = b""
    async with trio.lowlevel.FdStream(terminal) as screen:
        while b"\r2 sent, " not in shown:
            shown += await screen.receive_some()
        await process.stdin.aclose()
        assert await process.wait() == 0
        while b"2 messages sent" not in shown:
            shown += await screen.receive_some()
    line, summary = shown.rsplit(b"\r", 2)[:2]
    assert b"/s" in line
    assert summary.startswith(b"2 messages sent")  # it replaces the progress line


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["x"], "Missing option '-t'"),
        (["-t", "T", "-f", __file__, "x"], "BODY or -f FILE, not both"),
        (["-t", "T", "--oneway", "-v", "x"], "with --oneway there are none"),
        (["-t", "T!", "x"], "topic 'T!' may hold only"),
        (["-t", "T", "-n", "nowhere", "x"], "address 'nowhere' is not host:port"),
        (["-t", "T", "-n", "a:1;b:x", "x"], "address 'b:x' is not host:port"),
        (["-t", "T", "-H", "name", "x"], "'name' is not NAME=VALUE"),
        (["-t", "T", "-H", "name=", "x"], "neither name nor value may be empty"),
        (["-t", "T", "-H", "TAGS=a", "x"], "property 'TAGS' is set by RocketMQ itself"),
        (["-t", "T", "-k", "a b", "x"], "key 'a b'"),
        (["-t", "T", "--tags", "a\x01", "x"], "tags"),
        (["-t", "T", "-c", "0", "x"], "0 is not in the range"),
        (["-t", "T", ""], "the body is empty"),
        (["-t", "T", "-f", os.devnull], "the body is empty"),
        (["-t", "T", "-f", "/no/such/file"], "No such file"),
        (["-t", "SCHEDULE_TOPIC_XXXX", "x"], "RocketMQ's own"),
        (["-t", "T", "x", "y"], "unexpected extra argument"),
    ],
)
def test_usage_errors(arguments: list[str], error: str) -> None:
    result = CliRunner().invoke(main, ["send", *arguments])
    assert result.exit_code == 2
    assert error in result.stderr
    assert result.stdout == ""


async def test_a_tag_that_looks_like_a_subscription_is_warned_about(receiver: Receiver) -> None:
    ended = await run_cli("send", "-n", receiver.address, "-t", "T", "--tags", "A||B", "x")
    assert ended.code == 0
    warning, _ = ended.err.splitlines()
    assert warning.startswith(
        "rocketmq-py: a message has one tag: consumers that subscribe to a part of 'A||B'"
    )
    (sent,) = receiver.sends
    assert decode_properties(sent.fields["i"])["TAGS"] == "A||B"
