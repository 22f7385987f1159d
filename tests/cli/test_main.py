from __future__ import annotations

import importlib.metadata
import sys

import pytest
import trio
from click.testing import CliRunner

from rocketmq_py.cli import main
from tests.cli.command import ENVIRONMENT, run_cli


async def test_the_version() -> None:
    ended = await run_cli("--version")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.decode() == f"rocketmq-py, version {importlib.metadata.version('rocketmq-py')}\n"


@pytest.mark.parametrize("command", [[], ["broker"], ["send"], ["tail"]], ids=str)
def test_the_help_fits_a_terminal(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "-h"])
    assert result.exit_code == 0
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


async def test_the_help_loads_nothing_but_the_command_line() -> None:
    # How much `rocketmq_py` itself loads is not the command line's affair.
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
        "rocketmq_py.errors",
        "rocketmq_py.codes",
        "rocketmq_py.names",
    } == {name for name in loaded if name.startswith("rocketmq_py.cli")}


async def test_an_unknown_command() -> None:
    ended = await run_cli("recieve")
    assert ended.code == 2
    assert "recieve" in ended.err
