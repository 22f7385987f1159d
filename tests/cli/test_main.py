from __future__ import annotations

import importlib.metadata
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import trio
from click.testing import CliRunner

from rocketmq_py import Client
from rocketmq_py.cli import main
from tests.cli.command import COMMAND, ENVIRONMENT, run_cli


async def test_version_prints_the_installed_version() -> None:
    ended = await run_cli("--version")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.decode() == f"rocketmq-py, version {importlib.metadata.version('rocketmq-py')}\n"


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["broker"],
        ["broker", "list"],
        ["config", "set"],
        ["group"],
        ["group", "reset"],
        ["group", "create"],
        ["send"],
        ["server"],
        ["tail"],
        ["topic"],
        ["topic", "create"],
    ],
    ids=str,
)
def test_the_help_fits_a_terminal(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "-h"])
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def commands(command: click.Command = main, *words: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands that do something, by their words."""
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, *words, name)


def test_json_has_one_spelling_and_o_one_meaning() -> None:
    spellings: dict[str, list[list[str]]] = {}
    for name, command in commands():
        own = [parameter.opts for parameter in command.params if isinstance(parameter, click.Option)]
        spellings[name] = [opts for opts in own if {"-J", "--json", "-o", "--output"} & {*opts}]
    assert spellings.pop("tail") == [["-o"], ["-J", "--json"]]
    assert len([name for name in spellings if spellings[name]]) > 40
    for name, found in spellings.items():
        assert found in ([], [["-J", "--json"]]), name


@pytest.mark.parametrize("spelling", [["-t", "--topic"], ["-G", "--group"]])
def test_topics_and_groups_have_one_spelling(spelling: list[str]) -> None:
    similar = {*spelling, "-g", "-T"}
    found = {
        name: parameter.opts
        for name, command in commands()
        for parameter in command.params
        if isinstance(parameter, click.Option) and similar & {*parameter.opts}
    }
    assert len(found) > 5
    assert {name: opts for name, opts in found.items() if opts != spelling} == {}


async def test_help_loads_only_the_command_line() -> None:
    # Modules that `import rocketmq_py` loads are excluded.
    program = (
        "import sys, rocketmq_py; before = set(sys.modules);"
        "from rocketmq_py.cli import main; main(['tail', '--help'], standalone_mode=False);"
        "print(*(sys.modules.keys() - before), file=sys.stderr)"
    )
    ended = await trio.run_process(
        [sys.executable, "-c", program], capture_stdout=True, capture_stderr=True, env=ENVIRONMENT
    )
    loaded = ended.stderr.decode().split()
    assert {name for name in loaded if name.startswith(("rocketmq_py.", "trio"))} - {
        "rocketmq_py.arguments",
        "rocketmq_py.errors",
        "rocketmq_py.codes",
        "rocketmq_py.error_texts",
        "rocketmq_py.names",
        "rocketmq_py.queues",
    } == {name for name in loaded if name.startswith("rocketmq_py.cli")}


async def test_an_unknown_command_is_a_usage_error() -> None:
    ended = await run_cli("recieve")
    assert ended.code == 2
    assert "recieve" in ended.err


def test_the_error_for_an_unknown_command_names_the_nearest() -> None:
    result = CliRunner().invoke(main, ["topics", "list"])
    assert result.exit_code == 2
    assert "Did you mean 'topic'" in result.stderr
    assert "Did you mean" not in CliRunner().invoke(main, ["--topi"]).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["recieve"],
        ["--no-such-option"],
        ["tail"],
        ["tail", "-t", "a b"],
        ["tail", "-t", "T", "-f", "%s", "-J"],
        ["send", "-t", "T", "x", "y"],
        ["server", "--port", "x"],
    ],
    ids=" ".join,
)
def test_a_usage_error_is_one_line(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("rocketmq-py: ")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["-n", "10.0.0.1:9876", "broker", "list"], "rocketmq-py COMMAND"),
        (["topic", "-n", "10.0.0.1:9876", "list"], "rocketmq-py topic COMMAND"),
    ],
    ids=str,
)
async def test_an_option_before_the_command_is_an_error_that_says_where_it_belongs(
    arguments: list[str], command: str
) -> None:
    ended = await run_cli(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err == f"rocketmq-py: No such option '-n'. Options follow the command: {command} -n …\n"


def test_no_command_shows_the_help() -> None:
    result = CliRunner().invoke(main, [])
    assert "Commands:" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["tail", "-t", "T", "-n", ""],
        ["tail", "-t", "T", "--tags", ""],
        ["tail", "-t", "T", "-G", ""],
        ["tail", "-t", ""],
        ["send", "-t", "T", "-n", " ", "x"],
        ["server", "--host", ""],
        ["server", "--advertise", ""],
    ],
    ids=" ".join,
)
def test_empty_values_are_usage_errors(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert "empty" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["tail", "--help"]], ids=" ".join)
def test_a_full_disk_is_one_line(arguments: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == "rocketmq-py: cannot write the output: No space left on device\n"


@pytest.mark.skipif(sys.platform == "win32", reason="closes standard output with a POSIX shell")
@pytest.mark.parametrize("arguments", [["config", "list"], ["completion", "bash"]], ids=" ".join)
def test_a_closed_standard_output_is_one_line(arguments: list[str]) -> None:
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *arguments],
        stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr == "rocketmq-py: cannot write the output: standard output is closed\n"


STARTING = """
import os, signal, sys, threading

module = sys.argv.pop(1)

class Interrupt:
    # Sends SIGINT when a module is about to be imported.
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(30)

from rocketmq_py.__main__ import main
sys.meta_path.insert(0, Interrupt())
main()
"""


@pytest.mark.parametrize("module", ["click", "rocketmq_py.cli.server", "trio", "rocketmq_py.broker"])
def test_ctrl_c_during_startup_ends_the_process(module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STARTING, module, "server", "--namesrv-port", "0", "--port", "0"],
        capture_output=True, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


HEAVY = (
    "rich",
    "pyspark",
    "opentelemetry",
    "asyncio",
    "http.client",
    "email",
    "tomlkit",
    "concurrent.futures.process",
)
ROOMS = (
    "aio",
    "blocking",
    "broker",
    "consumer",
    "handoff",
    "producer",
    "relay",
    "spark",
    "telemetry",
    "testing",
)
LOADED = """
import gc, sys
from contextlib import suppress
from rocketmq_py.__main__ import main

for command in sys.argv[1:]:
    gc.unfreeze()
    sys.argv[1:] = command.split()
    with suppress(SystemExit):
        main()
    print(f"{command}:", gc.isenabled(), gc.get_freeze_count() > 0, *sys.modules, file=sys.stderr)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("commands", "needs"),
    [
        (  # in one process: no command may load any of these modules
            [
                "topic list --json",
                "group list --json",
                "broker list --json",
                "client list --json",
                "check lag billing --warn 1 --critical 2",
                "topic list",
                "group describe billing",
            ],
            set(),
        ),
        (["send -t Orders hello"], {"producer"}),
        (["request -t Orders hello --timeout 0.1s"], {"producer"}),
        (["tail -t Orders -e"], {"consumer"}),
        (["relay status --store /dev/null/none"], {"producer", "relay"}),
    ],
    ids=["asking", "send", "request", "tail", "relay"],
)
async def test_command_loads_only_the_modules_it_needs(
    address: str, commands: list[str], needs: set[str]
) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create("Orders", queues=1)
        await admin.groups.create("billing")
    ended = await trio.run_process(
        [sys.executable, "-c", LOADED, *commands],
        capture_stdout=True, capture_stderr=True, env={**ENVIRONMENT, "NAMESRV_ADDR": address},
    )  # fmt: skip
    loaded_by_command = dict(
        line.split(": ", 1) for line in ended.stderr.decode().splitlines() if ": " in line
    )
    for command in commands:
        gc_enabled, gc_frozen, *modules = loaded_by_command[command].split()
        assert (gc_enabled, gc_frozen) == ("True", "True"), command
        loaded = {name for name in HEAVY if name in modules}
        loaded |= {room for room in ROOMS if f"rocketmq_py.{room}" in modules}
        assert "rocketmq_py.client" in modules
        assert loaded == needs, command
