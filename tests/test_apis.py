"""The asyncio and threads APIs have every method of the trio classes, with the same signature."""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import inspect
from contextlib import suppress
from functools import cached_property
from typing import Any

import pytest

import rocketmq_py
from rocketmq_py import aio, blocking
from rocketmq_py.admin.operations import Operations
from rocketmq_py.errors import ConfigurationError, OutsideEventLoopError
from tests.generate_apis import WRAPPERS, generate, path_of

DIFFERENT = {
    # Methods for nurseries and for subclasses.
    "nursery", "close_timeout", "client", "is_open", "start", "aclose",
    # The result or the callback differs.
    "submit", "submit_request", "lite_pull_consumer",
}  # fmt: skip
WAITS_ELSEWHERE = {"open", "range", "pull", "transaction", "holding"}
"""Methods with the same parameters that are awaited at another place."""
NAMES = [
    "Client", "Producer", "TransactionProducer",
    "PushConsumer", "LitePullConsumer", "PopConsumer", "Reader", "Admin",
]  # fmt: skip


PARTS = {name for name, value in vars(rocketmq_py.Admin).items() if isinstance(value, cached_property)}
"""The parts of an Admin. In the other APIs they are attributes of each instance."""


@pytest.mark.parametrize("package", sorted(WRAPPERS))
def test_forwarding_methods_are_current(package: str) -> None:
    assert path_of(package).read_text() == generate(package), "run `make apis`"


@pytest.mark.parametrize("kind", [rocketmq_py.PendingSend, rocketmq_py.PendingReply])
def test_handles_of_sends_have_the_methods_of_futures(kind: type[Any]) -> None:
    only_in_trio = {"wait", "sent", "correlation_id"}
    methods = public(kind).keys() - only_in_trio
    assert methods == {"add_done_callback", "cancelled", "done", "exception", "result"}
    for future in (asyncio.Future, concurrent.futures.Future):
        for name in methods:
            ours = [one.default for one in inspect.signature(getattr(kind, name)).parameters.values()]
            with suppress(ValueError):  # asyncio's are written in C
                theirs = [one.default for one in inspect.signature(getattr(future, name)).parameters.values()]
                assert theirs[: len(ours)] == ours
                assert all(one is not inspect.Parameter.empty for one in theirs[len(ours) :])
            assert callable(getattr(future, name))


def public(kind: type[Any]) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found if one.name != "self"]


@pytest.mark.parametrize("api", [aio, blocking], ids=["aio", "blocking"])
@pytest.mark.parametrize("name", NAMES)
def test_every_method_exists(name: str, api: Any) -> None:
    missing = public(getattr(rocketmq_py, name)).keys() - public(getattr(api, name)).keys() - PARTS
    only_inside = {
        "client",
        "nursery",
        "close_timeout",
    }
    # A blocking object is open when it is made, and a stream has `close`.
    only_async = {"start", "aclose"} if api is blocking else set()
    assert missing <= only_inside | only_async


@pytest.mark.parametrize("api", [aio, blocking], ids=["aio", "blocking"])
@pytest.mark.parametrize("name", NAMES)
def test_signatures_and_docstrings(name: str, api: Any) -> None:
    inside, outside = public(getattr(rocketmq_py, name)), public(getattr(api, name))
    for method in (inside.keys() & outside.keys()) - DIFFERENT:
        if not inspect.isfunction(inside[method]):
            continue
        assert parameters(outside[method]) == parameters(inside[method]), method
        if method in WAITS_ELSEWHERE:
            continue
        is_async = inspect.iscoroutinefunction(inside[method]) and api is aio
        assert inspect.iscoroutinefunction(outside[method]) == is_async, method
        assert outside[method].__doc__, method


@pytest.mark.parametrize("api", ["aio", "blocking"])
@pytest.mark.parametrize("part", sorted(PARTS))
def test_each_part_of_an_admin_has_the_methods_of_the_trio_one(part: str, api: str) -> None:
    value = getattr(rocketmq_py.Admin(), part)
    assert isinstance(value, Operations)
    kind = type(value)
    inside = public(kind)
    outside = public(getattr(importlib.import_module(f"rocketmq_py.{api}.generated_methods"), kind.__name__))
    assert outside.keys() == inside.keys()
    for method in inside:
        assert parameters(outside[method]) == parameters(inside[method]), method
        assert inspect.iscoroutinefunction(outside[method]) == (api == "aio"), method
        assert outside[method].__doc__, method


@pytest.mark.parametrize("api", [aio, blocking], ids=["aio", "blocking"])
def test_an_admin_has_all_parts(api: Any) -> None:
    opened = api.Admin()
    assert vars(opened).keys() >= PARTS > {"topics"}
    if api is blocking:
        opened.close()


async def test_the_wrong_class_on_trio_raises_an_error_that_names_the_right_one() -> None:
    with pytest.raises(OutsideEventLoopError, match="programs on trio use rocketmq_py, others"):
        async with aio.Producer("127.0.0.1:1", group="g"):
            pytest.fail("not reached")
    with pytest.raises(
        TypeError, match=r"use 'with Client\(...\)'; for 'async with' there is rocketmq_py.aio"
    ):
        async with blocking.Client("127.0.0.1:1"):  # type: ignore[attr-defined]
            pytest.fail("not reached")


@pytest.mark.parametrize("package", [rocketmq_py, aio])
def test_with_instead_of_async_with_raises_an_error(package: Any) -> None:
    producer = package.Producer("127.0.0.1:1", group="g")
    with pytest.raises(TypeError, match=r"use 'async with Producer\(...\)', or rocketmq_py"), producer:
        pytest.fail("not reached")


@pytest.mark.parametrize("package", [aio, blocking])
def test_the_client_of_another_api_is_refused(package: Any) -> None:
    client = package.Client("127.0.0.1:1")
    try:
        with pytest.raises(
            ConfigurationError, match=rf"an open rocketmq_py\.Client, not Client of {package.__name__}"
        ):
            rocketmq_py.Producer(client, group="g")
    finally:
        if package is blocking:
            client.close()
