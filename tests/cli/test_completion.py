"""Completion as shells ask for it."""

from __future__ import annotations

import shutil

import pytest

from rocketmq_py import Client
from tests.cli.command import run_cli
from tests.cli.conftest import Invoke


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_a_shell_is_told_commands_and_topics(address: str, shell: str) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create("Orders", queues=1)
    for words, begun, wanted in (
        ("rocketmq-py topic", "des", "describe"),
        ("rocketmq-py", "to", "topic"),
        ("rocketmq-py topic describe", "Ord", "Orders"),
    ):
        ended = await run_cli(
            env={
                "_ROCKETMQ_PY_COMPLETE": f"{shell}_complete",
                "COMP_WORDS": f"{words} {begun}",
                # fish gives the word itself, the others its number.
                "COMP_CWORD": begun if shell == "fish" else str(len(words.split())),
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
