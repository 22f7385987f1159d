"""The asyncio and threads APIs have every method of the trio classes, with the same signature.

The tests list the differences exactly: a name that no longer differs fails them, too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import inspect
import pkgutil
import re
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from functools import cached_property
from typing import Any, get_type_hints

import pytest

import rocketmq_py
from rocketmq_py import aio, blocking
from rocketmq_py.admin.operations import Operations
from rocketmq_py.client.lifespan import Lifespan
from rocketmq_py.consumer.read import message_stream, pull_result_stream
from rocketmq_py.errors import ConfigurationError, OutsideEventLoopError, RocketMQError
from tests import api_docstrings
from tests.generate_apis import generate

APIS = {"aio": aio, "blocking": blocking}
STREAMS: dict[str, tuple[type[Any], ...]] = {
    "MessageStream": (message_stream.MessageStream, aio.reader.MessageStream, blocking.reader.MessageStream),
    "PullResultStream": (
        pull_result_stream.PullResultStream, aio.reader.PullResultStream, blocking.reader.PullResultStream
    ),
}  # fmt: skip
"""The streams of a Reader, of trio, asyncio and threads."""
KINDS: dict[str, tuple[type[Any], ...]] = {
    name: (getattr(rocketmq_py, name), getattr(aio, name), getattr(blocking, name)) for name in aio.__all__
} | STREAMS
"""The public classes that differ between the APIs, of trio, asyncio and threads."""
REQUIRED: dict[str, dict[str, Any]] = {
    "TransactionProducer": {"check": print},
    "LiteTopicConsumer": {"parent": "T"},
    "LiteTopicPushConsumer": {"parent": "T"},
}
"""Arguments without which an object cannot be made."""
CALL_HANDLERS = {"PushConsumer", "LiteTopicPushConsumer"}
PARTS = {name for name, value in vars(rocketmq_py.Admin).items() if isinstance(value, cached_property)}
"""The parts of an Admin. In the other APIs they are attributes of each instance."""


def test_generated_classes_are_current() -> None:
    for path, text in generate().items():
        assert path.read_text() == text, "run `make apis`"


@pytest.mark.parametrize("package", APIS)
def test_docstrings_have_each_replaced_phrase(package: str) -> None:
    texts = "".join(getattr(APIS[package], name).__doc__ for name in APIS[package].__all__)
    for phrase, replacement in api_docstrings.REPLACED[package].items():
        assert phrase not in " ".join(texts.split())
        assert replacement in " ".join(texts.split())


@pytest.mark.parametrize("kind", [rocketmq_py.PendingSend, rocketmq_py.PendingReply])
def test_handles_of_sends_have_the_methods_of_futures(kind: type[Any]) -> None:
    only_in_trio = {"wait"} | ({"sent", "correlation_id"} if kind is rocketmq_py.PendingReply else set())
    assert public(kind).keys() >= only_in_trio
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


@pytest.mark.parametrize("package", sorted(APIS))
def test_methods_describe_their_arguments_and_errors_in_each_api(package: str) -> None:
    lacking = set()
    for name, (inside, *outside) in KINDS.items():
        kind = outside[sorted(APIS).index(package)]
        for method, described in public(inside).items():
            sections = set(re.findall(r"^ *(Args|Raises):$", described.__doc__ or "", re.MULTILINE))
            text = getattr(kind, method, described).__doc__ or ""
            lacking |= {f"{name}.{method} {section}" for section in sections if f"{section}:" not in text}
    assert lacking == set()


def public(kind: type[Any]) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in found if one.name != "self"]


def differences(inside: type[Any], outside: type[Any]) -> dict[str, set[str]]:
    """Return the names of the public members that only one class has, or that are called differently."""
    trio, other = public(inside), public(outside)
    shared = trio.keys() & other.keys()
    methods = {name for name in shared if inspect.isfunction(trio[name])}
    assert all(inspect.isfunction(other[name]) for name in methods)
    assert all(isinstance(other[name], type(trio[name])) for name in shared - methods)
    return {
        "missing": trio.keys() - shared - PARTS,
        "added": other.keys() - shared,
        "called differently": {name for name in methods if parameters(trio[name]) != parameters(other[name])},
    }


def test_each_class_that_is_opened_is_compared() -> None:
    assert aio.__all__ == blocking.__all__
    exported = [getattr(rocketmq_py, name) for name in dir(rocketmq_py)]
    opened = {kind.__name__ for kind in exported if inspect.isclass(kind) and issubclass(kind, Lifespan)}
    assert opened == set(aio.__all__)
    assert opened > CALL_HANDLERS


@pytest.mark.parametrize("name", KINDS)
def test_classes_of_asyncio_have_the_members_of_the_trio_ones(name: str) -> None:
    inside, outside, _ = KINDS[name]
    assert differences(inside, outside) == {
        "missing": {"next_batch"} if name in STREAMS else set(),  # asyncio's fetch batches themselves
        "added": set(),
        "called differently": {"start"},  # without a nursery
    }


@pytest.mark.parametrize("name", KINDS)
def test_classes_of_threads_have_the_members_of_the_trio_ones(name: str) -> None:
    """Their objects are open when they are made, and are closed with ``close``."""
    inside, _, outside = KINDS[name]
    opening = set() if name in CALL_HANDLERS else {"start"}
    assert differences(inside, outside) == {
        "missing": {"aclose"} | opening | ({"next_batch"} if name in STREAMS else set()),
        "added": {"close"},
        "called differently": {"start"} - opening,  # starts a thread that calls ``run``
    }


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", KINDS)
def test_methods_are_documented_and_awaited_alike(name: str, api: str) -> None:
    inside, *others = map(public, KINDS[name])
    outside = others[list(APIS).index(api)]
    methods = {method for method in inside.keys() & outside.keys() if inspect.isfunction(inside[method])}
    for method in methods:
        assert outside[method].__doc__, method
        is_async = inspect.iscoroutinefunction(inside[method]) and api == "aio"
        assert inspect.iscoroutinefunction(outside[method]) == is_async, method


@pytest.mark.parametrize("name", aio.__all__)
def test_constructors_have_the_same_arguments_and_refuse_unknown_ones_alike(name: str) -> None:
    inside, *others = KINDS[name]
    texts = set()
    for kind in KINDS[name]:
        with pytest.raises(ConfigurationError, match="there is no setting 'request_timeuot'") as caught:
            kind("127.0.0.1:1", request_timeuot=1, **REQUIRED.get(name, {}))
        texts.add(str(caught.value))
    assert len(texts) == 1, texts
    for outside in others:
        assert str(parameters(outside)) == str(parameters(inside)), "also the shown defaults"


@pytest.mark.parametrize(
    ("api", "manager"), [(aio, AbstractAsyncContextManager), (blocking, AbstractContextManager)]
)
def test_all_apis_have_the_same_transactions(api: Any, manager: Any) -> None:
    returned = get_type_hints(api.TransactionProducer.transaction)["return"]
    assert returned == manager[rocketmq_py.Transaction]


def test_all_apis_raise_the_same_errors() -> None:
    """No API has errors of its own: those of the others would not catch them."""
    # Packages whose extra is not installed raise a ConfigurationError.
    for module in pkgutil.walk_packages(rocketmq_py.__path__, "rocketmq_py.", onerror=lambda _: None):
        if module.name.split(".")[1] in {"aio", "blocking", "handoff"}:
            importlib.import_module(module.name)
    errors, unseen = set[type[BaseException]](), [RocketMQError]
    while unseen:
        errors.add(error := unseen.pop())
        unseen += error.__subclasses__()
    modules = {error.__module__ for error in errors}
    rooms = {module.split(".")[1] for module in modules if module.startswith("rocketmq_py.")}
    assert "errors" in rooms
    assert not rooms & {"aio", "blocking", "handoff"}


@pytest.mark.parametrize("api", ["aio", "blocking"])
@pytest.mark.parametrize("part", sorted(PARTS))
def test_each_part_of_an_admin_has_the_methods_of_the_trio_one(part: str, api: str) -> None:
    value = getattr(rocketmq_py.Admin(), part)
    assert isinstance(value, Operations)
    kind = type(value)
    inside = public(kind)
    outside = public(getattr(importlib.import_module(f"rocketmq_py.{api}.client"), kind.__name__))
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
