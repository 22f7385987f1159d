"""Completion as shells ask for it."""

from __future__ import annotations

import shutil

import pytest

from rocketmq_py import Client
from tests.cli.command import run_cli
from tests.cli.conftest import Invoke

SHELLS = {
    "bash": lambda words, begun: (f"{words} {begun}", str(len(words.split()))),
    "zsh": lambda words, begun: (f"{words} {begun}", str(len(words.split()))),
    "fish": lambda words, begun: (f"{words} {begun}", begun),
}
"""What a shell sets COMP_WORDS and COMP_CWORD to."""


@pytest.mark.parametrize("shell", SHELLS)
async def test_a_shell_is_told_commands_and_topics(address: str, shell: str) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create("Orders", queues=1)
    for words, begun, wanted in (
        ("rocketmq-py topic", "des", "describe"),
        ("rocketmq-py", "to", "topic"),
        ("rocketmq-py topic describe", "Ord", "Orders"),
    ):
        all_words, current = SHELLS[shell](words, begun)
        ended = await run_cli(
            env={
                "_ROCKETMQ_PY_COMPLETE": f"{shell}_complete",
                "COMP_WORDS": all_words,
                "COMP_CWORD": current,
                "NAMESRV_ADDR": address,
            }
        )
        assert (ended.code, ended.err) == (0, "")
        assert wanted in ended.out.decode().replace(",", "\n").split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="click asks bash for its version")
def test_the_script_for_bash(invoke: Invoke) -> None:
    ended = invoke("completion", "bash")
    assert (ended.code, ended.err) == (0, "")
    assert "_ROCKETMQ_PY_COMPLETE=bash_complete" in ended.out.decode()
    assert "complete -o nosort -F" in ended.out.decode()
