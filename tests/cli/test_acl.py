"""Usage errors of ``acl``. Its changes are tested on brokers with access control, in integration/."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Invoke


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["acl", "allow", "alice", "Topic:T"], "Missing argument"),
        (["acl", "allow", "alice", "Topic:T", "paint"], "'paint' is not one of"),
        (["acl", "remove", "alice"], "confirm with --yes"),
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


@pytest.mark.parametrize("resource", ["Orders", "Queue:x", "Topic:"])
def test_an_invalid_resource_is_rejected(invoke: Invoke, threaded_broker: str, resource: str) -> None:
    ended = invoke("acl", "allow", "alice", resource, "pub", "-n", threaded_broker)
    assert (ended.code, ended.out) == (1, b"")
    assert ended.err.startswith(f"rocketmq-py: resource is {resource!r}; it must be Topic:NAME")
