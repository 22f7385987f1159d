"""Completion scripts, and completion through the protocols of shells."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import trio

from rocketmq_py import Client
from rocketmq_py.client import core_of
from rocketmq_py.codes import ResponseCode
from rocketmq_py.protocol.bodies import MASTER_ID, TopicList
from rocketmq_py.protocol.command import Command
from rocketmq_py.remoting import Connection, serve
from tests.cli.command import run_cli
from tests.cli.conftest import Invoke


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_shells_complete_commands_topics_and_groups(address: str, shell: str) -> None:
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create("Orders", queues=1)
        ((_, broker),) = (await core_of(client).name_servers.cluster_info()).broker_addr_table.items()
        await core_of(client).brokers.create_topic(broker.broker_addrs[MASTER_ID], "%RETRY%billing", queues=1)
    for words, prefix, wanted in (
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
                "COMP_WORDS": f"{words} {prefix}",
                # fish passes the word itself, other shells its index.
                "COMP_CWORD": prefix if shell == "fish" else str(len(words.split())),
                "NAMESRV_ADDR": address,
            }
        )
        assert (ended.code, ended.err) == (0, "")
        assert wanted in ended.out.decode().replace(",", "\n").split()


async def test_completion_prints_no_warning_of_a_secret_that_others_may_read(
    address: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        f"current = 'a'\n[clusters.a]\naddress = '{address}'\naccess_key = 'k'\nsecret_key = 's'\n"
    )
    file.chmod(0o644)
    async with Client(address) as client, client.admin() as admin:
        await admin.topics.create("Orders", queues=1)
    ended = await run_cli(
        env={
            "_ROCKETMQ_PY_COMPLETE": "bash_complete",
            "COMP_WORDS": "rocketmq-py topic describe Ord",
            "COMP_CWORD": "3",
            "ROCKETMQ_CONFIG": str(file),
        }
    )
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == b"plain,Orders\n"


@pytest.mark.parametrize("words", ["topic list -C", "config use", "config show", "config set"])
async def test_named_clusters_are_completed(tmp_path: Path, words: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[clusters.prod]\nsecret_key = 's'\n[clusters.test]\n[clusters.'prod;reboot']\n")
    file.chmod(0o644)
    ended = await run_cli(
        env={
            "_ROCKETMQ_PY_COMPLETE": "bash_complete",
            "COMP_WORDS": f"rocketmq-py {words} pr",
            "COMP_CWORD": str(len(words.split()) + 1),
            "ROCKETMQ_CONFIG": str(file),
        }
    )
    assert (ended.code, ended.out, ended.err) == (0, b"plain,prod\n", "")


async def test_invalid_names_are_not_completed() -> None:
    """Otherwise a name server could put a shell command on the command line, or control the terminal."""

    def answer(connection: Connection, request: Command) -> None:
        names = (
            "Orders",
            "Orders;reboot",
            "Orders\x1b[2J",
            "Orders\nplain,x",
            "%RETRY%billing",
            "%RETRY%b$(x)",
        )
        connection.respond(request, ResponseCode.SUCCESS, {}, TopicList(topic_list=names).encode())

    async with trio.open_nursery() as nursery:
        address = await nursery.start(serve, answer, "127.0.0.1", 0)
        for words, offered in (("topic describe", b"plain,Orders\n"), ("group describe", b"plain,billing\n")):
            ended = await run_cli(
                env={
                    "_ROCKETMQ_PY_COMPLETE": "bash_complete",
                    "COMP_WORDS": f"rocketmq-py {words} ",
                    "COMP_CWORD": "3",
                    "NAMESRV_ADDR": address,
                }
            )
            assert (ended.code, ended.out, ended.err) == (0, offered, "")
        nursery.cancel_scope.cancel()


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


def test_an_unsupported_shell_is_a_usage_error(invoke: Invoke) -> None:
    ended = invoke("completion", "tcsh")
    assert (ended.code, ended.out) == (2, b"")
    assert "'tcsh' is not one of" in ended.err
