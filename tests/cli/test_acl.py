"""Wrong command lines of ``acl``; what it does is tried on brokers that check access (integration/)."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Invoke


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["acl", "allow", "alice", "Topic:T"], "Missing argument"),
        (["acl", "allow", "alice", "Topic:T", "paint"], "'paint' is not one of"),
        (["acl", "remove", "alice"], "needs --yes"),
        (["acl", "user", "create", "alice"], "needs --password"),
        (["acl", "user", "create", "alice", "--password", "@/no/such/file"], "cannot read /no/such/file"),
        (["acl", "user", "alter", "alice"], "nothing to change"),
        (["acl", "user", "delete", "alice"], "needs --yes"),
        (["acl", "user", "delete", " "], "is a variable of the shell not set"),
    ],
)
def test_a_wrong_command_line(invoke: Invoke, arguments: list[str], words: str) -> None:
    ended = invoke(*arguments)
    assert (ended.code, ended.out) == (2, b"")
    (line,) = ended.err.splitlines()
    assert words in line


@pytest.mark.parametrize("resource", ["Orders", "Queue:x", "Topic:"])
def test_what_is_no_resource_is_refused(invoke: Invoke, broker_aside: str, resource: str) -> None:
    ended = invoke("acl", "allow", "alice", resource, "pub", "-n", broker_aside)
    assert (ended.code, ended.out) == (1, b"")
    assert ended.err.startswith(f"rocketmq-py: {resource!r} is no resource such as Topic:NAME")
