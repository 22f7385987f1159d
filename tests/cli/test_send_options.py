"""Options of ``send`` for half messages, queues, delivery times and priorities."""

from __future__ import annotations

import datetime
import time

import pytest
import trio

from rocketmq_py import Client, ReceivedMessage
from rocketmq_py.cli import send_loop
from rocketmq_py.cli.option_values import parse_future_time
from rocketmq_py.codes import ResponseCode
from rocketmq_py.testing import run_broker
from tests.cli.conftest import Invoke


async def read(address: str, topic: str) -> list[ReceivedMessage]:
    async with (
        Client(address) as client,
        client.reader() as reader,
        reader.open(topic, start="earliest", stop_at_end=True) as messages,
    ):
        return [message async for message in messages]


def test_half_messages_are_committed_or_rolled_back(invoke: Invoke, threaded_broker: str) -> None:
    at = ("-n", threaded_broker)
    assert invoke("topic", "create", "Orders", "--queues", "1", *at).code == 0
    committed = invoke("send", "-t", "Orders", "paid", "-c", "3", "--half", "commit", "-k", "k", *at)
    assert (committed.code, committed.out) == (0, b"")
    assert committed.err.startswith("3 messages sent in ")
    rolled_back = invoke("send", "-t", "Orders", "never", "--half", "rollback", "-v", *at)
    assert rolled_back.code == 0
    assert rolled_back.err.startswith("SEND_OK ")
    assert [(one.body, one.keys) for one in trio.run(read, threaded_broker, "Orders")] == [
        (b"paid", ("k",))
    ] * 3


@pytest.mark.usefixtures("short_timeouts")
def test_a_half_message_without_a_cluster_is_one_line(
    invoke: Invoke, unused_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_loop, "SEND_TIMEOUT", 0.2)
    ended = invoke("send", "-t", "Orders", "x", "--half", "commit", "-n", unused_address)
    assert ended.code == 1
    assert ended.err.startswith("rocketmq-py: the first message failed: no name server answered")


def test_a_queue_of_the_topic_needs_no_list_of_brokers(invoke: Invoke) -> None:
    with run_broker(topics=["Orders"]) as broker:
        send = ("send", "-t", "Orders", "x", "-n", broker.name_server_address, "--queue")
        with broker.fail("GET_BROKER_CLUSTER_INFO", code=ResponseCode.SYSTEM_ERROR):
            ended = invoke(*send, "broker-a/0")
        assert ended.code == 0, ended.err
        assert invoke(*send, "zz/0").err == "rocketmq-py: broker 'zz' does not exist; brokers: broker-a\n"


def test_deliver_at_delays_messages(invoke: Invoke, threaded_broker: str) -> None:
    at = ("-n", threaded_broker)
    assert invoke("topic", "create", "Orders", "--queues", "1", *at).code == 0
    past, future = int(time.time() * 1000) - 1000, "2099-01-01T00:00+00:00"
    assert invoke("send", "-t", "Orders", "at once", "--deliver-at", f"@{past}", *at).code == 0
    assert invoke("send", "-t", "Orders", "a year too far", "--deliver-at", future, *at).code == 1
    soon = datetime.datetime.now().astimezone() + datetime.timedelta(hours=1)
    assert invoke("send", "-t", "Orders", "later", "--deliver-at", soon.isoformat(), *at).code == 0
    assert [one.body for one in trio.run(read, threaded_broker, "Orders")] == [b"at once"]


def test_priority_selects_the_queue(invoke: Invoke, threaded_broker: str) -> None:
    at = ("-n", threaded_broker)
    assert invoke("topic", "create", "Orders", "--queues", "4", *at).code == 0
    for priority in (0, 3, 9):
        assert invoke("send", "-t", "Orders", f"{priority}", "--priority", f"{priority}", *at).code == 0
    found = {one.body: one.queue_id for one in trio.run(read, threaded_broker, "Orders")}
    assert found == {b"0": 0, b"3": 3, b"9": 3}


def test_property_values_may_contain_equals_signs(invoke: Invoke, threaded_broker: str) -> None:
    assert invoke("send", "-t", "Orders", "x", "-H", "filter=a=1", "-n", threaded_broker).code == 0
    (message,) = trio.run(read, threaded_broker, "Orders")
    assert message.user_properties == {"filter": "a=1"}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--deliver-at", "tomorrow"], "'tomorrow' is none of 2026-01-31T08:00"),
        (["--deliver-at", "@-1"], "is none of 2026-01-31T08:00"),
        (["--deliver-at", "@1", "--delay", "1s"], "give --delay or --deliver-at, not both"),
        (["--priority", "-1"], "-1 is not in the range"),
        (["--priority", "1", "--sharding-key", "k"], "neither a sharding key nor a delay"),
        (["--priority", "1", "--delay", "1s"], "neither a sharding key nor a delay"),
        (["--half", "maybe"], "'maybe' is not one of"),
        (["--half", "commit", "--oneway"], "--half cannot be used with"),
        (["--half", "commit", "--delay", "1s"], "--half cannot be used with"),
        (["--half", "commit", "--priority", "1"], "--half cannot be used with"),
        (["--delay-relay", "Buffer"], "--delay-relay is for messages with --delay or --deliver-at"),
    ],
)
def test_usage_errors(invoke: Invoke, arguments: list[str], error: str) -> None:
    ended = invoke("send", "-t", "T", "x", *arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert error in line


def test_parse_future_time_with_and_without_an_offset() -> None:
    assert parse_future_time("@1700000000123") == 1_700_000_000_123
    assert parse_future_time("2023-11-14T22:13:20.5+00:00") == 1_700_000_000_500
    here = datetime.datetime(2030, 1, 31, 8)
    assert parse_future_time("2030-01-31T08:00") == here.timestamp() * 1000
