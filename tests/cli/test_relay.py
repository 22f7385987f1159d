"""``rocketmq-py relay``: usage errors, signals, and the output of ``status`` and ``list``."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

pytest.importorskip("rocksdict", reason="the extra relay is not installed")

from rocketmq_py import Admin
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.cli import main, runner
from rocketmq_py.cli.clusters import Access
from rocketmq_py.cli.option_values import parse_duration
from rocketmq_py.cli.relay import run_relay
from rocketmq_py.message import MessageQueue
from rocketmq_py.relay.buffer_entries import DelayedMessage
from rocketmq_py.relay.delivery import QueueDelivery
from rocketmq_py.relay.store import Store


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["relay", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> str:
    with Store(tmp_path) as store:
        for number in range(2):
            queue = store.open_queue(MessageQueue("Buffer", "broker-a", number))
            entries = [
                (
                    offset,
                    DelayedMessage(
                        f"id-{number}-{offset}",
                        1_795_374_833_508 + offset,
                        "Late",
                        b"x",
                        "t",
                        "k",
                        0,
                        {"ä": "1"},
                    ),
                )
                for offset in range(number + 1)
            ]
            queue.write(entries, number + 1)
    return str(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["--topic", "Buffer"], ["--store", "folder"]])
def test_a_relay_needs_a_topic_and_a_store(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "a relay needs --topic and --store" in result.output


def test_status_counts_waiting_messages(folder: str) -> None:
    result = run("status", "--store", folder)
    assert result.exit_code == 0
    first, second, all_queues = result.output.splitlines()
    assert first.startswith("Buffer/broker-a/0  1 waiting, next due 2026-11-2")
    assert second.startswith("Buffer/broker-a/1  2 waiting, ")
    assert all_queues.startswith("3 waiting, ")
    assert ":53.508" in all_queues


def test_list_prints_lines_of_json(folder: str) -> None:
    result = run("list", "--store", folder)
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [row["message_id"] for row in rows] == ["id-0-0", "id-1-0", "id-1-1"]
    assert rows[0] == {
        "message_id": "id-0-0",
        "due_ms": 1_795_374_833_508,
        "topic": "Late",
        "tags": "t",
        "keys": "k",
        "properties": {"ä": "1"},
        "size": 1,
        "queue": "Buffer/broker-a/0",
    }
    assert len(run("list", "--store", folder, "-c", "2").output.splitlines()) == 2


@pytest.mark.parametrize("command", ["status", "list"])
def test_a_missing_store_is_one_line(command: str, tmp_path: Path) -> None:
    result = run(command, "--store", str(tmp_path / "missing"))
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1
    assert "cannot be opened" in result.output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7.3s", 7.3), ("250ms", 0.25), ("5m", 300), ("2h", 7200), ("1d", 86400), ("90", 90)],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("arguments", [["--delay", "soon"], ["--delay", "-1s"], ["--delay-relay", "Buffer"]])
def test_invalid_delays_are_usage_errors(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["send", "-t", "T", "x", *arguments])
    assert result.exit_code == 2
    assert "soon" in result.output or "-1s" in result.output or "for messages with --delay" in result.output


async def test_a_second_signal_ends_the_wait_for_messages_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delivers, waits = trio.Event(), trio.Event()

    async def run_delivery(_: QueueDelivery) -> None:
        delivers.set()

    async def finish(_: QueueDelivery) -> None:
        waits.set()
        await trio.sleep_forever()

    async def stop_twice() -> None:
        await delivers.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await waits.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(runner, "REPEATED_SECONDS", 0.0)
    monkeypatch.setattr(QueueDelivery, "run", run_delivery)
    monkeypatch.setattr(QueueDelivery, "finish", finish)
    async with EmbeddedBroker() as broker, Admin(broker.name_server_address) as admin:
        await admin.topics.create("Buffer", queues=1)
        access = Access(address=broker.name_server_address)
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(stop_twice)
                caught = await runner._until_signal(
                    lambda: run_relay(access, "Buffer", str(tmp_path), None, 1000.0)
                )
    assert caught is signal.SIGTERM
    assert "closing without the answers for messages in flight" in caplog.text
