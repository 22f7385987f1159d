"""Completion as shells ask for it."""

from __future__ import annotations

import shutil

import pytest

from rocketmq_py import Client
from rocketmq_py.protocol.bodies import MASTER_ID
from tests.cli.command import run_cli
from tests.cli.conftest import Invoke


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_a_shell_is_told_commands_and_topics(address: str, shell: str) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create("Orders", queues=1)
        ((_, broker),) = (await client.name_servers.cluster_info()).broker_addr_table.items()
        await client.brokers.create_topic(broker.broker_addrs[MASTER_ID], "%RETRY%billing", queues=1)
    for words, begun, wanted in (
        ("rocketmq-py topic", "des", "describe"),
        ("rocketmq-py", "to", "topic"),
        ("rocketmq-py topic describe", "Ord", "Orders"),
        ("rocketmq-py group describe", "bil", "billing"),
        ("rocketmq-py topic create New", "--que", "--queues"),
        ("rocketmq-py topic create New --type", "FI", "FIFO"),
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


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("zsh", ["#compdef rocketmq-py", "_ROCKETMQ_PY_COMPLETE=zsh_complete rocketmq-py", "compdef "]),
        ("fish", ["_ROCKETMQ_PY_COMPLETE=fish_complete", "complete --no-files --command rocketmq-py"]),
    ],
)
def test_the_scripts_for_other_shells(invoke: Invoke, shell: str, words: list[str]) -> None:
    ended = invoke("completion", shell)
    assert (ended.code, ended.err) == (0, "")
    assert [word for word in words if word in ended.out.decode()] == words


def test_another_shell_is_refused(invoke: Invoke) -> None:
    ended = invoke("completion", "tcsh")
    assert (ended.code, ended.out) == (2, b"")
    assert "'tcsh' is not one of" in ended.err
