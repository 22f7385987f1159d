"""Usage errors of ``acl``. Its changes are tested on brokers with access control, in integration/."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rocketmq_py.broker import EmbeddedBroker
from tests.cli.conftest import Invoke, RunInThread


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["acl", "allow", "alice", "Topic:T"], "Missing argument"),
        (["acl", "allow", "alice", "Topic:T", "paint"], "'paint' is not one of"),
        (["acl", "delete", "alice"], "confirm with --yes"),
        (["acl", "user", "create", "alice"], "give --password"),
        (["acl", "user", "create", "alice", "--password", "@/no/such/file"], "cannot read /no/such/file"),
        (["acl", "user", "alter", "alice"], "nothing to change"),
        (["acl", "user", "delete", "alice"], "confirm with --yes"),
        (["acl", "user", "delete", " "], "is a variable of the shell not set"),
    ],
)
def test_usage_errors(invoke: Invoke, arguments: list[str], error: str) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert error in line


def test_a_broker_without_access_control_is_named(invoke: Invoke, threaded_broker: str) -> None:
    ended = invoke("acl", "user", "list", "-n", threaded_broker)
    assert ended.code == 1
    assert "keeps no users and rules: its access control is off. Set authenticationEnabled" in ended.err


def test_users_and_rules_can_be_created_repeatedly(invoke: Invoke, run_in_thread: RunInThread) -> None:
    @asynccontextmanager
    async def opened() -> AsyncIterator[str]:
        async with EmbeddedBroker(access_keys={"root": "secret"}) as broker:
            yield broker.name_server_address

    at = ("-n", run_in_thread(opened), "--access-key", "root", "--secret-key", "secret")
    create = ("acl", "user", "create", "alice", "--password", "hunter2", "--if-not-exists", *at)
    allow = ("acl", "allow", "alice", "Topic:T", "Pub", "--if-not-exists", *at)
    for command, first, second in (
        (create, "user alice: created on broker-a", "user alice: exists already with these settings"),
        (
            allow,
            "user alice: Topic:T allowed on broker-a",
            "rule alice on Topic:T: exists already with these",
        ),
    ):
        for text in (first, second):
            ended = invoke(*command)
            assert (ended.code, ended.err) == (0, "")
            assert ended.out.decode().startswith(text)
    for arguments, error in (
        (create[:-7] + at, "user 'alice' exists already on broker-a"),
        (("acl", "user", "delete", "nouser", "--yes", *at), "user 'nouser' does not exist (asked broker-a)"),
        (
            ("acl", "delete", "alice", "Topic:nope", "--yes", *at),
            "rule 'alice on Topic:nope' does not exist (asked broker-a)",
        ),
    ):
        ended = invoke(*arguments)
        assert (ended.code, ended.out, ended.err) == (1, b"", f"rocketmq-py: {error}\n")
    other = invoke(*allow, "--from", "127.0.0.1")
    assert (other.code, other.out) == (1, b"")
    assert "other settings: source_ips is empty, not 127.0.0.1" in other.err


@pytest.mark.parametrize("resource", ["Orders", "Queue:x", "Topic:"])
def test_an_invalid_resource_is_rejected(invoke: Invoke, threaded_broker: str, resource: str) -> None:
    ended = invoke("acl", "allow", "alice", resource, "pub", "-n", threaded_broker)
    assert (ended.code, ended.out) == (1, b"")
    assert ended.err.startswith(f"rocketmq-py: resource is {resource!r}; it must be Topic:NAME")
