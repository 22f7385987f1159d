"""Every door has what the trio classes have: nothing is forgotten, and signatures are the same."""

from __future__ import annotations

import importlib
import inspect
from functools import cached_property
from typing import Any

import pytest

import rocketmq_py
from rocketmq_py import aio, blocking, client
from rocketmq_py.admin.part import Part
from rocketmq_py.errors import ConfigurationError, OutsideAsyncioError

DIFFERENT = {
    # What the trio classes have for nurseries and for who builds on them.
    "nursery", "close_timeout", "client", "is_open", "start", "aclose", "producer",
    # Written by hand at the door, as the result or the callback differs.
    "submit", "submit_request", "lite_pull_consumer",
}  # fmt: skip
WAITS_ELSEWHERE = {"open", "range", "pull", "transaction"}
"""Of these the parameters are the same, but what is awaited is another."""
CLIENT_INSIDE = set(dir(client.Client))
"""What a client has for the other rooms, not for users; but for hooks."""
NAMES = [
    "Client", "Producer", "BatchingProducer", "TransactionProducer",
    "PushConsumer", "LitePullConsumer", "PopConsumer", "Reader", "Admin",
]  # fmt: skip
NOT_THERE = {
    "Client": CLIENT_INSIDE - {"add_rpc_hook"},
    "LitePullConsumer": {"is_leaving"},
    "PushConsumer": {"leave_threads"},
}


PARTS = {name for name, value in vars(rocketmq_py.Admin).items() if isinstance(value, cached_property)}
"""Of an Admin; a door's are attributes of each."""


def public(kind: type[Any]) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found if one.name != "self"]


@pytest.mark.parametrize("door", [aio, blocking], ids=["aio", "blocking"])
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_forgotten(name: str, door: Any) -> None:
    missing = public(getattr(rocketmq_py, name)).keys() - public(getattr(door, name)).keys() - PARTS
    only_inside = {
        "begin",
        "begin_batch",
        "begin_outside",
        "begin_soon",
        "client",
        "nursery",
        "close_timeout",
        "producer",
        "send_encoded",
        *NOT_THERE.get(name, ()),
    }
    # A blocking object is open when it is made, and a stream has `close`.
    only_async = {"start", "aclose"} if door is blocking else set()
    assert missing <= only_inside | only_async


@pytest.mark.parametrize("door", [aio, blocking], ids=["aio", "blocking"])
@pytest.mark.parametrize("name", NAMES)
def test_signatures_and_docstrings(name: str, door: Any) -> None:
    inside, outside = public(getattr(rocketmq_py, name)), public(getattr(door, name))
    for method in (inside.keys() & outside.keys()) - DIFFERENT:
        if not inspect.isfunction(inside[method]):
            continue
        assert parameters(outside[method]) == parameters(inside[method]), method
        if method in WAITS_ELSEWHERE:
            continue
        is_async = inspect.iscoroutinefunction(inside[method]) and door is aio
        assert inspect.iscoroutinefunction(outside[method]) == is_async, method
        assert outside[method].__doc__, method


@pytest.mark.parametrize("door", ["aio", "blocking"])
@pytest.mark.parametrize("part", sorted(PARTS))
def test_each_part_of_an_admin_has_the_methods_of_the_trio_one(part: str, door: str) -> None:
    value = getattr(rocketmq_py.Admin(), part)
    assert isinstance(value, Part)
    kind = type(value)
    inside = public(kind)
    outside = public(getattr(importlib.import_module(f"rocketmq_py.{door}.admin"), kind.__name__))
    assert outside.keys() == inside.keys()
    for method in inside:
        assert parameters(outside[method]) == parameters(inside[method]), method
        assert inspect.iscoroutinefunction(outside[method]) == (door == "aio"), method
        assert outside[method].__doc__, method


@pytest.mark.parametrize("door", [aio, blocking], ids=["aio", "blocking"])
def test_an_admin_has_all_parts(door: Any) -> None:
    opened = door.Admin()
    assert vars(opened).keys() >= PARTS > {"topics"}
    if door is blocking:
        opened.close()


async def test_who_takes_the_wrong_class_on_trio_is_told() -> None:
    with pytest.raises(OutsideAsyncioError, match="programs on trio use rocketmq_py, others"):
        async with aio.Producer("127.0.0.1:1", group="g"):
            pytest.fail("not reached")
    with pytest.raises(
        TypeError, match=r"use 'with Client\(...\)'; for 'async with' there is rocketmq_py.aio"
    ):
        async with blocking.Client("127.0.0.1:1"):  # type: ignore[attr-defined]
            pytest.fail("not reached")


@pytest.mark.parametrize("package", [rocketmq_py, aio])
def test_who_forgets_async_is_told(package: Any) -> None:
    producer = package.Producer("127.0.0.1:1", group="g")
    with pytest.raises(TypeError, match=r"use 'async with Producer\(...\)'; for 'with'"), producer:
        pytest.fail("not reached")


@pytest.mark.parametrize("package", [aio, blocking])
def test_another_doors_client_is_refused(package: Any) -> None:
    client = package.Client("127.0.0.1:1")
    try:
        with pytest.raises(
            ConfigurationError, match=rf"an open rocketmq_py\.Client, not Client of {package.__name__}"
        ):
            rocketmq_py.Producer(client, group="g")
    finally:
        if package is blocking:
            client.close()
