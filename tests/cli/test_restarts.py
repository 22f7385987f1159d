"""Commands while the only broker of a cluster is away for seconds: they wait for it, and go on soon after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from rocketmq_py import blocking
from rocketmq_py.message import Message
from rocketmq_py.testing import TestBroker, run_broker
from tests.cli.command import run_cli
from tests.cli.conftest import StartCli
from tests.cli.forking import Ended

DOWNTIME = 1.5
"""Seconds of the outage."""
WITHIN = 15.0
"""Seconds from the broker's return until a command has gone on: one for the library, the rest for the
machine. Routes are refreshed every 30 s."""


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with run_broker(topics={"T": 2}) as broker, blocking.Producer(broker.name_server_address) as producer:
        producer.send(Message("T", b"before", keys=["k"]))
        yield broker


@pytest.mark.parametrize(
    "options", [[], pytest.param(["-G", "readers"], marks=pytest.mark.long)], ids=["alone", "group"]
)
async def test_commands_wait_for_the_broker(
    broker: TestBroker, start_cli: StartCli, options: list[str]
) -> None:
    at = ("-n", broker.name_server_address)
    tail = await start_cli("tail", "-t", "T", "-o", "earliest", *options, *at)
    assert await tail.stdout.receive_some() == b"before\n"
    ended: dict[str, tuple[float, Ended]] = {}

    async def run(*arguments: str, stdin: bytes = b"") -> None:
        result = await run_cli(*arguments, *at, stdin=stdin)
        ended[" ".join(arguments)] = (trio.current_time(), result)

    await trio.to_thread.run_sync(broker.crash)
    async with trio.open_nursery() as nursery:
        for command in (
            "send -t T during",
            "topic create U --queues 1",
            "topic describe T",
            "group list",
            "message find T k",
        ):
            nursery.start_soon(run, *command.split())
        nursery.start_soon(lambda: run("send", "-t", "T", stdin=b"piped\n"))
        await trio.sleep(DOWNTIME)
        assert not ended, "no command has failed"
        back_at = trio.current_time()
        await trio.to_thread.run_sync(broker.restart)
        printed = b""
        with trio.fail_after(WITHIN):
            while not {b"during", b"piped"} <= set(printed.splitlines()):
                printed += await tail.stdout.receive_some()
    assert len(ended) == 6
    for command, (time, result) in ended.items():
        assert result.code == 0, f"{command}: {result.err}"
        assert time - back_at <= WITHIN, command
