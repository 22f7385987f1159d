"""Missing clusters, brokers, topics and groups are one line and exit code 1 in every command."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_py.cli import send_loop
from tests.cli.conftest import Invoke

COMMANDS = [
    "acl list", "acl user list", "acl version", "acl user delete u --yes", "broker list", "broker describe b",
    "broker config b", "broker wipe-write-permission b", "broker add-write-permission b",
    "client list", "client describe c", "dlq list g", "dlq resend g --all --yes",
    "group list", "group describe g", "group create g", "group alter g --max-reconsume-times 1",
    "group delete g --yes",
    "group reset g --to latest --yes", "group clone g h --yes", "message find T k",
    "message get 7F000001007B18B4AAC2000000000000 -t T", "topic list", "topic describe T", "topic create T",
    "topic alter T --queues 1", "topic delete T --yes", "top", "bench produce -t T", "bench consume -t T",
    "send -t T x", "tail -t T --to f", "check lag g",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_report_that_no_name_server_answers(
    invoke: Invoke,
    unused_address: str,
    command: str,
    default_timeouts: Callable[[float], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    default_timeouts(0.2)
    monkeypatch.setattr(send_loop, "SEND_TIMEOUT", 0.2)
    ended = invoke(*command.split(), "-n", unused_address)
    printed = (ended.out if command.startswith("check") else ended.err.encode()).decode()
    assert ended.code == (3 if command.startswith("check") else 1)
    assert "no name server answered" in printed
    assert unused_address in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("broker describe missing", "missing"),
        ("broker config missing", "missing"),
        ("broker wipe-write-permission missing", "missing"),
        ("topic create T --broker missing", "missing"),
        ("topic create T --cluster nowhere", "cluster 'nowhere' does not exist"),
        ("topic describe Nope", "topic 'Nope' does not exist"),
        ("topic alter Nope --queues 2", "topic 'Nope' does not exist"),
        ("topic delete Nope --yes", "topic 'Nope' does not exist"),
        ("topic delete TBW102 --yes", "internal to RocketMQ"),
        ("group describe missing", "group 'missing' does not exist"),
        ("group alter missing --max-reconsume-times 1", "group 'missing' does not exist"),
        ("group delete missing --yes", "group 'missing' does not exist"),
        ("group create g --broker missing", "missing"),
        ("message find Nope k", "topic 'Nope' does not exist"),
        ("tail -t Nope --to f -e", "topic 'Nope' does not exist"),
        ("tail -t Nope --to f -G g", "topic 'Nope' does not exist"),
        ("bench consume -t Nope", "topic 'Nope' does not exist"),
    ],
)
def test_commands_report_missing_resources(
    invoke: Invoke, threaded_broker: str, command: str, error: str
) -> None:
    ended = invoke(*command.split(), "-n", threaded_broker)
    assert (ended.code, ended.out) == (1, b"")
    (line,) = ended.err.splitlines()
    assert line.startswith("rocketmq-py: ")
    assert error in line
