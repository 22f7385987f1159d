"""Control characters from a cluster or the sender of a message never reach a terminal unescaped."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import re
import signal
import sys
import termios
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import pytest
import trio

from rocketmq_py import Client
from rocketmq_py.cli import main
from rocketmq_py.cli.console import (
    BOLD,
    CLEAR_SCREEN,
    NORMAL,
    escape,
    escape_line,
    guard_terminals,
    write_parts,
)
from tests.cli.command import ENVIRONMENT, run_cli
from tests.cli.forking import start_forked
from tests.cli.hostile import CONTROLS, GROUP, KEY, REPLIERS, TOPIC, USER, HostileCluster, hostile_cluster

ESCAPED = r"\u001b]0;owned\u0007\u001b[2J\u009b31m\u007f\u202e"
"""CONTROLS after its carriage return, which ends a line of text and is a blank where one line is printed."""
FORBIDDEN = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
PROGRESS = re.compile(rb"\r(?=[^\r\n]*\r)")
"""The start of a progress line. Another carriage return follows, which rewrites or removes the line."""

ARGUMENTS = {
    "acl delete": "bob --yes",
    "acl user alter": "{user} --disable",
    "acl user create": "carol --password secret",
    "acl user delete": "bob --yes",
    "bench consume": "-t {topic} -c 1",
    "bench produce": "-t {topic} -c 2",
    "broker add-write-permission": "missing",
    "broker wipe-write-permission": "missing",
    "broker config": "{broker} brokerPermission=6 --yes",
    "broker describe": "{broker}",
    "check connection": "--topic {topic}",
    "client describe": "{client_id} --stack",
    "config set": "prod namespace=n{controls}",
    "config show": "prod{controls}",
    "config use": "prod{controls}",
    "dlq resend": "{group} --all --yes",
    "group alter": "{group} --max-reconsume-times 3",
    "group clone": "{group} {group} --yes",
    "group create": "new",
    "group delete": "old --yes",
    "group reset": "{group} --to latest --yes",
    "lite client": "{topic} {group} {client_id}",
    "lite describe": "{topic}",
    "message consume": "{message_id} {group} {client_id} -t {topic}",
    "message find": "{topic} {key}",
    "message get": "{message_id} -t {topic}",
    "message tracks": "{message_id} -t {topic}",
    "relay": "--topic {topic} --store {store}",
    "relay cancel": "-t {topic} {message_id}",
    "reply": "-t {topic} -G repliers hello",
    "request": "-t {topic} hello --timeout 2s",
    "send": "-t {topic} hello -v",
    "server": "--namesrv-port 0 --port 0",
    "tail": "-t {topic} -o earliest -e",
    "top": "--once --interval 0.1",
    "topic alter": "{topic} --queues 1",
    "topic create": "New",
    "topic delete": "Old --yes",
}
"""The arguments of commands that need more than a value for each of their required parameters."""
ENDLESS = {"relay", "reply", "server"}
"""Commands that run until a signal. They get SIGINT after their first line."""
WITHOUT_NAMES = {
    *(
        "bench consume",
        "bench produce",
        "broker config",
        "check connection",
        "check health",
        "check lag",
        "completion",
        "config set",
    ),
    *("config use", "dlq resend", "message consume", "message trace", "relay", "relay cancel", "relay list"),
    *("relay status", "reply", "request", "server"),
}
"""Commands whose output contains no name from the cluster of this test."""
WITHOUT_REMARKS = {
    *(
        "completion",
        "config list",
        "config set",
        "config show",
        "config use",
        "relay",
        "relay list",
    ),
    *("relay list", "relay status", "server"),
}
"""Commands that send no request, or are stopped before they do."""
ONLY_NAME_SERVERS = {"broker add-write-permission", "broker wipe-write-permission"}
"""Commands that send no request to brokers."""

pytestmark = pytest.mark.sockets


def all_commands(
    group: click.Group = main, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield the words of every command that can be run, and the command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = " ".join((*path, name))
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield words, command


COMMANDS = dict(all_commands())


def command_line(name: str, values: dict[str, str]) -> list[str]:
    """Return the words that run a command: a value for each required parameter, unless ARGUMENTS has it."""
    if name in ARGUMENTS:
        return [word.format(**values) for word in f"{name} {ARGUMENTS[name]}".split()]
    words = name.split()
    for parameter in COMMANDS[name].params:
        if parameter.required:
            assert parameter.name in values, f"no value for {parameter.name!r}: add `{name}` to ARGUMENTS"
            words += [parameter.opts[0]] if isinstance(parameter, click.Option) else []
            words.append(values[parameter.name])
    return words


async def run_on_a_terminal(
    words: list[str], environment: dict[str, str], *, until: Callable[[bytes], bool] | None = None
) -> bytes:
    """Run a command until it ends, or until ``until`` accepts its output, and return all of its output."""
    screen, other_end = pty.openpty()
    attributes = termios.tcgetattr(other_end)
    attributes[1] &= ~termios.OPOST  # no carriage return before a newline
    termios.tcsetattr(other_end, termios.TCSANOW, attributes)
    environment = {**ENVIRONMENT, "TERM": "xterm", "COLUMNS": "500", "LINES": "50", **environment}
    process = await start_forked(words, environment, {1: other_end, 2: other_end})
    os.close(other_end)
    shown = b""
    try:
        async with trio.lowlevel.FdStream(screen) as stream:
            with suppress(trio.BrokenResourceError):  # Linux reports the end of a terminal as an error
                async for part in stream:
                    shown += part
                    if until is not None and until(shown):
                        process.send_signal(signal.SIGINT)
        await process.wait()
    finally:
        process.close()
    return shown


def text_on(shown: bytes) -> str:
    """Return the text on a terminal. Fails if it got other control characters than the program's own."""
    for own in (BOLD, NORMAL, CLEAR_SCREEN):
        shown = shown.replace(own, b"")
    text = PROGRESS.sub(b"", shown).decode()
    assert not FORBIDDEN.search(text), text
    return text


@pytest.fixture
async def cluster() -> AsyncIterator[HostileCluster]:
    async with hostile_cluster() as cluster:
        yield cluster


@pytest.fixture
def values(cluster: HostileCluster, tmp_path: Path) -> dict[str, str]:
    """Values of parameters, by name."""
    return {
        "actions": "Pub",
        "broker": cluster.broker,
        "client_id": cluster.client_id,
        "controls": CONTROLS,
        "group": GROUP,
        "key": KEY,
        "message_id": cluster.message_id,
        "resource": f"Topic:{TOPIC}",
        "shell": "fish",
        "store": str(tmp_path / "store"),
        "topic": TOPIC,
        "user": USER,
    }


async def run_all(address: str, values: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Run every command on a terminal, several concurrently, and return the output of each."""
    shown: dict[str, str] = {}
    limit = trio.CapacityLimiter(4)

    async def run_one(name: str) -> None:
        config = tmp_path / f"{name}.toml"
        quoted = json.dumps(f"prod{CONTROLS}").replace("\x7f", r"\u007f")
        config.write_text(f'[clusters.{quoted}]\nnamespace = {quoted}\naddress = "{address}"\n')
        environment = {"ROCKETMQ_CONFIG": str(config), "NAMESRV_ADDR": address}
        until = (lambda shown: b"\n" in shown) if name in ENDLESS else None
        async with limit:
            shown[name] = text_on(
                await run_on_a_terminal(command_line(name, values), environment, until=until)
            )

    await run_one("reply")  # it would cut off, and name, requests of other commands that it cannot answer
    async with trio.open_nursery() as nursery:
        for name in COMMANDS:
            if name not in ("relay", "reply"):
                nursery.start_soon(run_one, name)
    await run_one("relay")  # `relay status` would show a relay that runs at the same time
    return shown


@pytest.mark.long
async def test_names_of_a_cluster_appear_escaped_in_every_command(
    cluster: HostileCluster, values: dict[str, str], tmp_path: Path
) -> None:
    shown = await run_all(cluster.name_server, values, tmp_path)
    assert {name for name, text in shown.items() if ESCAPED not in text} == WITHOUT_NAMES


@pytest.mark.long
@pytest.mark.parametrize("refused_by", ["broker", "name server"])
async def test_remarks_of_a_server_appear_escaped_in_every_command(
    cluster: HostileCluster, values: dict[str, str], tmp_path: Path, refused_by: str
) -> None:
    address = cluster.refusing_name_server if refused_by == "broker" else cluster.refusing_address
    shown = await run_all(address, {**values, "broker": cluster.refusing_address}, tmp_path)
    not_refused = {name for name, text in shown.items() if f"refused {ESCAPED}" not in text}
    not_asked = ONLY_NAME_SERVERS if refused_by == "broker" else set()
    assert not_refused | {"relay"} == WITHOUT_REMARKS | not_asked  # a relay may be refused before its end


JSON_COMMANDS = [("message", "get"), ("topic", "list"), ("group", "describe"), ("tail",)]


@pytest.mark.parametrize("command", JSON_COMMANDS, ids=" ".join)
async def test_json_on_a_terminal_is_the_same_json(
    cluster: HostileCluster, values: dict[str, str], command: tuple[str, ...]
) -> None:
    words = [*command_line(" ".join(command), values), *(["-J"] if command == ("tail",) else ["--json"])]
    environment = {"NAMESRV_ADDR": cluster.name_server}
    on_pipe = await run_cli(*words, env=environment)
    assert "\x7f\u202e" in on_pipe.out.decode()
    on_terminal = text_on(await run_on_a_terminal(words, environment))
    assert ESCAPED in on_terminal
    assert without_rates(on_terminal) == without_rates(on_pipe.out)


def without_rates(text: str | bytes) -> Any:
    """Decode JSON, without the rates, which change from one command to the next."""
    return json.loads(text, object_hook=lambda fields: {k: v for k, v in fields.items() if k != "rate"})


BODY = b"body\r\x1b]0;owned\x07\x1b[2J\xc2\x9b31m\x7f\xe2\x80\xae"


@pytest.mark.parametrize(
    ("name", "more", "escaped"),
    [
        ("tail", "", BODY),
        ("tail", r"-f \x1b[32m%s\x1b[0m", b"\x1b[32m" + BODY + b"\x1b[0m"),
        ("message get", "", BODY),
    ],
)
async def test_raw_and_pipes_give_every_byte(
    cluster: HostileCluster, values: dict[str, str], name: str, more: str, escaped: bytes
) -> None:
    words = [*command_line(name, values), *more.split()]
    environment = {"NAMESRV_ADDR": cluster.name_server}
    end = b"\n" if words[-1] == "-e" else b""
    assert await run_on_a_terminal([*words, "--raw"], environment) == escaped + end
    if name == "tail":
        assert (await run_cli(*words, env=environment)).out == escaped + end
        assert await run_on_a_terminal(words, environment) == (
            escaped.replace(BODY, rf"body\r{ESCAPED}".encode()) + end
        )


async def test_a_reply_is_escaped_unless_raw(address: str) -> None:
    async with Client(address) as client, client.admin() as admin, client.reader() as reader:
        await admin.topics.create(TOPIC, queues=1)
        await reader.commit(REPLIERS, dict.fromkeys(await reader.offsets(TOPIC), 0))
    environment = {"NAMESRV_ADDR": address}
    replier = await start_forked(
        ["reply", "-t", TOPIC, "-G", REPLIERS, CONTROLS], {**ENVIRONMENT, **environment}
    )
    request = ["request", "-t", TOPIC, "hello", "--timeout", "30s"]
    try:
        shown = text_on(await run_on_a_terminal(request, environment))
        assert shown == f"\\r{ESCAPED}\n"
        assert (await run_on_a_terminal([*request, "--raw"], environment)).decode() == f"{CONTROLS}\n"
    finally:
        replier.close()


@pytest.fixture
def shown_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], bytes]:
    """Call a function with a guarded terminal as standard output and error, and return its output."""

    def show(write: Callable[[], object]) -> bytes:
        screen, other_end = pty.openpty()
        attributes = termios.tcgetattr(other_end)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(other_end, termios.TCSANOW, attributes)
        with os.fdopen(other_end, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal)
            patch.setattr(sys, "stderr", terminal)
            guard_terminals()
            write()
            shown = os.read(screen, 65536)
        os.close(screen)
        return shown

    return show


def log_a_warning(text: str) -> None:
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler())
    logger.warning(text)


@pytest.mark.parametrize(
    "write",
    [
        print,
        click.echo,
        lambda text: click.echo(text, err=True),
        lambda text: click.echo(text.encode()),
        lambda text: sys.stdout.buffer.write(text.encode()),
        lambda text: sys.stderr.writelines([text, "\n"]),
        lambda text: write_parts(sys.stdout, [text]),
        log_a_warning,
        lambda text: traceback.print_exception(ValueError(text)),
    ],
)
def test_every_way_of_writing_is_escaped(
    shown_by: Callable[[Callable[[], object]], bytes], write: Callable[[str], object]
) -> None:
    shown = shown_by(lambda: write(f"a\tb\n{CONTROLS}")).decode()
    assert f"a\tb\n\\r{ESCAPED}" in shown
    assert not FORBIDDEN.search(shown)


def test_own_control_sequences_are_not_escaped(shown_by: Callable[[Callable[[], object]], bytes]) -> None:
    shown = shown_by(lambda: write_parts(sys.stdout, [BOLD, "\x1b[2J", NORMAL]))
    assert shown == b"\x1b[1m" + rb"\u001b[2J" + b"\x1b[0m"


def test_bytes_that_are_not_text_are_shown_as_numbers(
    shown_by: Callable[[Callable[[], object]], bytes],
) -> None:
    shown = shown_by(lambda: write_parts(sys.stdout, [b"a\xff\x9b31m", "\udcff"]))
    assert shown == rb"a\xff\x9b31m\udcff"


def test_a_file_gets_control_characters_unchanged() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    write_parts(file, [CONTROLS, b"\xff"])
    assert file.buffer.getvalue() == CONTROLS.encode() + b"\xff"


def test_tabs_and_newlines_are_escaped_within_a_line() -> None:
    assert escape("a\tb\nc\0") == "a\tb\nc\\u0000"
    assert escape_line("a\tb\nc\0") == r"a\tb\nc\u0000"
    assert escape("grüß 訂單 👩\u200d🚀") == "grüß 訂單 👩\u200d🚀"
