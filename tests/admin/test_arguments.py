"""Every method of Admin rejects an argument of a wrong type, in one sentence and before any request."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

import pytest

from rocketmq_py import Admin
from rocketmq_py.admin import DeadLetter
from rocketmq_py.broker import EmbeddedBroker
from rocketmq_py.errors import ConfigurationError
from tests.consumer.received import QUEUE, received

MESSAGE = received(0)
RESOURCES = sorted(name for name, value in vars(Admin).items() if isinstance(value, cached_property))
"""The attributes of Admin that hold its operations."""
VALID: dict[str, Any] = {
    "topic": "T",
    "group": "g",
    "source": "g",
    "target": "g",
    "to": "earliest",
    "message_id": "7F00000100002A9F0000000000000000",
    "key": "k",
    "queue": QUEUE,
    "offset": 0,
    "message": MESSAGE,
    "client_id": "c",
    "parent": "T",
    "lite_topic": "session-42",
    "letters": [DeadLetter(MESSAGE)],
    "broker": "broker-a",
    "settings": {"a": "b"},
    "name": "alice",
    "secret": "12345678",
    "user": "alice",
    "resource": "Topic:T",
    "actions": ["Pub"],
}
"""A valid value for each required parameter."""


def wrong_values(annotation: str) -> Iterator[Any]:
    """Yield values that do not match an annotation."""
    yield object()
    if "None" not in annotation:
        yield None
    if "Iterable" in annotation:
        yield from ("text", 5, [5], [None])
    elif "Mapping" in annotation:
        yield from ("text", ["text"], {"a": 5}, {5: "a"})
    elif "str" in annotation:
        yield from (5, b"text", ["text"])
    elif "int" in annotation:
        yield from ("5", 1.5, True)
    elif "bool" in annotation:
        yield from ("yes", 1)
    else:
        yield from ("text", 5)


def methods() -> Iterator[tuple[str, str]]:
    for resource in RESOURCES:
        for name, value in vars(type(getattr(Admin(), resource))).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                yield resource, name


@pytest.mark.parametrize(("resource", "method"), [*methods()])
async def test_methods_reject_a_wrong_type_before_any_request(
    resource: str, method: str, jumping_clock: object
) -> None:
    requests: list[int] = []
    async with (
        EmbeddedBroker(on_request=lambda code, _, __: requests.append(code)) as broker,
        Admin(broker.name_server_address) as admin,
    ):
        call = getattr(getattr(admin, resource), method)
        parameters = inspect.signature(call).parameters
        valid = {name: VALID[name] for name, one in parameters.items() if one.default is one.empty}
        for name, parameter in parameters.items():
            for wrong in wrong_values(parameter.annotation):
                with pytest.raises(ConfigurationError) as caught:
                    await call(**{**valid, name: wrong})
                assert name in str(caught.value)
                assert "\n" not in str(caught.value)
    assert not requests


Call: TypeAlias = Callable[[Any], Awaitable[object]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda admin: admin.topics.alter("T", permission="x"),
            "permission is 'x'; it must be one of 'RW', 'R', 'W', '-'",
        ),
        (
            lambda admin: admin.topics.alter("T", permission=6),
            "permission must be a Permission or a str, not int",
        ),
        (lambda admin: admin.topics.create("T", queues="8"), "queues is '8'; it must be a whole number"),
        (lambda admin: admin.topics.create("T", order=1), "order must be a bool, not int"),
        (
            lambda admin: admin.topics.create("T", brokers="broker-a"),
            "brokers must be a list of str, not str",
        ),
        (
            lambda admin: admin.topics.create("T", attributes={"reserve.time": 5}),
            "attributes['reserve.time'] must be a str, not int",
        ),
        (
            lambda admin: admin.offsets.reset("g", "T", "beginning"),
            "to is 'beginning'; it must be 'earliest', 'latest', Position.time(...), Position.offset(...), "
            "Position.last(...) or a mapping of MessageQueue to int",
        ),
        (lambda admin: admin.messages.find("T", None), "key must be a str, not None"),
        (lambda admin: admin.messages.find("T", " "), "key is empty"),
        (
            lambda admin: admin.messages.find("T", "k", max_messages=0),
            "max_messages is 0; it must be 1 or more",
        ),
        (lambda admin: admin.access.create_user("alice", 12345678), "secret must be a str, not int"),
        (lambda admin: admin.offsets.clone(None, "g"), "source must be a str, not None"),
    ],
)
async def test_the_error_names_the_argument_and_the_expected_type(call: Call, error: str) -> None:
    async with Admin("127.0.0.1:1") as admin:
        with pytest.raises(ConfigurationError) as caught:
            await call(admin)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        (
            [5],
            "to must be 'earliest', 'latest', Position.time(...), Position.offset(...), Position.last(...) "
            "or a mapping of MessageQueue to int, not list",
        ),
        ({"T": 5}, "a queue in to must be a MessageQueue, not str"),
        ({QUEUE: -1}, f"to[{QUEUE}] is -1; it must be 0 or more"),
    ],
)
async def test_a_reset_rejects_offsets_of_a_wrong_type(offsets: Any, error: str) -> None:
    async with Admin("127.0.0.1:1") as admin:
        with pytest.raises(ConfigurationError) as caught:
            await admin.offsets.reset("g", "T", offsets)
    assert str(caught.value) == error
